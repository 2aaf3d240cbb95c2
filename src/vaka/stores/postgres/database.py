"""The connection pool: opened on first use, migrated, renewed when lost; and the DSN without its password."""

import asyncio
import re
import shlex
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy

from vaka.core.types.errors import CannotOpen, Closed, ConfigError, InvalidInput, StoreError, Unavailable
from vaka.stores.common import Durability, check_durability, migration_files, require_known_schema

if sys.platform == "linux":

    def boot_time() -> float:
        """Seconds that never go back and also pass while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    boot_time = time.monotonic


_SECRET_OPTIONS = {"password", "sslpassword"}

_HOSTS_PATTERN = re.compile(r"([^\[\]:,]*|\[[^\[\]]*\])(:\d*)?(,([^\[\]:,]*|\[[^\[\]]*\])(:\d*)?)*")

_DSN_HINT = "write it as postgresql://user:password@host:5432/database, special characters in a part as %XX"


def redact_dsn(dsn: str) -> str:
    """Return the DSN without its passwords; ``ConfigError`` for an invalid one.

    The message does not quote the DSN: a password that was not escaped may be anywhere in it.
    """
    try:
        parts = urlsplit(dsn)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError(f"the address of the PostgreSQL store cannot be parsed: {_DSN_HINT}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f"the address of a PostgreSQL store must begin with postgresql://: {_DSN_HINT}")
    user, at, hosts = parts.netloc.rpartition("@")
    named = all(name.isascii() and name.isidentifier() for name, _ in options)
    if parts.fragment or "@" in parts.path or not named or not _HOSTS_PATTERN.fullmatch(hosts):
        raise ConfigError(f"the address of the PostgreSQL store has a part that cannot be parsed: {_DSN_HINT}")
    shown = urlencode([option for option in options if option[0] not in _SECRET_OPTIONS], safe="/:,")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}{'?' if shown else ''}{shown}"


_MIGRATION_LOCK = 0x76616B61  # arbitrary, but the same in every version

_SELECT_VERSION = "select coalesce(max(version), 0) from vaka.migrations"


MIGRATIONS = Path(__file__).with_name("migrations")
"""The folder of the scripts that create and change the tables."""


async def migrate(
    connection: "PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]", url: str
) -> None:
    """Migrate the tables to the schema of this code. Raises ``ConfigError`` for tables that are refused."""
    if await connection.fetchval("select to_regclass('vaka.migrations') is not null"):
        version = await _read_schema(connection, url)
        if version == migration_files(MIGRATIONS)[-1][0]:
            return
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        if await connection.fetchval("select to_regnamespace('vaka') is null"):
            await connection.execute("create schema vaka")
        await connection.execute(
            "create table if not exists vaka.migrations "
            "(version integer primary key, at timestamptz not null default now())"
        )
        version = await _read_schema(connection, url)  # another process may have migrated them meanwhile
        for number, file in migration_files(MIGRATIONS):
            if number > version:
                await connection.execute(file.read_text("utf-8"))
                await connection.execute("insert into vaka.migrations (version) values ($1)", number)


async def _read_schema(
    connection: "PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]", url: str
) -> int:
    """Return the schema of the tables, 0 if there are none. Raises ``ConfigError`` for tables that are refused."""
    version: int = await connection.fetchval(_SELECT_VERSION)
    require_known_schema(
        version,
        migration_files(MIGRATIONS)[-1][0],
        f"the store {url}",
        backup=f"vaka store backup vaka.backup --store {shlex.quote(url)}",
        restore="vaka store restore vaka.backup --store postgresql://…, with the address of an empty database",
    )
    return version


PostgresRecord: TypeAlias = "asyncpg.Record"

PostgresConnection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

T = TypeVar("T")

UNREACHABLE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""The server is unreachable, not ready, or closed the connection: the statement may have run or not."""

_ACCESS_ERRORS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


