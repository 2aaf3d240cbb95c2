"""Backups of SQLite and PostgreSQL: complete, of one moment, restored into either kind, all of it or nothing."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.unmeasured import without_coverage
from vaka.core.ports.backup import BackupCounts, BackupRecord, SavedEvents, SavedSession, StoreBackup
from vaka.core.ports.messages import MessageSearch
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.core.types.control import StreamReset
from vaka.core.types.decode import decode
from vaka.core.types.errors import AlreadyExists, Busy, Corrupt, InvalidInput, NotFound, TooNew
from vaka.core.types.ids import Cursor, Digest, SessionId
from vaka.runtime.backups import restore_backup, write_backup
from vaka.runtime.open_store import open_backup, open_store
from vaka.runtime.runtime import Runtime
from vaka.stores.blob_references import blobs_of
from vaka.testing import ScriptedModel, call, say
from vaka.testing.stores.sealed_events import approval_requested, begin_session, input_added, write_session

S = SessionId("s")
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request, request.param, tmp_path / "source.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store; on PostgreSQL another database than that of ``url``."""
    return url_of(request, request.param, tmp_path / "other.db", "other_dsn")


@pytest.fixture
def other_dsn(postgres_server: Any) -> Any:
    with postgres_server.database() as dsn:
        yield dsn


def url_of(request: pytest.FixtureRequest, kind: str, path: Path, dsn: str = "postgres_dsn") -> str:
    return f"sqlite:///{path}" if kind == "sqlite" else str(request.getfixturevalue(dsn))


async def back_up(url: str, path: Path, *, overwrite: bool = False) -> BackupCounts:
    source = open_backup(url)
    return await write_backup(
        source, path, now=1_800_000_000, version="1", overwrite=overwrite, progress=lambda _: None
    )


async def restore(url: str, path: Path, *, replace: bool = False) -> BackupCounts:
    return await restore_backup(open_backup(url), path, replace=replace, progress=lambda _: None)


async def fill(store: Store) -> None:
    """Write something of every kind, in two namespaces."""
    await write_session(store, "s", input_added("Ahoi, Käpt'n!", "k1"), approval_requested("a1"))
    await store.blobs.put(b"x" * 100_000, session="s")
    await store.values.put("key", {"n": 1})
    await store.values.compare_and_set("expires", None, "soon", expires="2031-01-01T00:00:00Z")
    await store.vectors.upsert("c", "scope", [VectorRecord(id="v", text="t", vector=(1.0, 0.5), metadata={"m": 1})])
    tenant = store.with_namespace("tenant")
    await write_session(tenant, "s", input_added("of the tenant", "k"))
    await tenant.values.put("key", 2)


async def describe(store: Store) -> dict[str, Any]:
    """Return what a store has, without what a restore adds."""
    tenant = store.with_namespace("tenant")
    bodies = {
        name: [event.stored async for event in handle.events.read(S) if event.type != "custom.restored"]
        for name, handle in (("", store), ("tenant", tenant))
    }
    blob = "".join(await store.blobs.find_missing([await store.blobs.put(b"x" * 100_000)]))
    info = await store.sessions.find(S)
    assert info is not None
    return {
        "bodies": bodies,
        "missing": blob,
        "title": info.title,
        "inputs": info.inputs,
        "updated": info.updated,
        "decisions": [pending.id for pending in await store.sessions.decisions()],
        "values": [await store.values.get("key"), await store.values.get("expires"), await tenant.values.get("key")],
        "vectors": [match.record for match in await store.vectors.query("c", "scope", VectorQuery(vector=(1.0, 0.5)))],
        "found": [hit.message.seq for hit in (await store.messages.search(MessageSearch(text="ahoi"))).hits],
        "key": await store.events.offer(S, decode(bodies[""][0]), key="k1"),
    }


