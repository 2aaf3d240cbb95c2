"""Any text is stored as data: hostile, long and invalid names."""

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as some

from vaka.core.ports.store import SessionQuery
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.postgres import PostgresStore
from vaka.stores.postgres.encoding import decode_text, encode_text, postgres_key
from vaka.testing.stores.sealed_events import (
    approval_requested,
    input_added,
    offer_event,
    question_asked,
    read_log,
    write_session,
)

HOSTILE_NAMES = [
    "a\x00b",
    "\x00",
    "\ud800",
    "'; drop table vaka.sessions; --",
    "%",
    "_",
    "\\",
    "\\000",
    "\\x00",
    "$1",
    "🛶" * 60,
]
LONG_NAME = "".join(chr(0x4E00 + number * 7 % 20000) for number in range(4000))


@given(some.text(some.characters(codec=None)))
def test_any_text_survives_encoding(word: str) -> None:
    assert decode_text(encode_text(word)) == word


@given(*[some.text(max_size=200)] * 4)
def test_different_sessions_have_different_keys(one: str, two: str, three: str, four: str) -> None:
    same = (one, two) == (three, four)
    assert (postgres_key(encode_text(one), two).key == postgres_key(encode_text(three), four).key) is same


async def test_titles_and_agents_may_hold_any_text(store: PostgresStore) -> None:
    for number, word in enumerate(word for word in HOSTILE_NAMES if word != "\ud800"):
        await write_session(store, f"s{number}", SessionOpened(agent=word), input_added(f"<{word}>"), at=number)
        found = await store.sessions.find(SessionId(f"s{number}"))
        assert found is not None
        assert (found.agent, found.title) == (word, " ".join(f"<{word}>".split())[:80])
        for query in (SessionQuery(agent=word), SessionQuery(text=f"<{word[:40]}")):
            assert (await store.sessions.list(query)).sessions == (found,)


async def test_title_search_ignores_case_in_every_script(store: PostgresStore) -> None:
    await write_session(store, "s", input_added("ÉCOLE Straße ΣΊΣΥΦΟΣ"))
    for word in ("école", "STRASSE", "σίσυφος", "ÉcOlE s"):
        assert [info.id for info in (await store.sessions.list(SessionQuery(text=word))).sessions] == ["s"]


async def test_session_ids_and_namespaces_may_hold_any_text(store: PostgresStore, other: PostgresStore) -> None:
    for space in HOSTILE_NAMES:
        for name in HOSTILE_NAMES:
            log = await write_session(store.with_namespace(space), "inside", input_added("x"))
            fork = SessionId(name)
            term = await store.with_namespace(space).events.claim(fork)
            handle = store.with_namespace(space)
            assert await handle.events.claim(SessionId(f"{name}2")) == 1
            await handle.sessions.delete(log.session)
            await store.with_namespace(space).events.release(fork, term)
    assert (await other.sessions.list(SessionQuery())).sessions == ()


async def test_prefixes_are_whole_characters(store: PostgresStore) -> None:
    for name in ("é1", "e1", "ê1", "é"):
        await write_session(store, name)
    assert sorted(info.id for info in (await store.sessions.list(SessionQuery(prefix="é"))).sessions) == ["é", "é1"]


async def test_long_keys_decisions_and_names_are_stored(store: PostgresStore) -> None:
    await write_session(store, "s", approval_requested(LONG_NAME), question_asked(LONG_NAME[:-1]))
    assert await offer_event(store, input_added("x", LONG_NAME)) == 3
    assert await offer_event(store, input_added("x", LONG_NAME)) == 3
    assert [pending.id for pending in await store.sessions.decisions()] == [LONG_NAME, LONG_NAME[:-1]]
    await store.snapshots.save(SessionId("s"), seq=1, version=LONG_NAME, data=b"x")
    assert await store.snapshots.load(SessionId("s"), version=LONG_NAME) == (1, b"x")
    for key in (LONG_NAME, f"{LONG_NAME}2", "\x00", "\ud800"):
        await store.values.put(key, key if key != "\ud800" else 1)
    assert await store.values.keys(LONG_NAME) == [LONG_NAME, f"{LONG_NAME}2"]
    assert await store.values.keys() == sorted(["\x00", LONG_NAME, f"{LONG_NAME}2", "\ud800"])
    with pytest.raises(NotFound):
        await store.blobs.get(Digest(LONG_NAME))


async def test_names_too_long_for_an_index_are_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.events.claim(SessionId(LONG_NAME))
    with pytest.raises(InvalidInput):
        store.with_namespace(LONG_NAME)


async def test_numbers_too_large_for_a_column_are_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.snapshots.save(SessionId("s"), seq=2**70, version="1", data=b"")


async def test_changed_blobs_and_values_are_corrupt(store: PostgresStore, postgres_dsn: str) -> None:
    digest = await store.blobs.put(b"what was put")
    await store.values.put("v", [1])
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("update vaka.blobs set body = 'what was pu'")
    await connection.execute("update vaka.vals set body = '[1'")
    await connection.close()
    with pytest.raises(Corrupt):
        await store.blobs.get(digest)
    with pytest.raises(Corrupt):
        await store.values.get("v")


async def test_the_log_of_a_session_with_a_hostile_name_is_read(store: PostgresStore) -> None:
    origin = await write_session(store, "origin", input_added("a", "a"), input_added("b", "b"))
    for name in HOSTILE_NAMES:
        term = await store.events.claim(SessionId(name))
        await store.events.append(SessionId(name), origin.events, head=0, term=term, release=True)
        assert await read_log(store, name) == origin.stored
