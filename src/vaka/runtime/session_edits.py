"""Fork, rewind and single writes to a session that no driver runs; look-up of positions in its log."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.branches import LiveBranch, TimedEntry, end_turn_entries, fork_entries, rewind_entries
from vaka.core.session.fold import fold
from vaka.core.session.hash_chain import seal_chain
from vaka.core.session.index_rows import MAX_METADATA_BYTES, merge_metadata, require_data
from vaka.core.session.snapshot import OpenedSession, read_newer, reopen
from vaka.core.types.control import InputAdded, SessionReverted, SessionUpdated
from vaka.core.types.errors import AccessDenied, Busy, Corrupt, HeadMoved, InvalidInput, NotFound
from vaka.core.types.event import Body, Event
from vaka.core.types.hidden_messages import HIDDEN_KEY
from vaka.core.types.ids import Cursor, EventScope, SessionId, TurnId
from vaka.core.types.message import replace_surrogates
from vaka.core.types.progress import TURN_ENDS, TurnQueued, TurnStarted
from vaka.core.types.state import SessionState

if TYPE_CHECKING:
    from vaka.runtime.session_driver import WarmSessions

SealEvents: TypeAlias = Callable[[OpenedSession], Awaitable[list[Event]]]
"""Returns the sealed events to append to a session as it is."""

ComposeEntries: TypeAlias = Callable[[OpenedSession], Awaitable[Sequence[TimedEntry]]]
"""Returns the entries to append to a session as it is."""

_READ_SPAN = 256

EDIT_SECONDS = 1.0
"""Seconds that an edit waits for one of another process."""
_EDIT_POLL_SECONDS = 0.05

MAX_TITLE_LENGTH = 200
MAX_TAGS = 64
MAX_TAG_LENGTH = 100


async def fork(
    store: Store, origin: SessionId, at: "Cursor | str | None", new_session: SessionId, timestamp: str
) -> None:
    """Copy the events of a session up to a position unchanged, and append an event that names the origin."""
    seq = await resolve_seq(store, origin, at)
    if await store.sessions.find(new_session) is not None:
        raise InvalidInput(f"session {new_session!r} already exists")
    prefix = await reopen(store, origin, upto=seq)
    async with aclosing(store.events.read(origin, upto=seq)) as events:
        copied = [event async for event in events]
    last = copied[-1] if copied else None
    entries = fork_entries(prefix.state, origin, last.id if last else "1.0")
    term = await store.events.claim(new_session)
    try:
        from vaka.runtime.feature_records import load_feature_records

        for records in load_feature_records():
            await records.copy_session(store, origin, new_session)
        await store.events.append(
            new_session, [*copied, *seal_chain(new_session, last, entries, timestamp)], head=0, term=term, release=True
        )
    except BaseException:
        await store.events.release(new_session, term)
        raise
    current = await store.sessions.find(origin)
    if current is not None and current.erased:  # meanwhile: the copy must not outlast it
        await store.sessions.delete(new_session)
        require_data(current)


async def delete_session(store: Store, session: SessionId) -> None:
    """Delete a session, and sessions with copies of its messages. Raises ``NotFound`` and ``Busy``."""
    from vaka.runtime.feature_records import list_copies, load_feature_records

    info = None
    with suppress(Corrupt):  # a session whose row is damaged can be deleted too
        info = await store.sessions.find(session)
        for copied in await list_copies(store, session):
            await store.sessions.delete(copied.id)
    await store.sessions.delete(session)
    if info is not None:
        for records in load_feature_records():
            await records.erase_session(store, info, dry_run=False)


async def rewind(
    store: Store, session: SessionId, prefix: SessionState, timestamp: str, extra_bodies: Sequence[Body] = ()
) -> Event:
    """Append a rewind to the state that ``open_boundary`` returned, after the end of an unfinished turn.

    ``extra_bodies`` are appended before the rewind.
    """

    async def compose(now: OpenedSession) -> list[tuple[EventScope, Body]]:
        also = [(EventScope(), body) for body in extra_bodies]
        return [
            *end_turn_entries(now.state, "rewound"),
            *also,
            *rewind_entries(prefix, now.state, f"back to {prefix.seq}"),
        ]

    events = await _append_composed(store, session, compose, timestamp)
    return next(event for event in events if event.type == "session.reverted")


async def write_event(store: Store, session: SessionId, body: Body, timestamp: str) -> Event:
    """Append one event to a session that has no running turn."""
    if await store.sessions.find(session) is None:
        raise NotFound(f"there is no session {session!r}")

    async def compose(_: OpenedSession) -> list[tuple[EventScope, Body]]:
        return [(EventScope(), body)]

    return (await _append_composed(store, session, compose, timestamp))[0]


async def write_event_if(
    store: Store, session: SessionId, body: Body, timestamp: str, holds: Callable[[SessionState], bool]
) -> bool:
    """Append one event if something holds for the session then; return whether it does."""

    async def compose(now: OpenedSession) -> list[tuple[EventScope, Body]]:
        return [(EventScope(), body)] if holds(now.state) else []

    return bool(await _append_composed(store, session, compose, timestamp))


CheckSession: TypeAlias = Callable[[SessionInfo | None], None]
"""Raises an error unless a session, by its index row, may be changed."""


def check_version(session: SessionId, version: int | None) -> CheckSession | None:
    """Return a function that raises ``HeadMoved`` unless a session has a version; ``None`` without a version."""
    if version is None:
        return None

    def check(info: SessionInfo | None) -> None:
        if info is None or info.version != version:
            now = info.version if info is not None else 0
            raise HeadMoved(f"session {session!r} has version {now}, not {version}; read it and change it again")

    return check


def make_update(
    title: str | None, owner: str | None, tags: Sequence[str] | None, metadata: Mapping[str, Any] | None, by: str
) -> SessionUpdated:
    """Return the event that describes a session anew. Raises ``InvalidInput`` for values that cannot be indexed."""
    if title is not None:
        title = " ".join(replace_surrogates(title).split())
        if len(title) > MAX_TITLE_LENGTH:
            raise InvalidInput(f"the title has {len(title)} characters; at most {MAX_TITLE_LENGTH} are allowed")
    if owner is not None and (not owner.isprintable() or len(owner) > MAX_TITLE_LENGTH):
        raise InvalidInput(f"the owner {owner[:40]!r} must be printable, with at most {MAX_TITLE_LENGTH} characters")
    if isinstance(tags, str):
        raise InvalidInput(f"tags must be a list of texts, such as [{tags[:40]!r}]")
    kept = None if tags is None else tuple(dict.fromkeys(tags))
    for tag in kept or ():
        if not tag.strip() or not tag.isprintable() or len(tag) > MAX_TAG_LENGTH:
            raise InvalidInput(f"tag {tag[:40]!r} must be a printable text of 1 to {MAX_TAG_LENGTH} characters")
    if kept is not None and len(kept) > MAX_TAGS:
        raise InvalidInput(f"there are {len(kept)} tags; a session has at most {MAX_TAGS}")
    if title is None and owner is None and kept is None and not metadata:
        raise InvalidInput("nothing to update: give a title, an owner, tags or metadata")
    _check_metadata(metadata or {})
    if metadata and HIDDEN_KEY in metadata:
        raise InvalidInput(f"the key {HIDDEN_KEY!r} of the metadata is reserved for deleted messages; leave it out")
    return SessionUpdated(title=title, owner=owner, tags=kept, metadata=dict(metadata) if metadata else None, by=by)


async def require_owner(store: Store, session: SessionId, owner: str) -> None:
    """Raise ``AccessDenied`` if a session exists and belongs to another owner, or to none."""
    make_update(None, owner, None, None, "")
    info = await store.sessions.find(session)
    if info is not None and info.owner != owner:
        raise AccessDenied(f"session {session!r} does not belong to the owner {owner!r}")


def check_update(
    session: SessionId, info: SessionInfo | None, body: SessionUpdated, check: CheckSession | None
) -> None:
    """Raise what ``check`` raises, and ``InvalidInput`` for metadata that the session cannot hold."""
    if check is not None:
        check(info)
    if body.metadata:
        check_merged_metadata(session, info, body.metadata)


def check_merged_metadata(session: SessionId, info: SessionInfo | None, changes: Mapping[str, Any]) -> None:
    """Raise ``InvalidInput`` if a session cannot hold changes of its metadata together with the rest of them."""
    size = len(msgspec.json.encode(merge_metadata(info.metadata if info is not None else {}, changes)))
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"the metadata of session {session!r} would have {size} bytes as JSON; at most {MAX_METADATA_BYTES} are "
            f"allowed: remove a key by setting it to null"
        )


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    try:
        size = len(msgspec.json.encode(metadata))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the metadata cannot be written as JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(f"metadata may have at most {MAX_METADATA_BYTES} bytes as JSON; these have {size}")


async def append_entries(
    store: Store,
    session: SessionId,
    compose: ComposeEntries,
    timestamp: str,
    caches: "EditCaches | None" = None,
    info: SessionInfo | None = None,
) -> list[Event]:
    """Append the entries that ``compose`` returns for the current state, each at its time or at ``timestamp``.

    A session that does not exist begins with them. ``compose`` is called again when the session has changed before
    its entries are written. With ``caches`` a session is not read again for each call, its context window may be empty,
    and another process that edits it is awaited for a second. ``info`` is its index row, if it was just read.
    """

    async def seal(now: OpenedSession) -> list[Event]:
        events: list[Event] = []
        for time, group in groupby(await compose(now), key=itemgetter(0)):
            entries = [(scope, body) for _, scope, body in group]
            events += seal_chain(session, events[-1] if events else now.last, entries, time or timestamp)
        return events

    return await _append_sealed(store, session, seal, caches, info)


async def _append_composed(
    store: Store,
    session: SessionId,
    compose: Callable[[OpenedSession], Awaitable[list[tuple[EventScope, Body]]]],
    timestamp: str,
) -> list[Event]:
    async def seal(now: OpenedSession) -> list[Event]:
        return seal_chain(session, now.last, await compose(now), timestamp)

    return await _append_sealed(store, session, seal)


async def _append_sealed(
    store: Store,
    session: SessionId,
    seal: SealEvents,
    caches: "EditCaches | None" = None,
    info: SessionInfo | None = None,
) -> list[Event]:
    """Append the events that ``seal`` returns for the current state; repeat it when the session has changed meanwhile.

    Raises ``Busy`` while the session has a writer.
    """
    deadline = asyncio.get_running_loop().time() + (EDIT_SECONDS if caches is not None else 0.0)
    while True:
        info = info or await store.sessions.find(session)
        try:
            events = await _append_to_idle(store, session, info, seal, caches)
        except _HasWriterError:
            await _await_writer(store, session, info, deadline)
        else:
            if events is not None:
                return events
        info = None


class _HasWriterError(Exception):
    """The session has a writer. Unlike ``Busy``, it is not an error of ``seal``."""


async def _append_to_idle(
    store: Store, session: SessionId, info: SessionInfo | None, seal: SealEvents, caches: "EditCaches | None"
) -> list[Event] | None:
    """Append what ``seal`` returns to a session as its row shows it; ``None`` when it has changed meanwhile."""
    if info is not None:
        require_data(info)
        if info.live:
            raise _HasWriterError
    now = await (reopen(store, session) if caches is None else caches.read(store, session, info))
    if (now.last.seq if now.last else 0) != (info.head if info is not None else 0):
        return None
    events = await seal(now._replace(info=info))
    try:
        await store.events.append_idle(info or SessionInfo(id=session), events)
    except HeadMoved:
        return None
    except Busy as error:
        raise _HasWriterError from error
    if caches is not None and events and not any(isinstance(event.data, SessionReverted) for event in events):
        await caches.hold(store, session, now, events)
    return events


async def _await_writer(store: Store, session: SessionId, info: SessionInfo | None, deadline: float) -> None:
    """Wait until a process has edited a session. Raises ``Busy`` if it runs a turn, and after the deadline."""
    if info is None or info.turn or info.inputs or asyncio.get_running_loop().time() >= deadline:
        raise Busy(f"session {session!r} has a writer; try again when its turn has ended")
    with suppress(TimeoutError):  # an edit that writes nothing moves no head
        async with asyncio.timeout(_EDIT_POLL_SECONDS):
            await store.events.wait(session, after=info.head)


class EditCaches(NamedTuple):
    """The sessions that this process has run or edited, so that their next edit reads only what is new."""

    warm: "WarmSessions"
    """With their context windows, for turns as well."""
    states: "WarmSessions"
    """Without context windows: an edit of a long conversation does not need it."""

    async def read(self, store: Store, session: SessionId, info: SessionInfo | None) -> OpenedSession:
        """Return the current state of a session, with its row. A session read from the store has no context window."""
        for cache in self:
            known = cache.take(session)
            known = await read_newer(store, session, known, info) if known is not None else None
            if known is not None:
                return known
        return await reopen(store, session, with_window=False)

    async def hold(self, store: Store, session: SessionId, now: OpenedSession, events: Sequence[Event]) -> None:
        """Hold a session for its next edit or turn, with the events that were appended to it."""
        fold(now.state, events)
        if now.tail.has_window:
            now.window.add(events, now.state)
        now.tail.add(events)
        await now.tail.save_if_due(store, session, now.state, events[-1].hash)
        cache = self.warm if now.tail.has_window else self.states
        cache.put(session, now._replace(last=events[-1], info=None))


async def read_last_turn(store: Store, session: SessionId) -> tuple[Event, ...]:
    """Return the events of the last turn on the live branch, reading the log backwards in growing spans."""
    info = await store.sessions.find(session)
    if info is None:
        raise NotFound(f"there is no session {session!r}")
    span = _READ_SPAN
    while True:
        events = await _read_live_events(store, session, max(info.head - span, 0))
        turn = next((event.turn for event in reversed(events) if event.turn), "")
        turn_events = tuple(event for event in events if turn and event.turn == turn)
        if span >= info.head or any(isinstance(event.data, TurnStarted) for event in turn_events):
            return turn_events
        span *= 4


async def _read_live_events(store: Store, session: SessionId, after: int) -> list[Event]:
    """Return the events after a position that are on the live branch."""
    branch = LiveBranch(after)
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            branch.add(event)
    return branch.live_events()[0]


async def read_kept_backwards(store: Store, session: SessionId, upto: int, lowest: int = 0) -> AsyncGenerator[Event]:
    """Yield the events after ``lowest`` up to ``upto`` that no rewind has removed, the newest first."""
    while upto > lowest:
        after = max(upto - _READ_SPAN, lowest)
        async with aclosing(store.events.read(session, after=after, upto=upto)) as events:
            span = [event async for event in events]
        upto = after
        for event in reversed(span):
            if isinstance(event.data, SessionReverted) and event.data.onward is None:
                upto = event.data.to
                break
            yield event


async def open_boundary(store: Store, session: SessionId, to: "Cursor | str") -> SessionState:
    """Return the state of a session at a position between two turns.

    Raises ``InvalidInput`` for a position inside a turn; the message has the positions before and after that turn.
    """
    seq = await resolve_seq(store, session, to)
    prefix = (await reopen(store, session, upto=seq, with_window=False)).state
    if prefix.turn is None:
        return prefix
    before = await find_boundary_before(store, session, prefix.turn.started)
    end = await _find_turn_end(store, session, prefix.turn.id, seq)
    places = [f"to {before} (before this turn)"] if before else []
    places += [f"to {end} (its end)"] if end else []
    raise InvalidInput(
        f"session {session!r} cannot be rewound to event {seq}, which is inside a turn; rewind it "
        f"{' or '.join(places)}, or fork it at {seq}"
    )


async def find_boundary_before(store: Store, session: SessionId, started: int) -> int:
    """Return the last position before a turn, given its ``turn.started``, and before the inputs directly before it."""
    position = started - 1
    while position > 0:
        async with aclosing(store.events.read(session, after=position - 1, upto=position)) as events:
            bodies = [event.data async for event in events]
        if not all(isinstance(body, InputAdded | TurnQueued) for body in bodies):
            break
        position -= 1
    return position


async def _find_turn_end(store: Store, session: SessionId, turn: TurnId, after: int) -> int:
    """Return the event after a position that ends a turn, 0 if the turn has not ended."""
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            if event.turn == turn and isinstance(event.data, TURN_ENDS):
                return event.seq
    return 0


async def resolve_seq(store: Store, session: SessionId, at: object) -> int:
    """Return the seq of a cursor or label. Raises ``NotFound`` or ``InvalidInput`` when it does not exist."""
    if at is not None and not isinstance(at, Cursor | str):
        raise InvalidInput(
            f"a position in a session must be a text such as '42' or '1.42', the label of a checkpoint, or a Cursor; "
            f"got {at!r} of type {type(at).__name__}"
        )
    info = await store.sessions.find(session)
    if info is None:
        raise NotFound(f"there is no session {session!r}")
    require_data(info)
    if at is None:
        return info.head
    cursor = at if isinstance(at, Cursor) else await _resolve_label(store, session, at)
    if cursor.epoch not in (0, info.epoch) or not 0 < cursor.seq <= info.head:
        raise InvalidInput(f"session {session!r} has no event {cursor}; its last is {info.epoch}.{info.head}")
    return cursor.seq


async def _resolve_label(store: Store, session: SessionId, text: str) -> Cursor:
    if text[:1].isdigit():
        return Cursor.parse(text)
    opened = await reopen(store, session)
    checkpoints = {**opened.state.marks, **opened.state.checkpoints}
    seq = checkpoints.get(text)
    if seq is None:
        known = ", ".join(sorted(checkpoints)) or "none"
        raise InvalidInput(f"session {session!r} has no checkpoint {text!r}; it has: {known}")
    return Cursor(opened.state.epoch, seq)
