"""The tables, brought up to date by the numbered files beside this one."""

import re
from importlib import resources

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from vaka.core.types.errors import ConfigError

_LOCK = 0x76616B61  # any number, but always this one
_VERSION = "select coalesce(max(version), 0) from vaka.migrations"


def files() -> list[tuple[int, str]]:
    """Return the numbered changes, in order."""
    folder = resources.files("vaka.stores.postgres") / "migrations"
    found = [(re.match(r"(\d+)_\w+\.sql$", file.name), file) for file in folder.iterdir()]
    return sorted((int(match[1]), file.read_text("utf-8")) for match, file in found if match)


async def migrate(connection: "PoolConnectionProxy[asyncpg.Record]") -> None:
    """Bring the tables to the version this code knows. ``ConfigError`` when they are of a newer one."""
    newest = files()[-1][0]
    if await connection.fetchval("select to_regclass('vaka.migrations') is not null"):
        version = await connection.fetchval(_VERSION)
        if version == newest:
            return
        if version > newest:
            raise ConfigError(
                f"the database has tables of version {version}, this vaka knows up to {newest}: install the newer vaka"
            )
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("select to_regnamespace('vaka') is null"):
            await connection.execute("create schema vaka")
        await connection.execute(
            "create table if not exists vaka.migrations "
            "(version integer primary key, at timestamptz not null default now())"
        )
        version = await connection.fetchval(_VERSION)
        for number, statements in files():
            if number > version:
                await connection.execute(statements)
                await connection.execute("insert into vaka.migrations (version) values ($1)", number)
