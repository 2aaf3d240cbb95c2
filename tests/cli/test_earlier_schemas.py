"""A store whose schema is older than that of vaka 0.1.0 is refused; a backup of it can be imported."""

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.shell import CommandResult, Shell
from tests.postgres_server import PostgresServer
from vaka.stores.common import FIRST_SCHEMA
from vaka.stores.sqlite.connection import APPLICATION_ID

WRITE_AND_DIE = """
import os, sqlite3, sys

path, application, version = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("pragma journal_mode = wal")
connection.execute("create table sessions (namespace text not null, session text not null, head integer not null)")
connection.execute(f"pragma application_id = {application}")
connection.execute(f"pragma user_version = {version}")
if os.environ.get("DIE"):
    os.kill(os.getpid(), 9)
connection.close()
"""
"""Makes a database with the facts that tell its version: the two numbers, and a table."""


def make_earlier_file(path: Path, version: int, *, die: bool = False) -> dict[str, bytes]:
    """Make a database of an earlier vaka; return its files. One that died has left a write-ahead log."""
    code = subprocess.run(
        [sys.executable, "-c", WRITE_AND_DIE, str(path), str(APPLICATION_ID), str(version)],
        check=False,
        env=os.environ | {"DIE": "1" if die else ""},
    ).returncode
    assert code == (-signal.SIGKILL if die else 0)
    return read_files(path)


def read_files(path: Path) -> dict[str, bytes]:
    """Return the database and its write-ahead log; the file of shared memory holds locks only."""
    files = (path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal"))
    return {file.name: file.read_bytes() for file in files if file.exists()}


def quoted_commands(message: str) -> list[list[str]]:
    """Return the two commands of the message, without ``vaka``."""
    found = re.search(r"wrote it: (vaka .*); then import it with this one: (vaka [^,]*)", message)
    assert found is not None, message
    return [shlex.split(command)[1:] for command in found.groups()]


class MarkedStore:
    """A store of this version that can be marked as one of another schema: the last earlier one had the same tables."""

    def __init__(self, path: Path, server: PostgresServer | None, dsn: str) -> None:
        self.url = dsn or f"sqlite:///{path}"
        self._path, self._server = path, server

    def mark(self, version: int) -> None:
        if self._server is None:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.execute(f"pragma user_version = {version}")
        else:
            rows = f"select generate_series({1 if version < FIRST_SCHEMA else version}, {version})"
            self.sql(f"delete from vaka.migrations; insert into vaka.migrations (version) {rows}")

    def sql(self, statement: str) -> str:
        assert self._server is not None
        return self._server.sql(statement, database=urlsplit(self.url).path[1:])


@pytest.fixture(params=["sqlite", "postgres"])
def marked(request: pytest.FixtureRequest, shell: Shell) -> MarkedStore:
    """A store with a session."""
    path, is_server = shell.folder / "my vaka.db", request.param == "postgres"
    server = request.getfixturevalue("postgres_server") if is_server else None
    store = MarkedStore(path, server, request.getfixturevalue("postgres_dsn") if is_server else "")
    assert shell.vaka("sessions", "create", "--id", "kept", "--store", store.url).code == 0
    return store


def assert_refused(done: CommandResult, version: int) -> None:
    assert done.code == 3
    assert f"has schema {version}, which a vaka before 0.1.0 wrote; this one expects schema {FIRST_SCHEMA}" in done.err
    assert done.err.count("\n") == 1
    assert "Nothing was changed." in done.err


@pytest.mark.parametrize("version", [1, 7, FIRST_SCHEMA - 1])
@pytest.mark.parametrize("die", [False, True])
def test_a_file_of_an_earlier_schema_is_refused_and_not_changed(shell: Shell, version: int, die: bool) -> None:
    path = shell.folder / "my vaka.db"
    before = make_earlier_file(path, version, die=die)
    assert set(before) == {"my vaka.db", "my vaka.db-wal"} if die else {"my vaka.db"}
    for words in (("sessions", "list"), ("run", "Hi.", "--model", "scripted:x"), ("store", "backup", "a.backup")):
        done = shell.vaka(*words, "--store", "sqlite:///my vaka.db")
        assert_refused(done, version)
        assert read_files(path) == before
    doctor = shell.vaka("doctor", "--store", "sqlite:///my vaka.db")
    assert (doctor.code, f"has schema {version}" in doctor.out) == (1, True)
    assert read_files(path) == before


def test_a_file_of_a_newer_schema_is_refused_and_not_changed(shell: Shell) -> None:
    path = shell.folder / "vaka.db"
    before = make_earlier_file(path, FIRST_SCHEMA + 1, die=True)
    done = shell.vaka("sessions", "list", "--store", "sqlite:///vaka.db")
    assert (done.code, "newer vaka" in done.err) == (3, True)
    assert read_files(path) == before


def test_tables_of_an_earlier_schema_are_refused_and_not_changed(
    shell: Shell, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    store = MarkedStore(shell.folder, postgres_server, postgres_dsn)
    store.sql("create schema vaka; create table vaka.migrations (version integer primary key, at timestamptz)")
    store.mark(4)
    before = store.sql("select oid, relname from pg_class where relkind in ('r', 'i') order by oid")
    for words in (("sessions", "list"), ("store", "backup", "a.backup"), ("store", "restore", "a.backup", "--replace")):
        (shell.folder / "a.backup").write_bytes(b"")
        assert shell.vaka(*words, "--store", postgres_dsn).code in {2, 3}
    assert_refused(shell.vaka("sessions", "list", "--store", postgres_dsn), 4)
    assert store.sql("select oid, relname from pg_class where relkind in ('r', 'i') order by oid") == before
    assert store.sql("select version from vaka.migrations order by version") == "1\n2\n3\n4"


def test_the_commands_that_the_message_names_export_and_import_the_data(
    shell: Shell, marked: MarkedStore, postgres_server: PostgresServer
) -> None:
    marked.mark(FIRST_SCHEMA - 1)
    refused = shell.vaka("sessions", "list", "--store", marked.url)
    assert_refused(refused, FIRST_SCHEMA - 1)
    exporting, importing = quoted_commands(refused.err)
    marked.mark(FIRST_SCHEMA)  # the older vaka opens it
    assert shell.vaka(*exporting).code == 0
    marked.mark(FIRST_SCHEMA - 1)
    with postgres_server.database() as empty:
        words = [empty if word == "postgresql://…" else word for word in importing]
        assert shell.vaka(*words).code == 0
        listed = shell.vaka("sessions", "list", "--json", "--store", words[-1])
        assert [row["id"] for row in listed.json["sessions"]] == ["kept"]
