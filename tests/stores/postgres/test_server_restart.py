"""The server restarts: nothing is lost, nothing is written twice, and no client has to start again."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from tests.postgres_server import PostgresServer
from tests.stores.postgres.conftest import PATIENCE
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Busy, Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId, Term
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    read_log,
    unsealed_event,
    write_session,
)

S = SessionId("s")


def _input_keys(events: list[Event]) -> list[str]:
    return [event.data.key for event in events if isinstance(event.data, InputAdded)]


async def _write_with_retries(store: PostgresStore, session: str, go_on: Callable[[], bool]) -> list[str]:
    """Append under new keys; after each failure check whether the event was written. Return the keys in order."""
    log, term = await begin_session(store, session)
    keys = ["k"]
    while go_on():
        keys.append(f"{session}-{len(keys)}")
        log = await _append_until_written(store, log, term, keys[-1])
    return keys


async def _append_until_written(store: PostgresStore, log: EventSealer, term: Term, key: str) -> EventSealer:
    while True:
        try:
            await log.append_to(store, term, input_added(key, key))
        except Unavailable:
            log = await EventSealer(log.session).catch_up(store)
            if key not in _input_keys(log.events):
                continue
        return log


@pytest.mark.parametrize("stop", [PostgresServer.stop, PostgresServer.stop_immediate])
async def test_appends_continue_over_a_restart(
    store: PostgresStore, other: PostgresStore, postgres_server: PostgresServer, stop: Callable[[PostgresServer], None]
) -> None:
    restarted = asyncio.Event()
    rounds = 0

    def go_on() -> bool:
        nonlocal rounds
        rounds += 1
        return not restarted.is_set() or rounds % 20 != 0

    def restart() -> None:
        stop(postgres_server)
        postgres_server.start()

    async def follow() -> list[int]:
        seen: list[int] = []
        while not restarted.is_set():
            head = await other.events.wait(SessionId("s0"), after=len(seen))
            seen += [event.seq async for event in other.events.read(SessionId("s0"), after=len(seen), upto=head)]
        return seen

    async with asyncio.timeout(PATIENCE):
        writing = [asyncio.create_task(_write_with_retries(store, f"s{n}", go_on)) for n in range(5)]
        following = asyncio.create_task(follow())
        for n in range(5):
            await other.events.wait(SessionId(f"s{n}"), after=3)
        await asyncio.to_thread(restart)
        restarted.set()
        written = await asyncio.gather(*writing)
        seen = await following
    assert seen == list(range(1, len(seen) + 1))
    for n, keys in enumerate(written):
        assert _input_keys((await EventSealer(f"s{n}").catch_up(other)).events) == keys


async def test_offers_made_during_a_restart_arrive_once(
    store: PostgresStore, other: PostgresStore, postgres_server: PostgresServer
) -> None:
    await write_session(store, "s")
    restarting = asyncio.create_task(asyncio.to_thread(postgres_server.restart))
    keys: list[str] = []
    while not restarting.done() or len(keys) < 10:
        keys.append(f"o{len(keys)}")
        got = await asyncio.gather(*(offer_event(handle, input_added("x", keys[-1])) for handle in (store, other)))
        assert got[0] == got[1] == len(keys) + 1
    await restarting
    assert _input_keys((await EventSealer(S).catch_up(store)).events) == ["k", *keys]


async def test_a_claim_outlives_the_server(
    store: PostgresStore, other: PostgresStore, postgres_server: PostgresServer
) -> None:
    log, term = await begin_session(store, "s")
    await asyncio.to_thread(postgres_server.restart)
    with pytest.raises(Busy):
        await other.events.claim(S)
    assert store.events.is_held(S, term)
    log = await _append_until_written(store, log, term, "after")
    assert log.head == 2
    await asyncio.to_thread(postgres_server.restart)
    await store.events.release(S, term)
    assert await other.events.claim(S) == term + 1


async def test_waits_and_watches_survive_a_restart(
    store: PostgresStore, other: PostgresStore, postgres_server: PostgresServer
) -> None:
    async def watch() -> Event:
        async with aclosing(other.live.watch(S)) as events:
            return await anext(events)

    log, term = await begin_session(store, "s")
    waiting, watching = asyncio.create_task(other.events.wait(S, after=1)), asyncio.create_task(watch())
    assert await other.events.wait(S, after=0) == 1
    await asyncio.to_thread(postgres_server.restart)
    assert not waiting.done()
    await _append_until_written(store, log, term, "after")
    body = MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text="still here")
    store.live.share(S, lambda: [unsealed_event("s", body)])
    async with asyncio.timeout(PATIENCE):
        assert await waiting == 2
        assert (await watching).data == body


async def test_a_lease_that_cannot_be_renewed_expires(postgres_dsn: str, postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_dsn, lease=2, patience=0.3)
    log, term = await begin_session(store, "s")
    fresh = await store.events.claim(SessionId("new"))
    assert store.events.is_held(S, term)
    await asyncio.to_thread(postgres_server.stop)
    async with asyncio.timeout(PATIENCE):
        while store.events.is_held(S, term):
            with pytest.raises(Unavailable):
                await store.sessions.find(S)
    with pytest.raises(Unavailable):
        await log.append_to(store, term, input_added("lost", "lost"))
    with pytest.raises(Unavailable):
        await offer_event(store, input_added("x", "o"))
    with pytest.raises(Unavailable):
        await EventSealer("new").append_to(store, fresh, input_added("x"))
    await asyncio.to_thread(postgres_server.start)
    again = await EventSealer(S).catch_up(store)
    assert await again.append_to(store, term, input_added("back", "back")) == 2
    assert store.events.is_held(S, term)
    await store.close()


async def test_a_store_can_be_closed_while_the_server_is_stopped(
    postgres_dsn: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_dsn, patience=0.2)
    await begin_session(store, "s")
    scoped = store.with_namespace("tenant")
    await begin_session(scoped, "s")
    await asyncio.to_thread(postgres_server.stop)
    await scoped.close()
    await store.close()
    await asyncio.to_thread(postgres_server.start)
    later = PostgresStore(postgres_dsn)
    assert len(await read_log(later, "s")) == 1
    await later.close()
