"""Whatever people write is only data."""

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as some

from vaka.core.ports.store import Query
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.postgres import PostgresStore
from vaka.stores.postgres.text import place, raw, text
from vaka.testing.stores.pen import asks, asks_what, kept, log, said, unsealed

HOSTILE = [
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
LONG = "".join(chr(0x4E00 + number * 7 % 20000) for number in range(4000))


@given(some.text(some.characters(codec=None)))
def test_any_text_comes_back(word: str) -> None:
    assert text(raw(word)) == word


@given(*[some.text(max_size=200)] * 4)
def test_two_places_have_two_keys(one: str, two: str, three: str, four: str) -> None:
    same = (one, two) == (three, four)
    assert (place(raw(one), two).key == place(raw(three), four).key) is same


async def test_titles_agents_and_origins_may_hold_anything(store: PostgresStore) -> None:
    for number, word in enumerate(word for word in HOSTILE if word != "\ud800"):
        await kept(store, f"s{number}", SessionOpened(agent=word), said(f"<{word}>"), at=number)
        found = await store.sessions.find(SessionId(f"s{number}"))
        assert found is not None
        assert (found.agent, found.title) == (word, " ".join(f"<{word}>".split())[:80])
        for query in (Query(agent=word), Query(text=f"<{word[:40]}")):
            assert (await store.sessions.list(query)).sessions == (found,)


async def test_upper_and_lower_case_are_alike_in_every_script(store: PostgresStore) -> None:
    await kept(store, "s", said("ÉCOLE Straße ΣΊΣΥΦΟΣ"))
    for word in ("école", "STRASSE", "σίσυφος", "ÉcOlE s"):
        assert [info.id for info in (await store.sessions.list(Query(text=word))).sessions] == ["s"]


async def test_session_ids_and_namespaces_may_hold_anything(store: PostgresStore, other: PostgresStore) -> None:
    for space in HOSTILE:
        for name in HOSTILE:
            pen = await kept(store.scoped(space), "inside", said("x"))
            fork = SessionId(name)
            term = await store.scoped(space).events.claim(fork)
            handle = store.scoped(space)
            assert await handle.events.claim(SessionId(f"{name}2")) == 1
            await handle.sessions.delete(pen.session)
            await store.scoped(space).events.release(fork, term)
    assert (await other.sessions.list(Query())).sessions == ()


async def test_prefixes_are_whole_characters(store: PostgresStore) -> None:
    for name in ("é1", "e1", "ê1", "é"):
        await kept(store, name)
    assert sorted(info.id for info in (await store.sessions.list(Query(prefix="é"))).sessions) == ["é", "é1"]


async def test_long_keys_decisions_and_names_are_only_longer(store: PostgresStore) -> None:
    await kept(store, "s", asks(LONG), asks_what(LONG[:-1]))
    assert await store.events.offer(SessionId("s"), unsealed("s", said("x", LONG)), key=LONG) == 3
    assert await store.events.offer(SessionId("s"), unsealed("s", said("x", LONG)), key=LONG) == 3
    assert [pending.id for pending in await store.sessions.decisions()] == [LONG, LONG[:-1]]
    await store.snapshots.save(SessionId("s"), seq=1, version=LONG, data=b"x")
    assert await store.snapshots.load(SessionId("s"), version=LONG) == (1, b"x")
    for key in (LONG, f"{LONG}2", "\x00", "\ud800"):
        await store.values.put(key, key if key != "\ud800" else 1)
    assert await store.values.keys(LONG) == [LONG, f"{LONG}2"]
    assert await store.values.keys() == sorted(["\x00", LONG, f"{LONG}2", "\ud800"])
    with pytest.raises(NotFound):
        await store.blobs.get(Digest(LONG))


async def test_names_too_long_for_an_index_are_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.events.claim(SessionId(LONG))
    with pytest.raises(InvalidInput):
        store.scoped(LONG)


async def test_numbers_no_column_holds_are_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.snapshots.save(SessionId("s"), seq=2**70, version="1", data=b"")


async def test_changed_blobs_and_values_show(store: PostgresStore, postgres_dsn: str) -> None:
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


async def test_the_log_of_a_session_with_a_strange_name_is_read(store: PostgresStore) -> None:
    origin = await kept(store, "origin", said("a", "a"), said("b", "b"))
    for name in HOSTILE:
        term = await store.events.claim(SessionId(name))
        await store.events.append(SessionId(name), origin.events, head=0, term=term, release=True)
        assert await log(store, name) == [event.stored for event in origin.events]
