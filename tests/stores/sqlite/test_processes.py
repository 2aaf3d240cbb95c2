"""Several processes on one database: one writer at a time, and all followers are notified."""

import asyncio
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.stores.sqlite.conftest import Spawn
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy
from vaka.core.types.ids import SessionId, Term
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.sqlite import SqliteStore
from vaka.testing.crashes import FAILPOINTS
from vaka.testing.stores.sealed_events import EventSealer, begin_session, input_added, read_log, write_session

S = SessionId("s")


async def test_a_claim_ends_with_its_process(store: SqliteStore, spawn: Spawn) -> None:
    child = await spawn("hold")
    assert await child.read_line() == "held"
    with pytest.raises(Busy):
        await store.events.claim(S)
    found = await store.sessions.find(S)
    assert found is not None
    assert found.live
    await child.kill()
    assert await store.events.claim(S) == 2
    assert store.events.predecessor_died(S, Term(2))
    log = await EventSealer("s").catch_up(store)
    assert await log.append_to(store, await _stored_term(store), input_added("on", "k2")) == 2


async def _stored_term(store: SqliteStore) -> Term:
    found = await store.sessions.find(S)
    assert found is not None
    return Term(found.term)


async def test_files_of_a_dead_process_are_removed(store: SqliteStore, spawn: Spawn, path: Path) -> None:
    child = await spawn("hold")
    assert await child.read_line() == "held"
    await child.kill()
    folder = path.with_name("vaka.db-live")
    left = {file.name for file in folder.iterdir()}
    assert {Path(name).suffix for name in left} == {".lock", ".sock"}
    await store.events.claim(S)
    assert not left & {file.name for file in folder.iterdir()}
    await store.close()
    assert list(folder.iterdir()) == []


async def test_processes_that_contend_for_a_session_write_one_after_the_other(store: SqliteStore, spawn: Spawn) -> None:
    await write_session(store, "s")
    children = [await spawn("contend", 15) for _ in range(3)]
    for child in children:
        assert await child.read_line() == "ready"
    for child in children:
        await child.send_line("go")
    for child in children:
        assert await child.read_line() == "done"
    events = [event async for event in store.events.read(S)]
    assert len(events) == 1 + 3 * 15
    assert await _stored_term(store) >= 1 + 3 * 15


async def test_of_processes_that_begin_a_session_concurrently_one_writes_it(store: SqliteStore, spawn: Spawn) -> None:
    children = [await spawn("begin", f"child {number}") for number in range(3)]
    for child in children:
        assert await child.read_line() == "ready"
    for child in children:
        await child.send_line("go")
    outcomes = [await child.read_line() for child in children]
    assert sorted(word.split()[0] for word in outcomes) == ["lost", "lost", "wrote"]
    assert len(await read_log(store, "s")) == 1


@pytest.mark.parametrize("place", FAILPOINTS)
@pytest.mark.parametrize("number", [1, 2, 5])
async def test_a_process_killed_at_a_failpoint_loses_nothing_it_acknowledged(
    store: SqliteStore, spawn: Spawn, place: str, number: int
) -> None:
    child = await spawn("write", 8, VAKA_FAILPOINT=f"{place}:{number}:kill")
    acknowledged = [int(line) for line in await child.read_to_end()]
    assert child.process.returncode == -signal.SIGKILL
    assert len(acknowledged) == number - 1
    committed = place in {"append.after_commit", "append.before_ack"}
    stored = [decode(event) for event in await read_log(store, "s")]
    assert [event.seq for event in stored] == list(range(1, 2 * (number - 1 + committed) + 1))
    log = EventSealer("s", *stored)
    term = await store.events.claim(S)
    assert await log.append_to(store, term, input_added("on", "after")) == len(stored) + 1


async def test_failpoints_can_be_counted(spawn: Spawn, tmp_path: Path) -> None:
    child = await spawn("write", 4, VAKA_FAILPOINT=f"count:{tmp_path / 'count'}")
    await child.read_to_end()
    assert (tmp_path / "count").read_text() == (
        '{"append.before_begin":4,"append.after_rows":4,"append.after_commit":4,"append.before_ack":4}'
    )


@pytest.mark.every_loop
async def test_an_append_in_another_process_wakes_a_wait(store: SqliteStore, spawn: Spawn) -> None:
    child = await spawn("hold")
    assert await child.read_line() == "held"
    for head in range(1, 6):
        waiting = asyncio.create_task(store.events.wait(S, after=head))
        await asyncio.sleep(0)
        await child.send_line("more")
        assert await waiting == head + 1
        assert await child.read_line() == str(head + 1)


@pytest.mark.every_loop
async def test_an_offer_from_another_process_wakes_the_writer(store: SqliteStore, spawn: Spawn) -> None:
    await begin_session(store, "s")
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    child = await spawn("offer", "o1")
    assert await child.read_to_end() == ["2"]
    assert await waiting == 2


@pytest.mark.every_loop
async def test_snapshots_come_from_another_process(store: SqliteStore, spawn: Spawn) -> None:
    child = await spawn("share")
    assert await child.read_line() == "ready"
    shown = ""
    async with aclosing(store.live.watch(S)) as events:
        for text in ("Hello", "Hello,", "Hello,world"):
            await child.send_line(text.removeprefix(shown))
            while shown != text:
                event = await anext(events)
                assert isinstance(event.data, MessageSnapshot)
                assert text.startswith(event.data.text)
                shown = event.data.text


@pytest.mark.every_loop
async def test_followers_continue_with_the_next_writer_when_theirs_was_killed(store: SqliteStore, spawn: Spawn) -> None:
    first = await spawn("hold")
    assert await first.read_line() == "held"
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await asyncio.sleep(0)
    await first.kill()
    other = SqliteStore(store.path)
    term = await other.events.claim(S)
    log = await EventSealer("s").catch_up(other)
    await log.append_to(other, term, input_added("two", "k2"))
    assert await waiting == 2
    waiting = asyncio.create_task(store.events.wait(S, after=2))
    await asyncio.sleep(0)
    await log.append_to(other, term, input_added("three", "k3"))
    assert await waiting == 3
    await other.close()
