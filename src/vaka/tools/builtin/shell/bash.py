"""The Bash tool."""

import asyncio
import os
import re
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext, shell_folder_key
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Part, Text, ToolResult, replace_surrogates
from vaka.tools.builtin.builtin_tool import builtin_tool
from vaka.tools.builtin.shell.background import load_records, save_record
from vaka.tools.builtin.shell.output import render_output
from vaka.tools.builtin.shell.supervisor import (
    CommandOptions,
    ShellProcess,
    ShellSupervisor,
    supervisor_of,
    workspace_roots_of,
)

_BRANCH_NAME = r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}"

_INIT_COMMAND = re.compile(
    rf"\s*git[ \t]+init(?P<options>(?:[ \t]+(?:-q|--quiet|\.|-b[ \t]+{_BRANCH_NAME}|--initial-branch=(?:{_BRANCH_NAME})))*)"
    r"[ \t]*(?P<rest>(?:&&|;|\n)(?s:.*))?"
)

_REPOSITORY_COMMAND = re.compile(r"\bgit\b[^;&|\n]*\b(?:init|clone)\b")

_GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"

_DEFAULT_BRANCH = "main"


def replace_git_init(context: ToolContext, shells: ShellSupervisor, command: str, folder: str) -> str:
    """Return the command to run: one that begins with ``git init`` finds the repository made, and goes on after that.

    Only where commands cannot make one themselves, in a folder of the workspace that has none.
    """
    found = _INIT_COMMAND.fullmatch(command)
    if found is None or not _is_git_protected(context, shells, folder):
        return command
    branch = re.search(rf"(?:-b[ \t]+|--initial-branch=)({_BRANCH_NAME})", found["options"])
    name = branch[1] if branch else _DEFAULT_BRANCH
    if not _is_branch_name(name) or not _make_repository(folder, name):
        return command
    quiet = re.search(r"-q|--quiet", found["options"])
    said = f"Initialized empty Git repository in {folder}/.git/ (branch {name})"
    first = "true" if quiet else f"printf '%s\\n' {shlex.quote(said)}"
    return first + (found["rest"] or "")


def git_init_advice(context: ToolContext, shells: ShellSupervisor, command: str, folder: str) -> Iterable[str]:
    """Yield what to say after a command that could not make a repository."""
    if _REPOSITORY_COMMAND.search(command) and _is_git_protected(context, shells, folder):
        yield (
            "commands cannot make .git here, since the settings and hooks of a repository are protected; a command "
            "that begins with plain `git init` (-q, -b NAME) makes an empty one, anything else only a person can do"
        )


def _is_git_protected(context: ToolContext, shells: ShellSupervisor, folder: str) -> bool:
    """Return whether a folder of the workspace has no repository and commands are kept from making one."""
    sandbox = context.world.sandbox
    if sandbox is None or "write" not in sandbox.enforces:
        return False
    here = os.path.realpath(folder)
    if here not in map(os.path.realpath, workspace_roots_of(context)):
        return False
    held = any(os.path.realpath(path).startswith(f"{here}/.git/") for path in shells.scope.protected)
    return held and not os.path.lexists(f"{here}/.git/HEAD")


def _is_branch_name(name: str) -> bool:
    """Return whether git takes this as the name of a branch; what is doubtful is left to git."""
    parts = name.split("/")
    return ".." not in name and all(
        part and not part.startswith((".", "-")) and not part.endswith((".lock", ".")) for part in parts
    )


def _make_repository(folder: str, branch: str) -> bool:
    """Make an empty repository, unless there is something already; links are not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        top = os.open(os.path.realpath(folder), flags)
    except OSError:
        return False
    try:
        return _fill_repository(top, branch)
    except OSError:
        return False  # then git says what is wrong
    finally:
        os.close(top)


def _fill_repository(top: int, branch: str) -> bool:
    try:
        os.mkdir(".git", dir_fd=top)
    except FileExistsError:
        pass  # empty, it only holds the place while another command runs
    made = os.open(".git", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        if os.listdir(made):  # noqa: PTH208  # by its descriptor
            return False
        for name in ("objects", "refs", "hooks", "info"):
            os.mkdir(name, dir_fd=made)
        _write_file(made, "config", _GIT_CONFIG)
        _write_file(made, "HEAD", f"ref: refs/heads/{branch}\n")
        return True
    finally:
        os.close(made)


def _write_file(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


LIVE_LIMIT = 1024**2
"""Characters shown as they are printed; of what comes after them only some."""

_LIVE_TAIL = 2_000

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

_OTHER_PARAMETERS = ("workdir", "async", "task_id")


class BashArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for, also in the words of other runtimes."""

    command: str
    timeout: int = 0
    description: str = ""
    run_in_background: bool = False
    workdir: str = ""
    is_async: bool = msgspec.field(name="async", default=False)
    task_id: str = ""


