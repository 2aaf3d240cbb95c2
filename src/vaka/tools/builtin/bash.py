"""Bash: run a command, wait for it or leave it in the background."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.ports.world import shell_folder
from vaka.core.types.content import Part, Text, clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.builtin.printed import printed
from vaka.tools.builtin.repository import advice, begun
from vaka.tools.builtin.shell import Shell
from vaka.tools.builtin.shells import Habits, Shells, roots, shells_of
from vaka.tools.builtin.started import note, notes

LIVE = 1024**2
"""Characters shown as they are printed; of what comes after them only some."""
_SOME = 2_000

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "The command, as bash reads it."},
        "timeout": {"type": "integer", "minimum": 0, "description": "Milliseconds it may take, up to 600000."},
        "description": {"type": "string", "description": "What it does, in five to ten words."},
        "run_in_background": {
            "type": "boolean",
            "default": False,
            "description": "Return at once; read its output with BashOutput.",
        },
    },
    "required": ["command"],
}
_ALIASES = ("workdir", "async", "task_id")


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for, also in the words of other runtimes."""

    command: str
    timeout: int = 0
    description: str = ""
    run_in_background: bool = False
    workdir: str = ""
    is_async: bool = msgspec.field(name="async", default=False)
    task_id: str = ""


@declare("Bash", effect="once", timeout=None, parameters=PARAMETERS)
async def bash(context: ToolContext, **given: Any) -> ToolResult:
    """Run a command."""
    wish, shells = _wish(given), shells_of(context)
    folder = _folder(context, wish.workdir)
    command = await asyncio.to_thread(begun, context, shells, wish.command, folder)
    wish = msgspec.structs.replace(wish, command=command)
    if wish.run_in_background or wish.is_async:
        return await _leave(context, shells, wish, folder)
    return await _wait(context, shells, wish, folder)


def _wish(given: dict[str, Any]) -> Wish:
    try:
        return msgspec.convert(given, Wish)
    except msgspec.ValidationError as error:
        known = ", ".join([*PARAMETERS["properties"], *_ALIASES])
        raise InvalidInput(f"{error}; Bash takes {known}") from error


# --------------------------------------------------------------------------------------------------- in the background


async def _leave(context: ToolContext, shells: Shells, wish: Wish, folder: str) -> ToolResult:
    shell = await shells.start(context, wish.command, folder, id=wish.task_id, above=notes(context).number)
    note(context, shell)
    return _started(context, shell, f"{shell.id} runs in the background")


def _started(context: ToolContext, shell: Shell, said: str, *more: Part) -> ToolResult:
    text = f"{said}. BashOutput reads what it prints, KillTask ends it (task_id: {shell.id})."
    value = {"task_id": shell.id, "status": shell.status, "workdir": shell.cwd}
    return ToolResult(call=context.call, content=(*more, Text(text=clean(text))), value=value)


# --------------------------------------------------------------------------------------------------------- waited for


async def _wait(context: ToolContext, shells: Shells, wish: Wish, folder: str) -> ToolResult:
    if wish.task_id:
        raise InvalidInput("task_id is for commands in the background; set run_in_background, or leave it out")
    lost: list[str] = []
    allowed, since = _milliseconds(wish.timeout, shells.habits), time.monotonic()
    shell = await shells.run(context, wish.command, folder)
    shell.listener = _Live(context).show
    try:
        ended = await _ended(context, shell, allowed / 1000)
        if not ended and shells.habits.late_goes_on and await _kept(context, shells, shell):
            return await _late(context, shell, allowed)
        if not ended:
            await shell.stop()
            lost.append(f"it took longer than {allowed} ms and was ended with everything it had started")
        spent = int((time.monotonic() - since) * 1000)
        result = await _told(context, shells, shell, lost, {"duration_ms": spent, "timeout_ms": allowed})
        return result if ended else msgspec.structs.replace(result, failed=True, reason="timeout")
    finally:
        shell.listener = None
        if not shell.id:  # nobody can ask for it any more
            await shell.spool.close()


async def _ended(context: ToolContext, shell: Shell, seconds: float) -> bool:
    """Wait for the end of a command; one that ends because the turn is stopped has ended, too, and is told of."""
    try:
        return await shell.within(seconds)
    except asyncio.CancelledError:
        if not context.stopping or shell.running:
            raise
        return True


