"""Turns as they are in the log, which is read backwards: a recent turn costs little however long the log is."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from vaka.agents.react import Agent
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import InputAdded, SessionReverted
from vaka.core.types.ending import Response
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import SessionId, TurnId
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import StepStarted, TurnFailed, TurnStarted
from vaka.runtime.agent_builder import output_schema_of
from vaka.runtime.session_edits import read_kept_backwards
from vaka.runtime.turn_stream import TurnCollector
from vaka.server.rest.documents import ErrorDocument, TurnDocument, TurnStatus, usage_document
from vaka.server.rest.open_decisions import describe_decisions
from vaka.views.failures import failure_of

READ_SPAN = 256
"""Events read at a time."""

_STATUS_OF_STOPS: dict[str, TurnStatus] = {
    "end": "completed",
    "limit": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one turn, or the input that no turn has taken."""

    id: TurnId
    key: str
    events: Sequence[Event]
    input_seq: int = 0
    """The event before the first one, if that is the input of the turn."""
    withdrawn: bool = False

    @property
    def first_seq(self) -> int:
        return self.events[0].seq


async def read_backwards(store: Store, session: SessionId, upto: int) -> AsyncGenerator[list[Event]]:
    """Yield the events of a log up to one, in spans; the last span first, each in the order of the log."""
    while upto > 0:
        after = max(upto - READ_SPAN, 0)
        async with aclosing(store.events.read(session, after=after, upto=upto)) as events:
            span = [event async for event in events]
        yield span
        upto = after


async def find_turn(store: Store, info: SessionInfo, name: str) -> TurnRecord | None:
    """Return the turn with an id, or that answers the input with a key; an input alone if it waits or was withdrawn.

    Reads the log from its end back to the start of the turn; the whole log if there is no such turn.
    """
    current = TurnId("")
    events = list[Event]()
    known = False
    async with aclosing(read_backwards(store, info.id, info.head)) as spans:
        async for span in spans:
            for event, earlier in zip(reversed(span), (*reversed(span[:-1]), None), strict=True):
                body = event.data
                if event.turn:
                    if event.turn != current:
                        current = event.turn
                        events = []
                        known = event.turn == name
                    events.append(event)
                    if isinstance(body, TurnStarted | StepStarted) and name in body.inputs:
                        known = True
                    if known and isinstance(body, TurnStarted) and not event.path:
                        is_input = earlier is not None and isinstance(earlier.data, InputAdded)
                        return msgspec.structs.replace(_record(events), input_seq=event.seq - 1 if is_input else 0)
                elif isinstance(body, InputAdded) and body.key == name and not (known and current):
                    waiting = name in (await reopen(store, info.id)).state.inputs
                    return TurnRecord(id=TurnId(""), key=name, events=(event,), withdrawn=not waiting)
    return None


async def list_turns(store: Store, info: SessionInfo, before: int, limit: int) -> tuple[list[TurnRecord], int]:
    """Return turns from the newest to older ones, and the seq before which the next page begins; 0 on the last page.

    Turns that a rewind removed are left out. Reads the log back to the start of the last turn of the page. The first
    page (``before`` is 0) begins with the inputs that wait, which are in the folded state of the session.
    """
    records = await _read_queued(store, info) if not before and info.inputs else []
    upto, events = (min(before - 1, info.head) if before else info.head), dict[TurnId, list[Event]]()
    async with aclosing(read_kept_backwards(store, info.id, upto)) as kept:
        async for event in kept:
            if event.turn:
                events.setdefault(event.turn, []).append(event)
            if isinstance(event.data, TurnStarted) and not event.path:
                records.append(_record(events.pop(event.turn)))
                if len(records) >= limit:
                    return records, event.seq if event.seq > 1 else 0
    return records, 0


async def _read_queued(store: Store, info: SessionInfo) -> list[TurnRecord]:
    queued = sorted((await reopen(store, info.id)).state.inputs.values(), key=lambda each: each.seq, reverse=True)
    records: list[TurnRecord] = []
    for each in queued:
        async with aclosing(store.events.read(info.id, after=each.seq - 1, upto=each.seq)) as events:
            records.append(TurnRecord(id=TurnId(""), key=each.key, events=[event async for event in events]))
    return records


