"""The Bash tool."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext, shell_folder_key
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Part, Text, ToolResult, replace_surrogates
from vaka.core.types.traits import ToolTraits
from vaka.tools.builtin.builtin_tool import builtin_tool
from vaka.tools.builtin.shell.background import load_records, save_record
from vaka.tools.builtin.shell.kept_paths import describe_kept
from vaka.tools.builtin.shell.network_gate import (
    NO_NETWORK_NOTE,
    NO_PROXY_NOTE,
    OUTPUT_END_BYTES,
    describe_refusals,
    ignores_proxy,
    refusal_values,
)
from vaka.tools.builtin.shell.output import render_output
from vaka.tools.builtin.shell.recorded_changes import Recording, record_changes
from vaka.tools.builtin.shell.removed_paths import describe_removed
from vaka.tools.builtin.shell.supervisor import (
    ShellProcess,
    ShellSupervisor,
    supervisor_of,
    workspace_roots_of,
)

LIVE_LIMIT = 1024**2
"""Characters shown live; after that only the end of each large piece is shown."""

_LIVE_TAIL = 2_000

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1},
        "timeout": {"type": "integer", "minimum": 0, "description": "Milliseconds, up to 600000."},
        "description": {"type": "string", "description": "What it does, in five to ten words."},
        "run_in_background": {
            "type": "boolean",
            "default": False,
            "description": "Return at once with a task id.",
        },
        "allow_hosts": {"type": "array", "items": {"type": "string", "pattern": "^[^ /*]+$"}},
        "dangerouslyDisableSandbox": {"type": "boolean"},
    },
    "required": ["command"],
}

_OTHER_PARAMETERS = ("workdir", "async", "task_id")


class BashArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Bash, also under the names that other runtimes use."""

    command: str
    timeout: int = 0
    description: str = ""
    run_in_background: bool = False
    allow_hosts: tuple[str, ...] = ()
    unsandboxed: bool = msgspec.field(name="dangerouslyDisableSandbox", default=False)
    workdir: str = ""
    is_async: bool = msgspec.field(name="async", default=False)
    task_id: str = ""


@builtin_tool(
    "Bash",
    effect="once",
    timeout=None,
    parameters=PARAMETERS,
    traits=ToolTraits(
        commands=True,
        command="command",
        rule_arguments=(
            "run_in_background",
            "async",
            "workdir",
            "sandbox",
            "allow_hosts",
            "dangerouslyDisableSandbox",
        ),
    ),
)
async def bash(context: ToolContext, **given: Any) -> ToolResult:
    """Run a command."""
    arguments, shells = _parse_arguments(given), supervisor_of(context)
    _require_access(context, arguments)
    folder = _start_directory(context, arguments.workdir)
    async with record_changes(context, arguments.command) as recording:
        if arguments.run_in_background or arguments.is_async:
            recording.goes_on = True
            return await _run_in_background(context, shells, arguments, folder)
        return await _run_and_wait(context, shells, arguments, folder, recording)


def _parse_arguments(given: dict[str, Any]) -> BashArguments:
    try:
        return msgspec.convert(given, BashArguments)
    except msgspec.ValidationError as error:
        known = ", ".join([*PARAMETERS["properties"], *_OTHER_PARAMETERS])
        raise InvalidInput(f"{error}; Bash takes {known}") from error


def _require_access(context: ToolContext, arguments: BashArguments) -> None:
    """Raise ``InvalidInput`` for what no rule and no person has allowed, as with a policy of another kind."""
    if arguments.unsandboxed and not context.access.unsandboxed:
        raise InvalidInput("the rules of this runtime let no command run without the sandbox; nothing was run")
    if len(arguments.allow_hosts) > len(context.access.requested_hosts):
        raise InvalidInput("the rules of this runtime let commands reach no further hosts; nothing was run")


