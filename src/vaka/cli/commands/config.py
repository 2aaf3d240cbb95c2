"""``vaka config`` and ``vaka trust``: settings with their origin, and the folders whose settings are trusted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli import options
from vaka.cli.bootstrap import (
    config_context,
    permission_mode_of,
    policy_from_settings,
    print_notes,
    settings_from_flags,
)
from vaka.cli.commands.permissions import print_rules
from vaka.cli.errors import Quit, UsageError
from vaka.cli.render import as_printable, compact_json, print_json, print_table
from vaka.config.claude_settings import parse_permission_layer, read_document
from vaka.config.project_content import load_project_content
from vaka.config.setting_keys import (
    PROJECT_FILE,
    FileSetting,
    SettingKey,
    parse_key_path,
    parse_value,
    read_settings_file,
    write_setting,
)
from vaka.config.settings import ConfigContext, SettingValue, redact_setting, trust_root_of
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.tool import Layer
from vaka.hooks.definition import parse_hooks
from vaka.policy.rules import read_rules, resolve_mode
from vaka.runtime.model_registry import ModelConfig, ModelRegistry


@click.group()
def config() -> None:
    """Show, change and check settings: defaults, your file, the project's, VAKA_* variables and flags."""


@config.command(epilog=options.format_examples(
    "vaka config show --origin",
    "vaka config show --permissions",
    "VAKA_MODEL=scripted:a.jsonl vaka config show --json",
))  # fmt: skip
@click.option("--origin", is_flag=True, help="Also the origin of each: FILE:LINE, a variable, a flag, or the default.")
@click.option("--permissions", is_flag=True, help="The permission rules instead, also those that approvals stored.")
@options.json_option
@options.policy_options
@options.store_options
def show(origin: bool, permissions: bool, as_json: bool, **flags: Any) -> None:
    """Show every setting in force. Keys and the password of a store are hidden."""
    settings = settings_from_flags(flags)
    if permissions:
        print_rules(policy_from_settings(settings), (), as_json=as_json)
        return
    settings.values["permission_mode"] = permission_mode_of(settings)
    values = {name: redact_setting(name, value.value) for name, value in settings.values.items()}
    if as_json:
        origins = {name: {"value": values[name], "origin": value.origin} for name, value in settings.values.items()}
        print_json(origins if origin else values)
        return
    rows = [row for name, value in values.items() for row in _setting_rows(name, value, settings.values[name])]
    columns = 3 if origin else 2
    print_table(("SETTING", "VALUE", "FROM")[:columns], [row[:columns] for row in rows])


@config.command(epilog=options.format_examples("vaka config get store", "vaka config get models.fast.model"))
@click.argument("key")
@options.store_options
def get(key: str, **flags: Any) -> None:
    """Print one setting, or a part of a table: a list one item per line, nothing for a setting that is not set."""
    setting, path = parse_key_path(key)
    settings = settings_from_flags(flags)
    settings.values["permission_mode"] = permission_mode_of(settings)
    value = redact_setting(setting.name, settings[setting.name])
    for item in _value_items(_value_at(value, path[1:])):
        click.echo(as_printable(item))


@config.command("set", epilog=options.format_examples(
    "vaka config set model scripted:hello.jsonl",
    "vaka config set --project max_steps 20",
    "vaka config set tiers.low openai/gpt-5-nano",
    "vaka config set models.fast.model openai/gpt-5-mini",
))  # fmt: skip
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="In the project's vaka.toml instead of your own file.")
def set_(key: str, value: str, project: bool) -> None:
    """Change one setting, or a part of a table, in your file and leave the rest of it as it is."""
    setting, at = parse_key_path(key)
    path = (config_context().project_file or Path.cwd() / PROJECT_FILE) if project else config_context().user_file
    written = _set_table_part(path, setting, at, value) if len(at) > 1 else _set_value(path, setting, value)
    click.echo(f"{path}: {key} = {_value_text(written)}", err=True)


def _set_value(path: Path, setting: SettingKey, value: str) -> Any:
    try:
        checked = parse_value(setting, value)
    except ValueError as error:
        raise UsageError(f"{setting.name}: {error}") from error
    plain: Any = msgspec.to_builtins(checked)
    write_setting(path, setting, [*plain] if isinstance(plain, tuple) else plain)
    return redact_setting(setting.name, checked)


