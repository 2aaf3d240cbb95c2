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
from vaka.runtime.session_edits import open_boundary, rewind

_EDIT_TOOLS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_COMMAND_TOOLS = frozenset({"Bash"})


class FileRewind(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a rewind on the files."""

    restored: tuple[str, ...] = ()
    """Files whose earlier content is restored."""
    removed: tuple[str, ...] = ()
    """Files that did not exist at that position and are deleted."""
    changed: tuple[str, ...] = ()
    """Files of both lists that another program has changed since; overwriting them needs ``force``."""
    lost: tuple[str, ...] = ()
    """Files that tools changed without a stored copy; they stay as they are."""
    commands: int = 0
    """The number of commands that ran since; their changes are not undone."""


class _FileHistory(msgspec.Struct):
    """The file changes that the log records after a position, on every branch."""

    tokens: list[JSON]
    paths: set[str]
    commands: int = 0


async def preview_file_rewind(store: Store, files: Files, session: SessionId, to: "Cursor | str") -> FileRewind:
    """Return the effect that ``rewind_with_files`` would have, without changing any file."""
    prefix = await open_boundary(store, session, to)
    history = await _read_file_history(store, session, prefix.seq)
    return _summarize(history, await FileSnapshots(files, store.blobs).plan_restore(history.tokens))


async def rewind_with_files(
    store: Store, files: Files, session: SessionId, to: "Cursor | str", timestamp: str, *, force: bool = False
) -> tuple[Event, FileRewind]:
    """Rewind a session and the files that its tools changed. Every check runs before the first change.

    Raises ``FileChanged`` for files that another program has changed since, unless ``force`` is set. The current
    content of the files is stored first, and the append that rewinds the session records it: after a crash the same
    call continues, and a rewind to a position after this one undoes it.
    """
    prefix = await open_boundary(store, session, to)
    history = await _read_file_history(store, session, prefix.seq)
    snapshots = FileSnapshots(files, store.blobs)
    plan = await snapshots.plan_restore(history.tokens)
    if plan.changed and not force:
        raise overwrite_error(plan.changed)
    copies = await snapshots.load_copies(plan.steps)
    backups = [
        StateChanged(
            key=CHANGED_FILE_KEY,
            value=await snapshots.back_up(step.path, becomes=Digest(step.was), session=session),
        )
        for step in plan.steps
    ]
    event = await rewind(store, session, prefix, timestamp, backups)
    try:
        await snapshots.apply_steps(plan.steps, copies)
    except FileError as error:
        error.add_note("the session was rewound, but not all of its files; repeat the call to restore the rest")
        raise
    return event, _summarize(history, plan)


async def _read_file_history(store: Store, session: SessionId, after: int) -> _FileHistory:
    history, calls = _FileHistory([], set()), dict[str, str]()
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            body = event.data
            if isinstance(body, StateChanged) and body.key == CHANGED_FILE_KEY:
                history.tokens.append(body.value)
            elif isinstance(body, ToolCalled):
                calls[body.call.id] = body.call.name
                history.commands += body.call.name in _COMMAND_TOOLS
            elif isinstance(body, ToolCompleted) and calls.get(body.result.call) in _EDIT_TOOLS:
                history.paths |= _changed_paths(body.result.value)
    return history


class _ChangedFile(msgspec.Struct):
    """The result of a file tool that changed a file."""

    path: str
    after: str


def _changed_paths(value: JSON) -> set[str]:
    try:
        return {msgspec.convert(value, _ChangedFile).path}
    except msgspec.ValidationError:
        return set()  # the call changed no file


def _summarize(history: _FileHistory, plan: RestorePlan) -> FileRewind:
    copied = {path_of(token) for token in history.tokens}
    return FileRewind(
        restored=tuple(step.path for step in plan.steps if step.was != NO_FILE),
        removed=tuple(step.path for step in plan.steps if step.was == NO_FILE),
        changed=plan.changed,
        lost=tuple(sorted({*plan.lost, *(history.paths - copied)})),
        commands=history.commands,
    )
