"""A log with a store in memory and a fake clock, builders of events, and an event store that fails."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Literal

from vaka.core.ports.store import EventStore, SessionInfo, Store
from vaka.core.session import branches, hash_chain
from vaka.core.session.follow import FollowerHub
from vaka.core.session.log import SessionLog
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import SNAPSHOT_INTERVAL, SnapshotTail, encode_state, reopen
from vaka.core.types import control, monitor, progress
from vaka.core.types.errors import ConflictError, HeadMoved, Unavailable
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import (
    AgentPath,
    CallId,
    CallKey,
    Cursor,
    DecisionId,
    Digest,
    EventScope,
    MessageId,
    SessionId,
    Term,
    TurnId,
)
from vaka.core.types.message import FailureReason, Text, ToolCall, ToolResult, text_of
from vaka.core.types.tool import Effect
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock

S = SessionId("s")
T1 = EventScope(TurnId("t1"), 1)


class LogHarness:
    """One process: its handle on a store, its followers, its logs."""

    def __init__(self, store: Store | None = None, *, clock: FakeClock | None = None) -> None:
        self.store = store or MemoryStore()
        self.clock = clock or FakeClock(auto=True)
        self.hub = FollowerHub(self.store)

    async def open(self, session: SessionId = S, secrets: Secrets | None = None) -> SessionLog:
        log = SessionLog(self.store, session, self.hub.attach_writer(session), self.clock, secrets)
        log.begin_writing(await self.store.events.claim(session), await reopen(self.store, session))
        return log

    async def release(self, log: SessionLog) -> None:
        await self.store.events.release(log.session, log.term)
        self.hub.detach_writer(log.session)

    async def stored_events(self, session: SessionId = S, after: int = 0) -> list[Event]:
        async with aclosing(self.store.events.read(session, after=after)) as events:
            return [event async for event in events]

    async def offer(self, body: Body, key: str, session: SessionId = S) -> int:
        event = Event(data=body, session=session, ts="2026-01-01T00:00:00.000Z")
        return await self.store.events.offer(session, event, key=key)

    async def follow(self, count: int, after: Cursor | None = None, session: SessionId = S) -> list[Event]:
        """Return the first ``count`` events that a follower gets."""
        async with aclosing(self.hub.follow(session, after or Cursor())) as events:
            return [await anext(events) for _ in range(count)]


async def assert_same_after_reopening(harness: LogHarness, log: SessionLog) -> None:
    """Assert that the state of the writer equals the state that is read from the store."""
    opened = await reopen(harness.store, log.session)
    assert encode_state(opened.state) == encode_state(log.state)
    assert [event.stored for event in opened.window.events] == [event.stored for event in log.window.events]
    assert opened.window.index() == log.window.index()
    assert (opened.last.seq if opened.last else 0) == log.head


async def force_snapshot(harness: LogHarness, log: SessionLog) -> None:
    """Take a snapshot now, however short the tail is."""
    last = (await harness.stored_events(log.session, after=log.head - 1))[-1]
    tail = SnapshotTail(log.window, SNAPSHOT_INTERVAL)
    tail.add([last] * (4 + len(encode_state(log.state)) // 200 + len(log.window.events) // 10))
    await tail.save_if_due(harness.store, log.session, log.state, last.hash)


async def run_event_loop(rounds: int = 50) -> None:
    """Let other tasks run for some rounds of the event loop."""
    for _ in range(rounds):
        await asyncio.sleep(0)


Fault = Literal["", "before", "after", "late", "conflict"]


class FlakyEventStore:
    """An event store that loses the connection: before the write, after it, or with the write arriving late."""

    def __init__(self, inner: EventStore, faults: Iterable[Fault] = ()) -> None:
        self.inner, self.faults = inner, list(faults)
        self.appends = self.rows = 0
        self.down = 0
        """The number of reads that fail."""
        self.slow = 0
        """The rounds of the event loop that an append yields, before the write and after it."""
        self._late: list[tuple[SessionId, Sequence[Event], int, Term, bool]] = []

    async def append_idle(self, info: SessionInfo, events: Sequence[Event]) -> int:
        return await self.inner.append_idle(info, events)

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        self.appends += 1
        fault = self.faults.pop(0) if self.faults else ""
        await run_event_loop(self.slow)
        if fault == "conflict":
            raise ConflictError("another writer has taken over")
        if fault == "late":
            self._late.append((session, events, head, term, release))
        if fault in {"before", "late"}:
            raise Unavailable("the line is down")
        await self.deliver_late_writes()
        reached = await self.inner.append(session, events, head=head, term=term, release=release)
        await run_event_loop(self.slow)
        if fault == "after":
            raise Unavailable("the line went down")
        return reached

    async def deliver_late_writes(self) -> None:
        """Deliver late writes to the store; stale ones are refused."""
        late, self._late = self._late, []
        for session, events, head, term, release in late:
            with suppress(HeadMoved, ConflictError):
                await self.inner.append(session, events, head=head, term=term, release=release)

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        events = await self.inner.select(session, seqs, digest=digest)
        self.rows += len(events)
        return events

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        if self.down:
            self.down -= 1
            raise Unavailable("the line is down")
        async with aclosing(self.inner.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.rows += 1
                yield event

    async def claim(self, session: SessionId) -> Term:
        return await self.inner.claim(session)

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        return await self.inner.offer(session, event, key=key)

    async def wait(self, session: SessionId, *, after: int) -> int:
        return await self.inner.wait(session, after=after)

    async def release(self, session: SessionId, term: Term) -> None:
        await self.inner.release(session, term)

    def is_held(self, session: SessionId, term: Term) -> bool:
        return self.inner.is_held(session, term)

    def predecessor_died(self, session: SessionId, term: Term) -> bool:
        return self.inner.predecessor_died(session, term)


def flaky_harness(*faults: Fault) -> tuple[LogHarness, FlakyEventStore]:
    """Return a harness whose store fails in these ways, one append after the other."""
    store = MemoryStore()
    events = FlakyEventStore(store.events, faults)
    store.events = events
    return LogHarness(store), events


# ------------------------------------------------------------------------------------------------- event builders


def input_added(text: str, key: str = "k", policy: control.InputPolicy = "queue") -> control.InputAdded:
    return control.InputAdded(key=key, content=(Text(text=text),), policy=policy)


def turn_started(*keys: str, agent: str = "a") -> progress.TurnStarted:
    return progress.TurnStarted(agent=agent, inputs=keys)


def step_started(number: int = 1, *keys: str, agent: str = "a") -> progress.StepStarted:
    return progress.StepStarted(agent=agent, number=number, inputs=keys)


def message_completed(text: str, message: str = "m1") -> progress.MessageCompleted:
    return progress.MessageCompleted(message_id=MessageId(message), content=(Text(text=text),))


def tool_called(
    id: str = "call_1", name: str = "look", message: str = "m1", **arguments: object
) -> progress.ToolCalled:
    return progress.ToolCalled(
        call=ToolCall(id=CallId(id), name=name, arguments=arguments), message_id=MessageId(message)
    )


def tool_started(id: str = "call_1", effect: Effect = "once", **arguments: object) -> progress.ToolStarted:
    return progress.ToolStarted(
        call=ToolCall(id=CallId(id), name="look", arguments=arguments), key=CallKey(f"s/{id}"), effect=effect
    )


def tool_result(
    id: str = "call_1", text: str = "done", *, failed: bool = False, reason: FailureReason = ""
) -> ToolResult:
    return ToolResult(call=CallId(id), content=(Text(text=text),), failed=failed, reason=reason)


def tool_completed(id: str = "call_1", text: str = "done") -> progress.ToolCompleted:
    return progress.ToolCompleted(result=tool_result(id, text))


def tool_failed(id: str = "call_1", reason: FailureReason = "error") -> progress.ToolFailed:
    return progress.ToolFailed(result=tool_result(id, failed=True, reason=reason))


def turn_completed(text: str = "bye") -> progress.TurnCompleted:
    return progress.TurnCompleted(text=text)


def approval_requested(
    approval: str = "apr_1", call: str = "call_1", expires: str = "", rule: str = "r"
) -> control.ApprovalRequested:
    return control.ApprovalRequested(
        approval=DecisionId(approval),
        call=ToolCall(id=CallId(call), name="look"),
        digest=Digest("d"),
        spec=Digest("spec"),
        rule=rule,
        expires=expires,
    )


def approval_resolved(
    approval: str = "apr_1",
    decision: Literal["approve", "reject"] = "approve",
    scope: control.ApprovalScope = "once",
) -> control.ApprovalResolved:
    return control.ApprovalResolved(approval=DecisionId(approval), decision=decision, scope=scope)


def log_line(text: str) -> monitor.Logged:
    return monitor.Logged(level="info", message=text)


def text_delta(text: str, offset: int, message: str = "m1", block: int = 0) -> progress.TextDelta:
    return progress.TextDelta(message_id=MessageId(message), block=block, offset=offset, text=text)


def scope_at(turn: str = "t1", step: int = 0, path: AgentPath = ()) -> EventScope:
    return EventScope(TurnId(turn), step, path)


async def write_simple_turn(log: SessionLog, number: int = 1) -> None:
    """Write a turn with one call, in four writes."""
    scope = scope_at(f"t{number}", 1)
    key = f"k{number}"
    message = f"m{number}"
    call = f"call_{log.state.calls + 1}"
    await log.append(scope, input_added(f"question {number}", key), turn_started(key), step_started())
    await log.append(scope, message_completed("", message), tool_called(call, message=message), tool_started(call))
    await log.append(scope, tool_completed(call), progress.StepCompleted(number=1), step_started(2))
    await log.append(
        scope, message_completed(f"answer {number}", message + "b"), progress.StepCompleted(number=2), turn_completed()
    )


def visible_texts(events: Iterable[Event]) -> list[str]:
    """Return the text of each message as a client assembles it from deltas, snapshots and completed messages."""
    texts_by_message: dict[str, dict[int, str]] = {}
    for event in events:
        apply_visible_text(texts_by_message, event)
    return ["".join(block for _, block in sorted(blocks.items())) for blocks in texts_by_message.values()]


def apply_visible_text(texts_by_message: dict[str, dict[int, str]], event: Event) -> None:
    body = event.data
    match body:
        case progress.TextDelta():
            blocks = texts_by_message.setdefault(body.message_id, {})
            blocks[body.block] = blocks.get(body.block, "")[: body.offset] + body.text
        case progress.MessageSnapshot():
            texts_by_message.setdefault(body.message_id, {})[body.block] = body.text
        case progress.MessageCompleted():
            texts_by_message[body.message_id] = {0: text_of(body.content)}
        case progress.MessageDiscarded():
            texts_by_message.pop(body.message_id, None)
        case _:
            return


# ------------------------------------------------------------------------------------------------- branches

NOW = "2026-01-01T00:00:00.000Z"


async def rewind_session(harness: LogHarness, to: int, session: SessionId = S) -> list[Event]:
    """Rewind a session to an event; return the events written."""
    now = await reopen(harness.store, session)
    prefix = await reopen(harness.store, session, upto=to)
    entries = [*branches.end_turn_entries(now.state, "rewound"), *branches.rewind_entries(prefix.state, now.state, "")]
    events = hash_chain.seal_chain(session, now.last, entries, NOW)
    term = await harness.store.events.claim(session)
    await harness.store.events.append(session, events, head=now.state.seq, term=term, release=True)
    return events


async def fork_session(harness: LogHarness, upto: int, new_session: SessionId, session: SessionId = S) -> list[Event]:
    """Fork a session at an event; return the events written."""
    prefix = await reopen(harness.store, session, upto=upto)
    copied = (await harness.stored_events(session))[:upto]
    last = copied[-1]
    events = [
        *copied,
        *hash_chain.seal_chain(new_session, last, branches.fork_entries(prefix.state, session, last.id), NOW),
    ]
    term = await harness.store.events.claim(new_session)
    await harness.store.events.append(new_session, events, head=0, term=term, release=True)
    return events
