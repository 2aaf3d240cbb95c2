"""All followers of a session, in any process, get the same: every durable event in order, and the growing text."""

import asyncio
import gc
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import make_runtime, open_store
from tests.faults.log_stores import LogStore, SqliteLogStore, read_log
from tests.faults.processes import TIMEOUT, ChildProcess
from tests.faults.programs.stream_words import WORDS, WordByWordModel
from tests.faults.transcript import Transcript
from vaka.agents.react import Agent
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageCompleted, TurnCompleted
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel
from vaka.testing.stores.sealed_events import begin_session


async def read_until_text(child: ChildProcess, text: str) -> list[str]:
    """Return the lines of a follower up to the one with this text."""
    lines: list[str] = []
    while not lines or lines[-1] != f"text {text!r}":
        lines.append(await child.read_line())
        assert lines[-1], "the follower ended"
    return lines


async def test_followers_in_other_processes_see_the_text_while_it_is_written(
    shared: LogStore, spawn: StartProgram
) -> None:
    plan = shared.new_plan()
    writer = await spawn("stream_words", plan)
    await writer.read_until("gate")
    followers = [await spawn("follow_session", plan) for _ in range(2)]
    follower_lines: list[list[str]] = [await read_until_text(follower, WORDS[0]) for follower in followers]
    for number in range(1, len(WORDS)):
        await writer.send_line("go")
        for lines, follower in zip(follower_lines, followers, strict=True):
            lines += await read_until_text(follower, "".join(WORDS[: number + 1]))
    await writer.send_line("go")
    writer_lines = await writer.read_to_end()
    for lines, follower in zip(follower_lines, followers, strict=True):
        lines += await follower.read_to_end()
    log = await read_log(plan)
    everything = [(event.id, event.hash) for event in log]
    assert writer_lines[-1] == "ended"
    for lines in follower_lines:
        assert [tuple(line.split()[1:]) for line in lines if line.startswith("event")] == everything
        assert lines[-1] == f"text {''.join(WORDS)!r}"


async def test_a_follower_misses_nothing_when_the_writer_dies_and_another_takes_over(
    shared: LogStore, spawn: StartProgram
) -> None:
    plan = shared.new_plan()
    first = await spawn("stream_words", plan)
    await first.read_until("gate")
    followers = [await spawn("follow_session", plan) for _ in range(2)]
    follower_lines = [await read_until_text(follower, WORDS[0]) for follower in followers]
    await first.kill()
    await shared.expire_claim(plan)
    second = await spawn("stream_words", msgspec.structs.replace(plan, how="resume"))
    for _ in WORDS:
        await second.read_until("gate")
        await second.send_line("go")
    assert (await second.read_to_end())[-1] == "ended"
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    for lines, follower in zip(follower_lines, followers, strict=True):
        lines += await follower.read_to_end()
        shown = [tuple(line.split()[1:]) for line in lines if line.startswith("event")]
        assert shown == [(event.id, event.hash) for event in log]
        assert lines[-1] == f"text {''.join(WORDS)!r}"


async def test_a_dead_and_a_stopped_follower_do_not_delay_the_writer(shared: LogStore, spawn: StartProgram) -> None:
    plan = shared.new_plan()
    writer = await spawn("stream_words", plan)
    await writer.read_until("gate")
    dead, stopped, alive = [await spawn("follow_session", plan) for _ in range(3)]
    for follower in (dead, stopped, alive):
        await read_until_text(follower, WORDS[0])
    await dead.kill()
    stopped.send_signal(signal.SIGSTOP)
    for number in range(1, len(WORDS)):
        await writer.send_line("go")
        await read_until_text(alive, "".join(WORDS[: number + 1]))
    await writer.send_line("go")
    assert (await writer.read_to_end())[-1] == "ended"
    stopped.send_signal(signal.SIGCONT)
    log = await read_log(plan)
    lines = await stopped.read_to_end()
    assert lines[-1] == f"text {''.join(WORDS)!r}"
    assert f"event {log[-1].id} {log[-1].hash}" in lines


async def follow_to_end(runtime: Runtime, session: str, after: str, transcript: Transcript) -> list[Event]:
    """Follow from a cursor to the end of the turn."""
    events: list[Event] = []
    async with asyncio.timeout(TIMEOUT), aclosing(runtime.follow(session, after=after)) as following:
        async for event in following:
            transcript.add_event(event)
            events.append(event)
            if isinstance(event.data, TurnCompleted):
                return events
    raise AssertionError("the end of the turn did not come")


