"""The socket beside the database: no message through it can harm the writer, and no file of it is left."""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from vaka.core.types.errors import Busy, StoreError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.sockets import MAX_IDLE_POLLS, connect_and_send, listen
from vaka.stores.sqlite.writer_lock import WriterLock
from vaka.testing.stores.followers import GrowingBlock
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    write_session,
)

pytestmark = pytest.mark.every_loop

S = SessionId("s")
FOLLOW_LINE = b'{"follow":"s"}\n'


def _live_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-live")


async def _open_socket(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    (file,) = _live_folder(path).glob("*.sock")
    connection = connect_and_send(file.parent, file.name, b"")
    assert connection is not None
    return await asyncio.open_unix_connection(sock=connection)


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


INVALID_LINES = {
    "empty": b"\n",
    "text": b"hello\n",
    "bytes": b"\x00\xff\xfe\n",
    "list": b"[]\n",
    "kind": b'{"follow":1}\n',
    "field": b'{"unknown":"x"}\n',
    "endless": b"x" * 5000,
    "deep": b"[" * 4000 + b"\n",
    "long": b'{"follow":"' + b"s" * 5000 + b'"}\n',
    "number": b'{"wake":"s","head":"x"}\n',
    "surrogate": b'{"follow":"\xed\xa0\x80"}\n',
}


@pytest.mark.parametrize("garbage", INVALID_LINES.values(), ids=INVALID_LINES)
async def test_a_client_that_sends_garbage_is_disconnected_and_the_writer_continues(
    store: SqliteStore, path: Path, garbage: bytes
) -> None:
    log, term = await begin_session(store, "s")
    reader, writer = await _open_socket(path)
    writer.write(FOLLOW_LINE + garbage)
    while await reader.read(100):
        pass
    await _close_writer(writer)
    assert await log.append_to(store, term, input_added("two", "k2")) == 2


async def test_a_follower_receives_the_head_of_each_commit(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    reader, writer = await _open_socket(path)
    writer.write(FOLLOW_LINE[:5])
    await asyncio.sleep(0)
    writer.write(FOLLOW_LINE[5:])
    assert await reader.readline() == b'{"head":0}\n'
    for head in (2, 3):
        await log.append_to(store, term, input_added("x", f"k{head}"))
        assert await reader.readline() == b'{"head":%d}\n' % head
    await offer_event(store, input_added("psst", "o"))
    assert await reader.readline() == b'{"head":4}\n'
    await _close_writer(writer)


async def test_a_false_head_message_wakes_no_wait(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    reader, writer = await _open_socket(path)
    writer.write(b'{"wake":"s","head":1000}\n' * 50 + b'{"wake":"unknown","head":7}\n' + FOLLOW_LINE)
    assert await reader.readline() == b'{"head":0}\n'
    await _close_writer(writer)
    assert not waiting.done()
    await log.append_to(store, term, input_added("two", "k2"))
    assert await waiting == 2


async def test_a_follower_that_does_not_read_gets_the_newest_and_delays_no_writer(
    store: SqliteStore, path: Path
) -> None:
    log, term = await begin_session(store, "s")
    block = GrowingBlock()
    shown = asyncio.Event()

    def blocks() -> list[Event]:
        shown.set()
        return [block.snapshot()]

    store.live.share(S, blocks)
    reader, writer = await _open_socket(path)
    block.text = "x" * 3_000_000
    writer.write(FOLLOW_LINE)
    await shown.wait()
    for number in range(20):
        await log.append_to(store, term, input_added("x", f"k{number}x"))
        store.live.touch(S)
    block.text = "the end"
    lines: list[bytes] = []
    buffer = b""
    while b'"text":"the end"' not in buffer:
        buffer += await reader.read(1 << 16)
    *lines, _ = buffer.split(b"\n")
    heads = [line for line in lines if line.startswith(b'{"head"')]
    assert heads[-1] == b'{"head":21}'
    assert len(heads) < 20
    await _close_writer(writer)


async def test_a_writer_that_sends_nonsense_is_disconnected(store: SqliteStore, path: Path) -> None:
    await begin_session(store, "s")
    other = SqliteStore(path)
    (file,) = _live_folder(path).glob("*.sock")
    file.unlink()
    answered = asyncio.Event()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b'{"follow":"s"}\n'
        writer.write(b'{"head":99}\n{"head":"x"}\nnonsense\n')
        await reader.read()
        server.close()
        await _close_writer(writer)
        answered.set()

    server = await asyncio.start_unix_server(nonsense, sock=listen(file.parent, file.name))
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    await answered.wait()
    assert not waiting.done()
    await offer_event(store, input_added("x", "o"))
    assert await waiting == 2
    await other.close()


async def test_a_socket_works_under_a_long_path(tmp_path: Path) -> None:
    path = tmp_path / ("deep" * 20) / ("deeper" * 20) / "vaka.db"
    path.parent.mkdir(parents=True)
    store, other = SqliteStore(path), SqliteStore(path)
    await begin_session(store, "s")
    block = GrowingBlock()
    block.text = "far"
    store.live.share(S, lambda: [block.snapshot()])
    async with aclosing(other.live.watch(S)) as events:
        assert (await anext(events)).data == block.snapshot().data
    await other.close()
    await store.close()


async def test_polling_works_without_a_socket(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    (file,) = _live_folder(path).glob("*.sock")
    file.unlink()
    other = SqliteStore(path)
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    await asyncio.sleep(0)
    await log.append_to(store, term, input_added("two", "k2"))
    assert await waiting == 2
    await other.close()


async def test_a_handle_without_a_socket_still_writes(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _live_folder(path)
    folder.mkdir()
    owner = store.hub.writer_lock
    owner.acquire()
    (folder / f"{owner.name}.sock").mkdir()  # something is in the way
    await store.hub.listen()
    assert "followers elsewhere see changes within a second" in caplog.text
    await begin_session(store, "s")
    (folder / f"{owner.name}.sock").rmdir()


async def test_an_idle_connection_is_closed(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    other = SqliteStore(path)
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    await asyncio.sleep(0)
    await log.append_to(store, term, input_added("two", "k2"))
    assert await waiting == 2
    links = other.hub.client
    assert links.connected_keys() == [("", S)]
    for _ in range(MAX_IDLE_POLLS - 1):
        links.count_idle_poll(("", S))
    assert links.connected_keys() == [("", S)]
    links.count_idle_poll(("", S))
    assert links.connected_keys() == []
    await other.close()


async def test_close_leaves_no_task_file_or_descriptor(path: Path) -> None:
    first = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    first.close()  # with its first listener uvloop opens a descriptor that it keeps
    await first.wait_closed()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0  # noqa: PTH208  # of this process
    tasks = asyncio.all_tasks()
    store, other = SqliteStore(path), SqliteStore(path)
    store.hub.database.transactions.disk_is_slow = True
    log, term = await begin_session(store, "s")
    block = GrowingBlock()
    store.live.share(S, lambda: [block.snapshot()])
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    watching = asyncio.create_task(_first_snapshot(other))
    await watching
    await log.append_to(store, term, input_added("two", "k2"))
    await waiting
    store.live.touch(S)
    await other.close()
    await store.close()
    assert asyncio.all_tasks() == tasks
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    assert sorted(file.name for file in path.parent.iterdir()) == ["vaka.db", "vaka.db-live"]
    assert list(_live_folder(path).iterdir()) == []


async def _first_snapshot(store: SqliteStore) -> MessageSnapshot:
    async with aclosing(store.live.watch(S)) as events:
        event = await anext(events)
        assert isinstance(event.data, MessageSnapshot)
        return event.data


async def test_files_of_dead_owners_are_swept_and_others_are_not(store: SqliteStore, path: Path) -> None:
    folder = _live_folder(path)
    folder.mkdir()
    dead, strange = "0" * 32, folder / "notes.txt"
    for suffix in ("lock", "sock"):
        (folder / f"{dead}.{suffix}").touch()
    strange.touch()
    (folder / "short.lock").touch()
    alive = WriterLock(path)
    alive.acquire()
    await store.events.claim(S)
    names = {file.name for file in folder.iterdir()}
    assert f"{alive.name}.lock" in names
    assert {"notes.txt", "short.lock"} <= names
    assert not {f"{dead}.lock", f"{dead}.sock"} & names
    alive.release()


async def test_dead_and_invalid_owners_are_not_alive(store: SqliteStore, path: Path) -> None:
    owner = WriterLock(path)
    assert not owner.is_alive("")
    assert not owner.is_alive("../../etc/passwd")
    assert not owner.is_alive("f" * 32)
    owner.acquire()
    other = WriterLock(path)
    assert other.is_alive(owner.name)
    name = owner.name
    owner.release()
    assert not other.is_alive(name)


async def test_an_unreadable_lock_file_counts_as_alive(path: Path) -> None:
    owner = WriterLock(path)
    owner.folder.mkdir()
    name = "a" * 32
    (owner.folder / f"{name}.lock").mkdir()
    assert owner.is_alive(name)


async def test_a_live_folder_that_cannot_be_created_is_a_store_error(path: Path) -> None:
    store = SqliteStore(path)
    _live_folder(path).touch()
    with pytest.raises(StoreError, match="cannot be used"):
        await store.events.claim(S)
    await store.close()


async def test_a_writer_whose_files_were_removed_is_fenced_off(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    for file in _live_folder(path).iterdir():
        file.unlink()
    other = SqliteStore(path)
    later = await other.events.claim(S)
    assert later == term + 1
    with pytest.raises(StoreError):
        await EventSealer("s", log.events[-1]).append_to(store, term, input_added("stale", "k2"))
    assert await log.append_to(other, later, input_added("two", "k2")) == 2
    await other.close()


async def test_namespaces_of_one_handle_end_with_it_or_alone(store: SqliteStore, path: Path) -> None:
    one, two = store.with_namespace("one"), store.with_namespace("two")
    await begin_session(one, "s")
    await begin_session(two, "s")
    await one.close()
    other = SqliteStore(path, namespace="one")
    assert await other.events.claim(S) == 2
    with pytest.raises(Busy):
        await other.with_namespace("two").events.claim(S)
    await store.close()
    assert await other.with_namespace("two").events.claim(S) == 2
    await other.close()


async def test_a_thousand_waits_share_one_poll(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    names = [SessionId(f"s{number}") for number in range(1000)]
    waiting = [asyncio.create_task(other.events.wait(name, after=0)) for name in names]
    await asyncio.sleep(0)
    await asyncio.gather(*(write_session(store, name) for name in names))
    assert set(await asyncio.gather(*waiting)) == {1}
    await other.close()
