"""Many concurrent sessions, one very long session, and no leaked tasks or files."""

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.faults import log_checks
from tests.faults.transcript import Transcript
from vaka.agents.react import Agent
from vaka.core.ports.store import EventStore, Store
from vaka.core.session.fanout import Fanout
from vaka.core.session.log import SessionLog
from vaka.core.session.snapshot import reopen
from vaka.core.types import progress
from vaka.core.types.context import ContextCompacted
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Event
from vaka.core.types.ids import EventScope, MessageId, SessionId, Term, TurnId
from vaka.core.types.message import Text
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools import tool

STORY = [f"word {number} " for number in range(50)]


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a number is all that is needed


def open_store_of(kind: str, folder: Path) -> Store:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "vaka.db", durability="process")


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"sea in the {where}"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("sessions", [200, pytest.param(1000, marks=pytest.mark.exhaustive)])
async def test_many_concurrent_sessions_complete(kind: str, sessions: int, tmp_path: Path) -> None:
    files, store = count_open_files(), open_store_of(kind, tmp_path)
    agent = Agent("teller", model=ScriptedModel(call("look", where="north"), {"chunks": STORY}), tools=[look])
    async with Runtime(store=store) as runtime:

        async def follow(id: str) -> Transcript:
            transcript = Transcript()
            async with aclosing(runtime.follow(id)) as events:
                async for event in events:
                    transcript.add_event(event)
                    if transcript.ended:
                        break
            return transcript

        async def one(number: int) -> Transcript:
            session = await runtime.open(agent, id=f"s{number}")
            following = asyncio.create_task(follow(session.id))
            response = await session.run("Tell.")
            assert response.text == "".join(STORY)
            return await following

        async with asyncio.timeout(100):
            transcripts = await asyncio.gather(*(one(number) for number in range(sessions)))
        for number, transcript in enumerate(transcripts):
            await _assert_same_as_log(store, f"s{number}", transcript)
    await store.close()
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert count_open_files() <= files


async def _assert_same_as_log(store: Store, session: str, transcript: Transcript) -> None:
    """The follower's transcript is that of the log, in order and without a gap."""
    log = [event async for event in store.events.read(SessionId(session))]
    log_checks.assert_chain_complete(log)
    assert transcript.seqs == [event.seq for event in log]
    assert transcript.messages == transcript.from_log(log).messages == ["", "".join(STORY)]
    assert transcript.open_text in {"", "".join(STORY)}


class CountingEvents:
    """The logs of a store, with a count of the rows read."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self.rows = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        self.rows += len(seqs)
        return await self._events.select(session, seqs, digest=digest)

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        self.rows += after > 0  # the event before, for its hash
        async with aclosing(self._events.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.rows += 1
                yield event


async def append_turn(store: Store, log: SessionLog, number: int, steps: int, size: int = 40) -> None:
    """Append a turn of many steps in one write."""
    place, key = EventScope(TurnId(f"t{number}")), f"k{number}"
    log.defer(EventScope(), InputAdded(key=key, content=(Text(text="More."),)))
    log.defer(place, progress.TurnStarted(agent="teller", inputs=(key,)))
    for step in range(1, steps + 1):
        at = EventScope(place.turn, step)
        said = progress.MessageCompleted(message_id=MessageId(f"m{number}.{step}"), content=(Text(text="w" * size),))
        log.defer(at, progress.StepStarted(agent="teller", number=step), said, progress.StepCompleted(number=step))
    await log.append(place, progress.TurnCompleted(text="done"))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_opening_a_hundred_thousand_events_reads_only_the_last_of_them(kind: str, tmp_path: Path) -> None:
    store, id = open_store_of(kind, tmp_path), SessionId("long")
    log = SessionLog(store, id, Fanout(id), FakeClock())
    log.begin_writing(await store.events.claim(id), await reopen(store, id))
    number = 0
    while log.head < 99_020:
        await append_turn(store, log, number := number + 1, 300 if log.head < 98_000 else 10)
    compacted = log.head
    await log.append(EventScope(), ContextCompacted(summary="There was a lot.", keep_from=log.head + 1))
    while log.head < 100_000:
        await append_turn(store, log, number := number + 1, 10)
    await log.append(EventScope(), release=True)
    assert (log.term, log.head - compacted <= 1_000) == (Term(0), True)
    counting = CountingEvents(store.events)
    store.events = counting  # type: ignore[assignment]  # hands on what it does not count
    agent = Agent("teller", model=ScriptedModel(say("Here I am.", repeat=True)))
    await reopen(store, id)
    assert 0 < counting.rows < 1_300
    counting.rows = 0
    async with Runtime(store=store) as runtime:
        session = await runtime.open(agent, id=id)
        await session.run("And now?")
    assert 0 < counting.rows < 1_300
    await store.close()
