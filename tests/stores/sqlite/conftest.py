"""Stores in real files, and real processes beside this one."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.forked_python import StreamedProcess, start_forked
from tests.unmeasured import without_coverage
from vaka.stores.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[3]


class Child:
    """A process that runs ``child.py``."""

    def __init__(self, process: StreamedProcess) -> None:
        self.process = process

    async def read_line(self) -> str:
        """Return its next line, ``""`` when it has ended."""
        return (await self.process.stdout.readline()).decode().strip()

    async def send_line(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n".encode())
        await self.process.stdin.drain()

    async def read_to_end(self) -> list[str]:
        """Close its input and return its lines until it ends."""
        self.process.stdin.close()
        lines = (await self.process.stdout.read()).decode().splitlines()
        await self.process.wait()
        return lines

    async def kill(self) -> None:
        """Kill a process that is expected to run; fail if it ended by itself."""
        await self.clean_up()
        assert self.process.returncode == -signal.SIGKILL, "the process ended before it was killed"

    async def clean_up(self) -> None:
        """Kill the process if it still runs."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


Spawn = Callable[..., Awaitable[Child]]


@pytest.fixture
async def spawn(path: Path) -> AsyncIterator[Spawn]:
    """Start children on the test's database, with the test's kind of event loop; none outlives the test."""
    children: list[Child] = []
    loop = {"VAKA_TEST_LOOP": type(asyncio.get_running_loop()).__module__.partition(".")[0]}

    async def start(command: str, *arguments: object, **environment: str) -> Child:
        words = ["-m", "tests.stores.sqlite.child", command, str(path), *map(str, arguments)]
        children.append(Child(await start_forked(words, without_coverage() | loop | environment)))
        return children[-1]

    yield start
    for child in children:
        await child.clean_up()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vaka.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, durability="process")
    yield store
    await store.close()