async def _enable_synchronous_commit(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Make commits wait for the disk where the server's default is ``off``; stricter settings stay."""
    await connection.execute(
        "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
    )


MAX_WARM_CONNECTIONS = 5
"""Connections kept out of the pool: for concurrent transactions, and one for reading."""
WARM_SECONDS = 5.0
"""Seconds until all of them go back to it."""


async def _skip_reset(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Skip asyncpg's reset of a connection: our statements leave no state in it, so the round trip is saved."""


class WarmConnections:
    """Keeps some connections out of the pool between two uses: a round trip costs less than the pool's own work."""

    def __init__(self) -> None:
        self._idle: list[tuple[Pool[asyncpg.Record], PostgresConnection]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def acquire(
        self, pool: "Pool[asyncpg.Record]", timeout: float | None = None
    ) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection; it is kept when the block succeeds, otherwise the pool inspects it.

        Raises ``TimeoutError`` when all are in use for ``timeout`` seconds.
        """
        connection = self._take() or await self._acquire_from(pool, timeout)
        try:
            yield connection
        except BaseException:
            await pool.release(connection)
            raise
        if self._closed or self._waiting or len(self._idle) >= MAX_WARM_CONNECTIONS:
            await pool.release(connection)
            return
        self._idle.append((pool, connection))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WARM_SECONDS, self._start_return)

    async def close(self) -> None:
        """Return the connections to the pool; connections in use follow when their block ends."""
        self._closed = True
        self._start_return()
        await asyncio.wait(self._returning)

    def _take(self) -> "PostgresConnection | None":
        if self._idle and _is_open(self._idle[-1][1]):
            return self._idle.pop()[1]
        if self._idle:  # the server has closed it, and maybe the others
            self._start_return()
        return None

    async def _acquire_from(self, pool: "Pool[asyncpg.Record]", timeout: float | None) -> PostgresConnection:
        self._waiting += 1
        try:
            return await pool.acquire(timeout=timeout)
        finally:
            self._waiting -= 1

    def _start_return(self) -> None:
        """Return all connections, also used ones: the pool closes those that are not needed for long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle, self._idle = self._idle, []
        returning = asyncio.create_task(_return_to_pool(idle))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)


def _is_open(connection: PostgresConnection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back when the server closed it
        return False


async def _return_to_pool(idle: "list[tuple[Pool[asyncpg.Record], PostgresConnection]]") -> None:
    for pool, connection in idle:
        await pool.release(connection)


class PostgresDatabase:
    """A pool of connections to one database, with our tables in it."""

    def __init__(self, dsn: str, durability: Durability, retry_seconds: float) -> None:
        check_durability(durability)
        self.url = redact_dsn(dsn)
        self.retry_seconds = retry_seconds
        """Seconds to retry an unreachable server, where a retry is safe."""
        self._dsn, self._durability = dsn, durability
        self._settings = {"application_name": "vaka", "default_transaction_isolation": "read committed", "jit": "off"}
        if durability == "process":
            self._settings["synchronous_commit"] = "off"
        self._pool: Pool[asyncpg.Record] | None = None
        self._connections = WarmConnections()
        self._open_lock = asyncio.Lock()
        self.closed = False

    async def run(self, work: Callable[[PostgresConnection], Awaitable[T]], *, retry: bool = True) -> T:
        """Run ``work`` with a connection. With ``retry`` it may run twice, as the connection may break half-way.

        Raises ``CannotOpen`` when the server cannot be reached and never was, ``Unavailable`` when it cannot be reached
        any more, and, without ``retry``, when the outcome is unknown.
        """
        begun = False

        async def attempt() -> T:
            nonlocal begun
            begun = False
            async with self._connections.acquire(await self._get_pool()) as connection:
                begun = True
                return await work(connection)

        return await self.try_until_deadline(attempt, lambda: retry or not begun)

    async def try_until_deadline(
        self, attempt: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool] = lambda: True
    ) -> T:
        """Return the result of ``attempt``, which is repeated while the server cannot be reached. Raises as ``run``."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self.retry_seconds, 0.02
        while True:
            try:
                return await attempt()
            except asyncpg.DataError as error:
                raise InvalidInput(f"PostgreSQL cannot store this value: {error}") from error
            except asyncpg.TransactionRollbackError as error:  # such as a deadlock: nothing was written
                cause: Exception = error
            except UNREACHABLE_ERRORS as error:
                if not may_repeat():
                    raise self.unreachable_error(error) from error
                cause = error
            except asyncpg.PostgresError as error:
                raise self.server_error(error) from error
            if loop.time() + pause > deadline:
                raise self.unreachable_error(cause) from cause
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def fetch(self, statement: str, *arguments: object, timeout: float | None = None) -> "list[asyncpg.Record]":
        """Return the rows of a statement that may safely run twice."""
        return await self.run(lambda connection: connection.fetch(statement, *arguments, timeout=timeout))

    async def fetch_once(self, statement: str, *arguments: object, timeout: float) -> "list[asyncpg.Record]":
        """Return the rows of a statement that is tried once. Raises asyncpg's errors."""
        async with self._connections.acquire(await self._get_pool(), timeout) as connection:
            return await connection.fetch(statement, *arguments, timeout=timeout)

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Return a dedicated connection, outside the pool; tried once. Raises asyncpg's errors."""
        _ = await self._get_pool()
        return await asyncpg.connect(self._dsn, **self._options())

    async def connect_alone(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Return a dedicated connection to migrated tables, without a pool beside it. Raises asyncpg's errors."""
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self._dsn, **self._options())
        try:
            await migrate(connection, self.url)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        self.closed = True
        async with self._open_lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(self.retry_seconds):
                await self._connections.close()
                await pool.close()
        except UNREACHABLE_ERRORS:
            pool.terminate()

    def unreachable_error(self, error: Exception) -> CannotOpen | Unavailable:
        message = f"PostgreSQL at {self.url} is unreachable ({type(error).__name__}: {error})"
        if isinstance(error, asyncpg.TooManyConnectionsError):
            message = (
                f"PostgreSQL at {self.url} accepts no more connections ({error}). Raise max_connections of the server, "
                f"or the connection limit of the database or the user, or end other clients; then try again"
            )
        return Unavailable(message) if self._pool is not None else CannotOpen(f"the store cannot be opened: {message}")

    def server_error(self, error: asyncpg.PostgresError) -> StoreError | ConfigError:
        if isinstance(error, _ACCESS_ERRORS):
            return ConfigError(
                f"PostgreSQL at {self.url} refused access: {error}. Check the user, its password and the name of the "
                f"database; the user needs CREATE on the database, or USAGE on the schema 'vaka' and its tables"
            )
        return StoreError(f"PostgreSQL at {self.url} failed: {error} (SQLSTATE {error.sqlstate})")

    def _options(self) -> dict[str, Any]:
        return {"server_settings": self._settings, "timeout": self.retry_seconds, "command_timeout": 60.0}

    async def _get_pool(self) -> "Pool[asyncpg.Record]":
        if self._pool is not None:
            return self._pool
        async with self._open_lock:
            if self.closed:
                raise Closed("this store was closed")
            if self._pool is None:
                self._pool = await self._create_pool()
            return self._pool

    async def _create_pool(self) -> "Pool[asyncpg.Record]":
        init = _enable_synchronous_commit if self._durability == "power" else None
        pool = asyncpg.create_pool(self._dsn, min_size=0, max_size=10, init=init, reset=_skip_reset, **self._options())
        try:
            _ = await pool
            async with pool.acquire() as connection:
                await migrate(connection, self.url)
        except BaseException as error:
            pool.terminate()
            if isinstance(error, asyncpg.ClientConfigurationError | ValueError):
                raise ConfigError(f"the address {self.url} has an option that PostgreSQL clients do not know") from None
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
                raise ConfigError(f"the host of {self.url} is unknown: {error}") from error
            raise
        return pool
