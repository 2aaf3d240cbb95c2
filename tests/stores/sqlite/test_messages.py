"""The message index of SQLite files: its words follow in batches, older files are indexed, damage is reported."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.stores.sqlite.conftest import Spawn
from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.core.types.control import InputAdded, SessionOpened
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Body, Custom
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Stored
from vaka.stores.sqlite import SqliteStore, message_words, rows
from vaka.testing.stores.message_search import find_sessions, search_all
from vaka.testing.stores.messages import (
    answer_message,
    list_texts,
    tool_called,
    tool_result,
    write_conversation,
)
from vaka.testing.stores.sealed_events import find_session, input_added, turn_events, write_session

S = SessionId("s")


def _execute(path: Path, *statements: str) -> list[Any]:
    """Run statements and return the rows of the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements[:-1]:
            connection.execute(statement)
        return connection.execute(statements[-1]).fetchall()


def _make_inputs(count: int) -> list[Body]:
    return [input_added(f"canoe number {n}", f"k{n}") for n in range(count)]


async def test_words_are_indexed_in_batches_after_the_commit(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", *_make_inputs(rows.WORDS_BATCH + 40))
    await write_session(store, "t", input_added("one more canoe"))
    await store.hub.tasks.wait()
    await store.close()
    assert _execute(path, "select indexed from message_progress") == [(rows.WORDS_BATCH,)]
    assert _execute(path, "select count(*) from message_words") == [(rows.WORDS_BATCH,)]
    again = SqliteStore(path, durability="process")
    assert len(await search_all(again, "canoe", 1000)) == rows.WORDS_BATCH + 41
    assert await find_sessions(again, '"number 3"') == ["s"]
    for n in range(12):  # a process that writes few messages indexes those of others
        await write_session(again, f"u{n}", *_make_inputs(40))
    await again.hub.tasks.wait()
    await again.close()
    ((indexed,),) = _execute(path, "select indexed from message_progress")
    assert 0 <= rows.WORDS_BATCH + 41 + 12 * 40 - indexed < rows.WORDS_BATCH


async def test_the_parts_of_the_word_index_are_merged_with_its_batches(store: SqliteStore, path: Path) -> None:
    batches = 60
    for n in range(batches):
        await write_session(store, f"s{n}", *_make_inputs(message_words.BATCH_ROWS))
        await store.hub.index_until(0)
    await store.close()
    ((parts,),) = _execute(path, "select count(distinct segid) from message_words_idx")
    assert parts < batches / 2
    again = SqliteStore(path, durability="process")
    assert len(await search_all(again, '"number 3"', 1000)) == batches
    await again.close()


async def test_a_message_of_many_words_is_indexed_and_found(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", input_added("canoe " * 9000, "long"), input_added("short canoe", "short"))
    await store.hub.index_until(0)
    assert _execute(path, "select count(*) from message_words") == [(2,)]
    assert len(await search_all(store, "canoe", 10)) == 2


async def _count_steps(store: SqliteStore, work: Callable[[], Awaitable[object]]) -> int:
    """Return the instructions that SQLite executes for some work, in hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def set_handler(handler: Callable[[], int] | None) -> Callable[[sqlite3.Connection], None]:
        return lambda connection: connection.set_progress_handler(handler, 100)

    await store.hub.database.read(set_handler(count))
    await work()
    await store.hub.database.read(set_handler(None))
    return counted


@pytest.mark.parametrize("id", ["k7", "unknown"])
async def test_looking_up_a_message_costs_the_same_in_a_long_session(store: SqliteStore, id: str) -> None:
    await write_session(store, "short", *_make_inputs(20))
    await write_session(store, "long", *_make_inputs(5000))
    await store.hub.index_until(0)
    await write_session(store, "others", *_make_inputs(60))  # these wait for their words to be indexed
    short, long = [
        await _count_steps(store, partial(store.messages.find, SessionId(name), id)) for name in ("short", "long")
    ]
    assert long <= short + 2


async def test_counting_a_counted_session_reads_only_what_is_new(store: SqliteStore) -> None:
    log = await write_session(store, "s", *_make_inputs(5000))
    first = await _count_steps(store, partial(store.messages.stats, S))
    await store.events.append_idle(await find_session(store), log.seal(input_added("one more", "more")))
    again = await _count_steps(store, partial(store.messages.stats, S))
    assert (await store.messages.stats(S)).message_count == 5001
    assert again * 20 < first


async def test_closing_a_store_does_not_wait_for_all_words(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", *_make_inputs(4 * rows.WORDS_BATCH))
    await store.close()
    ((indexed,),) = _execute(path, "select indexed from message_progress")
    assert indexed < 2 * rows.WORDS_BATCH
    again = SqliteStore(path, durability="process")
    assert len(await search_all(again, "canoe", 3000)) == 4 * rows.WORDS_BATCH
    await again.close()


async def test_two_processes_index_each_message_once(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", *_make_inputs(300))
    other = SqliteStore(path, durability="process")
    await asyncio.gather(store.hub.index_until(0), other.hub.index_until(0))
    await other.close()
    assert len(await search_all(store, "canoe", 500)) == 300
    assert _execute(path, "select indexed, (select count(*) from message_words) from message_progress") == [(300, 300)]


@pytest.mark.parametrize("lines", [1, 2, 3])
async def test_a_process_that_is_killed_while_it_indexes_leaves_every_message_findable_once(
    path: Path, spawn: Spawn, lines: int
) -> None:
    child = await spawn("index", 700)
    assert [await child.read_line() for _ in range(lines)] == ["written", "indexed", "indexed"][:lines]
    await child.kill()
    store = SqliteStore(path, durability="process")
    assert len(await search_all(store, "canoe", 1000)) == 700
    assert len(await list_texts(store, MessageQuery(limit=1000))) == 701
    await store.hub.index_until(0)
    assert len(await search_all(store, "canoe", 1000)) == 700
    assert _execute(path, "select count(*) from message_words") == [(701,)]
    await store.close()


async def test_numbers_of_deleted_messages_are_used_again(store: SqliteStore, path: Path) -> None:
    await write_session(store, "old", input_added("a canoe"))
    await write_session(store, "new", input_added("a raft"))
    await store.hub.index_until(0)
    await store.sessions.delete(SessionId("new"))
    await write_session(store, "newest", input_added("a kayak"))
    assert await find_sessions(store, "kayak") == ["newest"]
    await store.hub.index_until(0)
    assert await find_sessions(store, "kayak") == ["newest"]
    assert await find_sessions(store, "raft") == []
    assert _execute(path, "select count(*) from message_words") == [(2,)]


async def test_sessions_of_an_older_file_are_indexed_when_they_are_needed(store: SqliteStore, path: Path) -> None:
    await write_conversation(store)
    filler: list[Body] = [Custom(name="x")] * 3000
    await write_session(
        store, "long", input_added("a first canoe", "k1"), *filler, answer_message("m9", "a last canoe")
    )
    await write_session(store, "damaged", input_added("a lost canoe", "k1"), answer_message("m2", "an intact canoe"))
    listed = {name: await list_texts(store, MessageQuery(), SessionId(name)) for name in ("s", "long")}
    stats = await store.messages.stats(S)
    await store.close()
    _execute(
        path,
        "delete from messages",
        "delete from message_words",
        "update events set body = x'00' where session = 'damaged' and seq = 1",
        "insert into message_backlog select namespace, session, 0 from sessions",
    )
    again = SqliteStore(path, durability="process")
    assert await again.messages.stats(S) == stats
    found = await again.messages.find(S, "call_1")
    assert found is not None
    assert found.name == "Grep"
    assert await list_texts(again, MessageQuery(), SessionId("long")) == listed["long"]
    term = await again.events.claim(S)
    await again.events.release(S, term)
    assert sorted(set(await find_sessions(again, "canoe"))) == ["damaged", "long", "s"]
    assert await find_sessions(again, "lost") == []
    assert await list_texts(again, MessageQuery()) == listed["s"]
    await again.close()
    assert _execute(path, "select * from message_backlog") == []


@pytest.mark.parametrize(
    "damage",
    [
        "update events set body = cast(replace(body, 'harbour', 'HARBOUR') as blob) where session = 's' and seq = 7",
        "update events set body = x'00' where session = 's' and seq = 7",
        "delete from events where session = 's' and seq = 7",
        "update messages set checksum = 1 where session = 's' and seq = 7",
        "update messages set seq = 8 where session = 's' and seq = 7",
    ],
)
async def test_a_damaged_message_is_reported_and_does_not_hide_others(
    store: SqliteStore, path: Path, damage: str
) -> None:
    await write_conversation(store)
    await write_session(store, "t", input_added("another harbour"))
    await store.hub.index_until(0)
    await store.close()
    _execute(path, damage)
    again = SqliteStore(path, durability="process")
    with pytest.raises(Corrupt, match="damaged"):
        await again.messages.list(S, MessageQuery())
    assert sorted(await find_sessions(again, "harbour")) == ["s", "t"]  # the result of the tool, and the other session
    await again.close()


async def test_damage_in_messages_that_wait_for_their_words_does_not_end_a_search(
    store: SqliteStore, path: Path
) -> None:
    await write_conversation(store)
    _execute(path, "update events set body = x'00' where session = 's' and seq = 7")
    assert await find_sessions(store, "harbour") == ["s"]
    with pytest.raises(Corrupt, match="damaged"):
        await store.messages.find(S, "m2")


async def test_a_search_reads_messages_whose_words_cannot_be_written(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write_session(store, "s", *_make_inputs(rows.WORDS_BATCH - 1))
    refuse = "create trigger refuse before update on message_progress begin select raise(abort, 'no'); end"
    _execute(path, refuse)
    with caplog.at_level(logging.WARNING, logger="vaka"):
        await write_session(store, "t", *_make_inputs(2))
        assert len(await search_all(store, "canoe", 1000)) == rows.WORDS_BATCH + 1
    assert "were not indexed" in caplog.text


async def test_the_words_of_an_erased_session_leave_the_file(store: SqliteStore, path: Path) -> None:
    start, end = turn_events()
    secret = answer_message("m", "The password is xylophonequartz")
    await write_session(store, "s", input_added("hello", "k"), start, secret, end)
    await write_session(store, "t", input_added("hello marimbaopal"))
    await store.hub.index_until(0)
    assert await find_sessions(store, "xylophonequartz") == ["s"]
    result = await store.erase([S])
    assert result.overwritten
    assert await find_sessions(store, "xylophonequartz") == []
    assert await list_texts(store, MessageQuery()) == []
    assert await find_sessions(store, "marimbaopal") == ["t"]
    await store.close()
    data = b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
    assert b"marimbaopal" in data
    assert b"xylophonequartz" not in data


async def test_a_result_without_its_call_has_no_name(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", tool_called("call_1", "Grep"), tool_result("call_1", "found"))
    _execute(path, "delete from messages where role = 'call'")
    (row,) = (await store.messages.list(S, MessageQuery())).messages
    assert (row.id, row.name) == ("call_1", "")


async def test_a_search_among_many_sessions_of_an_owner_finds_them(store: SqliteStore) -> None:
    for n in range(70):
        await write_session(store, f"s{n}", SessionOpened(owner="ann"), input_added(f"canoe {n}"), at=n)
    await write_session(store, "other", SessionOpened(owner="bob"), input_added("canoe 7"))
    assert len(await find_sessions(store, "canoe", owner="ann", limit=100)) == 70
    assert await find_sessions(store, "canoe 7", owner="ann") == ["s7"]
    found = await store.messages.search(MessageSearch(text="canoe", owner="bob"))
    assert [hit.message.session for hit in found.hits] == ["other"]


@pytest.mark.parametrize(
    ("damage", "breaks"),
    [
        ("update message_words_data set block = x'00' where id > 10", True),
        ("delete from message_progress", True),
        ("update message_progress set indexed = 0", False),
    ],
)
async def test_reindexing_repairs_the_word_index(store: SqliteStore, path: Path, damage: str, breaks: bool) -> None:
    await write_conversation(store)
    await write_conversation(store.with_namespace("tenant"))
    await store.hub.index_until(0)
    before = await search_all(store, "canoe", 10)
    await store.close()
    _execute(path, damage)
    again = SqliteStore(path, durability="process")
    if breaks:
        with pytest.raises(Corrupt):
            await find_sessions(again, "canoe")
    assert await again.reindex() == 1
    assert await search_all(again, "canoe", 10) == before
    assert await search_all(again.with_namespace("tenant"), "canoe", 10) == before
    await again.close()


async def test_long_messages_are_indexed_in_smaller_slices(store: SqliteStore, path: Path) -> None:
    texts = [f"word{n} " + "filler " * 5000 for n in range(40)]
    await write_session(store, "s", *[input_added(text, f"k{n}") for n, text in enumerate(texts)])
    await store.hub.index_until(0)
    assert _execute(path, "select count(*) from message_words") == [(40,)]
    assert await find_sessions(store, "word39 filler") == ["s"]


async def test_a_text_in_a_damaged_blob_is_found_by_its_preview(store: SqliteStore, path: Path) -> None:
    digest = await store.blobs.put(b"It begins here, and has a needle.")
    part = Stored(blob=digest, size=33, preview="It begins")
    await write_session(store, "s", InputAdded(key="k", content=(part,)))
    _execute(path, "update blobs set data = x'00'")
    assert await find_sessions(store, "begins") == ["s"]
    assert await find_sessions(store, "needle") == []
