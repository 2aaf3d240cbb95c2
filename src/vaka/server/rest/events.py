"""The events of a session: pages of its log as JSON, and a stream of stored and new events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub, Subscription
from vaka.core.types.control import StreamEnd, StreamReset
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId
from vaka.server.event_filter import EventFilter
from vaka.server.kit.operation import Operation, read_query, wants_stream
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import cursor_of, find_session
from vaka.server.rest.formats import EncodeEvents, StreamFormat, make_encoder
from vaka.server.sse import EventStream

MAX_EVENTS = 1000
MAX_SCANNED = 5000
"""Events that one page reads at most, when few of them are selected."""


_AFTER = r"^(now|[0-9]{1,18}(\.[0-9]{1,18})?)?$"


class ReadEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events of a session to read."""

    after: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": _AFTER})] = ""
    """The cursor of the last event that the client has; ``now``: the last one. ``Last-Event-ID`` counts before it."""
    limit: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_EVENTS})] = 100
    channels: str = ""
    """Channels, separated by commas: ``progress``, ``control``, ``monitor``."""
    types: str = ""
    """Types of events, separated by commas."""
    path: str = ""
    """The agent, as names separated by ``/``; default: the root."""
    depth: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many levels of child agents to include; default: all."""
    format: StreamFormat = "vaka"
    """The form of streamed events."""

    def to_filter(self) -> EventFilter:
        return EventFilter(
            channels=_split(self.channels),
            types=_split(self.types),
            path=tuple(name for name in self.path.split("/") if name),
            depth=self.depth,
        )


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a log. ``next_cursor`` is the ``after`` of the next page; ``head`` the last event there is."""

    data: list[dict[str, Any]]
    next_cursor: str
    has_more: bool
    head: str


def _split(text: str) -> frozenset[str]:
    return frozenset(part for each in text.split(",") if (part := each.strip()))


async def read_events(service: AgentService, request: Request) -> ASGIApp:
    """Reads the events of the page from the log, at most ``MAX_SCANNED``; a stream reads those after its cursor."""
    runtime, info = await find_session(service, request)
    query = read_query(request, ReadEvents)
    after = request.headers.get("last-event-id") or query.after
    cursor = Cursor(info.epoch, info.head) if after == "now" else Cursor.parse(after)
    if wants_stream(request):
        encode = make_encoder(query.format, info.id, info.agent)
        frames = follow_frames(runtime.hub, info.id, cursor, encode, query.to_filter())
        return EventStream(frames, service.streams, resumable=True, ending=end_frame(info.id, "draining", info.updated))
    if not 1 <= query.limit <= MAX_EVENTS:
        raise Problem(422, "invalid_query", f"limit must be 1 to {MAX_EVENTS}", errors=[{"field": "limit"}])
    return await _read_page(runtime.store, info, cursor, query.limit, query.to_filter())


async def follow_frames(
    hub: FollowerHub, session: SessionId, after: Cursor, encode: EncodeEvents, filter: EventFilter
) -> AsyncGenerator[bytes]:
    """Yield the frames of the events after a cursor, then of new ones, each batch as one piece."""
    follower = Follower()
    ts = ""
    selects = None if filter.selects_all else filter.selects
    async with Subscription(hub, session, after, follower) as subscription:
        while events := await subscription.next_batch():
            ts = events[-1].ts
            if selects is not None:
                events = [event for event in events if selects(event)]
            if events and (frames := encode(events)):
                yield frames
    if follower.error is None:
        yield end_frame(session, "closed" if hub.closed.is_set() else "deleted", ts)


def end_frame(session: str, reason: str, ts: str) -> bytes:
    """Return the last frame of a stream that is complete."""
    return Event(data=StreamEnd(reason=reason), session=SessionId(session), ts=ts).to_sse()


async def _read_page(store: Store, info: SessionInfo, cursor: Cursor, limit: int, filter: EventFilter) -> Response:
    """Return a page; with a cursor that is not of this log it begins with ``stream.reset``, and at the start."""
    data, last = list[bytes](), cursor.seq
    if cursor.epoch not in (0, info.epoch) or cursor.seq > info.head:
        reset = StreamReset(reason=f"no event {cursor} here")
        data, last = [Event(data=reset, session=info.id, ts=info.updated).to_json()], 0
    wanted, upto = limit + len(data), min(info.head, last + (limit if filter.selects_all else MAX_SCANNED))
    async with aclosing(store.events.read(info.id, after=last, upto=upto)) as events:
        async for event in events:
            last = event.seq
            if filter.selects(event):
                data.append(event.stored)
                if len(data) == wanted:
                    break
    end = {"next_cursor": f"{info.epoch}.{last}", "has_more": last < info.head, "head": cursor_of(info)}
    body = b'{"data":[' + b",".join(data) + b"]," + msgspec.json.encode(end)[1:]
    return Response(body, media_type="application/json")


OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions/{session}/events",
        scope="runs:read",
        handler=read_events,
        summary="Read or follow the events of a session",
        query=ReadEvents,
        result=EventPage,
        streams=True,
    ),
)