async def _run_in_background(
    context: ToolContext, shells: ShellSupervisor, arguments: BashArguments, folder: str
) -> ToolResult:
    number = load_records(context).number
    shell = await shells.start_background(context, arguments.command, folder, id=arguments.task_id, last_number=number)
    save_record(context, shell)
    return _started_result(context, shell, f"{shell.id} runs in the background")


def _started_result(context: ToolContext, shell: ShellProcess, status: str, *output: Part) -> ToolResult:
    text = f"{status}. BashOutput reads what it prints, KillTask ends it (task_id: {shell.id})."
    value = {"task_id": shell.id, "status": shell.status, "workdir": shell.cwd}
    return ToolResult(call=context.call, content=(*output, Text(text=replace_surrogates(text))), value=value)


async def _run_and_wait(
    context: ToolContext, shells: ShellSupervisor, arguments: BashArguments, folder: str, recording: Recording
) -> ToolResult:
    if arguments.task_id:
        raise InvalidInput("task_id is for commands in the background; set run_in_background, or leave it out")
    notes: list[str] = []
    options, since = shells.options, time.monotonic()
    allowed = min(arguments.timeout or options.timeout, options.longest)
    shell = await shells.start_foreground(context, arguments.command, folder)
    shell.listener = _live_listener(context)
    try:
        ended = await _wait_for_end(context, shell, allowed / 1000)
        if not ended and options.late_goes_on and await _move_to_background(context, shells, shell):
            recording.goes_on = True
            return await _late_result(context, shell, allowed)
        if not ended:
            await shell.stop()
            notes.append(f"it took longer than {allowed} ms and was ended with everything it had started")
        spent = int((time.monotonic() - since) * 1000)
        result = await _finished_result(context, shells, shell, notes, {"duration_ms": spent, "timeout_ms": allowed})
        return result if ended else msgspec.structs.replace(result, failed=True, reason="timeout")
    finally:
        shell.listener = None
        if not shell.id:  # no later call can name it
            await shell.spool.close()


async def _wait_for_end(context: ToolContext, shell: ShellProcess, seconds: float) -> bool:
    """Wait for the end of a command, which has a result even if it ends because the turn is stopped."""
    try:
        return await shell.wait_for_end(seconds)
    except asyncio.CancelledError:
        if not context.stopping or shell.running:
            raise
        return True


async def _move_to_background(context: ToolContext, shells: ShellSupervisor, shell: ShellProcess) -> bool:
    """Move a command to the background and return true, unless too many run there."""
    try:
        await shells.keep_in_background(shell, last_number=load_records(context).number)
    except InvalidInput:
        return False
    return True


async def _late_result(context: ToolContext, shell: ShellProcess, allowed: int) -> ToolResult:
    size = shell.spool.size
    output = await render_output(context, shell.spool)
    save_record(context, shell, bytes_read=size)
    status = f"[it takes longer than {allowed} ms and goes on in the background as {shell.id}]"
    return _started_result(context, shell, status, *output.parts, Text(text="\n"))


async def _finished_result(
    context: ToolContext, shells: ShellSupervisor, shell: ShellProcess, notes: list[str], times: dict[str, int]
) -> ToolResult:
    """Return the output of an ended command with notes, its exit code and its working folder."""
    output = await render_output(context, shell.spool)
    notes += _update_directory(context, shell)
    notes += describe_removed(shells.take_removed())
    notes += describe_kept(output.parts) if _is_confined(context, "write") else ()
    if shell.killed_leftovers:
        notes.append("what it had left running was ended; use run_in_background for what shall go on")
    if shell.output_error:
        notes.append(f"output is missing: {shell.output_error}")
    value: dict[str, Any] = {"exit_code": shell.exit_code, "workdir": shell.cwd, "output": list(output.names), **times}
    notes += await network_notes(context, shell)
    if shell.gate is not None and shell.gate.refused_hosts:
        value["refused_hosts"] = refusal_values(shell.gate.refused_hosts)
    if output.partly:
        await shells.keep_in_background(shell, last_number=load_records(context).number)
        save_record(context, shell)
        value["task_id"] = shell.id
        notes.append(f"BashOutput with task_id {shell.id} reads all of it, also by a filter, until vaka is stopped")
    end = "\n".join(f"[{note}]" for note in [*notes, f"exit code {shell.exit_code}"])
    content = (*output.parts, Text(text=f"\n{end}" if output.parts else end))
    failed = shell.exit_code != 0
    return ToolResult(call=context.call, content=content, failed=failed, reason="error" if failed else "", value=value)


