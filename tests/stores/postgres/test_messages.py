"""The message index of PostgreSQL databases: of older ones, of every encoding, and with damage."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from vaka.core.ports.messages import MessageQuery
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Custom
from vaka.core.types.ids import SessionId
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores.message_search import find_sessions
from vaka.testing.stores.messages import answer_message, list_texts, write_conversation
from vaka.testing.stores.sealed_events import input_added, offer_event, write_session

S = SessionId("s")


async def _execute(dsn: str, *statements: str) -> list[asyncpg.Record]:
    """Run statements and return the rows of the last one."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetch(statements[-1])
    finally:
        await connection.close()


async def test_sessions_of_an_older_database_are_indexed_when_they_are_needed(
    store: PostgresStore, postgres_dsn: str
) -> None:
    await write_conversation(store)
    last = answer_message("m9", "a last canoe")
    await write_session(store, "long", input_added("a first canoe", "k1"), *[Custom(name="x")] * 1500, last)
    await write_session(store, "damaged", input_added("a lost canoe", "k1"), answer_message("m2", "an intact canoe"))
    listed = {name: await list_texts(store, MessageQuery(), SessionId(name)) for name in ("s", "long")}
    stats = await store.messages.stats(S)
    await _execute(
        postgres_dsn,
        "delete from vaka.messages",
        "update vaka.events set body = '\\x00' where session = 'damaged' and seq = 1",
        "insert into vaka.message_backlog select namespace, id, 0 from vaka.sessions",
    )
    assert await store.messages.stats(S) == stats
    found = await store.messages.find(S, "call_1")
    assert found is not None
    assert found.name == "Grep"
    await offer_event(store, input_added("a new canoe", "k9"), session="long")
    other = PostgresStore(postgres_dsn)
    both = await asyncio.gather(find_sessions(store, "canoe"), find_sessions(other, "canoe"))
    await other.close()
    assert [sorted(set(found)) for found in both] == [["damaged", "long", "s"]] * 2
    assert await find_sessions(store, "lost") == []
    assert await list_texts(store, MessageQuery(), SessionId("long")) == [*listed["long"], "a new canoe"]
    assert await list_texts(store, MessageQuery()) == listed["s"]
    assert await _execute(postgres_dsn, "select from vaka.message_backlog") == []


async def test_messages_of_processes_of_an_older_version_are_found(store: PostgresStore, postgres_dsn: str) -> None:
    await write_conversation(store)
    listed = await list_texts(store, MessageQuery())
    await _execute(
        postgres_dsn,
        "create temporary table request as select json_build_array(to_jsonb(s) || jsonb_build_object('session', id, "
        "'owner', gen_random_uuid(), 'base', 0, 'release', true)) as made from vaka.sessions s",
        "create temporary table log as select array_agg(body order by seq) as bodies from vaka.events",
        "delete from vaka.events",
        "delete from vaka.sessions",
        "select w.* from request, log, vaka.write(made, bodies, 30) as w",
    )
    assert await list_texts(store, MessageQuery()) == listed
    assert set(await find_sessions(store, "canoe")) == {"s"}
    assert await _execute(postgres_dsn, "select from vaka.message_backlog") == []


@pytest.mark.parametrize(
    "damage",
    [
        "update vaka.events set body = '\\x00' where session = 's' and seq = 7",
        "delete from vaka.events where session = 's' and seq = 7",
        "update vaka.messages set seq = 8 where session = 's' and seq = 7",
    ],
)
async def test_a_damaged_message_is_reported_and_does_not_hide_others(
    store: PostgresStore, postgres_dsn: str, damage: str
) -> None:
    await write_conversation(store)
    await write_session(store, "t", input_added("another harbour"))
    await _execute(postgres_dsn, damage)
    with pytest.raises(Corrupt):
        await store.messages.list(S, MessageQuery())
    assert sorted(await find_sessions(store, "harbour")) == ["s", "t"]  # the result of the tool, and the other session


async def test_a_database_that_is_not_in_utf8_finds_every_script(postgres_dsn: str) -> None:
    await _execute(
        postgres_dsn,
        "drop database if exists vaka_latin",
        "create database vaka_latin encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'",
        "select 1",
    )
    name = urlsplit(postgres_dsn).path.removeprefix("/")
    store = PostgresStore(postgres_dsn.replace(f"/{name}", "/vaka_latin", 1))
    try:
        await write_session(store, "s", input_added("我们去东京 und nach München, Ёж"))
        for text in ("东京", "京", "munchen", "еж*", '"去东京 und"'):
            assert await find_sessions(store, text) == ["s"], text
    finally:
        await store.close()
        await _execute(postgres_dsn, "drop database vaka_latin")


async def test_a_search_among_many_sessions_of_an_owner_finds_them(store: PostgresStore) -> None:
    for n in range(70):
        await write_session(store, f"s{n}", SessionOpened(owner="ann"), input_added(f"canoe {n}"), at=n)
    await write_session(store, "other", SessionOpened(owner="bob"), input_added("canoe 7"))
    assert len(await find_sessions(store, "canoe", owner="ann", limit=100)) == 70
    assert await find_sessions(store, "canoe 7", owner="ann") == ["s7"]


async def test_a_long_text_of_long_words_is_stored(store: PostgresStore) -> None:
    text = " ".join(f"{'щ' * 60}{n}" for n in range(1000)) + " " + "界" * 30_000
    await write_session(store, "s", input_added(text))
    assert await find_sessions(store, f"{'щ' * 60}7") == ["s"]
    assert await find_sessions(store, "界界界") == ["s"]