def _set_table_part(path: Path, setting: SettingKey, at: tuple[str, ...], value: str) -> Any:
    """Write a text as JSON if that is valid there, else as it is."""
    try:
        decoded: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        decoded = value
    try:
        write_setting(path, setting, decoded, at)
    except ConfigError:
        if isinstance(decoded, str | dict | list):
            raise
        write_setting(path, setting, value, at)
    return _value_at(redact_setting(setting.name, read_settings_file(path)[setting.name].value), at[1:])


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at ``path``, ``None`` when there is none."""
    for part in path:
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value


@config.command(epilog=options.format_examples("vaka config path", "vaka config path --json"))
@options.json_option
def path(as_json: bool) -> None:
    """Print the files settings come from, the weakest first; a missing one is marked."""
    files = {"user": config_context().user_file, "project": config_context().project_file}
    if as_json:
        print_json({name: str(file) if file else None for name, file in files.items()})
        return
    for name, file in files.items():
        if file is not None:
            click.echo(f"{file}{'' if file.is_file() else ' (missing)'}")
        else:
            click.echo(f"no {name} file: {PROJECT_FILE} or [tool.vaka] in pyproject.toml, here or above", err=True)


@config.command(epilog=options.format_examples(
    "vaka config validate vaka.toml", "vaka config validate .claude/settings.json", "vaka config validate ."
))  # fmt: skip
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIR…")
def validate(files: tuple[str, ...]) -> None:
    """Check vaka.toml files, .claude settings, and folders with both. Prints all problems; exit code 3 if any.

    Of a folder also its skills, commands, agents, memory files and hooks are checked; what is only sloppy there is
    printed as a note.
    """
    problems: list[str] = []
    for name in files:
        path = options.expand_path(name)
        found = list(_validate_folder(path) if path.is_dir() else _validate_file(path))
        problems += found
        if not found:
            click.echo(f"{name}: ok", err=True)
    for problem in problems:
        click.echo(f"error: {as_printable(problem)}", err=True)
    if problems:
        raise Quit(ConfigError.exit_code)


def _validate_folder(folder: Path) -> Iterator[str]:
    """Yield the problems of the settings of a folder; print notes on the rest of its files."""
    names = ("vaka.toml", ".claude/settings.json", ".claude/settings.local.json")
    for path in (folder / name for name in names):
        if path.is_file():
            yield from _validate_file(path)
    content = load_project_content(ConfigContext(cwd=folder.resolve(), home=Path.home(), environ=os.environ))
    components = content.components
    items = (*components.skills, *components.commands, *components.agents)
    print_notes(content.problems, (problem for item in items for problem in item.problems))


def _validate_file(path: Path) -> Iterator[str]:
    """Yield the problems of a settings file."""
    try:
        if path.suffix == ".json":
            yield from _validate_claude_settings(path)
        elif "models" in (settings := read_settings_file(path)):
            _check_models(settings["models"])
    except (ConfigError, InvalidInput) as error:
        yield str(error)


def _validate_claude_settings(path: Path) -> Iterator[str]:
    document = read_document(path)
    if document is None:
        raise ConfigError(f"{path}: there is no such file")
    notes: list[str] = []
    layer = parse_permission_layer(document, "project", origin=str(path), notes=notes)
    for kind in ("allow", "ask", "deny"):
        for rule in getattr(layer, kind):
            lists: dict[str, Any] = {kind: (rule,)}
            one = Layer(name="project", origin=str(path), **lists)
            try:
                notes += read_rules([one], str(path.parent), str(Path.home()))[1]
            except (ConfigError, InvalidInput) as error:
                yield str(error)
    if layer.mode:
        resolve_mode([msgspec.structs.replace(layer, project=False)], notes)
    yield from parse_hooks({"hooks": document.get("hooks", {})}, origin=str(path)).problems
    print_notes(notes)


def _check_models(models: FileSetting) -> None:
    """Resolve the models of a file without their keys. Raises ``ConfigError`` with file and line."""
    factory = ModelRegistry(ModelConfig(models=models.value)).factory
    for name, entry in models.value.items():
        try:
            factory.resolve_entry(name, entry)
        except ConfigError as error:
            raise ConfigError(f"{models.parts[name]}: {error}") from error


def _setting_rows(name: str, value: Any, setting: SettingValue) -> list[list[str]]:
    """Return the rows of a setting: one for each part of a table."""
    if not setting.parts:
        return [[name, _value_text(value), setting.origin]]
    return [[f"{name}.{part}", _value_text(value[part]), origin] for part, origin in setting.parts.items()]


def _value_text(value: Any) -> str:
    return ", ".join(_value_items(value))


def _value_items(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} = {compact_json(item)}" for name, item in cast("dict[str, Any]", value).items()]
    many: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    return [str(item) for item in many if item not in (None, "")]


@click.command(epilog=options.format_examples(
    "vaka trust", "vaka trust ~/work/boat", "vaka trust --no", "vaka trust --list --json"
))  # fmt: skip
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