def _record(reversed_events: list[Event]) -> TurnRecord:
    events = reversed_events[::-1]
    started = events[0].data
    inputs = started.inputs if isinstance(started, TurnStarted) else ()
    return TurnRecord(id=events[0].turn, key=inputs[0] if inputs else "", events=events)


def record_of(events: list[Event]) -> TurnRecord | None:
    """Return the turn whose stored events these are, ``None`` if its first one is missing."""
    return _record(events[::-1]) if events and isinstance(events[0].data, TurnStarted) else None


async def describe_turn(
    store: Store, info: SessionInfo, record: TurnRecord, agent: Agent | None = None
) -> TurnDocument:
    """Return the document of a turn; ``agent`` parses its ``output``."""
    if not record.id:
        status: TurnStatus = "cancelled" if record.withdrawn else "queued"
        return TurnDocument(id="", key=record.key, session=info.id, status=status, cursor=record.events[-1].id)
    collector = _collect(info.id, record)
    if collector.end_event is None:
        return await _describe_unfinished(store, info, record, _fields_of(info.id, record, collector))
    return await describe_ended(store, info.id, record, agent)


async def describe_ended(
    store: Store, session: SessionId, record: TurnRecord, agent: Agent | None = None
) -> TurnDocument:
    """Return the document of a turn that has ended; ``agent`` parses its ``output``."""
    collector = _collect(session, record)
    assert collector.end_event is not None  # noqa: S101  # the turn has ended
    await collector.restore_text(store.blobs)
    response = collector.summarize()
    failed = response.stop not in ("end", "limit")
    return TurnDocument(
        status=_STATUS_OF_STOPS[response.stop],
        stop=response.stop,
        limit=response.limit,
        text=response.text,
        usage=usage_document(response.usage),
        ended=collector.end_event.ts,
        error=_describe_error(collector.end_event.data, response) if failed else UNSET,
        output=_parse_output(agent, response),
        **_fields_of(session, record, collector),
    )


def _collect(session: SessionId, record: TurnRecord) -> TurnCollector:
    collector = TurnCollector(session, key=record.key, turn=record.id)
    collector.take_events(record.events)
    return collector


def _fields_of(session: SessionId, record: TurnRecord, collector: TurnCollector) -> dict[str, Any]:
    return {
        "id": record.id,
        "key": record.key,
        "session": session,
        "cursor": record.events[-1].id,
        "started": record.events[0].ts,
        "steps": collector.steps,
        "tool_calls": tuple(collector.tool_names),
        "denied": tuple(collector.denied_calls),
    }


async def _describe_unfinished(
    store: Store, info: SessionInfo, record: TurnRecord, fields: dict[str, Any]
) -> TurnDocument:
    fields["usage"] = usage_document(_usage_so_far(record.events))
    if info.turn != record.id:  # a rewind has removed its end
        return TurnDocument(status="interrupted", stop="interrupted", **fields)
    rows = await store.sessions.decisions(info.id) if info.pending else ()
    decisions = await describe_decisions(store, [row for row in rows if row.event.turn == record.id], agent=info.agent)
    status: TurnStatus = "waiting" if decisions else "running"
    return TurnDocument(status=status, decisions=decisions, **fields)


def _usage_so_far(events: Sequence[Event]) -> Usage:
    """Return what the model calls of a turn have cost, child agents included."""
    usage = Usage()
    for event in events:
        if isinstance(event.data, UsageRecorded):
            usage = usage + event.data.usage
        elif isinstance(event.data, SessionReverted) and event.data.onward is not None:
            usage = event.data.onward.spent  # the turn went back in its own conversation
    return usage


def _parse_output(agent: Agent | None, response: Response) -> Any | UnsetType:
    schema = output_schema_of(agent) if agent is not None and response.stop == "end" else None
    if schema is None:
        return UNSET
    try:
        return msgspec.to_builtins(schema.parse(response.text))
    except TurnError:  # the answer is of an agent that had no output type then, or another one
        return UNSET


def _describe_error(body: Body, response: Response) -> ErrorDocument:
    if not isinstance(body, TurnFailed):
        return ErrorDocument(code=response.code or response.stop, message=response.error)
    failure = failure_of(body)
    return ErrorDocument(
        code=failure.code,
        message=failure.message,
        status=failure.status,
        retry_after=failure.retry_after or UNSET,
    )
