"""Where a test keeps its logs: a fresh session for every run, in a SQLite file of its own or in PostgreSQL."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import asyncpg

from tests.faults.voyage import Plan, open_store
from tests.postgres import PostgresServer
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.runtime.registry import Durability

KINDS = ("sqlite-power", "sqlite-process", "postgres")


class Home:
    """A place for logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0

    def plan(self, **more: object) -> Plan:
        """Return a plan for a session nobody has begun."""
        self._made += 1
        return Plan(ledger=str(self.folder / f"ledger-{self._made}.db"), **self._where(self._made), **more)  # type: ignore[arg-type]  # fields of a plan

    def _where(self, number: int) -> dict[str, str]:
        raise NotImplementedError

    async def bury(self, plan: Plan) -> None:
        """Make sure that the claim of a process that died is over."""


class Sqlite(Home):
    """One file for each session: a lock there dies with its process."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        super().__init__(folder)
        self._durability = durability

    def _where(self, number: int) -> dict[str, str]:
        path = self.folder / f"log-{number}" / "vaka.db"
        return {"store": f"sqlite:///{path}", "session": "voyage", "durability": self._durability}


class Postgres(Home):
    """One database for all: a lease there ends with its time, or when the test says that it has passed."""

    def __init__(self, folder: Path, dsn: str, server: PostgresServer) -> None:
        super().__init__(folder)
        self.dsn, self.server = dsn, server

    def _where(self, number: int) -> dict[str, str]:
        return {"store": self.dsn, "session": f"voyage-{number}"}

    async def bury(self, plan: Plan) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            expire = (
                "update vaka.sessions set lease_until = now() - interval '1 second' where convert_from(id, 'UTF8') = $1"
            )
            if await connection.fetchval("select to_regclass('vaka.sessions')"):
                await connection.execute(expire, plan.session)
        finally:
            await connection.close()


async def read(plan: Plan) -> list[Event]:
    """Return the log as a stranger reads it, from the stored bytes."""
    store = open_store(plan)
    try:
        async with asyncio.timeout(60), aclosing(store.events.read(SessionId(plan.session))) as events:
            return [event async for event in events]
    finally:
        await store.close()
