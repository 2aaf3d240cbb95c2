"""``vaka config`` and ``vaka trust``: settings with their origin, and the folders whose settings are trusted."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from vaka.cli.commands.permissions import print_rules
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import (
    claude_files_of,
    config_context,
    permission_mode_of,
    policy_from_settings,
    settings_from_flags,
)
from vaka.cli.kit.errors import FAILED, Quit, UsageError
from vaka.cli.kit.render import as_printable, compact_json, print_json, print_table
from vaka.cli.validate import validate_path
from vaka.config.documents import parse_json
from vaka.config.setting_keys import (
    PROJECT_FILE,
    SETTING_KEYS,
    SettingKey,
    parse_key_path,
    parse_value,
    read_settings_file,
    write_setting,
)
from vaka.config.settings import Settings, SettingValue, redact_setting, trust_root_of
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.feature import has_feature, require_feature
from vaka.matching.secrets import SECRET_FORMATS
from vaka.policy.decision import parse_mode
from vaka.project.claude_keys import CLAUDE_KEYS, ClaudeKey, near_key, value_problem
from vaka.project.claude_settings import settings_places
from vaka.project.claude_writer import write_claude_value
from vaka.project.effective_settings import EffectiveValue, effective_settings
from vaka.sandbox.sensitive import is_secret

if TYPE_CHECKING:
    from vaka.genx.definitions.references import DefinitionKind

HIDDEN = "***"
"""Stands for a value that is secret."""
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma between rules, not in one."""


@click.group()
def config() -> None:
    """Show, change and check vaka's settings and the settings of .claude files."""


@config.command(
    epilog=options.format_examples(
        "vaka config show --origin",
        "vaka config show --permissions",
        "VAKA_MODEL=scripted:a.jsonl vaka config show --json",
    )
)
@click.option("--origin", is_flag=True, help="Also the layer and origin of each: FILE:LINE, a variable or a flag.")
@click.option("--permissions", is_flag=True, help="The permission rules instead, also rules that approvals stored.")
@options.json_option
@options.policy_options
@options.store_options
def show(origin: bool, permissions: bool, as_json: bool, **flags: Any) -> None:
    """Show every setting in force: vaka's own, then what .claude files set. Keys and passwords are hidden."""
    settings = _load(flags)
    if permissions:
        print_rules(policy_from_settings(settings), (), as_json=as_json)
        return
    values = {name: redact_setting(name, value.value) for name, value in settings.values.items()}
    claude = _claude_values(settings)
    if as_json:
        shown: dict[str, Any] = {
            name: _with_origin(values[name], value) if origin else values[name]
            for name, value in settings.values.items()
        }
        files = {
            name: _with_origin(_mask(name, value.value), value) if origin else _mask(name, value.value)
            for name, value in claude.items()
        }
        print_json({**shown, "claude": files})
        return
    columns = 4 if origin else 2
    headers = ("VALUE", "LAYER", "FROM")[: columns - 1]
    rows = [row for name, value in values.items() for row in _setting_rows(name, value, settings.values[name])]
    print_table(("SETTING", *headers), [row[:columns] for row in rows])
    if claude:
        rows = [row for name, value in claude.items() for row in _setting_rows(name, _mask(name, value.value), value)]
        click.echo("")
        print_table((".CLAUDE SETTING", *headers), [row[:columns] for row in rows])


@config.command(
    epilog=options.format_examples(
        "vaka config get store",
        "vaka config get models.fast.model",
        "vaka config get permissions.deny --origin",
    )
)
@click.argument("key")
@click.option("--origin", is_flag=True, help="Also the layer and origin of the value.")
@options.json_option
@options.store_options
def get(key: str, origin: bool, as_json: bool, **flags: Any) -> None:
    """Print one setting, or a part of a table: a list one item per line, nothing for a setting that is not set.

    A setting of .claude files has the name that it has there, such as permissions.deny or env.NAME.
    """
    settings = _load(flags)
    found: SettingValue | EffectiveValue | None
    if (claude := _find_claude_key(key)) is not None:
        found = _claude_values(settings).get(claude[0].name)
        value, path = (_mask(claude[0].name, found.value) if found is not None else None), claude[1]
    else:
        setting, full = parse_key_path(key)
        found, path = settings.values[setting.name], full[1:]
        value = redact_setting(setting.name, found.value)
    value, found = _value_at(value, path), found or SettingValue(None)
    if as_json:
        print_json(_with_origin(value, found, path) if origin else value)
        return
    for item in _value_items(value):
        click.echo(as_printable(item))
    if origin:
        shown = _with_origin(value, found, path)
        click.echo(as_printable(f"{shown['layer']}: {shown['origin']}"), err=True)


