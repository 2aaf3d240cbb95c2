"""Places where logs are kept, and processes that none outlives its test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.faults.homes import KINDS, Home, Postgres, Sqlite
from tests.faults.processes import Child, start
from tests.postgres import PostgresServer

Start = Callable[..., Awaitable[Child]]


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A store of each kind."""
    return _home(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite-process", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A store of each kind that processes share."""
    return _home(request.param, request, tmp_path)


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return _home("postgres", request, tmp_path)


def _home(kind: str, request: pytest.FixtureRequest, folder: Path) -> Home:
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return Postgres(folder, request.getfixturevalue("postgres_dsn"), server)
    return Sqlite(folder, "power" if kind == "sqlite-power" else "process")


@pytest.fixture
async def spawn() -> AsyncIterator[Start]:
    """Start programs; at the end none of them, nor anything they started, is left."""
    children: list[Child] = []

    async def spawn(program: str, plan: msgspec.Struct, **environment: str) -> Child:
        children.append(await start(program, plan, **environment))
        return children[-1]

    yield spawn
    for child in children:
        await child.kill()
        assert await child.gone(), "a process that it started is left"
