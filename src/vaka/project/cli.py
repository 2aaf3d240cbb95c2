"""``vaka skills``, ``commands`` and ``hooks``: what ``.claude`` folders and plugins define."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import claude_files_of, config_context, load_flag_settings, print_notes
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.hook_runs import fire_hooks
from vaka.cli.kit.known_tools import find_unknown_tools
from vaka.cli.kit.render import print_json, print_table
from vaka.config.hook_definition import EVENTS, MATCHER_FIELDS, Hook
from vaka.config.settings import Settings
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.project.claude_settings import load_settings_files
from vaka.project.components import AgentFile, CommandFile, Component, Components, Skill, components_in_force
from vaka.project.hook_sources import hooks_in_force

BLOCKED = 2
"""The exit code of ``vaka hooks test`` when the hooks refuse; a hook refuses with the same code."""

_file_options = options.group_options(
    click.option("--settings", metavar="FILE", help="One more settings file, stronger than the files of the folder."),
    options.plugin_option,
    click.option("--trust", is_flag=True, help="Also use the hooks of a folder that is not trusted."),
    click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error."),
)


def make_group(
    name: str,
    noun: str,
    select: Callable[[Components], Sequence[Component]],
    find_defined: "Callable[[list[str]], list[dict[str, Any]]]" = lambda notes: [],
) -> click.Group:
    """Return a group of commands about one kind of component.

    ``find_defined`` returns what definitions describe, which comes first, and adds what is wrong with them.
    """

    @click.group(name, help=f"List the {noun} of the project, of your home folder and of plugins.")
    def group() -> None:
        """Take a command."""

    @group.command(
        "list",
        help=f"List the {noun}; problems are printed on stderr.",
        epilog=options.format_examples(
            f"vaka {name} list",
            f"vaka {name} list --json",
        ),
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, with all fields.")
    @options.plugin_option
    @click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
    def list_components(as_json: bool, plugin_dir: tuple[str, ...], verbose: bool) -> None:
        context, unreadable = config_context(), list[str]()
        try:
            files = load_settings_files(context)
        except ConfigError as error:  # what they switch off is listed then
            files = []
            unreadable.append(str(error))
        found = components_in_force(context, [Path(folder) for folder in plugin_dir], files)
        items = select(found)
        defined = find_defined(unreadable)
        first: dict[str, Component | None] = {component.name: component for component in reversed(items)}
        first |= dict.fromkeys(item["name"] for item in defined)
        if as_json:
            print_json([*defined, *(_describe(item, active=first[item.name] is item) for item in items)])
        else:
            rows = [(item["name"], item["source"], item["description"]) for item in defined]
            rows += [(item.name, _origin_of(item), item.description) for item in items]
            print_table(("NAME", "SOURCE", "DESCRIPTION"), rows)
        print_notes(unreadable, found.problems, (problem for item in items for problem in _problems_of(item)))

    return group


def _origin_of(item: Component) -> str:
    return f"plugin {item.plugin}" if item.plugin else item.source


def _problems_of(item: Component) -> tuple[str, ...]:
    """Return what is wrong with a component; here the tools are known that an agent may name."""
    tools = (item.tools or ()) if isinstance(item, AgentFile) else ()
    unknown = find_unknown_tools(tools)
    wrong = f"{item.path}: tools: there is no {', no '.join(unknown)} here"
    return (*item.problems, *([wrong] if unknown else []))


def _describe(item: Component, *, active: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": item.name,
        "description": item.description,
        "source": item.source,
        "plugin": item.plugin,
        "path": str(item.path),
        "model": item.model,
        "active": active,
        "problems": _problems_of(item),
    }
    match item:
        case Skill():
            more: dict[str, Any] = {
                "allowed_tools": item.allowed_tools,
                "model_invocable": item.model_invocable,
                "user_invocable": item.user_invocable,
            }
        case CommandFile():
            more = {
                "allowed_tools": item.allowed_tools,
                "argument_hint": item.argument_hint,
                "model_invocable": item.model_invocable,
            }
        case AgentFile():
            more = {
                "tools": item.tools,
                "disallowed_tools": item.disallowed_tools,
                "skills": item.skills,
                "permission_mode": item.permission_mode,
                "max_turns": item.max_turns,
            }
        case _:
            more = {}
    return described | more


skills = make_group("skills", "skills", lambda found: found.skills)
commands = make_group("commands", "slash commands", lambda found: found.commands)


@click.group()
def hooks() -> None:
    """List the hooks in force, or run the hooks of an event."""


def _load_hooks(settings: Settings, *, with_heads: bool = False) -> tuple[Hook, ...]:
    """Return the hooks of settings files, plugins and, if wanted, heads; print what is wrong or was ignored."""
    parsed = hooks_in_force(
        config_context(),
        claude_files_of(settings),
        trusted=settings.trusted,
        plugin_dirs=settings.plugin_dirs,
        with_heads=with_heads,
    )
    print_notes(parsed.problems)
    return parsed.hooks


@hooks.command("list", epilog=options.format_examples("vaka hooks list", "vaka hooks list --json"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_file_options
def list_hooks(as_json: bool, **flags: Any) -> None:
    """List the hooks of settings files, plugins, skills, commands and agents, in the order in which they are merged.

    The hooks of a skill, command or agent run while it is in use.
    """
    found = _load_hooks(load_flag_settings(flags), with_heads=True)
    if as_json:
        print_json([_describe_hook(hook) for hook in found])
        return
    rows = [
        (hook.event, hook.matcher or "*", f"{hook.seconds:g} s", _when(hook), hook.origin, hook.text) for hook in found
    ]
    print_table(("EVENT", "MATCHER", "TIMEOUT", "WHILE", "ORIGIN", "COMMAND"), rows)


def _when(hook: Hook) -> str:
    return "never" if hook.disabled else hook.component or "always"


def _describe_hook(hook: Hook) -> dict[str, Any]:
    return {
        "event": hook.event,
        "known": hook.event in EVENTS,
        "matcher": hook.matcher,
        "type": hook.kind,
        "command" if hook.kind == "command" else "prompt": hook.text,
        "timeout": hook.seconds,
        "once": hook.once,
        "async": hook.detached,
        "if": hook.condition,
        "origin": hook.origin,
        "component": hook.component,
        "disabled": hook.disabled,
    }


@hooks.command(
    epilog=options.format_examples(
        'vaka hooks test PreToolUse --tool Bash --input \'{"command": "git push"}\'',
        'vaka hooks test SessionStart --payload \'{"source": "startup"}\'',
    )
)
@click.argument("event", type=click.Choice(EVENTS))
@click.option("--tool", metavar="NAME", help="The tool of the call, for events of tools.")
@click.option("--input", "arguments", metavar="JSON", help="Its arguments.")
@click.option("--payload", metavar="JSON", help="Further fields of the payload.")
@_file_options
def test(event: str, tool: str | None, arguments: str | None, payload: str | None, **flags: Any) -> None:
    """Run the hooks of EVENT as a session would, and print their merged decision as JSON.

    Exits with 2 if the hooks refuse.
    """
    needs_tool = MATCHER_FIELDS.get(event) == "tool_name"
    if needs_tool and tool is None:
        raise UsageError(f"{event} is about a call; name its tool with --tool")
    if tool is not None and not needs_tool:
        raise UsageError(f"{event} is not about a call; leave --tool out")
    fields = _parse_object("--payload", payload)
    call = ToolCall(id=CallId("call_1"), name=tool, arguments=_parse_object("--input", arguments)) if tool else None
    settings = load_flag_settings(flags)
    decision = run_loop(fire_hooks(settings, _load_hooks(settings), event, fields, call))
    print_json({name: value for name, value in msgspec.to_builtins(decision).items() if value or name == "permission"})
    if decision.blocks or decision.stops:
        raise Quit(BLOCKED)


def _parse_object(option: str, text: str | None) -> dict[str, Any]:
    try:
        value: object = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object")
    return cast("dict[str, Any]", value)
