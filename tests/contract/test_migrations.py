"""The contract of migrations: a newer version changes the schema of a database once, or not at all."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

import vaka
from tests.newer_vaka import STORES, NewerVaka, next_migration, read_to_end
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import ConfigError
from vaka.runtime.open_store import open_store
from vaka.stores.common import FIRST_SCHEMA, migration_files
from vaka.testing.stores.sealed_events import begin_session, input_added, write_session

FIRST = "create table {0}notes (text text not null);\n\ninsert into {0}notes values ('first; and only');\n"
SECOND = "insert into {0}notes values ('second');\n"


class Database(NamedTuple):
    """A database of one kind of store."""

    store: str
    url: str
    schema: str
    """What stands before the name of a table."""

    async def read(self, query: str) -> list[object]:
        """Return the first column of the rows."""
        query = query.format(self.schema)
        if self.store == "sqlite":
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                return [row[0] for row in file.execute(query)]
        connection = await asyncpg.connect(self.url)
        try:
            return [row[0] for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def read_version(self) -> object:
        query = "pragma user_version" if self.store == "sqlite" else "select max(version) from vaka.migrations"
        return (await self.read(query))[0]

    async def list_tables(self) -> list[object]:
        query = "select tablename::text from pg_tables where schemaname = 'vaka' order by tablename"
        if self.store == "sqlite":
            query = "select name from sqlite_schema where type = 'table' order by name"
        return await self.read(query)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Database("sqlite", f"sqlite:///{tmp_path / 'vaka.db'}", "")
    else:
        yield Database("postgres", request.getfixturevalue("postgres_dsn"), "vaka.")


@pytest.fixture
def newer(tmp_path: Path, database: Database) -> NewerVaka:
    """A version with one more migration."""
    made = NewerVaka(tmp_path / "newer")
    (made.migrations(database.store) / next_migration(1)).write_text(FIRST.format(database.schema))
    return made


@pytest.fixture
def pipe(newer: NewerVaka, database: Database) -> Path:
    """The file of a second migration that a process reads, after it has run the first one, when a test writes it."""
    path = newer.migrations(database.store) / next_migration(2)
    os.mkfifo(path)
    return path


def list_sessions(database: Database) -> tuple[str, ...]:
    return "sessions", "list", "--store", database.url


async def write_in_this_version(database: Database) -> None:
    store: Store = open_store(database.url)
    await write_session(store, "kept")
    await store.close()


@pytest.mark.parametrize("store", STORES)
def test_migrations_are_numbered_without_a_gap_and_fit_every_encoding(store: str) -> None:
    files = migration_files(Path(vaka.__file__).parent / "stores" / store / "migrations")
    assert [number for number, _ in files] == list(range(FIRST_SCHEMA, FIRST_SCHEMA + len(files)))
    assert all(file.read_bytes().isascii() for _, file in files)


async def test_a_newer_version_migrates_a_database_once_and_keeps_its_sessions(
    database: Database, newer: NewerVaka
) -> None:
    await write_in_this_version(database)
    assert await database.read_version() == FIRST_SCHEMA
    for _ in range(2):
        code, out, err = newer.run(*list_sessions(database))
        assert (code, "kept" in out, err) == (0, True, "")
    assert await database.read_version() == FIRST_SCHEMA + 1
    assert await database.read("select text from {0}notes") == ["first; and only"]


async def test_a_new_database_of_a_newer_version_gets_all_migrations(database: Database, newer: NewerVaka) -> None:
    assert newer.run(*list_sessions(database))[0] == 0
    assert await database.read_version() == FIRST_SCHEMA + 1
    assert await database.read("select text from {0}notes") == ["first; and only"]


async def test_a_process_of_the_older_version_goes_on_and_a_new_one_is_refused(
    database: Database, newer: NewerVaka
) -> None:
    store: Store = open_store(database.url)
    log, term = await begin_session(store, "open")
    assert newer.run(*list_sessions(database))[0] == 0
    assert await log.append_to(store, term, input_added("more", "k")) == 2
    late: Store = open_store(database.url)
    with pytest.raises(ConfigError, match=rf"newer vaka: its schema is {FIRST_SCHEMA + 1}, .* {FIRST_SCHEMA};"):
        await late.sessions.list(SessionQuery())
    for handle in (late, store):
        await handle.close()


async def test_a_process_that_is_killed_in_a_migration_leaves_the_schema_as_it_was(
    database: Database, newer: NewerVaka, pipe: Path
) -> None:
    await write_in_this_version(database)
    before = await database.list_tables()
    process = newer.start(*list_sessions(database))
    with pipe.open("w"):  # returns when the process has run the first migration and opens the second one
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    process.communicate()
    assert (await database.read_version(), await database.list_tables()) == (FIRST_SCHEMA, before)
    pipe.unlink()
    pipe.write_text(SECOND.format(database.schema))
    assert newer.run(*list_sessions(database))[0] == 0
    assert await database.read_version() == FIRST_SCHEMA + 2
    assert await database.read("select text from {0}notes") == ["first; and only", "second"]


async def test_a_migration_that_fails_changes_nothing(database: Database, newer: NewerVaka) -> None:
    await write_in_this_version(database)
    before = await database.list_tables()
    wrong = newer.migrations(database.store) / next_migration(2)
    wrong.write_text(f"insert into {database.schema}nowhere values ('x');\n")
    code, _, err = newer.run(*list_sessions(database))
    assert code
    assert "nowhere" in err
    assert (await database.read_version(), await database.list_tables()) == (FIRST_SCHEMA, before)


async def test_of_two_processes_at_once_one_migrates_and_the_other_waits(
    database: Database, newer: NewerVaka, pipe: Path
) -> None:
    await write_in_this_version(database)
    first = newer.start(*list_sessions(database))
    with pipe.open("w") as file:
        second = newer.start(*list_sessions(database))
        file.write(SECOND.format(database.schema))
    for process in (first, second):
        code, out, err = read_to_end(process)
        assert (code, "kept" in out, err) == (0, True, "")
    assert await database.read_version() == FIRST_SCHEMA + 2
    assert await database.read("select text from {0}notes") == ["first; and only", "second"]
