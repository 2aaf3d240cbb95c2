"""Traces of sessions, read from the end of their logs: a recent turn costs little however long the log is."""

from contextlib import aclosing

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.progress import TURN_ENDS, TurnStarted
from vaka.views.trace import Trace, TraceDocument, TraceFold, describe_session

READ_SPAN = 512
"""Events read at a time."""


async def list_traces(store: Store, info: SessionInfo, before: int, limit: int) -> tuple[list[Trace], int]:
    """Return the traces of turns, newest first, and the seq before which the next page begins; 0 on the last page.

    ``before`` is the seq that the previous page returned, 0 for the first page.
    """
    events: list[Event] = []
    upto = before - 1 if before else info.head
    while upto > 0 and sum(map(_begins_turn, events)) < limit:
        after = max(upto - READ_SPAN, 0)
        events = [*await _read(store, info, after, upto), *events]
        upto = after
    starts = [index for index, event in enumerate(events) if _begins_turn(event)][-limit:]
    if not starts:
        return [], 0
    first = starts[0]
    traces = list(TraceFold().add_all(events[first:]).traces.values())
    return traces[::-1], events[first].seq if len(starts) == limit and events[first].seq > 1 else 0


async def read_trace(store: Store, info: SessionInfo, turn: str) -> Trace:
    """Return the trace of a turn. Raises ``NotFound``."""
    events: list[Event] = []
    upto = info.head
    while upto > 0:
        after = max(upto - READ_SPAN, 0)
        span = await _read(store, info, after, upto)
        events, upto = [*span, *events], after
        start = next((index for index, event in enumerate(span) if _begins_turn(event) and event.turn == turn), None)
        if start is not None:
            return TraceFold().add_all(_until_end(events[start:], turn)).traces[turn]
        if not any(event.turn == turn for event in events):
            events = []
    raise NotFound(f"session {info.id!r} has no turn {turn[:100]!r}")


async def read_session_trace(store: Store, info: SessionInfo) -> TraceDocument:
    """Return all turns of a session as one trace. Raises ``NotFound`` when it has none."""
    fold = TraceFold()
    async with aclosing(store.events.read(info.id)) as events:
        async for event in events:
            fold.add(event)
    described = describe_session(info.id, fold.traces.values())
    if described is None:
        raise NotFound(f"session {info.id!r} has no turns yet")
    return described


async def _read(store: Store, info: SessionInfo, after: int, upto: int) -> list[Event]:
    async with aclosing(store.events.read(info.id, after=after, upto=upto)) as events:
        return [event async for event in events]


def _begins_turn(event: Event) -> bool:
    return isinstance(event.data, TurnStarted) and not event.path


def _until_end(events: list[Event], turn: str) -> list[Event]:
    """Return the events up to the end of a turn: the decisions between them belong to it, too."""
    for index, event in enumerate(events):
        if event.turn == turn and not event.path and isinstance(event.data, TURN_ENDS):
            return events[: index + 1]
    return events
