"""``vaka init``: write ``vaka.toml`` and the file of an agent, after three questions."""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import click
import msgspec

from vaka.cli.build_agent import LOCAL_MODEL
from vaka.cli.commands.login import SUGGESTED_MODELS, provider_of_model
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, has_terminal, model_options, settings_from_flags
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import as_printable
from vaka.cli.strings import mark_translatable, translate
from vaka.config.documents import replace_file, set_toml_key
from vaka.config.setting_keys import PROJECT_FILE, PYPROJECT, parse_settings_text, read_settings_file
from vaka.config.settings import Settings, trust_root_of
from vaka.core.types.errors import AuthenticationFailed, ConfigError
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.runtime.stored_keys import find_key

AGENT_FILE = "agent.py"
DEFAULT_PURPOSE = "Help with the files of this project."
MODES = {
    "default": mark_translatable("read files; ask before it changes files or runs commands"),
    "acceptEdits": mark_translatable("also change files without asking; ask before it runs commands"),
    "plan": mark_translatable("only read, and make plans"),
}
"""The permission modes that are offered, and what the agent may do in each."""
_READING_TOOLS = ("Read", "Glob", "Grep")
_CHANGING_TOOLS = ("Edit", "Write", "Bash", "TodoWrite")

_AGENT_TEMPLATE = '''"""The agent of this project.

vaka chat --agent {file}         converses with it
vaka run "Hello." --agent {file} runs one turn
"""

import vaka

agent = vaka.Agent(
    {name},
    instructions={instructions},
    # Built-in tools by name; functions with @vaka.tool can be added.
    tools={tools},
)
'''


class AgentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to the questions."""

    model: str
    mode: str
    name: str
    purpose: str


@click.command(
    epilog=options.format_examples(
        "vaka init", "vaka init --yes", 'vaka init --model local --name guide --purpose "Explain this code."'
    )
)
@options.flag_of("model")
@click.option("--permission-mode", "mode", type=click.Choice([*MODES]), help="What happens to calls without a rule.")
@click.option("--name", metavar="NAME", help="The name of the agent.")
@click.option("--purpose", metavar="TEXT", help="What the agent is for: its instructions.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take the defaults of what is not given.")
@click.option("--force", is_flag=True, help="Replace files that exist, without asking.")
@options.store_options
def init(yes: bool, force: bool, **flags: Any) -> None:
    """Write vaka.toml and an agent file into this folder.

    Asks for the model, what the agent may do, and its name and purpose. Files that exist are shown as a diff and
    changed only if you agree.
    """
    given = {name: flags.pop(name) for name in ("model", "mode", "name", "purpose")}
    settings = settings_from_flags(flags)
    asks = has_terminal() and not yes
    if not asks and not yes and None in given.values():
        missing = ", ".join(f"--{'permission-mode' if name == 'mode' else name}" for name in given if not given[name])
        raise UsageError(f"there is no terminal to ask; give {missing}, or --yes for the defaults")
    plan = _make_plan(given, settings, asks=asks)
    key_problem = _check_model(plan.model, settings)
    files = {Path(PROJECT_FILE): _settings_text(plan), Path(AGENT_FILE): _agent_text(plan)}
    for file in _write_files(files, asks=asks, force=force):
        click.echo(translate("wrote {file}", file=str(file)))
    click.echo("\n".join(_next_steps(plan, key_problem)))


def _make_plan(given: dict[str, str | None], settings: Settings, *, asks: bool) -> AgentPlan:
    """Return the plan of what was given; ask for the rest, or take the defaults."""
    model, mode = given["model"] or _default_model(settings), given["mode"] or "default"
    name, purpose = given["name"] or _default_name(), given["purpose"] or DEFAULT_PURPOSE
    if asks and given["model"] is None:
        click.echo(translate("Which model? `vaka models list` shows what there is."), err=True)
        model = click.prompt(translate("model"), default=model, err=True).strip()
        _check_model(model, settings)  # before the other questions
    if asks and given["mode"] is None:
        mode = _ask_mode()
    if asks and (given["name"] is None or given["purpose"] is None):
        click.echo(
            translate("What is the agent for? Write NAME: PURPOSE, such as `guide: Explain this code.`"), err=True
        )
        answer = click.prompt(translate("agent"), default=f"{name}: {purpose}", err=True)
        name, purpose = _parse_name(answer, name)
    if not re.fullmatch(r"[A-Za-z][\w-]{0,63}", name):
        raise UsageError(f"--name {name!r}: expected a letter, then letters, digits, _ or -")
    return AgentPlan(model=model, mode=mode, name=name, purpose=purpose)


def _ask_mode() -> str:
    click.echo(translate("What may the agent do?"), err=True)
    modes = list(MODES)
    for number, mode in enumerate(modes, start=1):
        click.echo(f"  {number}  {mode:12} {translate(MODES[mode])}", err=True)
    number = click.prompt(translate("number"), type=click.IntRange(1, len(modes)), default=1, err=True)
    return modes[number - 1]


def _parse_name(answer: str, default: str) -> tuple[str, str]:
    """Return the name and the purpose of ``NAME: PURPOSE``; a text without a name is the purpose."""
    name, colon, purpose = answer.strip().partition(":")
    if not colon or not re.fullmatch(r"[\w-]+", name.strip()):
        return default, answer.strip() or DEFAULT_PURPOSE
    return name.strip(), purpose.strip() or DEFAULT_PURPOSE


def _default_model(settings: Settings) -> str:
    """Return the model of the settings, else the first with a key, else the local model."""
    from vaka.runtime.stored_keys import key_environment

    environ = key_environment()
    for model in () if settings["model"] else SUGGESTED_MODELS.values():
        provider = provider_of_model(model)
        if provider is not None and find_key(environ, provider.variables) is not None:
            return model
    return settings["model"] or LOCAL_MODEL


def _default_name() -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", trust_root_of(Path.cwd()).name).strip("-")[:64]
    return name if re.match(r"[A-Za-z]", name) else "helper"


def _check_model(model: str, settings: Settings) -> str:
    """Return what the key of a model lacks, ``""`` for nothing. Raises ``ConfigError`` for an unknown model."""
    from vaka.models.local.model import missing_install_command

    if model == LOCAL_MODEL and missing_install_command():
        return ""  # it is installed by the first of the next steps
    registry = ModelRegistry(Options(**model_options(settings, quiet=True)).build_model_config())
    try:
        registry.find(model)
    except AuthenticationFailed as error:
        return str(error)
    finally:
        run_loop(registry.close())
    return ""


def _settings_text(plan: AgentPlan) -> str:
    """Return the text of ``vaka.toml``: the present one with the settings of the plan."""
    path = Path(PROJECT_FILE)
    above = Path(PYPROJECT)
    if not path.exists() and above.is_file() and config_context().project_file == above.absolute():
        raise ConfigError(f"{above} has [tool.vaka], which {path} would replace; set model and permission_mode there")
    text = ""
    if path.exists():
        read_settings_file(path)
        text = path.read_bytes().decode("utf-8-sig")
    for key, value in (("model", plan.model), ("permission_mode", plan.mode)):
        try:
            text = set_toml_key(text, key, value)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
    parse_settings_text(path, text)
    return text


def _agent_text(plan: AgentPlan) -> str:
    tools: tuple[str, ...] = () if plan.model.partition("/")[0] == LOCAL_MODEL else _READING_TOOLS
    if tools and plan.mode != "plan":
        tools = (*tools, *_CHANGING_TOOLS)
    return _AGENT_TEMPLATE.format(
        file=AGENT_FILE,
        name=json.dumps(plan.name),
        tools=json.dumps(tools),
        instructions=json.dumps(plan.purpose, ensure_ascii=False),
    )


def _write_files(files: dict[Path, str], *, asks: bool, force: bool) -> list[Path]:
    """Write files and return the changed files; replace an existing file only if the user agrees."""
    present = {file: _read_text(file) for file in files}
    changed = [file for file, text in files.items() if present[file] != text]
    existing = [str(file) for file in changed if present[file] is not None]
    if existing and not (asks or force):
        _print_diffs(files, present, changed)
        raise ConfigError(f"{', '.join(existing)} would change; nothing is written; --force replaces what is there")
    written: list[Path] = []
    for file in changed:
        if present[file] is not None and not force:
            _print_diffs(files, present, [file])
            if not click.confirm(translate("Change {file}?", file=str(file)), default=False, err=True):
                continue
        try:
            replace_file(file.absolute(), files[file].encode())
            if present[file] is None:
                file.chmod(0o666 & ~_umask())
        except OSError as error:
            raise ConfigError(f"{file}: cannot be written: {error.strerror or error}") from error
        written.append(file)
    return written


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _print_diffs(files: dict[Path, str], present: dict[Path, str | None], changed: list[Path]) -> None:
    for file in changed:
        before = present[file]
        if before is not None:
            lines = difflib.unified_diff(
                before.splitlines(), files[file].splitlines(), str(file), str(file), lineterm=""
            )
            click.echo("\n".join(as_printable(line) for line in lines), err=True)


def _next_steps(plan: AgentPlan, key_problem: str) -> list[str]:
    """Return what to type next, one command a line."""
    from vaka.models.local.model import missing_install_command

    steps: list[tuple[str, str]] = []
    provider = provider_of_model(plan.model)
    install = missing_install_command() if plan.model == LOCAL_MODEL else ""
    if install:
        steps.append((install, translate("installs the model of this machine")))
    if key_problem and provider is not None:
        steps.append((f"vaka login {provider.name}", translate("stores the key of the model")))
    if plan.mode == "acceptEdits" and config_context().trust.lookup(trust_root_of(Path.cwd())) is not True:
        steps.append(("vaka trust", translate("lets the settings of this folder allow changes")))
    steps.append((f"vaka chat --agent {AGENT_FILE}", translate("converses with the agent")))
    steps.append((f'vaka run "Hello." --agent {AGENT_FILE}', translate("runs one turn")))
    width = max(len(command) for command, _ in steps)
    return [translate("Next:"), *(f"  {command:{width}}  # {text}" for command, text in steps)]
