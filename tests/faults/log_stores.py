"""Stores for crash tests: a new session for every run, in its own SQLite file or in PostgreSQL."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import asyncpg

from tests.faults.crash_run import Plan, open_store
from tests.postgres_server import PostgresServer
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.runtime.open_store import Durability

STORE_KINDS = ("sqlite-power", "sqlite-process", "postgres")


class LogStore:
    """A store for the sessions of a crash test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.death_count = 0
        """Processes that died by SIGKILL as planned."""
        self._plan_count = 0

    def new_plan(self, **more: object) -> Plan:
        """Return a plan for a new session."""
        self._plan_count += 1
        fields: dict[str, Any] = {**self._store_fields(self._plan_count), **more}
        return Plan(ledger=str(self.folder / f"ledger-{self._plan_count}.db"), **fields)

    def _store_fields(self, number: int) -> dict[str, str]:
        raise NotImplementedError

    async def expire_claim(self, plan: Plan) -> None:
        """End the claim of a process that died."""


class SqliteLogStore(LogStore):
    """One file for each session: its lock ends with its process."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        super().__init__(folder)
        self._durability = durability

    def _store_fields(self, number: int) -> dict[str, str]:
        path = self.folder / f"log-{number}" / "vaka.db"
        path.parent.mkdir(exist_ok=True)
        return {"store": f"sqlite:///{path}", "session": "voyage", "durability": self._durability}


class PostgresLogStore(LogStore):
    """One database for all sessions: a lease ends with its time, or when the test expires it."""

    def __init__(self, folder: Path, dsn: str, server: PostgresServer) -> None:
        super().__init__(folder)
        self.dsn, self.server = dsn, server

    def _store_fields(self, number: int) -> dict[str, str]:
        return {"store": self.dsn, "session": f"voyage-{number}"}

    async def expire_claim(self, plan: Plan) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            expire = (
                "update vaka.sessions set lease_until = now() - interval '1 second' where convert_from(id, 'UTF8') = $1"
            )
            if await connection.fetchval("select to_regclass('vaka.sessions')"):
                await connection.execute(expire, plan.session)
        finally:
            await connection.close()


async def read_log(plan: Plan) -> list[Event]:
    """Return the log as another process reads it, from the stored bytes."""
    store = open_store(plan)
    try:
        async with asyncio.timeout(60), aclosing(store.events.read(SessionId(plan.session))) as events:
            return [event async for event in events]
    finally:
        await store.close()
