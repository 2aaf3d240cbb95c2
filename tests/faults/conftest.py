"""Stores for crash tests, and child processes that do not outlive their test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.faults.log_stores import STORE_KINDS, LogStore, PostgresLogStore, SqliteLogStore
from tests.faults.processes import ChildProcess, start_program
from tests.postgres_server import PostgresServer

StartProgram = Callable[..., Awaitable[ChildProcess]]


@pytest.fixture(params=STORE_KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """A store of each kind."""
    return _open_log_store(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite-process", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """A store of each kind that several processes can share."""
    return _open_log_store(request.param, request, tmp_path)


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    return _open_log_store("postgres", request, tmp_path)


def _open_log_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> LogStore:
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return PostgresLogStore(folder, request.getfixturevalue("postgres_dsn"), server)
    return SqliteLogStore(folder, "power" if kind == "sqlite-power" else "process")


@pytest.fixture
async def spawn() -> AsyncIterator[StartProgram]:
    """Start programs; at the end no process of theirs is left."""
    children: list[ChildProcess] = []

    async def spawn(program: str, plan: msgspec.Struct, **environment: str) -> ChildProcess:
        children.append(await start_program(program, plan, **environment))
        return children[-1]

    yield spawn
    for child in children:
        await child.clean_up()
        assert await child.wait_group_exit(), "a process that it started is left"
