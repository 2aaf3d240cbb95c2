"""The connections to the database: opened when first needed, renewed when lost."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy

from vaka.core.types.errors import Closed, ConfigError, InvalidInput, StoreError, Unavailable
from vaka.stores.postgres.address import public
from vaka.stores.postgres.migrate import migrate

Record: TypeAlias = "asyncpg.Record"
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Durability: TypeAlias = Literal["process", "power"]
T = TypeVar("T")

UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""The server is not there, not ready, or hung up: what was under way may have happened or not."""

_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


async def _power(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Let commits reach the disk, also where the server's default is not to wait; stricter settings stay."""
    await connection.execute(
        "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
    )


async def _as_it_is(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Nothing to undo: what we run leaves no trace in a connection, so no round trip is spent on it."""


class Database:
    """A pool of connections to one database, with our tables in it."""

    def __init__(self, dsn: str, durability: Durability, patience: float) -> None:
        if durability not in {"process", "power"}:
            raise ConfigError(f"durability {durability!r} must be 'process' or 'power'")
        self.url = public(dsn)
        self.patience = patience
        """Seconds to go on trying to reach the server, where trying again does no harm."""
        self._dsn, self._durability = dsn, durability
        self._settings = {"application_name": "vaka", "default_transaction_isolation": "read committed", "jit": "off"}
        if durability == "process":
            self._settings["synchronous_commit"] = "off"
        self._pool: Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self.closed = False

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, again: bool = True) -> T:
        """Do ``work`` with a connection. With ``again`` it may be done twice, as the connection may break half-way.

        Raises ``Unavailable`` when the server cannot be reached, and, without ``again``, when the outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self.patience, 0.02
        while True:
            begun = False
            try:
                pool = await self._open()
                async with pool.acquire() as connection:
                    begun = True
                    return await work(connection)
            except asyncpg.DataError as error:
                raise InvalidInput(f"the database cannot hold this: {error}") from error
            except asyncpg.TransactionRollbackError as error:  # a deadlock, say: surely nothing was written
                cause: Exception = error
            except UNREACHABLE as error:
                if begun and not again:
                    raise self.lost(error) from error
                cause = error
            except asyncpg.PostgresError as error:
                raise self.refused(error) from error
            if loop.time() + pause > deadline:
                raise self.lost(cause) from cause
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def fetch(self, statement: str, *arguments: object, timeout: float | None = None) -> "list[asyncpg.Record]":
        """Return the rows of a statement that may be run twice."""

        async def work(connection: Connection) -> "list[asyncpg.Record]":
            return await connection.fetch(statement, *arguments, timeout=timeout)

        return await self.run(work)

    async def row(self, statement: str, *arguments: object) -> "asyncpg.Record | None":
        """Return the first row of a statement that may be run twice."""
        rows = await self.fetch(statement, *arguments)
        return rows[0] if rows else None

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Return a connection of one's own, outside the pool."""
        _ = await self._open()
        return await asyncpg.connect(self._dsn, **self._options())

    async def close(self) -> None:
        """Let go of every connection."""
        self.closed = True
        async with self._opening:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(self.patience):
                await pool.close()
        except UNREACHABLE:
            pool.terminate()

    def lost(self, error: Exception) -> Unavailable:
        """Return what to raise when the server does not answer."""
        return Unavailable(f"PostgreSQL at {self.url} cannot be reached now ({type(error).__name__}: {error})")

    def refused(self, error: asyncpg.PostgresError) -> StoreError | ConfigError:
        """Return what to raise when the server says no."""
        if isinstance(error, _REFUSED):
            return ConfigError(
                f"PostgreSQL at {self.url} does not let us in: {error}. Check the user, its password and the name of "
                f"the database; the user needs the right to create in it, or to use the schema 'vaka' and what is in it"
            )
        return StoreError(f"PostgreSQL at {self.url} could not do it: {error} (SQLSTATE {error.sqlstate})")

    def _options(self) -> dict[str, Any]:
        return {"server_settings": self._settings, "timeout": self.patience, "command_timeout": 60.0}

    async def _open(self) -> "Pool[asyncpg.Record]":
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self.closed:
                raise Closed("this store was closed")
            if self._pool is None:
                self._pool = await self._opened()
            return self._pool

    async def _opened(self) -> "Pool[asyncpg.Record]":
        init = _power if self._durability == "power" else None
        pool = asyncpg.create_pool(self._dsn, min_size=0, max_size=10, init=init, reset=_as_it_is, **self._options())
        try:
            _ = await pool
            async with pool.acquire() as connection:
                await migrate(connection)
        except (asyncpg.ClientConfigurationError, ValueError):
            pool.terminate()
            raise ConfigError(f"the options in the address {self.url} are not what PostgreSQL's clients know") from None
        except socket.gaierror as error:
            pool.terminate()
            if error.errno == socket.EAI_NONAME:
                raise ConfigError(f"the host of {self.url} is not known: {error}") from error
            raise
        except BaseException:
            pool.terminate()
            raise
        return pool