async def test_a_backup_of_one_kind_is_restored_into_the_other(url: str, other_url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    source = open_store(url)
    await fill(source)
    before = await describe(source)
    counts = await back_up(url, path)  # while a process has the store open
    await source.close()
    assert (counts.sessions, counts.events, counts.blobs, counts.values, counts.vectors) == (2, 3, 1, 3, 1)
    assert path.stat().st_mode & 0o777 == 0o600
    restored = await restore(other_url, path)
    assert (restored.sessions, restored.events) == (2, 5)
    target = open_store(other_url)
    assert await describe(target) == before
    info = await target.sessions.find(S)
    assert info is not None
    assert (info.epoch, info.head) == (2, 3)
    assert await target.reindex() == 1
    assert await target.sessions.find(S) == info
    assert await target.events.claim(S) > info.term
    await target.close()


async def test_a_follower_of_a_restored_log_is_sent_a_reset(url: str, tmp_path: Path) -> None:
    agent = vaka.Agent("a", model=ScriptedModel(say("One."), say("Two.")))
    async with Runtime(store=url) as runtime:
        await (await runtime.open(agent, id=S)).run("First.")
        head = (await runtime.store.sessions.list(SessionQuery())).sessions[0].head
    await back_up(url, tmp_path / "a.backup")
    async with Runtime(store=url) as runtime:
        await (await runtime.open(agent, id=S)).run("Lost.")
    await restore(url, tmp_path / "a.backup", replace=True)
    async with Runtime(store=url) as runtime:
        async with aclosing(runtime.hub.follow(S, Cursor(1, head))) as events:
            first = await anext(events)
            assert isinstance(first.data, StreamReset)
            assert (await anext(events)).id == "1.1"
        assert (await (await runtime.open(agent, id=S)).run("Again.")).text == "Two."
        types = [event.type async for event in runtime.store.events.read(S)]
    assert (types.count("turn.completed"), types.count("custom.restored")) == (2, 1)


async def test_a_backup_is_of_one_moment_while_turns_run(url: str, tmp_path: Path) -> None:
    @vaka.tool(effect="read")
    def look() -> str:
        """Return a text that becomes a blob."""
        return os.urandom(40_000).hex()

    begun, done = asyncio.Event(), asyncio.Event()

    async def write(runtime: Runtime, number: int) -> None:
        turns = 0
        while not done.is_set():
            agent = vaka.Agent("a", model=ScriptedModel(call("look"), say("Seen.")), tools=[look])
            await (await runtime.open(agent, id=f"s{number}-{turns}")).run("Look.")
            turns += 1
            begun.set()

    async with Runtime(store=url) as runtime:
        writing = [asyncio.create_task(write(runtime, number)) for number in range(3)]
        await begun.wait()
        counts = await back_up(url, tmp_path / "a.backup")
        done.set()
        await asyncio.gather(*writing)
    copy = f"sqlite:///{tmp_path}/copy.db"
    assert (await restore(copy, tmp_path / "a.backup")).sessions == counts.sessions > 0
    store = open_store(copy)
    named: set[Digest] = set()
    for info in (await store.sessions.list(SessionQuery(limit=1000))).sessions:
        named |= {digest async for event in store.events.read(info.id) for digest in blobs_of(event)}
    assert named
    assert not await store.blobs.find_missing(named)
    await store.close()


async def test_what_exists_is_replaced_only_when_asked(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    store = open_store(url)
    await fill(store)
    await store.close()
    await back_up(url, path)
    with pytest.raises(AlreadyExists, match="--force"):
        await back_up(url, path)
    await back_up(url, path, overwrite=True)
    assert sorted(file.name for file in tmp_path.glob("a.backup*")) == ["a.backup"]
    with pytest.raises(AlreadyExists, match="--replace"):
        await restore(url, path)
    store = open_store(url)
    await write_session(store, "later", input_added("x", "k"))
    await store.close()
    await restore(url, path, replace=True)
    store = open_store(url)
    assert await store.sessions.find(SessionId("later")) is None
    assert (await describe(store))["values"] == [{"n": 1}, "soon", 2]
    await store.close()


async def test_a_store_that_a_process_uses_is_not_restored(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    store = open_store(url)
    await begin_session(store, "s")
    await back_up(url, path)
    with pytest.raises(Busy, match="used by another process"):
        await restore(url, path, replace=True)
    await store.close()
    store = open_store(url)
    await store.sessions.find(S)  # idle, but it has the store open
    with pytest.raises(Busy, match="used by another process"):
        await restore(url, path, replace=True)
    await store.close()
    await restore(url, path, replace=True)


async def test_the_log_of_a_database_that_was_moved_away_is_not_applied_to_the_restored_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}")
    await fill(store)
    await back_up(f"sqlite:///{path}", tmp_path / "a.backup")
    await write_session(store, "later", input_added("x" * 100_000, "k"))
    log = path.with_name("a.db-wal").read_bytes()
    await store.close()
    path.unlink()
    path.with_name("a.db-wal").write_bytes(log)
    assert log
    await restore(f"sqlite:///{path}", tmp_path / "a.backup")
    store = open_store(f"sqlite:///{path}")
    assert await store.sessions.find(SessionId("later")) is None
    assert await store.reindex() == 1
    await store.close()


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "foreign", "empty", "newer", "missing"])
async def test_a_file_that_is_no_whole_backup_restores_nothing(tmp_path: Path, damage: str) -> None:
    url, path = f"sqlite:///{tmp_path}/a.db", tmp_path / "a.backup"
    store = open_store(url)
    await fill(store)
    await store.close()
    await back_up(url, path)
    data = path.read_bytes()
    middle = len(data) // 2
    damaged = {
        "cut": data[:-40],
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "longer": data + b"x",
        "foreign": b"SQLite format 3\0" + data,
        "empty": b"",
        "newer": data.replace(b"backup 1", b"backup 9", 1),
        "missing": b"",
    }
    path.write_bytes(damaged[damage])
    if damage == "missing":
        path.unlink()
    expected = {"foreign": InvalidInput, "empty": InvalidInput, "newer": TooNew, "missing": NotFound}
    with pytest.raises(expected.get(damage, Corrupt), match=r"a\.backup"):
        await restore(f"sqlite:///{tmp_path}/b.db", path)
    assert not (tmp_path / "b.db").exists()


