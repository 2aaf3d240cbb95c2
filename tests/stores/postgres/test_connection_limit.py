"""The server accepts no more connections: leases hold, claims fail with a reason, and no caller waits for ever."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import pytest

import vaka
from tests.postgres_server import PostgresServer
from tests.stores.postgres.conftest import PATIENCE
from vaka.core.types.errors import Unavailable
from vaka.core.types.ids import SessionId
from vaka.stores.postgres import PostgresStore
from vaka.testing import call, say
from vaka.testing.models import ScriptedModel
from vaka.testing.stores.sealed_events import begin_session, input_added, write_session

S = SessionId("s")

_LISTENERS = (
    "(query ilike 'listen%' or query like 'select pg_notify%' or query like 'select s.namespace, s.id, s.head%')"
)


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class SmallServer:
    """A database of a server with 12 connections. vaka is an ordinary user of it."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        server.sql(f"grant create on database {database} to app")
        server.sql("alter role app connection limit -1")
        self.dsn, self._superuser_dsn = server.dsn(database, "app"), server.dsn(database)

    @asynccontextmanager
    async def all_taken(self) -> AsyncGenerator[Connection]:
        """Take every connection that is free; yield one of them."""
        taken: list[Connection] = []
        try:
            while await self._take_one(taken):
                pass
            yield taken[0]
        finally:
            for connection in taken:
                await connection.close()

    async def _take_one(self, taken: list[Connection]) -> bool:
        try:
            taken.append(await asyncpg.connect(self._superuser_dsn))
        except asyncpg.TooManyConnectionsError:
            return False
        return True


async def refuse(connection: Connection) -> None:
    """Let other clients have each connection that vaka loses from now on."""
    await connection.execute("alter role app connection limit 0")


async def accept(connection: Connection) -> None:
    """Let vaka connect again."""
    await connection.execute("alter role app connection limit -1")


async def end_connections(connection: Connection, which: str = "true") -> None:
    """End connections of vaka."""
    ended = await connection.fetch(
        f"select pg_terminate_backend(pid, 60000) from pg_stat_activity where usename = 'app' and {which}"
    )
    assert ended


@pytest.fixture(scope="module")
def small_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer(settings="max_connections = 12\nsuperuser_reserved_connections = 0\n")
    server.start()
    server.sql("create role app login")
    yield server
    server.close()


@pytest.fixture
def small(small_postgres: PostgresServer) -> Iterator[SmallServer]:
    with small_postgres.database() as dsn:
        yield SmallServer(small_postgres, dsn.partition("@/")[2].partition("?")[0])


async def wait_until(holds: Callable[[], bool]) -> None:
    """Return when something holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds():
                return
            await asyncio.sleep(0)


async def wait_for_renewals(connection: Connection, count: int) -> None:
    """Return when the lease of the only session was renewed so many times."""
    leases: set[object] = set()
    async with asyncio.timeout(PATIENCE):
        while len(leases) <= count:
            leases.add(await connection.fetchval("select lease_until from vaka.sessions"))
            assert None not in leases


@pytest.mark.parametrize("lost", ["none", "listening", "pooled"])
async def test_a_call_that_runs_while_all_connections_are_taken_keeps_its_lease(small: SmallServer, lost: str) -> None:
    """Nothing is lost, also when other clients take one of the two connections that vaka had."""
    payments: list[int] = []

    @vaka.tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        payments.append(amount)
        async with small.all_taken() as connection:
            await refuse(connection)
            if lost != "none":
                await end_connections(connection, _LISTENERS if lost == "listening" else f"not {_LISTENERS}")
            await wait_for_renewals(connection, 4)
            await accept(connection)
        return "paid"

    store = PostgresStore(small.dsn, lease=1.5)
    model = ScriptedModel(call("pay", amount=10), say("Done."))
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(vaka.Agent("payer", model=model, tools=[pay]), id="s")
        response = await session.run("Pay.")
        types = [event.type async for event in store.events.read(S)]
    await store.close()
    assert (response.text, payments) == ("Done.", [10])
    assert (types.count("tool.completed"), types.count("turn.resumed")) == (1, 0)


async def test_a_session_is_not_claimed_without_a_connection_for_its_lease(small: SmallServer) -> None:
    store = PostgresStore(small.dsn, patience=0.3)
    other = PostgresStore(small.dsn, patience=0.3)
    await write_session(other, "s")
    await other.close()
    assert (await store.sessions.find(S)) is not None
    agent = vaka.Agent("a", model=ScriptedModel(say("Hello.")))
    async with vaka.Runtime(store=store) as runtime, small.all_taken() as connection:
        with pytest.raises(Unavailable, match="max_connections"):
            await store.events.claim(S)
        with pytest.raises(Unavailable, match="max_connections"):
            await (await runtime.open(agent, id="new")).run("Hi.")
        assert await connection.fetchval("select count(*) from vaka.sessions where owner is not null") == 0
    assert await store.events.claim(S) == 2
    await store.close()


async def test_a_lease_that_cannot_be_renewed_is_reported_before_it_ends(
    small: SmallServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(small.dsn, lease=6, patience=0.3)
    _, term = await begin_session(store, "s")
    with caplog.at_level(logging.WARNING):
        async with small.all_taken() as connection:
            await refuse(connection)
            await end_connections(connection)
            await wait_until(lambda: any("cannot be renewed" in line for line in caplog.messages))
            assert store.events.is_held(S, term)
            ended = "the lease of session 's' has ended"
            await wait_until(lambda: any(ended in line for line in caplog.messages))
            assert not store.events.is_held(S, term)
            await accept(connection)
        await wait_until(lambda: store.events.is_held(S, term))
    assert any("max_connections" in line for line in caplog.messages)
    assert any("leases are renewed again" in line for line in caplog.messages)
    await store.close()


async def test_a_wait_without_notifications_polls_and_ends_with_an_error_when_it_cannot(small: SmallServer) -> None:
    writer, reader = PostgresStore(small.dsn), PostgresStore(small.dsn, patience=0.5)
    log, term = await begin_session(writer, "s")
    assert (await reader.sessions.find(S)) is not None
    async with small.all_taken() as connection:
        waiting = asyncio.create_task(reader.events.wait(S, after=1))
        await log.append_to(writer, term, input_added("x", "b"))
        async with asyncio.timeout(PATIENCE):
            assert await waiting == 2
        await refuse(connection)
        waiting = asyncio.create_task(reader.events.wait(S, after=2))
        for _ in range(3):
            await asyncio.sleep(0)
        await end_connections(connection)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable, match="max_connections"):
                await waiting
        await accept(connection)
    await reader.close()
    await writer.close()
