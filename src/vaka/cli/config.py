"""``vaka config``: settings, and where each comes from."""

from pathlib import Path
from typing import Any

import click

from vaka.cli import options
from vaka.cli.errors import UsageError
from vaka.cli.render import printable
from vaka.cli.report import print_json
from vaka.cli.start import here, settings_of
from vaka.cli.table import print_table
from vaka.config.edit import write_setting
from vaka.config.files import PROJECT, read_file
from vaka.config.keys import KEYS, find, read
from vaka.config.layers import redacted


@click.group()
def config() -> None:
    """Settings, and where each comes from: defaults, your file, the project's, VAKA_* variables, flags."""


@config.command(
    epilog=options.examples("vaka config show --origin", "VAKA_MODEL=scripted:a.jsonl vaka config show --json")
)
@click.option("--origin", is_flag=True, help="Also who says so: FILE:LINE, a variable, a flag, or the default.")
@options.json_option
@options.policy_options
@options.store_options
def show(origin: bool, as_json: bool, **given: Any) -> None:
    """Show every setting in force. A store's password is not shown."""
    settings = settings_of(given)
    values = {name: redacted(name, value.value) for name, value in settings.values.items()}
    if as_json:
        origins = {name: {"value": values[name], "origin": value.origin} for name, value in settings.values.items()}
        print_json(origins if origin else values)
        return
    rows = [[name, _text(value)] for name, value in values.items()]
    if origin:
        rows = [[name, shown, settings.values[name].origin] for name, shown in rows]
    print_table(("SETTING", "VALUE", "FROM") if origin else ("SETTING", "VALUE"), rows)


@config.command(epilog=options.examples("vaka config get store"))
@click.argument("key")
@options.store_options
def get(key: str, **given: Any) -> None:
    """Print one setting. A list has one item per line; nothing is printed for what is not set."""
    name = find(key).name
    for item in _items(redacted(name, settings_of(given)[name])):
        click.echo(printable(item))


@config.command(
    "set",
    epilog=options.examples("vaka config set model scripted:hello.jsonl", "vaka config set --project max_steps 20"),
)
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="In the project's vaka.toml instead of your own file.")
def set_(key: str, value: str, project: bool) -> None:
    """Change one setting in your file and leave the rest of it as it is."""
    setting = find(key)
    try:
        checked = read(setting, value)
    except ValueError as error:
        raise UsageError(f"{key}: {error}") from error
    path = (here().project_file or Path.cwd() / PROJECT) if project else here().user_file
    write_setting(path, setting, checked)
    click.echo(f"{path}: {setting.name} = {_text(redacted(setting.name, checked))}", err=True)


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
        click.echo(f"{name}: ok, {len(found)} of {len(KEYS)} settings", err=True)


def _text(value: Any) -> str:
    return ", ".join(_items(value))


def _items(value: Any) -> list[str]:
    many: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
    return [str(item) for item in many if item not in (None, "")]
