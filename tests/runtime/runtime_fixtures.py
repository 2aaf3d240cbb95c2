"""Runtimes on a shared in-memory store, helpers to read logs, and the invariants every log must satisfy."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import vaka
from vaka.config.options import OptionGroup
from vaka.core.ports.model import Model
from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId, Term
from vaka.core.types.message import ToolResult
from vaka.core.types.state import call_id
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.runtime.turn_stream import TurnStream
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeIds

IDS = FakeIds()
"""Names for every runtime of this process: no two of them give the same one."""
TURN_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)


class CommitCounter:
    """An event store that notes what is appended, commit by commit."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.commits: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        done: int = await self._inner.append(session, events, head=head, term=term, release=release)
        if events:
            self.commits.append([event.type for event in events])
        return done


def count_commits(store: MemoryStore) -> CommitCounter:
    """Let a store count its commits."""
    counting = CommitCounter(store.events)
    store.events = counting
    return counting


def merge_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a runtime; the fields of a given group that are set replace those of the default group."""
    merged = {**defaults, **given}
    for name in defaults.keys() & given.keys():
        if isinstance(given[name], OptionGroup):
            own = given[name].__struct_defaults__
            fields = zip(given[name].__struct_fields__, own, strict=True)
            changes = {
                field: getattr(given[name], field)
                for field, default in fields
                if getattr(given[name], field) != default
            }
            merged[name] = msgspec.structs.replace(defaults[name], **changes)
    return merged


def runtime(store: MemoryStore | None = None, **options: Any) -> Runtime:
    """Return a runtime with sequential ids that waits for decisions unless ``options`` change it."""
    defaults = {"environment": Environment(ids=IDS), "store": store or MemoryStore()}
    return vaka.Runtime(**merge_options(defaults, options))


def agent(model: Model, *tools: Any, name: str = "assistant", **more: Any) -> vaka.Agent:
    """Return an agent."""
    return vaka.Agent(name, model=model, tools=tools, **more)


async def collect(events: AsyncGenerator[Event] | TurnStream) -> list[Event]:
    """Drain a stream."""
    async with aclosing(events) as stream:
        return [event async for event in stream]


async def collect_turn(session: Session, says: str = "Go.", **more: Any) -> list[Event]:
    """Say something and return the events of the turn."""
    return await collect(session.stream(says, **more))


async def read_log(store: MemoryStore, session: str) -> list[Event]:
    """Return a session's log."""
    return await collect(store.events.read(SessionId(session)))


def count_events(store: MemoryStore, session: str, kind: str) -> int:
    """Return how many events of a type a session's log has right now."""
    log = store.hub.shared.logs.get(("", SessionId(session)))
    return event_types(log.events).count(kind) if log else 0


async def wait_until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds. A number of rounds is no limit: uvloop runs them faster than programs."""
    try:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110  # any state of any part may be waited for
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError("it never came to hold") from None


def event_types(events: Sequence[Event], *, live: bool = False) -> list[str]:
    """Return the types of events, without the live ones unless they are wanted."""
    return [event.type for event in events if live or event.seq]


def results_by_call(events: Sequence[Event]) -> dict[str, ToolResult]:
    """Return the results of all calls, by call."""
    kinds = (progress.ToolCompleted, progress.ToolFailed)
    return {event.data.result.call: event.data.result for event in events if isinstance(event.data, kinds)}


def reasons_by_call(events: Sequence[Event]) -> dict[str, str]:
    """Return why each call has no ordinary result, ``ok`` for those that have one."""
    return {call: result.reason or "ok" for call, result in results_by_call(events).items()}


def last_body(events: Sequence[Event]) -> Any:
    """Return what the last event says."""
    return events[-1].data


def check_log(events: Sequence[Event], *, finished: bool = True) -> None:
    """Check what holds in every log: seqs, pairing, call ids, one turn at a time, children that end."""
    open_calls: dict[str, tuple[str, ...]] = {}
    made: dict[tuple[str, ...], int] = {}
    children: set[tuple[str, ...]] = set()
    turn = ""
    for number, event in enumerate(events, 1):
        assert event.seq == number
        body = event.data
        if isinstance(body, progress.TurnStarted):
            assert not turn, "two turns at once"
            turn = event.turn
            made = {(): made.get((), 0)}
        elif isinstance(body, progress.ToolCalled):
            made[event.path] = made.get(event.path, 0) + 1
            assert body.call.id == call_id(event.path, made[event.path])
            open_calls[body.call.id] = event.path
        elif isinstance(body, progress.ToolStarted):
            assert body.call.id in open_calls
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            assert open_calls.pop(body.result.call) == event.path
        elif isinstance(body, progress.StepStarted):
            assert event.path not in open_calls.values()
        elif isinstance(body, progress.SubagentStarted):
            children.add((*event.path, body.child))
        elif isinstance(body, progress.SubagentCompleted):
            children.remove((*event.path, body.child))
        elif isinstance(body, TURN_ENDS):
            assert not open_calls, "a turn ended before its calls"
            assert turn == event.turn
            turn = ""
    assert not finished or not (turn or open_calls), f"unfinished: {turn} {open_calls}"


def log_writer(store: MemoryStore, session: str, events: Sequence[Event]) -> Callable[[], Any]:
    """Return what puts events into an empty store, as if a process had written them and died."""

    async def put() -> None:
        term = await store.events.claim(SessionId(session))
        await store.events.append(SessionId(session), events, head=0, term=term, release=True)

    return put


def without_ids(prompt_messages: Sequence[Any]) -> list[Any]:
    """Return messages without what may differ between two runs: ids of messages."""
    plain: list[Any] = []
    for message in msgspec.to_builtins(list(prompt_messages)):
        message.pop("id", None)
        plain.append(message)
    return plain


def advance_loop_time(monkeypatch: pytest.MonkeyPatch, seconds: float = 1000.0) -> None:
    """Let the event loop believe that time has passed: what was to happen by then happens now."""
    loop = asyncio.get_running_loop()
    begin = loop.time
    monkeypatch.setattr(loop, "time", lambda: begin() + seconds)


async def run_with_limits(model: Any, *tools: Any, **limits: Any) -> tuple[Any, list[Event]]:
    """Run one turn within limits, and return its answer and the whole log."""
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, *tools, limits=vaka.Limits(**limits)), id="s")
        response = await session.run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return response, log


def write(path: Path, text: str) -> Path:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
