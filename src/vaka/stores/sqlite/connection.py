"""Open the database file: create it, configure it, migrate its schema; and translate SQLite's errors into vaka's."""

import os
import sqlite3
import threading
import time
import weakref
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from vaka.core.ports.files import POSIX_LOCKED_FILES
from vaka.core.types.errors import Busy, ConfigError, Corrupt, InvalidInput, StoreError, Unavailable, VakaError

_CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_CONSTRAINT}

_DISK_MESSAGES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_PERM: "the database may not be used",
    sqlite3.SQLITE_NOLFS: "the database is too large for its disk",
}

# The commit's last page did not get to the file, so it did not happen.
_NOT_COMMITTED_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY}

SQLITE_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""What using a connection may raise."""


def code_of(error: BaseException) -> int:
    """Return SQLite's extended code of an error, 0 when it has none."""
    return getattr(error, "sqlite_errorcode", 0) or 0


def is_locked(error: BaseException) -> bool:
    """Whether another process was in the way."""
    return code_of(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translate_error(error: BaseException) -> VakaError:
    """Return what to raise for an error of a statement; nothing it did is kept."""
    code, text = code_of(error) & 0xFF, str(error)
    if is_locked(error):
        return Busy("the database is locked by another process; try again")
    if code in _DISK_MESSAGES:
        return StoreError(f"{_DISK_MESSAGES[code]} ({text}); nothing was written")
    # A missing table or column, and text that is no text, can only come from changed bytes: the schema is ours.
    if (
        code in _CORRUPT_CODES
        or isinstance(error, UnicodeDecodeError)
        or text.startswith(("no such", "malformed", "Could not decode"))
    ):
        return Corrupt(f"the database is damaged: {text}")
    if code in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH} or not isinstance(error, sqlite3.Error):
        return InvalidInput(f"this cannot be stored: {text}")
    return StoreError(f"SQLite: {text}")


def translate_commit_error(error: sqlite3.Error) -> VakaError:
    """Return what to raise when the commit itself failed."""
    if code_of(error) in _NOT_COMMITTED_CODES or code_of(error) & 0xFF in _CORRUPT_CODES:
        return translate_error(error)
    return Unavailable(f"the commit failed, whether it happened shows when the log is read again: {error}")


Durability: TypeAlias = Literal["power", "process"]

APPLICATION_ID = 0x76616B61
"""SQLite's ``application_id`` of our files: "vaka"."""

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process to let go of the database."""

CHECKPOINT_PAGES = 2000
"""Pages of the write-ahead log after which it is carried over: rarely enough that one commit in a hundred never waits
for it, often enough that it takes a few milliseconds."""

_SYNCHRONOUS = {"power": "full", "process": "normal"}

_open_lock = threading.RLock()


class RegisteredConnection(sqlite3.Connection):
    """A connection that says which files it has locked, as long as it is open."""

    def register_locks(self, path: Path) -> None:
        """Tell those who open files in this process to leave the database and its index alone."""
        held = [(found.st_dev, found.st_ino) for found in (path.stat(), path.with_name(f"{path.name}-shm").stat())]
        _count_locked_files(held, 1)
        self._let_go = weakref.finalize(self, _count_locked_files, held, -1)

    def close(self) -> None:
        """Close it; then its locks are gone."""
        super().close()
        if hasattr(self, "_let_go"):
            self._let_go()


@cache
def migration_scripts() -> tuple[str, ...]:
    """Return the scripts that make the schema, in order."""
    files = sorted(
        (item for item in resources.files("vaka.stores.sqlite").joinpath("migrations").iterdir()), key=lambda f: f.name
    )
    return tuple(file.read_text("utf-8") for file in files if file.name.endswith(".sql"))


def connect(path: Path, durability: Durability, *, wait: bool) -> sqlite3.Connection:
    """Open the database, made or migrated if need be. Without ``wait``, being locked out is an error at once.

    Raises ``sqlite3.OperationalError`` when it is locked, otherwise our errors.
    """
    patience = LOCK_TIMEOUT if wait else 0.0
    until = time.monotonic() + patience
    while True:
        try:
            return _open_connection(path, durability, patience)
        except SQLITE_ERRORS as error:
            if not is_locked(error):
                raise translate_error(error) from error
            if time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _open_connection(path: Path, durability: Durability, timeout: float) -> sqlite3.Connection:
    _create_file(path)
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, cached_statements=256, factory=RegisteredConnection
    )
    try:
        _configure_and_migrate(connection, path)
        connection.register_locks(path)
        connection.execute(f"pragma synchronous = {_SYNCHRONOUS[durability]}")
        connection.create_function("has", 2, _contains_casefold, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _count_locked_files(held: list[tuple[int, int]], by: int) -> None:
    with _open_lock:
        for file in held:
            POSIX_LOCKED_FILES[file] += by
            if not POSIX_LOCKED_FILES[file]:
                del POSIX_LOCKED_FILES[file]


def _create_file(path: Path) -> None:
    """Make the file and its folder for nobody else to read; what is there stays as it is, and is not even opened.

    To close it again would drop the locks of every connection this process has to it: another process that ends would
    take itself for the last one and remove the write-ahead log while this one goes on writing to it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_lock:  # nobody connects to what is not closed yet
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreError(f"the database {str(path)!r} cannot be opened: it is a folder") from None
    except OSError as error:
        raise StoreError(f"the database {str(path)!r} cannot be opened: {error.strerror}") from error


def _contains_casefold(title: str, text: str) -> bool:
    return text.casefold() in title.casefold()


def _configure_and_migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    if _schema_version(connection, path) == 0:
        connection.execute("pragma auto_vacuum = incremental")
    if connection.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
        raise ConfigError(f"{str(path)!r} is where SQLite cannot keep a write-ahead log; choose a local disk")
    connection.execute("pragma journal_size_limit = 16777216")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    if _schema_version(connection, path) < len(migration_scripts()):
        connection.execute("begin immediate")
        for number, script in enumerate(
            migration_scripts()[_schema_version(connection, path) :], _schema_version(connection, path) + 1
        ):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("commit")


def _read_identity(connection: sqlite3.Connection) -> tuple[int, int, bool]:
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


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations the file has seen, or raise ``ConfigError`` for a file that is not ours to use."""
    application, version, filled = _read_identity(connection)
    if application != APPLICATION_ID:
        if application or version or filled:
            raise ConfigError(f"{str(path)!r} is a database of another program; give the store a file of its own")
        return 0
    if version > len(migration_scripts()):
        raise ConfigError(
            f"{str(path)!r} was written by a newer vaka: its schema is {version}, this one knows {len(migration_scripts())}"
        )
    return version
