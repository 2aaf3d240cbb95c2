"""Several handles open one database: concurrently while it is created, or one after another."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage
from vaka.core.types.errors import FileRefused, InvalidInput
from vaka.files.disk import DiskFiles
from vaka.files.safe_open import OpenerName
from vaka.stores.sqlite import SqliteStore

OPEN_PROGRAM = """
import asyncio, sys
from pathlib import Path
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore

async def main() -> None:
    store = SqliteStore(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    assert await store.sessions.find(SessionId("s")) is None
    await store.values.put(f"from {sys.argv[2]}", 1)
    await store.close()

asyncio.run(main())
"""


def test_opening_waits_while_the_schema_is_created(tmp_path: Path) -> None:
    for attempt in range(2):
        path = tmp_path / f"{attempt}.db"
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        commands = [[sys.executable, "-c", OPEN_PROGRAM, str(path), str(number)] for number in range(5)]
        processes = [subprocess.Popen(command, text=True, env=without_coverage(), **pipes) for command in commands]  # type: ignore[call-overload]  # three pipes
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
        assert ended == [("", 0)] * 5


VISITOR_PROGRAM = """
import contextlib, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1])) as reader:
    print(reader.execute("select count(*) from pairs").fetchone()[0])
"""


async def run_visitor(path: Path) -> str:
    """Return the row count of another process, which then closes the database, and checkpoints it if it is the last."""
    visit = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VISITOR_PROGRAM, str(path), stdout=subprocess.PIPE, env=without_coverage()
    )
    return (await visit.communicate())[0].decode().strip()


async def test_two_handles_of_one_process_keep_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    first, second = SqliteStore(path), SqliteStore(path)
    await first.values.put("one", 1)
    await second.values.put("two", 2)
    assert await run_visitor(path) == "2"
    await first.values.put("three", 3)
    await second.values.put("four", 4)
    assert await run_visitor(path) == "4"
    await first.close()
    await second.close()
    assert await run_visitor(path) == "4"


@pytest.mark.parametrize("way", ["openat2", "walk"])
async def test_disk_files_do_not_open_a_database_in_use(tmp_path: Path, way: OpenerName) -> None:
    path = tmp_path / "vaka.db"
    store, files = SqliteStore(path), DiskFiles(tmp_path, opener=way)
    await store.values.put("one", 1)
    (tmp_path / "link").hardlink_to(path)
    for name in ("vaka.db", "vaka.db-shm", "link"):
        with pytest.raises(FileRefused, match="database that this program uses"):
            await files.read(name)
        with pytest.raises(FileRefused, match="database that this program uses"):
            await files.write(name, b"")
        with pytest.raises(FileRefused, match="database that this program uses"):
            await files.delete(name)
    assert await run_visitor(path) == "1"
    await store.values.put("two", 2)
    await store.close()
    assert await run_visitor(path) == "2"
    assert (await files.read("vaka.db")).data.startswith(b"SQLite")


async def test_a_store_that_another_thread_has_opened_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db")
    await store.values.put("k", 1)
    with pytest.raises(InvalidInput, match="belong to the thread that used them first; open one in each"):
        await asyncio.to_thread(asyncio.run, store.values.get("k"))
    await store.close()