async def _kept(context: ToolContext, shells: Shells, shell: Shell) -> bool:
    """Let a command go on in the background, if there is room for it."""
    try:
        await shells.keep(shell, above=notes(context).number)
    except InvalidInput:
        return False
    return True


async def _late(context: ToolContext, shell: Shell, allowed: int) -> ToolResult:
    """Tell of a command that takes long and goes on in the background."""
    seen = shell.spool.size
    shown = await printed(context, shell.spool)
    note(context, shell, read=seen)
    said = f"[it takes longer than {allowed} ms and goes on in the background as {shell.id}]"
    return _started(context, shell, said, *shown.parts, Text(text="\n"))


async def _told(
    context: ToolContext, shells: Shells, shell: Shell, said: list[str], times: dict[str, int]
) -> ToolResult:
    """Return what a command printed, how it ended and where."""
    shown = await printed(context, shell.spool)
    said += _move(context, shell)
    if shell.code:
        said += advice(context, shells, shell.command, shell.cwd)
    if shell.ended_rest:
        said.append("what it had left running was ended; use run_in_background for what shall go on")
    if shell.trouble:
        said.append(f"output is missing: {shell.trouble}")
    value: dict[str, Any] = {"exit_code": shell.code, "workdir": shell.cwd, "output": list(shown.names), **times}
    if shown.partly:
        await shells.keep(shell, above=notes(context).number)
        note(context, shell)
        value["task_id"] = shell.id
        said.append(f"BashOutput with task_id {shell.id} reads all of it, also by a filter, until vaka is stopped")
    last = "\n".join(f"[{one}]" for one in [*said, f"exit code {shell.code}"])
    end = Text(text=f"\n{last}" if shown.parts else last)
    failed = shell.code != 0
    return ToolResult(
        call=context.call, content=(*shown.parts, end), failed=failed, reason="error" if failed else "", value=value
    )


def _milliseconds(wanted: int, habits: Habits) -> int:
    return min(wanted or habits.timeout, habits.longest)


class _Live:
    """Shows what is printed while it is printed; of a flood only some."""

    def __init__(self, context: ToolContext) -> None:
        self._context, self._shown = context, 0

    def show(self, text: str) -> None:
        """Show a piece."""
        if self._shown > LIVE and len(text) > _SOME:
            text = f"\n[…]\n{text[-_SOME:]}"
        self._shown += len(text)
        self._context.emit(text)


# --------------------------------------------------------------------------------------------------------- the folder


def _folder(context: ToolContext, wanted: str) -> str:
    """Return where a command begins: where the rules looked at it from, and nowhere else."""
    home = roots(context)[0]
    now = context.folder or home
    if now != home and not (Path(now).is_dir() and _inside(context, now)):
        context.keep(shell_folder(context.path), None)
        raise InvalidInput(
            f"the working folder {now} is not there any more, so nothing was run; the next command begins in {home}"
        )
    if not wanted:
        return now
    place = str(Path(now, wanted).resolve())
    if not (_inside(context, place) and Path(place).is_dir()):
        raise InvalidInput(f"workdir {wanted!r} is no folder of the workspace")
    return place


def _move(context: ToolContext, shell: Shell) -> list[str]:
    """Keep where a command ended, if that is a place to go on from; return what to say of it."""
    ended = shell.folder
    if not ended or ended == shell.cwd or Path(ended).resolve() == Path(shell.cwd).resolve():
        return []
    home, named = roots(context)[0], ended == clean(ended)
    if not named or not _inside(context, ended):
        if shell.cwd != home:
            context.keep(shell_folder(context.path), None)
        why = "is outside of the workspace" if named else "has a name that is no text"
        return [f"{clean(ended)} {why}: the working folder is {home} again"]
    context.keep(shell_folder(context.path), None if Path(ended) == Path(home).resolve() else ended)
    return [f"the working folder is now {ended}"]


def _inside(context: ToolContext, folder: str) -> bool:
    real = Path(folder).resolve()
    return any(real.is_relative_to(Path(root).resolve()) for root in roots(context))
