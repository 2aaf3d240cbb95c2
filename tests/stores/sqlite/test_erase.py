"""An erasure overwrites the bytes in the files of the database."""

import sqlite3
from contextlib import closing
from pathlib import Path

from vaka.core.ports.values import session_values_prefix
from vaka.core.types.control import InputAdded, SessionOpened, SessionUpdated
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Image
from vaka.core.types.progress import StepStarted
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.erase import SqliteErasure
from vaka.testing.stores.sealed_events import approval_requested, input_added, read_log, turn_events, write_session

SECRET = b"zanzibarquark"


async def _fill(store: SqliteStore, name: str, word: str) -> None:
    """Write a session with the word in everything that a store keeps, in small and in large pieces."""
    blob = await store.blobs.put(word.encode() * 5000)
    system = await store.blobs.put(b"system prompt")
    opened = SessionOpened(title=word, owner=word, tags=(word,), metadata={word: word})
    image = InputAdded(key=f"image {word}", content=(Image(blob=blob, media_type="image/png"),))
    updated = [SessionUpdated(title=f"{word} {n}", metadata={f"{word}-{n}": word * 10}) for n in range(20)]
    texts = [input_added(f"{word} {'x' * 300} {n}" * (1 + n % 7), f"{word}-{n}") for n in range(120)]
    step = StepStarted(agent=word, number=1, system=system)
    await write_session(
        store, name, opened, image, *texts, *updated, step, *turn_events(word), approval_requested(word)
    )
    for seq in range(5, 100, 5):  # each saved snapshot replaces those of other versions
        await store.snapshots.save(SessionId(name), seq=seq, version=str(seq % 2), data=word.encode() * seq * 50)
    for n in range(20):
        await store.values.put(f"{session_values_prefix(name)}{n}", word * (n + 1) * 20)


def _occurrences(path: Path, word: bytes) -> dict[str, int]:
    found = {file.name: file.read_bytes().count(word) for file in path.parent.iterdir() if file.is_file()}
    return {name: count for name, count in found.items() if count}


async def _count_matches(path: Path) -> int:
    """Return how many messages the word index finds."""
    with closing(sqlite3.connect(path)) as connection:
        query = "select count(*) from message_words where message_words match ?"
        count: int = connection.execute(query, (SECRET.decode(),)).fetchone()[0]
    return count


async def test_no_byte_of_an_erased_session_stays_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "store" / "s.db"
    path.parent.mkdir()
    store = SqliteStore(path, durability="process")
    await _fill(store, "s", SECRET.decode())
    await _fill(store, "t", "of-another-session")
    await store.reindex()
    kept = await read_log(store, "t")
    assert _occurrences(path, SECRET)
    assert await _count_matches(path) > 100

    result = await store.erase([SessionId("s")])

    assert (result.sessions, result.blobs, result.overwritten) == (("s",), 1, True)
    assert _occurrences(path, SECRET) == {}
    assert await read_log(store, "t") == kept
    assert await _count_matches(path) == 0
    assert await store.reindex() == 2
    await store.close()
    assert _occurrences(path, SECRET) == {}


async def test_an_old_snapshot_of_another_connection_keeps_the_bytes_until_the_next_erasure(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, durability="process")
    await write_session(store, "s", input_added(SECRET.decode()))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from events").fetchone()
        result = await store.erase([SessionId("s")])
        assert (result.sessions, result.overwritten) == (("s",), False)
        reader.execute("commit")
    assert not (await SqliteErasure(store, max_bytes=1).erase([])).overwritten
    assert (await store.erase([])).overwritten
    assert _occurrences(path, SECRET) == {}
    await store.close()


async def test_an_erasure_of_many_events_takes_several_transactions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", durability="process")
    names = [SessionId(f"s{number}") for number in range(5)]
    for name in names:
        await write_session(store, name, input_added("a", "1"), input_added("b", "2"))
    result = await SqliteErasure(store, batch_events=3).erase(names)
    assert (set(result.sessions), result.events, result.failed) == ({*names}, 10, {})
    await store.close()