@builtin_tool("Bash", effect="once", timeout=None, parameters=PARAMETERS)
async def bash(context: ToolContext, **given: Any) -> ToolResult:
    """Run a command."""
    wish, shells = _parse_arguments(given), supervisor_of(context)
    folder = _start_directory(context, wish.workdir)
    command = await asyncio.to_thread(replace_git_init, context, shells, wish.command, folder)
    wish = msgspec.structs.replace(wish, command=command)
    if wish.run_in_background or wish.is_async:
        return await _run_in_background(context, shells, wish, folder)
    return await _run_and_wait(context, shells, wish, folder)


def _parse_arguments(given: dict[str, Any]) -> BashArguments:
    try:
        return msgspec.convert(given, BashArguments)
    except msgspec.ValidationError as error:
        known = ", ".join([*PARAMETERS["properties"], *_OTHER_PARAMETERS])
        raise InvalidInput(f"{error}; Bash takes {known}") from error


# --------------------------------------------------------------------------------------------------- in the background


async def _run_in_background(
    context: ToolContext, shells: ShellSupervisor, wish: BashArguments, folder: str
) -> ToolResult:
    shell = await shells.start_background(
        context, wish.command, folder, id=wish.task_id, last_number=load_records(context).number
    )
    save_record(context, shell)
    return _started_result(context, shell, f"{shell.id} runs in the background")


def _started_result(context: ToolContext, shell: ShellProcess, said: str, *more: Part) -> ToolResult:
    text = f"{said}. BashOutput reads what it prints, KillTask ends it (task_id: {shell.id})."
    value = {"task_id": shell.id, "status": shell.status, "workdir": shell.cwd}
    return ToolResult(call=context.call, content=(*more, Text(text=replace_surrogates(text))), value=value)


# --------------------------------------------------------------------------------------------------------- waited for


async def _run_and_wait(context: ToolContext, shells: ShellSupervisor, wish: BashArguments, folder: str) -> ToolResult:
    if wish.task_id:
        raise InvalidInput("task_id is for commands in the background; set run_in_background, or leave it out")
    lost: list[str] = []
    allowed, since = _timeout_of(wish.timeout, shells.options), time.monotonic()
    shell = await shells.start_foreground(context, wish.command, folder)
    shell.listener = _LiveOutput(context).emit
    try:
        ended = await _wait_for_end(context, shell, allowed / 1000)
        if not ended and shells.options.late_goes_on and await _move_to_background(context, shells, shell):
            return await _late_result(context, shell, allowed)
        if not ended:
            await shell.stop()
            lost.append(f"it took longer than {allowed} ms and was ended with everything it had started")
        spent = int((time.monotonic() - since) * 1000)
        result = await _finished_result(context, shells, shell, lost, {"duration_ms": spent, "timeout_ms": allowed})
        return result if ended else msgspec.structs.replace(result, failed=True, reason="timeout")
    finally:
        shell.listener = None
        if not shell.id:  # nobody can ask for it any more
            await shell.spool.close()


async def _wait_for_end(context: ToolContext, shell: ShellProcess, seconds: float) -> bool:
    """Wait for the end of a command; one that ends because the turn is stopped has ended, too, and is told of."""
    try:
        return await shell.wait_for_end(seconds)
    except asyncio.CancelledError:
        if not context.stopping or shell.running:
            raise
        return True


async def _move_to_background(context: ToolContext, shells: ShellSupervisor, shell: ShellProcess) -> bool:
    """Let a command go on in the background, if there is room for it."""
    try:
        await shells.keep_in_background(shell, last_number=load_records(context).number)
    except InvalidInput:
        return False
    return True


