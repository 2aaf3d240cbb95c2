"""``vaka config``: settings, and where each comes from."""

from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli import options
from vaka.cli.errors import UsageError
from vaka.cli.permissions import print_rules
from vaka.cli.render import compact, printable
from vaka.cli.report import print_json
from vaka.cli.start import here, policy_for, settings_of
from vaka.cli.table import print_table
from vaka.config.edit import write_setting
from vaka.config.files import PROJECT, Found, read_file
from vaka.config.keys import KEYS, Key, locate, read
from vaka.config.layers import Value, redacted
from vaka.core.types.errors import ConfigError
from vaka.runtime.models import Book, Models


@click.group()
def config() -> None:
    """Settings, and where each comes from: defaults, your file, the project's, VAKA_* variables, flags."""


@config.command(
    epilog=options.examples(
        "vaka config show --origin",
        "vaka config show --permissions",
        "VAKA_MODEL=scripted:a.jsonl vaka config show --json",
    )
)
@click.option("--origin", is_flag=True, help="Also who says so: FILE:LINE, a variable, a flag, or the default.")
@click.option("--permissions", is_flag=True, help="The permission rules instead, also those kept by approvals.")
@options.json_option
@options.policy_options
@options.store_options
def show(origin: bool, permissions: bool, as_json: bool, **given: Any) -> None:
    """Show every setting in force. Keys and the password of a store are not shown."""
    settings = settings_of(given)
    if permissions:
        print_rules(policy_for(settings), (), as_json=as_json)
        return
    values = {name: redacted(name, value.value) for name, value in settings.values.items()}
    if as_json:
        origins = {name: {"value": values[name], "origin": value.origin} for name, value in settings.values.items()}
        print_json(origins if origin else values)
        return
    rows = [row for name, value in values.items() for row in _rows(name, value, settings.values[name])]
    print_table(
        ("SETTING", "VALUE", "FROM") if origin else ("SETTING", "VALUE"), [row if origin else row[:2] for row in rows]
    )


@config.command(epilog=options.examples("vaka config get store", "vaka config get models.fast.model"))
@click.argument("key")
@options.store_options
def get(key: str, **given: Any) -> None:
    """Print one setting, or a part of a table. A list has one item per line; nothing is printed for what is not set."""
    setting, path = locate(key)
    value = redacted(setting.name, settings_of(given)[setting.name])
    for item in _items(_part(value, path[1:])):
        click.echo(printable(item))


@config.command(
    "set",
    epilog=options.examples(
        "vaka config set model scripted:hello.jsonl",
        "vaka config set --project max_steps 20",
        "vaka config set tiers.low openai/gpt-5-nano",
        "vaka config set models.fast.model openai/gpt-5-mini",
    ),
)
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="In the project's vaka.toml instead of your own file.")
def set_(key: str, value: str, project: bool) -> None:
    """Change one setting, or a part of a table, in your file and leave the rest of it as it is."""
    setting, at = locate(key)
    path = (here().project_file or Path.cwd() / PROJECT) if project else here().user_file
    written = _write_part(path, setting, at, value) if len(at) > 1 else _write(path, setting, value)
    click.echo(f"{path}: {key} = {_text(written)}", err=True)


def _write(path: Path, setting: Key, value: str) -> Any:
    try:
        checked = read(setting, value)
    except ValueError as error:
        raise UsageError(f"{setting.name}: {error}") from error
    plain: Any = msgspec.to_builtins(checked)
    write_setting(path, setting, [*plain] if isinstance(plain, tuple) else plain)
    return redacted(setting.name, checked)


def _write_part(path: Path, setting: Key, at: tuple[str, ...], value: str) -> Any:
    """Write what the text stands for: JSON if that makes sense there, else the text itself."""
    try:
        given: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        given = value
    try:
        write_setting(path, setting, given, at)
    except ConfigError:
        if isinstance(given, str | dict | list):
            raise
        write_setting(path, setting, value, at)
    return _part(redacted(setting.name, read_file(path)[setting.name].value), at[1:])


def _part(value: Any, path: tuple[str, ...]) -> Any:
    """Return what ``path`` leads to, ``None`` when that is nothing."""
    for part in path:
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value


@config.command(epilog=options.examples("vaka config path", "vaka config path --json"))
@options.json_option
def path(as_json: bool) -> None:
    """Print the files settings come from, the weakest first; a missing one is marked."""
    files = {"user": here().user_file, "project": here().project_file}
    if as_json:
        print_json({name: str(file) if file else None for name, file in files.items()})
        return
    for name, file in files.items():
        if file is not None:
            click.echo(f"{file}{'' if file.is_file() else ' (not there)'}")
        else:
            click.echo(f"no {name} file: {PROJECT} or [tool.vaka] in pyproject.toml, here or above", err=True)


@config.command(epilog=options.examples("vaka config validate vaka.toml"))
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
def validate(files: tuple[str, ...]) -> None:
    """Check files. The first fault is told with file and line; exit code 3."""
    for name in files:
        found = read_file(options.given_path(name))
        if "models" in found:
            _check_models(found["models"])
        click.echo(f"{name}: ok, {len(found)} of {len(KEYS)} settings", err=True)


def _check_models(found: Found) -> None:
    """Look whether the models that a file names can be had, but for their keys."""
    maker = Models(Book(models=found.value)).maker
    for name, entry in found.value.items():
        try:
            maker.check(name, entry)
        except ConfigError as error:
            raise ConfigError(f"{found.parts[name]}: {error}") from error


def _rows(name: str, value: Any, setting: Value) -> list[list[str]]:
    """Return the lines of a setting: of a table one for each part."""
    if not setting.parts:
        return [[name, _text(value), setting.origin]]
    return [[f"{name}.{part}", _text(value[part]), origin] for part, origin in setting.parts.items()]


def _text(value: Any) -> str:
    return ", ".join(_items(value))


def _items(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} = {compact(item)}" for name, item in cast("dict[str, Any]", value).items()]
    many: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    return [str(item) for item in many if item not in (None, "")]
