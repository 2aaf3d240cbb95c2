"""Rewind files with their session: restore what file tools changed after a position in the log."""

from contextlib import aclosing

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.store import Store
from vaka.core.ports.tool import CHANGED_FILE_KEY
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import FileError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Cursor, Digest, SessionId
from vaka.core.types.progress import ToolCalled, ToolCompleted
from vaka.files.snapshots import NO_FILE, FileSnapshots, RestorePlan, overwrite_error, path_of
from vaka.runtime.session_edits import resolve_seq, rewind

_EDIT_TOOLS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_COMMAND_TOOLS = frozenset({"Bash"})


class FileRewind(msgspec.Struct, frozen=True, kw_only=True):
    """What going back would do with the files, or has done."""

    restored: tuple[str, ...] = ()
    """Files that get back what they held."""
    removed: tuple[str, ...] = ()
    """Files that were not there yet."""
    changed: tuple[str, ...] = ()
    """Those of them that somebody else has changed since: what they hold would be lost, so this must be forced."""
    lost: tuple[str, ...] = ()
    """Files that tools changed and of which no copy was kept: they stay as they are."""
    commands: int = 0
    """Commands that ran since; what they changed stays as it is."""


class _FileHistory(msgspec.Struct):
    """What the log says happened to files after a place, on every branch."""

    tokens: list[JSON]
    paths: set[str]
    commands: int = 0


async def preview_file_rewind(store: Store, files: Files, session: SessionId, to: "Cursor | str") -> FileRewind:
    """Return what ``rewind_with_files`` would do with the files. Nothing is touched."""
    since = await _read_file_history(store, session, await resolve_seq(store, session, to))
    return _summarize(since, await FileSnapshots(files, store.blobs).plan_restore(since.tokens))


async def rewind_with_files(
    store: Store, files: Files, session: SessionId, to: "Cursor | str", timestamp: str, *, force: bool = False
) -> tuple[Event, FileRewind]:
    """Take a session back, and the files its tools changed. Nothing is done unless all of it can be done.

    ``FileChanged`` names the files that somebody else has changed since, unless ``force``. What the files hold now is
    kept and written down first, in the write that takes the session back: after a crash the same call goes on with it,
    and going back to a place after this one undoes it.
    """
    since = await _read_file_history(store, session, await resolve_seq(store, session, to))
    snapshots = FileSnapshots(files, store.blobs)
    plan = await snapshots.plan_restore(since.tokens)
    if plan.changed and not force:
        raise overwrite_error(plan.changed)
    copies = await snapshots.load_copies(plan.steps)
    noted = [
        StateChanged(key=CHANGED_FILE_KEY, value=await snapshots.back_up(step.path, becomes=Digest(step.was)))
        for step in plan.steps
    ]
    event = await rewind(store, session, to, timestamp, noted)
    try:
        await snapshots.apply_steps(plan.steps, copies)
    except FileError as error:
        error.add_note("the session has gone back, but not all of its files; the same call again goes on with them")
        raise
    return event, _summarize(since, plan)


async def _read_file_history(store: Store, session: SessionId, after: int) -> _FileHistory:
    since, calls = _FileHistory([], set()), dict[str, str]()
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            body = event.data
            if isinstance(body, StateChanged) and body.key == CHANGED_FILE_KEY:
                since.tokens.append(body.value)
            elif isinstance(body, ToolCalled):
                calls[body.call.id] = body.call.name
                since.commands += body.call.name in _COMMAND_TOOLS
            elif isinstance(body, ToolCompleted) and calls.get(body.result.call) in _EDIT_TOOLS:
                since.paths |= _changed_paths(body.result.value)
    return since


class _ChangedFile(msgspec.Struct):
    """What a file tool says of a change."""

    path: str
    after: str


def _changed_paths(value: JSON) -> set[str]:
    try:
        return {msgspec.convert(value, _ChangedFile).path}
    except msgspec.ValidationError:
        return set()  # it changed nothing


def _summarize(file_history: _FileHistory, plan: RestorePlan) -> FileRewind:
    copied = {path_of(token) for token in file_history.tokens}
    return FileRewind(
        restored=tuple(step.path for step in plan.steps if step.was != NO_FILE),
        removed=tuple(step.path for step in plan.steps if step.was == NO_FILE),
        changed=plan.changed,
        lost=tuple(sorted({*plan.lost, *(file_history.paths - copied)})),
        commands=file_history.commands,
    )
