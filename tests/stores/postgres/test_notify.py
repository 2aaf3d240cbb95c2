"""Notifications reach followers in other handles, and are not sent when there are none."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import asyncpg

from tests.postgres_server import PostgresServer
from tests.stores.postgres.conftest import PATIENCE
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.postgres import PostgresStore
from vaka.stores.postgres.encoding import postgres_key
from vaka.testing.stores.sealed_events import begin_session, input_added, offer_event, unsealed_event, write_session

S = SessionId("s")
KEY = postgres_key(b"", S).key


def _snapshot_event(text: str, block: int = 0) -> Event:
    return unsealed_event("s", MessageSnapshot(message_id=MessageId("m"), block=block, of="text.delta", text=text))


async def _wait_until(store: PostgresStore, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, with a query between two checks."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await store.sessions.find(S)


async def test_a_writer_notifies_only_existing_followers(
    store: PostgresStore, other: PostgresStore, postgres_dsn: str
) -> None:
    messages: list[object] = []
    listener = await asyncpg.connect(postgres_dsn)
    await listener.add_listener("vaka", lambda *arguments: messages.append(arguments[-1]))
    log, term = await begin_session(store, "s")
    await _wait_until(store, lambda: not store._hub.followers.may_follow(KEY))
    await log.append_to(store, term, input_added("without followers", "k2"))
    waiting = asyncio.create_task(other.events.wait(S, after=2))
    await _wait_until(store, lambda: store._hub.followers.may_follow(KEY))
    await log.append_to(store, term, input_added("with a follower", "k3"))
    assert await waiting == 3
    await _wait_until(store, lambda: f"head {KEY} 3" in messages)
    assert f"head {KEY} 2" not in messages
    await listener.close()


async def test_foreign_messages_on_the_channel_are_ignored(
    store: PostgresStore, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    log, term = await begin_session(store, "s")
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await _wait_until(store, lambda: store._hub.followers.complete_from is not None)
    messages = [
        "",
        "head",
        f"head {KEY} ²",
        f"head {KEY} {'9' * 40}",
        f"head {KEY} 1",
        "here",
        "live x",
        "who",
        "new thing",
    ]
    foreign = await asyncpg.connect(postgres_dsn)
    for message in messages:
        await foreign.execute("select pg_notify('vaka', $1)", message)
    await foreign.close()
    await log.append_to(store, term, input_added("two", "k2"))
    assert await waiting == 2


async def test_the_head_is_polled_without_notifications(store: PostgresStore, postgres_dsn: str) -> None:
    await write_session(store, "s")
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await _wait_until(store, lambda: store._hub.followers.complete_from is not None)
    silent = await asyncpg.connect(postgres_dsn)
    await silent.execute("update vaka.sessions set head = 7")
    await silent.close()
    async with asyncio.timeout(PATIENCE):
        assert await waiting == 7


async def test_rows_of_blocks_go_when_the_blocks_close(
    store: PostgresStore, other: PostgresStore, postgres_dsn: str
) -> None:
    connection = await asyncpg.connect(postgres_dsn)

    async def wait_for_rows(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval("select count(*) from vaka.live_blocks") != count:
                continue

    log, term = await begin_session(store, "s")
    blocks = [_snapshot_event("one", 0), _snapshot_event("two", 1)]
    store.live.share(S, lambda: list(blocks))
    async with aclosing(other.live.watch(S)) as events:
        assert {(await anext(events)).data, (await anext(events)).data} == {block.data for block in blocks}
        await wait_for_rows(2)
        del blocks[0]
        await log.append_to(store, term, input_added("closed", "k2"))
        await wait_for_rows(1)
        store.live.share(S, None)
        await wait_for_rows(0)
        store.live.share(S, lambda: [_snapshot_event("three")])
        assert (await anext(events)).data == _snapshot_event("three").data
        await wait_for_rows(1)
    await store.close()
    await wait_for_rows(0)
    await connection.close()


async def test_an_idle_store_disconnects_and_reconnects_on_demand(
    store: PostgresStore, postgres_server: PostgresServer
) -> None:
    await write_session(store, "s")
    assert await store.events.wait(S, after=0) == 1
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await _wait_until(store, lambda: store._hub.followers.complete_from is not None)
    waiting.cancel()
    await _wait_until(store, lambda: store._hub.followers.complete_from is None)
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await _wait_until(store, lambda: store._hub.followers.complete_from is not None)
    await offer_event(store, input_added("x", "o"))
    assert await waiting == 2
