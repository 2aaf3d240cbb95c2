"""Stores on one database, and child processes with their own stores."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.forked_python import StreamedProcess, start_forked
from tests.unmeasured import without_coverage
from vaka.core.ports.store import Store
from vaka.core.types.errors import Busy
from vaka.core.types.ids import SessionId, Term
from vaka.stores.postgres import PostgresStore

ROOT = Path(__file__).parents[3]
PATIENCE = 60


class Child:
    """A process that runs ``child.py``, one command after the other."""

    def __init__(self, process: StreamedProcess) -> None:
        self._process = process
        self._in, self._out = process.stdin, process.stdout

    def send_command(self, do: str, **arguments: object) -> None:
        self._in.write(msgspec.json.encode({"do": do, **arguments}) + b"\n")

    async def read_answer(self) -> Any:
        """Return the answer to the oldest command; ``None`` also when the process has died."""
        async with asyncio.timeout(PATIENCE):
            line = await self._out.readline()
        return msgspec.json.decode(line) if line else None

    async def ask(self, do: str, **arguments: object) -> Any:
        self.send_command(do, **arguments)
        return await self.read_answer()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def finish(self) -> int:
        """Close its input, let it finish, and return its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        self._in.close()
        return await self.wait_exit()

    async def wait_exit(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


Spawn = Callable[..., Awaitable[Child]]


@pytest.fixture
async def spawn(postgres_dsn: str) -> AsyncIterator[Spawn]:
    children: list[Child] = []

    async def spawn(*, lease: float = 15, failpoint: str = "") -> Child:
        words = ["-m", "tests.stores.postgres.child", postgres_dsn, str(lease)]
        children.append(Child(await start_forked(words, without_coverage() | {"VAKA_FAILPOINT": failpoint})))
        return children[-1]

    yield spawn
    for child in children:
        await child.finish()


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_dsn)
    yield store
    await store.close()


@pytest.fixture
async def other(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(postgres_dsn)
    yield other
    await other.close()


async def claim_when_free(store: Store, session: SessionId) -> Term:
    """Claim a session as soon as it is free."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.events.claim(session)
            except Busy:
                continue