async def test_damaged_data_is_not_backed_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(NotFound):
        await back_up(url, tmp_path / "a.backup")
    store = open_store(url)
    digest = await store.blobs.put(b"content" * 1000, session="s")
    await store.close()
    database = tmp_path / "a.db"
    data = database.read_bytes()
    database.write_bytes(data.replace(b"contentcontent", b"contentCONTENT", 1))
    with pytest.raises(Corrupt, match=digest):
        await back_up(url, tmp_path / "a.backup")
    assert not list(tmp_path.glob("a.backup*"))
    with pytest.raises(InvalidInput, match="SQLite and PostgreSQL"):
        open_backup("memory:")


KILLED = """
import asyncio, sys, time
from pathlib import Path
from vaka.runtime.open_store import open_backup
from vaka.runtime.backups import write_backup
from vaka.stores.backup_file import BackupReader

async def main(work, url, path):
    async def half():
        async for number, record in _number(BackupReader(Path(path)).read()):
            if number == 4:
                print("half", flush=True)
                await asyncio.Event().wait()
            yield record
    if work == "restore":
        await open_backup(url).load(half(), made="now", replace=True)
    else:
        class Half:
            url = "sqlite:x"
            dump = staticmethod(half)
        await write_backup(Half(), Path(path + ".new"), now=0, version="1", overwrite=False, progress=lambda _: None)

async def _number(records):
    number = 0
    async for record in records:
        number += 1
        yield number, record

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("work", ["backup", "restore"])
async def test_a_killed_backup_or_restore_leaves_what_was_there(url: str, tmp_path: Path, work: str) -> None:
    path = tmp_path / "a.backup"
    store = open_store(url)
    await fill(store)
    await store.close()
    await back_up(url, path)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        work,
        url,
        str(path),
        stdout=asyncio.subprocess.PIPE,
        env=without_coverage(),
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"half\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()
    assert not (tmp_path / "a.backup.new").exists()
    store = open_store(url)
    assert (await describe(store))["values"] == [{"n": 1}, "soon", 2]
    await store.close()
    if work == "backup":
        shutil.copy(path, tmp_path / "a.backup.new.part")  # a longer one than the next
        await back_up(url, tmp_path / "a.backup.new")
        path = tmp_path / "a.backup.new"
    assert (await restore(url, path, replace=True)).sessions == 2
    assert not list(tmp_path.glob("*.restore*")) + list(tmp_path.glob("*.part"))


async def test_records_in_a_wrong_order_are_refused(url: str) -> None:
    async def records(*made: BackupRecord) -> AsyncIterator[BackupRecord]:
        for record in made:
            yield record

    target: StoreBackup = open_backup(url)
    with pytest.raises(Corrupt):
        await target.load(records(SavedEvents([b"{}"])), made="", replace=True)
    with pytest.raises(Corrupt):
        await target.load(records(SavedSession("", "s", 1)), made="", replace=True)
