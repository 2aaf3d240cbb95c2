"""``vaka hooks``: list the hooks in force, and run the hooks of an event with a payload."""

from collections.abc import Mapping
from typing import Any, cast

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import (
    claude_files_of,
    config_context,
    load_flag_settings,
    model_options,
    print_notes,
    world_options,
)
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import print_json, print_table
from vaka.config.hook_definition import EVENTS, MATCHER_FIELDS, Hook
from vaka.config.settings import Settings
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import ToolCall
from vaka.core.types.traits import find_builtin_traits
from vaka.hooks.decision import HookDecision
from vaka.hooks.payload import call_fields
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of
from vaka.project.hook_sources import hooks_in_force
from vaka.runtime.options import Project
from vaka.runtime.runtime import Runtime
from vaka.runtime.start_hooks import start_hooks

BLOCKED = 2
"""The exit code of ``vaka hooks test`` when the hooks refuse; a hook refuses with the same code."""

_file_options = options.group_options(
    click.option("--settings", metavar="FILE", help="One more settings file, stronger than the files of the folder."),
    options.plugin_option,
    click.option("--trust", is_flag=True, help="Also use the hooks of a folder that is not trusted."),
    click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error."),
)


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
        print_json([_describe(hook) for hook in found])
        return
    rows = [
        (hook.event, hook.matcher or "*", f"{hook.seconds:g} s", _when(hook), hook.origin, hook.text) for hook in found
    ]
    print_table(("EVENT", "MATCHER", "TIMEOUT", "WHILE", "ORIGIN", "COMMAND"), rows)


def _when(hook: Hook) -> str:
    return "never" if hook.disabled else hook.component or "always"


def _describe(hook: Hook) -> dict[str, Any]:
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
    if call is not None:
        fields = call_fields(call, str(config_context().cwd), find_builtin_traits(call.name)) | fields
    settings = load_flag_settings(flags)
    decision = run_loop(_fire(settings, _load_hooks(settings), event, fields, call))
    print_json({name: value for name, value in msgspec.to_builtins(decision).items() if value or name == "permission"})
    if decision.blocks or decision.stops:
        raise Quit(BLOCKED)


async def _fire(
    settings: Settings, found: tuple[Hook, ...], event: str, fields: Mapping[str, Any], call: ToolCall | None
) -> HookDecision:
    policy = LayeredPolicy((), cwd=str(config_context().cwd))

    def covers(rule: str) -> bool:
        return call is not None and policy.covers(rule, call, spec_of(call.name))

    given = {**model_options(settings, quiet=True), **world_options(settings)}
    async with Runtime(project=Project(hooks=found), **given) as runtime:
        engine, _ = start_hooks(runtime.options, runtime.env, runtime.models, None)
        decision = await engine.fire(event, fields, session=SessionId("test"), covers=covers)
        await engine.close()
    return decision


def _parse_object(option: str, text: str | None) -> dict[str, Any]:
    try:
        value: object = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object")
    return cast("dict[str, Any]", value)
