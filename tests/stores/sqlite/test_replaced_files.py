"""Files of a database that are removed or replaced while a process uses them."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from vaka.core.types.errors import Busy, StoreError
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.sealed_events import (
    begin_session,
    input_added,
    offer_event,
    read_log,
    unsealed_event,
    write_session,
)

S = SessionId("s")
PATIENCE = 60


async def replace_database(path: Path) -> None:
    """Put another database with a session of the same id in the place of one."""
    other = SqliteStore(path.with_name("other.db"))
    await write_session(other, "s")
    await other.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    path.with_name("other.db").replace(path)


async def remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


async def remove_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


@pytest.mark.parametrize("change", [replace_database, remove_database, remove_log])
async def test_no_read_is_of_the_old_file_and_no_write_goes_to_the_new_one(
    store: SqliteStore, path: Path, change: Callable[[Path], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    log, term = await begin_session(store, "s")
    await write_session(store, "idle")
    waiting = asyncio.create_task(store.events.wait(S, after=1))
    await asyncio.sleep(0)
    await change(path)
    message = "(removed or moved|replaced by another file) while this process used it"
    with pytest.raises(StoreError, match=message):
        await store.sessions.find(SessionId("idle"))
    with pytest.raises(StoreError, match=message):
        await log.append_to(store, term, input_added("b", "b"))
    with pytest.raises(StoreError, match=message):
        await offer_event(store, input_added("x", "o"))
    with pytest.raises(StoreError, match=message):
        await store.events.claim(SessionId("idle"))
    with pytest.raises(StoreError, match=message):
        await store.vectors.get("c", "s", ["x"])
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(StoreError, match=message):
            await waiting
    assert sum("while this process used it" in line for line in caplog.messages) == 1
    await store.close()
    if change is not remove_log:
        again = SqliteStore(path)
        assert len(await read_log(again, "s")) == (1 if change is replace_database else 0)
        assert await again.sessions.find(SessionId("idle")) is None
        await begin_session(again, "new")
        await again.close()


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _replace_by_copies(folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    for file in folder.with_name("old").iterdir():
        (folder / file.name).touch()


@pytest.mark.parametrize("change", [_remove_folder, _replace_by_copies])
async def test_a_writer_whose_lock_and_socket_are_removed_or_replaced_makes_them_again(
    store: SqliteStore, path: Path, change: Callable[[Path], None]
) -> None:
    log, term = await begin_session(store, "s")
    following = asyncio.create_task(store.events.wait(S, after=1))
    change(path.with_name(f"{path.name}-live"))
    assert store.events.is_held(S, term)
    other = SqliteStore(path)
    with pytest.raises(Busy):
        await other.events.claim(S)
    body = MessageSnapshot(message_id=MessageId("m"), block=0, of="text.delta", text="still here")
    store.live.share(S, lambda: [unsealed_event("s", body)])

    async def watch() -> Event:
        async with aclosing(other.live.watch(S)) as events:
            return await anext(events)

    async with asyncio.timeout(PATIENCE):
        assert (await watch()).data == body
    await log.append_to(store, term, input_added("b", "b"))
    assert await following == 2
    await store.close()
    assert await other.events.claim(S) == term + 1
    await other.close()


async def test_a_writer_that_cannot_make_its_lock_again_holds_nothing(store: SqliteStore, path: Path) -> None:
    _, term = await begin_session(store, "s")
    folder = path.with_name(f"{path.name}-live")
    shutil.rmtree(folder)
    folder.touch()
    assert not store.events.is_held(S, term)
    folder.unlink()
    assert store.events.is_held(S, term)