async def network_notes(context: ToolContext, shell: ShellProcess) -> Sequence[str]:
    """Return what the sandbox has refused to a command: hosts, or all connections if it looks as if it tried one."""
    if shell.gate is not None and shell.gate.refused_hosts:
        return describe_refusals(shell.gate.refused_hosts)
    if not shell.exit_code or not _is_confined(context, "network") or supervisor_of(context).scope.network:
        return ()
    end = await shell.spool.read(max(shell.spool.size - OUTPUT_END_BYTES, 0), OUTPUT_END_BYTES)
    if not ignores_proxy(end):
        return ()
    return [NO_PROXY_NOTE if shell.gate is not None or supervisor_of(context).scope.proxy else NO_NETWORK_NOTE]


def _is_confined(context: ToolContext, what: str) -> bool:
    """Return whether the sandbox enforces something for this command."""
    sandbox = context.world.sandbox
    return sandbox is not None and what in sandbox.enforces and not context.access.unsandboxed


def _live_listener(context: ToolContext) -> Callable[[str], None]:
    """Return a listener that emits output; after ``LIVE_LIMIT`` only the end of large pieces."""
    emitted = 0

    def emit(text: str) -> None:
        nonlocal emitted
        if emitted > LIVE_LIMIT and len(text) > _LIVE_TAIL:
            text = f"\n[…]\n{text[-_LIVE_TAIL:]}"
        emitted += len(text)
        context.emit(text)

    return emit


def _start_directory(context: ToolContext, wanted: str) -> str:
    """Return the folder in which a command starts: the folder that the permission rules assumed."""
    home = workspace_roots_of(context.world)[0]
    folder = context.folder if context.folder is not None else context.state.get(shell_folder_key(context.path))
    current = folder if folder and isinstance(folder, str) else home
    if current != home and not (Path(current).is_dir() and _is_inside_workspace(context, current)):
        context.state.set(shell_folder_key(context.path), None)
        raise InvalidInput(
            f"the working folder {current} is not there any more, so nothing was run; the next command begins in {home}"
        )
    if not wanted:
        return current
    folder = str(Path(current, wanted).resolve())
    if not (_is_inside_workspace(context, folder) and Path(folder).is_dir()):
        raise InvalidInput(f"workdir {wanted!r} is not a folder of the workspace")
    return folder


def _update_directory(context: ToolContext, shell: ShellProcess) -> list[str]:
    """Make the folder in which a command ended the working folder if it is in the workspace; return a note about it."""
    ended = shell.final_directory
    if not ended or ended == shell.cwd or Path(ended).resolve() == Path(shell.cwd).resolve():
        return []
    home, is_text = workspace_roots_of(context.world)[0], ended == replace_surrogates(ended)
    if not is_text or not _is_inside_workspace(context, ended):
        if shell.cwd != home:
            context.state.set(shell_folder_key(context.path), None)
        why = "is outside of the workspace" if is_text else "has a name that is not valid UTF-8"
        return [f"{replace_surrogates(ended)} {why}: the working folder is {home} again"]
    context.state.set(shell_folder_key(context.path), None if Path(ended) == Path(home).resolve() else ended)
    return [f"the working folder is now {ended}"]


def _is_inside_workspace(context: ToolContext, folder: str) -> bool:
    real = Path(folder).resolve()
    return any(real.is_relative_to(Path(root).resolve()) for root in workspace_roots_of(context.world))