async def _late_result(context: ToolContext, shell: ShellProcess, allowed: int) -> ToolResult:
    """Tell of a command that takes long and goes on in the background."""
    seen = shell.spool.size
    shown = await render_output(context, shell.spool)
    save_record(context, shell, bytes_read=seen)
    said = f"[it takes longer than {allowed} ms and goes on in the background as {shell.id}]"
    return _started_result(context, shell, said, *shown.parts, Text(text="\n"))


async def _finished_result(
    context: ToolContext, shells: ShellSupervisor, shell: ShellProcess, said: list[str], times: dict[str, int]
) -> ToolResult:
    """Return what a command printed, how it ended and where."""
    shown = await render_output(context, shell.spool)
    said += _update_directory(context, shell)
    if shell.exit_code:
        said += git_init_advice(context, shells, shell.command, shell.cwd)
    if shell.killed_leftovers:
        said.append("what it had left running was ended; use run_in_background for what shall go on")
    if shell.output_error:
        said.append(f"output is missing: {shell.output_error}")
    value: dict[str, Any] = {"exit_code": shell.exit_code, "workdir": shell.cwd, "output": list(shown.names), **times}
    if shown.partly:
        await shells.keep_in_background(shell, last_number=load_records(context).number)
        save_record(context, shell)
        value["task_id"] = shell.id
        said.append(f"BashOutput with task_id {shell.id} reads all of it, also by a filter, until vaka is stopped")
    last = "\n".join(f"[{one}]" for one in [*said, f"exit code {shell.exit_code}"])
    end = Text(text=f"\n{last}" if shown.parts else last)
    failed = shell.exit_code != 0
    return ToolResult(
        call=context.call, content=(*shown.parts, end), failed=failed, reason="error" if failed else "", value=value
    )


def _timeout_of(wanted: int, habits: CommandOptions) -> int:
    return min(wanted or habits.timeout, habits.longest)


class _LiveOutput:
    """Shows what is printed while it is printed; of a flood only some."""

    def __init__(self, context: ToolContext) -> None:
        self._context, self._shown = context, 0

    def emit(self, text: str) -> None:
        """Show a piece."""
        if self._shown > LIVE_LIMIT and len(text) > _LIVE_TAIL:
            text = f"\n[…]\n{text[-_LIVE_TAIL:]}"
        self._shown += len(text)
        self._context.emit(text)


# --------------------------------------------------------------------------------------------------------- the folder


def _start_directory(context: ToolContext, wanted: str) -> str:
    """Return where a command begins: where the rules looked at it from, and nowhere else."""
    home = workspace_roots_of(context)[0]
    now = context.folder or home
    if now != home and not (Path(now).is_dir() and _is_inside_workspace(context, now)):
        context.set_state(shell_folder_key(context.path), None)
        raise InvalidInput(
            f"the working folder {now} is not there any more, so nothing was run; the next command begins in {home}"
        )
    if not wanted:
        return now
    place = str(Path(now, wanted).resolve())
    if not (_is_inside_workspace(context, place) and Path(place).is_dir()):
        raise InvalidInput(f"workdir {wanted!r} is no folder of the workspace")
    return place


def _update_directory(context: ToolContext, shell: ShellProcess) -> list[str]:
    """Keep where a command ended, if that is a place to go on from; return what to say of it."""
    ended = shell.final_directory
    if not ended or ended == shell.cwd or Path(ended).resolve() == Path(shell.cwd).resolve():
        return []
    home, named = workspace_roots_of(context)[0], ended == replace_surrogates(ended)
    if not named or not _is_inside_workspace(context, ended):
        if shell.cwd != home:
            context.set_state(shell_folder_key(context.path), None)
        why = "is outside of the workspace" if named else "has a name that is no text"
        return [f"{replace_surrogates(ended)} {why}: the working folder is {home} again"]
    context.set_state(shell_folder_key(context.path), None if Path(ended) == Path(home).resolve() else ended)
    return [f"the working folder is now {ended}"]


def _is_inside_workspace(context: ToolContext, folder: str) -> bool:
    real = Path(folder).resolve()
    return any(real.is_relative_to(Path(root).resolve()) for root in workspace_roots_of(context))