async def test_a_follower_that_reconnects_at_every_cursor_reads_the_same_transcript(
    home: LogStore, spawn: StartProgram
) -> None:
    plan = home.new_plan()
    assert (await (await spawn("run_agent", plan)).read_to_end())[-1] == "ended"
    log = await read_log(plan)
    store = open_store(plan)
    async with make_runtime(plan, store) as runtime:
        for at in range(len(log)):
            transcript = Transcript()
            for event in log[:at]:
                transcript.add_event(event)
            after = log[at - 1].id if at else "0.0"
            rest = await follow_to_end(runtime, plan.session, after, transcript)
            assert [event.stored for event in rest] == [event.stored for event in log[at:]]
            assert transcript.messages == Transcript.from_log(log).messages
    await store.close()


async def test_a_follower_that_reconnects_after_every_event_reads_the_same_transcript() -> None:
    """In the writer's process, with deltas: the follower reconnects after each event."""
    story = [f"word {number} " for number in range(30)]
    model = ScriptedModel({"chunks": story}, {"chunks": story[::-1]})
    async with Runtime(store=MemoryStore()) as runtime:
        session = await runtime.open(Agent("teller", model=model), id="s")
        staying, coming = Transcript(), Transcript()
        stays = asyncio.create_task(follow_to_end(runtime, "s", "0.0", staying))
        comes = asyncio.create_task(_reconnect_repeatedly(runtime, coming))
        await session.run("Tell.")
        await asyncio.gather(stays, comes)
        log = [event async for event in runtime.store.events.read(SessionId("s"))]
    assert staying.messages == coming.messages == Transcript.from_log(log).messages
    assert coming.seqs == staying.seqs == [event.seq for event in log]


async def _reconnect_repeatedly(runtime: Runtime, transcript: Transcript) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not transcript.ended:
            async with aclosing(runtime.follow("s", after=transcript.cursor)) as following:
                transcript.add_event(await anext(following))
            await asyncio.sleep(0)  # let the writer run between two connections


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_follower_that_never_reads_does_not_delay_the_writer(tmp_path: Path, kind: str) -> None:
    """A hundred followers that stop after one event, and one that reads: the turn ends, and memory is bounded."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "vaka.db", durability="process")
    story = [f"{number} " * 3 for number in range(2000)]
    async with Runtime(store=store) as runtime:
        session = await runtime.open(Agent("teller", model=ScriptedModel({"chunks": story})), id="s")
        lazy = [runtime.follow("s") for _ in range(100)]
        waiting = [asyncio.ensure_future(anext(events)) for events in lazy]
        transcript = Transcript()
        reading = asyncio.create_task(follow_to_end(runtime, "s", "0.0", transcript))
        response = await session.run("Tell.")
        await reading
        await asyncio.gather(*waiting)
        queued = [len(follower.queue) for follower in runtime.hub.fanout_of(SessionId("s")).followers]
        assert max(queued, default=0) < 600
        late = [await _read_rest(events, waited.result()) for events, waited in zip(lazy, waiting, strict=True)]
        for events in lazy:
            await events.aclose()
    await store.close()
    assert response.text == "".join(story)
    assert transcript.messages[-1] == response.text
    assert all(seen.messages[-1] == response.text for seen in late)


async def _read_rest(events: AsyncGenerator[Event], first: Event) -> Transcript:
    transcript = Transcript()
    transcript.add_event(first)
    while not transcript.ended:
        transcript.add_event(await anext(events))
    return transcript


@pytest.mark.parametrize("steps", [0, 1, 20])
async def test_a_wait_cancelled_while_the_store_closes_logs_nothing(home: LogStore, steps: int) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    store = open_store(home.new_plan())
    await begin_session(store, "s")
    waiting = asyncio.create_task(store.events.wait(SessionId("s"), after=1000))
    for _ in range(steps):
        await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, closing, return_exceptions=True)
    del waiting, closing
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


async def test_the_text_of_a_message_is_that_of_its_deltas(tmp_path: Path) -> None:
    """Deltas, snapshots and the completed message agree."""
    plan = SqliteLogStore(tmp_path, "process").new_plan()
    store = open_store(plan)
    tale = WordByWordModel()
    async with Runtime(store=store) as runtime:
        session = await runtime.open(Agent("teller", model=tale), id=plan.session)
        transcript = Transcript()
        async for event in session.stream("Tell."):
            transcript.add_event(event)
            if isinstance(event.data, MessageCompleted):
                assert transcript.open_text == "".join(WORDS)
    await store.close()
    assert transcript.messages == ["".join(WORDS)]
