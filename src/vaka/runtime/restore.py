"""Files that go back with their session: what tools changed after a place is put back to what it was there."""

from contextlib import aclosing

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.store import Store
from vaka.core.ports.world import CHANGED_FILE
from vaka.core.session.cursor import Cursor
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import FileError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Digest, SessionId
from vaka.core.types.progress import ToolCalled, ToolCompleted
from vaka.files.snapshots import GONE, Plan, Snapshots, overwritten, path_of
from vaka.runtime.branch import locate, rewind

_EDITS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_COMMANDS = frozenset({"Bash"})


class FilesBack(msgspec.Struct, frozen=True, kw_only=True):
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


class _Since(msgspec.Struct):
    """What the log says happened to files after a place, on every branch."""

    tokens: list[JSON]
    paths: set[str]
    commands: int = 0


async def preview(store: Store, files: Files, session: SessionId, to: "Cursor | str") -> FilesBack:
    """Return what ``rewind_with_files`` would do with the files. Nothing is touched."""
    since = await _since(store, session, await locate(store, session, to))
    return _told(since, await Snapshots(files, store.blobs).plan(since.tokens))


async def rewind_with_files(
    store: Store, files: Files, session: SessionId, to: "Cursor | str", ts: str, *, force: bool = False
) -> tuple[Event, FilesBack]:
    """Take a session back, and the files its tools changed. Nothing is done unless all of it can be done.

    ``FileChanged`` names the files that somebody else has changed since, unless ``force``. What the files hold now is
    kept and written down first, in the write that takes the session back: after a crash the same call goes on with it,
    and going back to a place after this one undoes it.
    """
    since = await _since(store, session, await locate(store, session, to))
    snapshots = Snapshots(files, store.blobs)
    plan = await snapshots.plan(since.tokens)
    if plan.changed and not force:
        raise overwritten(plan.changed)
    copies = await snapshots.copies(plan.steps)
    noted = [
        StateChanged(key=CHANGED_FILE, value=await snapshots.before(step.path, becomes=Digest(step.was)))
        for step in plan.steps
    ]
    event = await rewind(store, session, to, ts, noted)
    try:
        await snapshots.apply(plan.steps, copies)
    except FileError as error:
        error.add_note("the session has gone back, but not all of its files; the same call again goes on with them")
        raise
    return event, _told(since, plan)


async def _since(store: Store, session: SessionId, after: int) -> _Since:
    since, calls = _Since([], set()), dict[str, str]()
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            body = event.data
            if isinstance(body, StateChanged) and body.key == CHANGED_FILE:
                since.tokens.append(body.value)
            elif isinstance(body, ToolCalled):
                calls[body.call.id] = body.call.name
                since.commands += body.call.name in _COMMANDS
            elif isinstance(body, ToolCompleted) and calls.get(body.result.call) in _EDITS:
                since.paths |= _changed(body.result.value)
    return since


class _Changed(msgspec.Struct):
    """What a file tool says of a change."""

    path: str
    after: str


def _changed(value: JSON) -> set[str]:
    try:
        return {msgspec.convert(value, _Changed).path}
    except msgspec.ValidationError:
        return set()  # it changed nothing


def _told(since: _Since, plan: Plan) -> FilesBack:
    copied = {path_of(token) for token in since.tokens}
    return FilesBack(
        restored=tuple(step.path for step in plan.steps if step.was != GONE),
        removed=tuple(step.path for step in plan.steps if step.was == GONE),
        changed=plan.changed, lost=tuple(sorted({*plan.lost, *(since.paths - copied)})), commands=since.commands,
    )  # fmt: skip