@config.command(
    "set",
    epilog=options.format_examples(
        "vaka config set model scripted:hello.jsonl",
        "vaka config set --scope project max_steps 20",
        "vaka config set tiers.low openai/gpt-5-nano",
        "vaka config set models.fast.model openai/gpt-5-mini",
        'vaka config set permissions.deny "Read(.env)" --scope local',
    ),
)
@click.argument("key")
@click.argument("value")
@click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    help="Whose file: yours (default), the project's, or yours in this project (.claude settings only).",
)
def set_(key: str, value: str, scope: str) -> None:
    """Change one setting, or a part of a table, in a file and leave the rest of it as it is; print which file.

    vaka's own settings are in config.toml and vaka.toml; others, such as permissions.deny, in .claude/settings.json.
    """
    path, written = (_set_claude if _find_claude_key(key) is not None else _set_own)(key, value, scope)
    click.echo(f"{path}: {key} = {_value_text(written)}", err=True)


def _set_own(key: str, value: str, scope: str) -> tuple[Path, Any]:
    setting, at = parse_key_path(key)
    if scope == "local":
        raise UsageError(f"{setting.name} is a setting of vaka, which has no local file; use --scope user or project")
    context = config_context()
    path = (context.project_file or Path.cwd() / PROJECT_FILE) if scope == "project" else context.user_file
    return path, _set_table_part(path, setting, at, value) if len(at) > 1 else _set_value(path, setting, value)


def _set_claude(key: str, text: str, scope: str) -> tuple[Path, Any]:
    found, part = cast("tuple[ClaudeKey, tuple[str, ...]]", _find_claude_key(key))
    path = next((path for layer, path in settings_places(config_context()) if layer == scope), None)
    if path is None:
        raise UsageError("this is your home directory, not a project; use --scope user")
    if scope != "user" and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(path.parents[1])):
        raise ConfigError(f"{path} leads out of the project, so nothing is stored there")
    value = _parse_claude_value(found, text, part)
    write_claude_value(path, (*found.path, *part), value)
    return path, _value_at(_mask(found.name, {part[0]: value} if part else value), part)


def _parse_claude_value(key: ClaudeKey, text: str, part: tuple[str, ...]) -> Any:
    """Return a text as JSON if the key takes that, else as a text, or as a list of texts. Raises ``UsageError``."""
    candidates: list[Any] = []
    with suppress(ConfigError):
        candidates.append(parse_json(text, key.name))
    if not isinstance(next(iter(candidates), None), list | dict):
        words = [word.strip() for word in _COMMA.split(text) if word.strip()]
        candidates.append(words if key.kind == "texts" else text)
    problems: list[str] = []
    for candidate in candidates:
        problems.append(value_problem(key, {part[0]: candidate} if part else candidate))
        if not problems[-1]:
            return candidate
    raise UsageError(f"{'.'.join((key.name, *part))}: {problems[0]}")


def _find_claude_key(text: str) -> tuple[ClaudeKey, tuple[str, ...]] | None:
    """Return the key of .claude settings that a text names, and the name of a part of it; ``None`` for vaka's own."""
    if text in SETTING_KEYS:
        return None
    for key in CLAUDE_KEYS.values():
        if text == key.name:
            return key, ()
        if key.kind in ("variables", "object") and text.startswith(f"{key.name}."):
            return key, (text.removeprefix(f"{key.name}."),)
    if inner := [name for name in CLAUDE_KEYS if name.startswith(f"{text}.")]:
        raise InvalidInput(f"{text!r} has several settings: {', '.join(inner)}; name one of them")
    if "." in text and text.partition(".")[0] not in SETTING_KEYS and (near := near_key(text)):
        raise InvalidInput(f"there is no setting {text!r}; did you mean {near!r}?")
    return None


def _load(flags: dict[str, Any]) -> Settings:
    settings = settings_from_flags(flags)
    settings.values["permission_mode"] = permission_mode_of(settings)
    return settings


def _claude_values(settings: Settings) -> dict[str, EffectiveValue]:
    """Return the values of .claude files in force; their mode only if it is in force."""
    values = effective_settings(claude_files_of(settings))
    mode = values.get("permissions.defaultMode")
    if mode is not None and parse_mode(mode.value) != settings["permission_mode"]:
        del values["permissions.defaultMode"]
    return values


