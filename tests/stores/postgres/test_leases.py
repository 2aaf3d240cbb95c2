"""Writers in several processes: one at a time, and a paused one is fenced out."""

import asyncio
import signal
from pathlib import Path

import asyncpg
import msgspec
import pytest

from tests.stores.postgres.conftest import Spawn, claim_when_free
from vaka.core.types.errors import Busy
from vaka.core.types.ids import SessionId
from vaka.stores.postgres import PostgresStore
from vaka.testing.crashes import FAILPOINTS, disable_failpoints, enable_failpoints
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    read_log,
    write_session,
)

S = SessionId("s")


async def test_of_two_processes_that_claim_a_session_one_succeeds(store: PostgresStore, spawn: Spawn) -> None:
    await write_session(store, "s")
    one, two = await spawn(), await spawn()
    got = await asyncio.gather(one.ask("claim", session="s"), two.ask("claim", session="s"))
    assert sorted(got, key=str) == [2, "Busy"]
    winner, loser = (one, two) if got[0] == 2 else (two, one)
    assert await winner.ask("append", session="s", key="w", release=True) == 2
    assert await loser.ask("claim", session="s") == 3
    assert await loser.ask("append", session="s", key="l") == 3


async def test_of_two_processes_that_begin_a_session_one_writes_it(store: PostgresStore, spawn: Spawn) -> None:
    one, two = await spawn(), await spawn()
    terms = await asyncio.gather(one.ask("claim", session="s"), two.ask("claim", session="s"))
    assert terms[0] == terms[1] == 1
    got = await asyncio.gather(one.ask("append", session="s", key="one"), two.ask("append", session="s", key="two"))
    assert sorted(got, key=str) == [1, "ConflictError"]
    assert len(await read_log(store, "s")) == 1


async def test_a_killed_writer_is_replaced_after_its_lease(store: PostgresStore, spawn: Spawn) -> None:
    child = await spawn(lease=3)
    assert await child.ask("claim", session="s") == 1
    assert await child.ask("append", session="s", key="a") == 1
    with pytest.raises(Busy):
        await store.events.claim(S)
    child.signal(signal.SIGKILL)
    assert await child.wait_exit() == -signal.SIGKILL
    term = await claim_when_free(store, S)
    assert term == 2
    assert await (await EventSealer(S).catch_up(store)).append_to(store, term, input_added("b", "b")) == 2


async def test_a_lease_is_renewed_while_its_process_lives(
    store: PostgresStore, postgres_dsn: str, spawn: Spawn
) -> None:
    child = await spawn(lease=1.5)
    await child.ask("claim", session="s")
    await child.ask("append", session="s", key="a")
    connection = await asyncpg.connect(postgres_dsn)
    leases: set[object] = set()
    async with asyncio.timeout(60):
        while len(leases) < 4:
            leases.add(await connection.fetchval("select lease_until from vaka.sessions"))
    await connection.close()
    assert await child.ask("append", session="s", key="b") == 2
    with pytest.raises(Busy):
        await store.events.claim(S)


async def test_a_writer_paused_longer_than_its_lease_is_fenced_out(store: PostgresStore, spawn: Spawn) -> None:
    child = await spawn(lease=2)
    await child.ask("claim", session="s")
    await child.ask("append", session="s", key="a")
    assert await child.ask("held", session="s") is True
    child.signal(signal.SIGSTOP)
    term = await claim_when_free(store, S)
    log = await EventSealer(S).catch_up(store)
    await log.append_to(store, term, input_added("b", "b"))
    child.signal(signal.SIGCONT)
    assert await child.ask("held", session="s") is False
    assert await child.ask("append", session="s", key="stale") == "ConflictError"
    assert await child.ask("append", session="s", key="stale") == "ConflictError"
    assert store.events.is_held(S, term)
    assert await read_log(store, "s") == log.stored


async def test_a_paused_writer_continues_if_its_session_was_not_claimed(store: PostgresStore, spawn: Spawn) -> None:
    child = await spawn(lease=2)
    await child.ask("claim", session="s")
    await child.ask("append", session="s", key="a")
    child.signal(signal.SIGSTOP)
    async with asyncio.timeout(60):
        while (found := await store.sessions.find(S)) is None or found.live:
            continue
    child.signal(signal.SIGCONT)
    assert await child.ask("append", session="s", key="b") == 2
    assert await child.ask("held", session="s") is True


async def test_an_append_and_an_offer_wake_waits_in_another_process(store: PostgresStore, spawn: Spawn) -> None:
    log, term = await begin_session(store, "s")
    child = await spawn()
    for head in range(1, 6):
        child.send_command("wait", session="s", after=head)
        await log.append_to(store, term, input_added("x", f"k{head}"))
        assert await child.read_answer() == head + 1
    waiting = asyncio.create_task(store.events.wait(S, after=6))
    assert await child.ask("offer", session="s", key="psst") == 7
    assert await waiting == 7


async def test_open_blocks_are_seen_in_another_process(store: PostgresStore, spawn: Spawn) -> None:
    writer, follower = await spawn(), await spawn()
    await writer.ask("claim", session="s")
    await writer.ask("append", session="s", key="a")
    follower.send_command("watch", session="s", text="so far 🛶\x00")
    await writer.ask("share", session="s", text="so far 🛶\x00")
    assert await follower.read_answer() == "so far 🛶\x00"


@pytest.mark.parametrize("place", FAILPOINTS)
async def test_an_append_killed_at_any_failpoint_is_whole_or_absent(
    store: PostgresStore, spawn: Spawn, place: str
) -> None:
    child = await spawn(lease=1, failpoint=f"{place}:2:kill")
    await child.ask("claim", session="s")
    assert await child.ask("append", session="s", key="a") == 1
    assert await child.ask("append", session="s", key="b") is None
    assert await child.wait_exit() == -signal.SIGKILL
    written = 1 if place in {"append.before_begin", "append.after_rows"} else 2
    assert len(await read_log(store, "s")) == written
    found = await store.sessions.find(S)
    assert found is not None
    assert (found.head, found.inputs) == (written, written)
    term = await claim_when_free(store, S)
    assert await (await EventSealer(S).catch_up(store)).append_to(store, term, input_added("c", "c")) == written + 1


async def test_every_transaction_passes_each_failpoint_once(store: PostgresStore, tmp_path: Path) -> None:
    passes = tmp_path / "passes"
    enable_failpoints(f"count:{passes}")
    try:
        log, term = await begin_session(store, "s")
        await log.append_to(store, term, input_added("two", "k2"))
        assert await offer_event(store, input_added("x", "o")) == 3
    finally:
        disable_failpoints()
    assert msgspec.json.decode(passes.read_bytes()) == dict.fromkeys(FAILPOINTS, 3)
