"""Opening the file: its place, its settings, its schema."""

import os
import sqlite3
import threading
import time
import weakref
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from vaka.core.ports.files import LOCKED
from vaka.core.types.errors import ConfigError, StoreError
from vaka.stores.sqlite.faults import ERRORS, is_locked, translate

Durability: TypeAlias = Literal["power", "process"]

APPLICATION = 0x76616B61
"""SQLite's ``application_id`` of our files: "vaka"."""

PATIENCE = 10.0
"""Seconds to wait for another process to let go of the database."""

CHECKPOINT = 2000
"""Pages of the write-ahead log after which it is carried over: rarely enough that one commit in a hundred never waits
for it, often enough that it takes a few milliseconds."""

_SYNC = {"power": "full", "process": "normal"}
_making = threading.RLock()


class Connection(sqlite3.Connection):
    """A connection that says which files it has locked, as long as it is open."""

    def hold(self, path: Path) -> None:
        """Tell those who open files in this process to leave the database and its index alone."""
        held = [(found.st_dev, found.st_ino) for found in (path.stat(), path.with_name(f"{path.name}-shm").stat())]
        _count(held, 1)
        self._let_go = weakref.finalize(self, _count, held, -1)

    def close(self) -> None:
        """Close it; then its locks are gone."""
        super().close()
        if hasattr(self, "_let_go"):
            self._let_go()


@cache
def migrations() -> tuple[str, ...]:
    """Return the scripts that make the schema, in order."""
    files = sorted(
        (item for item in resources.files("vaka.stores.sqlite").joinpath("migrations").iterdir()), key=lambda f: f.name
    )
    return tuple(file.read_text("utf-8") for file in files if file.name.endswith(".sql"))


def connect(path: Path, durability: Durability, *, wait: bool) -> sqlite3.Connection:
    """Open the database, made or migrated if need be. Without ``wait``, being locked out is an error at once.

    Raises ``sqlite3.OperationalError`` when it is locked, otherwise our errors.
    """
    patience = PATIENCE if wait else 0.0
    until = time.monotonic() + patience
    while True:
        try:
            return _connect(path, durability, patience)
        except ERRORS as error:
            if not is_locked(error):
                raise translate(error) from error
            if time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _connect(path: Path, durability: Durability, patience: float) -> sqlite3.Connection:
    _make_file(path)
    connection = sqlite3.connect(
        path, timeout=patience, isolation_level=None, cached_statements=256, factory=Connection
    )
    try:
        _prepare(connection, path)
        connection.hold(path)
        connection.execute(f"pragma synchronous = {_SYNC[durability]}")
        connection.create_function("has", 2, _has, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _count(held: list[tuple[int, int]], by: int) -> None:
    with _making:
        for file in held:
            LOCKED[file] += by
            if not LOCKED[file]:
                del LOCKED[file]


def _make_file(path: Path) -> None:
    """Make the file and its folder for nobody else to read; what is there stays as it is, and is not even opened.

    To close it again would drop the locks of every connection this process has to it: another process that ends would
    take itself for the last one and remove the write-ahead log while this one goes on writing to it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _making:  # nobody connects to what is not closed yet
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreError(f"the database {str(path)!r} cannot be opened: it is a folder") from None
    except OSError as error:
        raise StoreError(f"the database {str(path)!r} cannot be opened: {error.strerror}") from error


def _has(title: str, text: str) -> bool:
    return text.casefold() in title.casefold()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    if _version(connection, path) == 0:
        connection.execute("pragma auto_vacuum = incremental")
    if connection.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
        raise ConfigError(f"{str(path)!r} is where SQLite cannot keep a write-ahead log; choose a local disk")
    connection.execute("pragma journal_size_limit = 16777216")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT}")
    if _version(connection, path) < len(migrations()):
        connection.execute("begin immediate")
        for number, script in enumerate(migrations()[_version(connection, path) :], _version(connection, path) + 1):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {APPLICATION}")
        connection.execute("commit")


def _identity(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return whose file this is, its version, and whether it holds anything, all of one moment."""
    alone = not connection.in_transaction
    if alone:
        connection.execute("begin")  # another process may be making the schema right now
    try:
        filled = connection.execute("select 1 from sqlite_schema").fetchone() is not None
        application: int = connection.execute("pragma application_id").fetchone()[0]
        version: int = connection.execute("pragma user_version").fetchone()[0]
    finally:
        if alone and connection.in_transaction:
            connection.execute("commit")
    return application, version, filled


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations the file has seen, or raise ``ConfigError`` for a file that is not ours to use."""
    application, version, filled = _identity(connection)
    if application != APPLICATION:
        if application or version or filled:
            raise ConfigError(f"{str(path)!r} is a database of another program; give the store a file of its own")
        return 0
    if version > len(migrations()):
        raise ConfigError(
            f"{str(path)!r} was written by a newer vaka: its schema is {version}, this one knows {len(migrations())}"
        )
    return version
