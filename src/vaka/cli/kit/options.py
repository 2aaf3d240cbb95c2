"""Options that several commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from vaka.cli.command_table import format_examples as format_examples
from vaka.config.options import Commands, NetworkAccess, Permissions, Scripts, Storage, Workspace
from vaka.config.setting_keys import SETTING_KEYS, SettingKey, parse_seconds, settings_of
from vaka.core.types.keywords import Flag
from vaka.core.types.limits import Limits

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json", ".msgpack")
"""The ends of names of files that define agents."""

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """A time span: ``90`` or ``90s``, ``5m``, ``12h``, ``30d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _change_directory(context: click.Context, parameter: click.Parameter, folder: str | None) -> str | None:
    """Change to the folder before other options are read: their paths are relative to it."""
    if folder is not None:
        os.chdir(folder)
    return folder


def group_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, in this order."""

    def add_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def metadata_option(help: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--metadata KEY=VALUE`` to a command, which gets a dictionary."""
    return click.option("--metadata", metavar="KEY=VALUE", multiple=True, callback=_parse_pairs, help=help)


def _parse_pairs(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return ``KEY=VALUE`` texts as metadata; a value that is JSON is used as such."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{pair!r} must be KEY=VALUE", context, parameter)
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def flags_of(group: type[msgspec.Struct]) -> Callable[[F], F]:
    """Return a decorator that adds the flags of an option group to a command."""
    return group_options(*(_make_flag(key, key.flag) for key in settings_of(group) if key.flag is not None))


def flag_of(setting: str, *, name: str = "", help: str = "") -> Callable[[F], F]:
    """Return a decorator that adds the flag of one setting to a command, under another name or with another help."""
    key = SETTING_KEYS[setting]
    flag = key.flag or Flag(key.flag_name)
    return _make_flag(key, msgspec.structs.replace(flag, name=name or flag.name, help=help or flag.help))


def _make_flag(key: SettingKey, flag: Flag) -> Callable[[Any], Any]:
    """Return the option of a setting that is a flag; its value is ``None`` or ``()`` if it is not given."""
    details: dict[str, Any] = {"type": _type_of_flag(key), "multiple": key.kind == "list", "help": flag.help}
    if key.is_switch:
        details = {"flag_value": "on", "help": flag.help}
    elif flag.metavar:
        details["metavar"] = flag.metavar
    return click.option(flag.name, *flag.aliases, key.name, default=None, **details)


def _type_of_flag(key: SettingKey) -> "click.ParamType[Any]":
    if key.path:
        return click.Path(exists=True, file_okay=key.path == "file", dir_okay=key.path == "folder", resolve_path=True)
    if key.choices:
        return click.Choice(key.choices)
    known: dict[str, click.ParamType[Any]] = {
        "whole": click.IntRange(min=key.least, max=key.most),
        "count": click.IntRange(min=0),
        "number": click.FloatRange(min=0, min_open=True),
        "seconds": Duration(),
    }
    return known.get(key.kind, click.STRING)


def _check_plugins(context: click.Context, parameter: click.Parameter, folders: tuple[str, ...]) -> tuple[str, ...]:
    if not folders:
        return ()
    from vaka.feature import require_feature

    require_feature("project", "--plugin-dir")
    from vaka.project.plugins import find_plugins

    for folder in folders:
        if not find_plugins([Path(folder)]):
            raise click.BadParameter(f"there is no plugin in {folder}; a plugin has .claude-plugin/plugin.json")
    return folders


plugin_option = click.option(
    "--plugin-dir",
    "plugin_dir",
    multiple=True,
    callback=_check_plugins,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="A plugin, a marketplace, or a folder of plugins; may be repeated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print more; show the traceback of an error.")

store_options = group_options(
    flag_of("store"),
    flags_of(Storage),
    click.option(
        "--cwd",
        type=click.Path(exists=True, file_okay=False),
        callback=_change_directory,
        is_eager=True,
        expose_value=False,
        metavar="DIR",
        help="Work from this folder; other paths are relative to it.",
    ),
    click.option(
        "--trust",
        is_flag=True,
        help="Let this folder's vaka.toml also allow things, and set the store, the models and where their keys are.",
    ),
    verbose_option,
)
"""The options of the store, the working folder and trust."""

tool_options = group_options(
    click.option(
        "--tools",
        multiple=True,
        type=click.Path(),
        metavar="FILE.py|FILE.luau",
        help="Every @vaka.tool of a Python file, or a Luau script that is a tool; may be repeated.",
    ),
    flags_of(NetworkAccess),
    flags_of(Scripts),
    click.option(
        "--untrusted",
        is_flag=True,
        default=None,
        help="Run Luau scripts in a separate, confined process; the default for files of other projects.",
    ),
)
"""The options of tools and scripts."""

agent_options = group_options(
    click.option(
        "--agent",
        metavar="NAME|FILE.py[:OBJECT]|FILE.luau|FILE.yaml",
        help="An agent of the project or of yours (`vaka agents list`), a Python file that makes a vaka.Agent, a "
        "Luau script that is one, or a file that defines one.",
    ),
    tool_options,
)
"""The options of the agent and its tools."""

remote_options = group_options(
    click.option(
        "--server",
        "server_url",
        metavar="URL",
        help="Run turns on a server (`vaka serve`), with its agents, tools and rules; its key is VAKA_API_KEY.",
    ),
    click.option("--api-key-file", metavar="FILE", help="A file with the key for --server."),
)
"""The options of turns that a server runs."""

server_options = group_options(
    click.option(
        "--mcp-config",
        multiple=True,
        metavar="FILE|JSON",
        help="A file with MCP servers, as .mcp.json, or its text; may be repeated.",
    ),
    click.option(
        "--strict-mcp-config",
        is_flag=True,
        default=None,
        help="Only the servers of --mcp-config, and none of other files.",
    ),
)
"""The options of MCP servers."""

limit_options = flags_of(Limits)
"""The limits of a turn."""

prompt_options = group_options(
    click.option("--instructions", metavar="TEXT|@FILE", help="The agent's instructions."),
    click.option(
        "--system-prompt",
        metavar="TEXT|@FILE",
        help="Replaces the base prompt of the coding agent, or the instructions of another one.",
    ),
    click.option("--append-system-prompt", metavar="TEXT|@FILE", help="Text at the end of the system prompt."),
    click.option(
        "--no-base-prompt", is_flag=True, default=None, help="No base prompt: the model gets only instructions, if any."
    ),
)
"""The options of the system prompt."""

world_options = group_options(
    flag_of("builtin_tools"),
    flags_of(Workspace),
    flags_of(Commands),
)
"""The options of files, commands and the sandbox."""

policy_options = group_options(
    flags_of(Permissions),
    click.option(
        "--settings", metavar="FILE|JSON", help="One more file of .claude settings, or the settings themselves."
    ),
    click.option("--ephemeral", is_flag=True, help="Store nothing: the session is in memory."),
)
"""The options of permissions and approvals."""

served_agent_options = group_options(
    flag_of("model"),
    click.option("--option", multiple=True, metavar="KEY=VALUE", help="A model option; may be repeated."),
    prompt_options,
    plugin_option,
    server_options,
    world_options,
    policy_options,
    limit_options,
    store_options,
)
"""The options of commands that serve agents to other programs."""


def expand_path(text: str) -> Path:
    return Path(text).expanduser()