def _with_origin(value: Any, found: SettingValue | EffectiveValue, path: tuple[str, ...] = ()) -> dict[str, Any]:
    origin = found.parts.get(path[0], found.origin) if path else found.origin
    return {"value": value, "layer": found.layer, "origin": origin}


def _mask(name: str, value: Any) -> Any:
    """Return a value of .claude settings with everything that may be a secret hidden."""
    if isinstance(value, dict):
        return {part: _mask(str(part), item) for part, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_mask(name, item) for item in cast("list[object]", value)]
    return HIDDEN if isinstance(value, str) and value and _is_secret(name, value) else value


def _is_secret(name: str, value: str) -> bool:
    known = name in CLAUDE_KEYS  # such as a mode or a rule, which may have the words of a secret
    return any(True for _ in SECRET_FORMATS.find_spans(value, 0)) or (not known and is_secret(name, value))


def _set_value(path: Path, setting: SettingKey, value: str) -> Any:
    try:
        checked = parse_value(setting, value)
    except ValueError as error:
        raise UsageError(f"{setting.name}: {error}") from error
    plain: Any = msgspec.to_builtins(checked)
    write_setting(path, setting, [*plain] if isinstance(plain, tuple) else plain)
    return redact_setting(setting.name, checked)


def _set_table_part(path: Path, setting: SettingKey, at: tuple[str, ...], value: str) -> Any:
    """Write a text as JSON if that is valid there, else as it is; of a list, words separated by commas are enough."""
    try:
        decoded: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        decoded = value
    try:
        write_setting(path, setting, decoded, at)
    except ConfigError as error:
        is_list = "expected `array`" in str(error)
        if isinstance(decoded, str | dict | list) and not is_list:
            raise
        try:
            write_setting(path, setting, [word.strip() for word in value.split(",")] if is_list else value, at)
        except ConfigError as second:
            raise (second if is_list else error) from None
    return _value_at(redact_setting(setting.name, read_settings_file(path)[setting.name].value), at[1:])


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at ``path``, ``None`` when there is none."""
    for part in path:
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value


@config.command(epilog=options.format_examples("vaka config path", "vaka config path --json"))
@options.json_option
@click.option("--settings", metavar="FILE", help="Also the place of this file among them.")
def path(as_json: bool, settings: str | None) -> None:
    """Print the files settings come from, the weakest of each kind first; a missing one is marked."""
    context = config_context()
    files = {"user": context.user_file, "project": context.project_file}
    claude = settings_places(context, settings=settings)
    if as_json:
        places = [{"layer": layer, "path": str(file), "exists": file.is_file()} for layer, file in claude]
        print_json({**{name: str(file) if file else None for name, file in files.items()}, "claude": places})
        return
    for file in (*(file for file in files.values() if file is not None), *(file for _, file in claude)):
        click.echo(f"{file}{'' if file.is_file() else ' (missing)'}")
    if files["project"] is None:
        click.echo(f"no project file: {PROJECT_FILE} or [tool.vaka] in pyproject.toml, here or above", err=True)


@config.command(
    epilog=options.format_examples(
        "vaka config validate vaka.toml", "vaka config validate agents/helper.yaml", "vaka config validate . --strict"
    )
)
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIR…")
@options.json_option
@click.option("--strict", is_flag=True, help="Unknown keys of definitions are errors, not notes.")
def validate(files: tuple[str, ...], as_json: bool, strict: bool) -> None:
    """Check vaka.toml files, .claude settings, definitions, and folders. Prints all problems; exit code 3 if any.

    Of a folder also its skills, commands, agents, memory files and hooks are checked, and the definitions in agents/,
    tools/, rules/, contexts/ and models/; what is only sloppy is printed as a note.
    """
    found = {name: list(validate_path(options.expand_path(name), strict=strict)) for name in files}
    failed = any(finding.is_error for findings in found.values() for finding in findings)
    if as_json:
        rows = {
            name: [{"kind": "error" if one.is_error else "note", "message": one.message} for one in findings]
            for name, findings in found.items()
        }
        print_json({"files": rows, "ok": not failed})
        raise Quit(ConfigError.exit_code if failed else 0)
    for name, findings in found.items():
        for finding in dict.fromkeys(findings):
            if not finding.is_error:
                click.echo(f"note: {as_printable(finding.message)}", err=True)
        if not any(finding.is_error for finding in findings):
            click.echo(f"{name}: ok", err=True)
    for finding in dict.fromkeys(finding for findings in found.values() for finding in findings if finding.is_error):
        click.echo(f"error: {as_printable(finding.message)}", err=True)
    if failed:
        raise Quit(ConfigError.exit_code)


@config.command(
    epilog=options.format_examples("vaka config convert tools/weather.yaml", "vaka config convert . --output converted")
)
@click.argument("path", metavar="FILE|DIR")
@click.option("--output", metavar="DIR", help="Write a script and a definition for each tool to DIR/tools.")
def convert(path: str, output: str | None) -> None:
    """Turn http, generator, text_processor and composite tools into Luau tools that do the same.

    Without --output the scripts are printed. A tool that cannot be converted is reported and left out, with exit code
    1; its definition keeps working. No file is overwritten.
    """
    require_feature("genx", "vaka config convert")
    from vaka.genx.conversion.definitions import convert_definitions, write_tools
    from vaka.genx.conversion.tool_scripts import CONVERTED_KINDS

    source = options.expand_path(path)
    tools, failures = convert_definitions(source)
    for text in failures:
        click.echo(as_printable(text), err=True)
    if not tools and not failures:
        click.echo(f"{source}: no tools of the kinds {', '.join(CONVERTED_KINDS)}", err=True)
    if output is None:
        click.echo("\n".join(tool.script for tool in tools), nl=False)
    else:
        for file in write_tools(options.expand_path(output) / "tools", tools):
            click.echo(str(file))
    if failures:
        raise Quit(FAILED)


def _definition_kinds() -> Sequence[str]:
    if not has_feature("genx"):
        return ()
    from vaka.genx.definitions.references import KINDS

    return KINDS


@config.command(epilog=options.format_examples("vaka config schema agent > agent.schema.json"))
@click.argument("kind", required=False, type=click.Choice(_definition_kinds()))
def schema(kind: "DefinitionKind | None") -> None:
    """Print the JSON Schema of definitions of one kind, or of any kind, for editors."""
    require_feature("genx", "vaka config schema")
    from vaka.genx.definitions.json_schema import definition_schema

    print_json(definition_schema(kind))


def _setting_rows(name: str, value: Any, setting: SettingValue | EffectiveValue) -> list[list[str]]:
    """Return the rows of a setting: one for each part of a table."""
    if not setting.parts:
        return [[name, _value_text(value), setting.layer, setting.origin]]
    return [
        [f"{name}.{part}", _value_text(value[part]), setting.layer, origin] for part, origin in setting.parts.items()
    ]


def _value_text(value: Any) -> str:
    return ", ".join(_value_items(value))


def _value_items(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} = {compact_json(item)}" for name, item in cast("dict[str, Any]", value).items()]
    many: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    return [item if isinstance(item, str) else compact_json(item) for item in many if item not in (None, "")]


@click.command(
    epilog=options.format_examples(
        "vaka trust", "vaka trust ~/work/boat", "vaka trust --no", "vaka trust --list --json"
    )
)
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False), metavar="[DIR]")
@click.option("--no", "refused", is_flag=True, help="Do not trust it, and do not ask again.")
@click.option("--forget", is_flag=True, help="Delete the decision; the next run at a terminal asks again.")
@click.option("--list", "listed", is_flag=True, help="List the decisions.")
@options.json_option
def trust(folder: str | None, refused: bool, forget: bool, listed: bool, as_json: bool) -> None:
    """Trust a folder (this one, or DIR): from now on its own settings may also allow things.

    A folder in a repository stands for the whole repository. Until it is trusted, its vaka.toml and .claude settings
    can only tighten. They can never bypass permissions or switch the sandbox off.
    """
    store = config_context().trust
    if refused + forget + listed > 1 or (listed and folder):
        raise UsageError("use only one of --no, --forget and --list; --list takes no folder")
    if listed:
        decisions = list(store.list_decisions())
        if as_json:
            print_json({"folders": decisions})
        else:
            rows = [(decision.folder, "yes" if decision.trusted else "no") for decision in decisions]
            print_table(("FOLDER", "TRUSTED"), rows)
        return
    root = trust_root_of(Path(folder or os.curdir))
    if forget:
        status = "decision deleted" if store.forget(root) else "there was no decision"
    else:
        store.record(root, not refused)
        status = "not trusted" if refused else "trusted"
    if as_json:
        print_json({"folder": str(root), "trusted": store.lookup(root)})
    else:
        click.echo(f"{as_printable(str(root))}: {status}", err=True)
