"""The stores that are measured, each created empty."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import bare_loop
from bench.row import Row
from tests.postgres_server import PostgresServer
from vaka.runtime.open_store import Durability


class StoreKind(NamedTuple):
    """A store, its durability, and the targets of a run (milliseconds; runs per second, 100 concurrent)."""

    store: str
    survives: str
    durability: Durability
    run_target_ms: float | None = None
    rate_target: float | None = None
    synchronous: str = ""

    def row(self, name: str, value: float, unit: str = "", **more: Any) -> Row:
        """Return a row of this store; ``more`` are other fields of it."""
        return Row(name=name, value=value, unit=unit, store=self.store, durability=self.survives, **more)

    def missing_row(self, name: str) -> Row:
        """Return a row for a store that is not available."""
        why = f"skipped: no {self.store} here"
        return Row(name=name, value=0, unit="", store=self.store, durability=self.survives, note=why, skipped=True)


MEMORY = StoreKind("memory", "nothing", "power", 0.35, 2500)
PROCESS = StoreKind("SQLite", "process", "process", 0.9, 1200, "normal")
POWER = StoreKind("SQLite", "power", "power", 2.0, 1200, "full")
POSTGRES = StoreKind("PostgreSQL", "power", "power")
LOCAL = (MEMORY, PROCESS, POWER)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield an empty folder on the disk of temporary files."""
    with tempfile.TemporaryDirectory(prefix="vaka-bench-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@contextlib.contextmanager
def run_postgres() -> Iterator[str | None]:
    """Yield the address of a private PostgreSQL with durable settings; ``None`` without a server."""
    try:
        server = PostgresServer()
    except FileNotFoundError:
        yield None
        return
    try:
        server.start()
        for setting in ("fsync", "full_page_writes", "autovacuum"):  # switched off for tests
            server.sql(f"alter system set {setting} = on")
        server.restart()
        yield server.dsn()
    finally:
        server.close()


def store_url_of(kind: StoreKind, home: Path, dsn: str | None = None) -> str:
    """Return the address of an empty store."""
    if kind.store == "memory":
        return "memory:"
    return dsn if dsn is not None else f"sqlite:///{home / f'{kind.survives}.db'}"


@contextlib.asynccontextmanager
async def open_sink(kind: StoreKind, home: Path, dsn: str | None = None) -> AsyncIterator[bare_loop.Sink]:
    """Yield the sink of the bare loop, with the durability of the store."""
    made: bare_loop.Sink
    if dsn is not None:
        made = await bare_loop.PostgresSink.open(dsn)
    elif kind.synchronous:
        made = bare_loop.SqliteSink(home / f"bare-{kind.survives}.db", kind.synchronous)
    else:
        made = bare_loop.MemorySink()
    try:
        yield made
    finally:
        await made.close()
