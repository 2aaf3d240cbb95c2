"""After a write that failed, the session is free: here, in other processes, and as soon as there is space again."""

import asyncio
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.interleaving import run_skipping
from tests.runtime.runtime_fixtures import IDS, check_log, collect
from vaka.core.ports.model import Prompt
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import StoreError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import text_of
from vaka.runtime.options import Environment
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import FunctionModel

S = SessionId("s")


@contextmanager
def file_size_limit(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the write-ahead log of a database."""
    size = path.with_name(f"{path.name}-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class GatedAnswers:
    """A model whose first answers wait until they are let through."""

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        self.agent = vaka.Agent("helper", model=FunctionModel(self._answer))

    async def _answer(self, prompt: Prompt) -> str:
        self.asked.set()
        await self.gate.wait()
        return "done"


async def fail_a_turn(rt: vaka.Runtime, path: Path) -> vaka.Session[Any]:
    """Run a turn whose answer cannot be written."""
    model = GatedAnswers()
    session = await rt.open(model.agent, id=S)
    turn = asyncio.create_task(session.run("begin"))
    await model.asked.wait()
    with file_size_limit(path):
        model.gate.set()
        with pytest.raises(StoreError):
            await turn
    return session


async def test_a_session_whose_write_failed_can_be_claimed_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    async with vaka.Runtime(store=f"sqlite:///{path}") as here, vaka.Runtime(store=f"sqlite:///{path}") as there:
        await fail_a_turn(here, path)
        elsewhere = await there.open(GatedAnswers().agent, id=S)
        await elsewhere.rewind("1.1")
        await there.store.sessions.delete(S)


async def test_a_session_whose_write_failed_goes_on_in_the_same_process(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    async with vaka.Runtime(store=f"sqlite:///{path}") as rt:
        session = await fail_a_turn(rt, path)
        assert (await session.resume().wait()).text == "done"
        check_log(await collect(rt.store.events.read(S)))


def test_a_session_whose_write_failed_is_free_while_its_process_writes_another(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"

    async def main() -> None:
        async with vaka.Runtime(store=f"sqlite:///{path}") as here, vaka.Runtime(store=f"sqlite:///{path}") as there:
            busy = GatedAnswers()
            other = asyncio.create_task((await here.open(busy.agent, id="other")).run("long"))
            await busy.asked.wait()
            await fail_a_turn(here, path)
            free = GatedAnswers()
            free.gate.set()
            async with asyncio.timeout(30):
                assert (await (await there.open(free.agent, id=S)).run("next")).text == "done"
            assert not other.done()
            busy.gate.set()
            assert (await other).text == "done"

    run_skipping(main)


@pytest.mark.parametrize("change", ["removed or moved", "replaced by another file"])
async def test_after_its_database_is_removed_or_replaced_a_process_fails_until_it_is_restarted(
    tmp_path: Path, change: str
) -> None:
    path, model = tmp_path / "vaka.db", GatedAnswers()
    if change == "replaced by another file":
        async with vaka.Runtime(store=f"sqlite:///{tmp_path}/new.db") as other:
            model.gate.set()
            await (await other.open(model.agent, id=S)).run("in the new file")
            model.gate.clear()
            model.asked.clear()
    async with vaka.Runtime(store=f"sqlite:///{path}") as runtime:
        session = await runtime.open(model.agent, id=S)
        turn = asyncio.create_task(session.run("begin"))
        await model.asked.wait()
        shutil.rmtree(f"{path}-live")
        for file in tmp_path.glob("vaka.db*"):
            file.unlink()
        if change == "replaced by another file":
            (tmp_path / "new.db").rename(path)
        model.gate.set()
        async with asyncio.timeout(30):
            for call in (turn, session.run("again"), runtime.threads.add_message(S, {"role": "user", "content": "x"})):
                with pytest.raises(StoreError, match=f"was {change} while this process used it.*restart this process"):
                    await call
            with pytest.raises(StoreError, match=change):
                await runtime.store.sessions.find(S)
    async with vaka.Runtime(store=f"sqlite:///{path}") as restarted:
        assert (await (await restarted.open(model.agent, id=S)).run("next")).text == "done"
        events = await collect(restarted.store.events.read(S))
    check_log(events)
    texts = [text_of(event.data.content) for event in events if isinstance(event.data, InputAdded)]
    assert texts == (["next"] if change == "removed or moved" else ["in the new file", "next"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_session_is_free_after_its_disk_was_full(small_disk: Path) -> None:
    path, ballast = small_disk / "vaka.db", small_disk / "ballast"
    async with vaka.Runtime(store=f"sqlite:///{path}") as here, vaka.Runtime(store=f"sqlite:///{path}") as there:
        model = GatedAnswers()
        turn = asyncio.create_task((await here.open(model.agent, id=S)).run("x" * 100_000))
        await model.asked.wait()
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        model.gate.set()
        with pytest.raises(StoreError, match="disk is full"):
            await turn
        ballast.unlink()
        assert (await (await there.open(model.agent, id=S)).resume().wait()).text == "done"


class FaultyDisk:
    """Lets commits of SQLite fail with an error code, of transactions that are written nevertheless, or are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = 0
        self.written = False
        self.commits = 0
        self._writes = False
        self.fail_at: range = range(0)
        """The numbers of the commits that fail."""
        self.connections: set[sqlite3.Connection] = set()
        disk, connect = self, sqlite3.connect

        def connect_faulty(path: Path, factory: type[sqlite3.Connection], **options: Any) -> sqlite3.Connection:
            class FaultyConnection(factory):  # type: ignore[misc, valid-type]  # a class given at run time
                def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
                    disk.check(self, statement)
                    cursor: sqlite3.Cursor = super().execute(statement, *arguments)
                    return cursor

            return connect(path, factory=FaultyConnection, **options)

        monkeypatch.setattr(sqlite3, "connect", connect_faulty)

    def check(self, connection: sqlite3.Connection, statement: str) -> None:
        """Raise the error of a commit that fails."""
        if statement.startswith("begin"):
            self._writes = statement == "begin immediate"
        if statement != "commit" or not self._writes:
            return
        self.connections.add(connection)
        self.commits += 1
        if self.commits in self.fail_at:
            if self.written:
                connection.commit()
            error = sqlite3.OperationalError("the disk has failed")
            error.sqlite_errorcode = self.code
            raise error


@pytest.mark.parametrize("written", [False, True])
async def test_a_failed_fsync_ends_the_connection_and_the_log_says_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, written: bool
) -> None:
    model, disk = GatedAnswers(), FaultyDisk(monkeypatch)
    model.gate.set()
    disk.code, disk.written = sqlite3.SQLITE_IOERR_FSYNC, written
    for number in range(1, 9):
        disk.fail_at = range(0)
        store = SqliteStore(tmp_path / f"{number}.db")
        async with vaka.Runtime(store=store, environment=Environment(clock=FakeClock(auto=True), ids=IDS)) as rt:
            session = await rt.open(model.agent, id=S)
            await session.run("begin")
            disk.connections.clear()
            disk.fail_at = range(disk.commits + number, disk.commits + number + 1)
            for text in ("again", "more", "end"):
                assert (await session.run(text)).text == "done"
            assert disk.commits >= disk.fail_at.stop
            check_log(await collect(store.events.read(S)))
            assert len(disk.connections) == 2
        await store.close()


@pytest.mark.parametrize(
    "code",
    [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC],
    ids=["read-only", "full", "write", "fsync"],
)
async def test_a_session_is_free_after_its_disk_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    disk, model = FaultyDisk(monkeypatch), GatedAnswers()
    stores = [SqliteStore(tmp_path / "vaka.db") for _ in range(2)]
    here, there = [
        vaka.Runtime(store=store, environment=Environment(clock=FakeClock(auto=True), ids=IDS)) for store in stores
    ]
    turn = asyncio.create_task((await here.open(model.agent, id=S)).run("begin"))
    await model.asked.wait()
    disk.code, disk.fail_at = code, range(disk.commits, 1 << 30)
    model.gate.set()
    with pytest.raises(StoreError):
        await turn
    disk.fail_at = range(0)
    assert (await (await there.open(model.agent, id=S)).resume().wait()).text == "done"
    assert (await (await here.open(model.agent, id=S)).run("again")).text == "done"
    check_log(await collect(stores[0].events.read(S)))
    for rt in (here, there):
        await rt.close()
    for store in stores:
        await store.close()
