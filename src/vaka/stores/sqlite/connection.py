"""Open the database file: create it, configure it, migrate its schema; and translate SQLite's errors into vaka's."""

import os
import shlex
import sqlite3
import threading
import time
import weakref
from functools import cache
from pathlib import Path

import msgspec

from vaka.core.ports.files import POSIX_LOCKED_FILES
from vaka.core.types.errors import (
    Busy,
    CannotOpen,
    ConfigError,
    Corrupt,
    InvalidInput,
    NotADatabase,
    StoreError,
    Unavailable,
    VakaError,
)
from vaka.stores.common import Durability, has_metadata

_CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_CONSTRAINT}

_DISK_MESSAGES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_PERM: "the database may not be used",
    sqlite3.SQLITE_NOLFS: "the database is too large for its disk",
}

# With these the commit's last page was not written to the file, so the transaction was not committed.
_NOT_COMMITTED_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY}

SQLITE_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""Errors that using a connection may raise."""


def code_of(error: BaseException) -> int:
    """Return SQLite's extended error code, 0 when there is none."""
    return getattr(error, "sqlite_errorcode", 0) or 0


def is_locked(error: BaseException) -> bool:
    """Whether another process held the database's lock."""
    return code_of(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def note_failure(connection: sqlite3.Connection, error: BaseException) -> None:
    """Mark a connection as lost by an I/O error, such as that of an fsync."""
    if code_of(error) & 0xFF == sqlite3.SQLITE_IOERR and isinstance(connection, RegisteredConnection):
        connection.lost = True


def find_replacement(connection: sqlite3.Connection) -> StoreError | None:
    """Return the error to raise if the file of a connection was removed or replaced."""
    return connection.find_replacement() if isinstance(connection, RegisteredConnection) else None


def is_lost(connection: sqlite3.Connection) -> bool:
    """Whether the connection must be closed and opened again."""
    return isinstance(connection, RegisteredConnection) and connection.lost


def translate_error(error: BaseException) -> VakaError:
    """Return the error to raise for a failed statement; its transaction is rolled back."""
    code, text = code_of(error) & 0xFF, str(error)
    if is_locked(error):
        return Busy("the database is locked by another process; try again")
    if code in _DISK_MESSAGES:
        return StoreError(f"{_DISK_MESSAGES[code]} ({text}); nothing was written")
    # We created the schema, so a missing table or column and undecodable text mean changed bytes.
    if (
        code in _CORRUPT_CODES
        or isinstance(error, UnicodeDecodeError)
        or text.startswith(("no such", "malformed", "Could not decode"))
    ):
        return Corrupt(f"the database is damaged: {text}")
    if code in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH} or not isinstance(error, sqlite3.Error):
        return InvalidInput(f"SQLite cannot store this value: {text}")
    if isinstance(error, sqlite3.ProgrammingError) and "that same thread" in text:
        return InvalidInput(
            "a runtime and its SQLite store belong to the thread that used them first; open one in each"
        )
    return StoreError(f"SQLite: {text}")


def translate_commit_error(error: sqlite3.Error) -> VakaError:
    """Return the error to raise when the commit itself failed."""
    if code_of(error) in _NOT_COMMITTED_CODES or code_of(error) & 0xFF in _CORRUPT_CODES:
        return translate_error(error)
    return Unavailable(f"the commit failed with an unknown outcome; read the log again: {error}")


APPLICATION_ID = 0x76616B61
"""SQLite's ``application_id`` of vaka's files: "vaka" in ASCII."""

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process to release the database's lock."""

CHECKPOINT_PAGES = 2000
"""Pages of the write-ahead log before a checkpoint: so many that fewer than one commit in a hundred waits for it, so
few that it takes milliseconds."""

_SYNCHRONOUS = {"power": "full", "process": "normal"}

_open_lock = threading.RLock()


class RegisteredConnection(sqlite3.Connection):
    """A connection that registers the files it has locked in ``POSIX_LOCKED_FILES`` while it is open."""

    lost = False
    """True after an I/O error, and when the database has been replaced: only a new connection knows what it holds."""

    def register_locks(self, path: Path) -> None:
        """Register the database and its shared-memory file: closing another descriptor of them drops the locks."""
        stats = path.stat(), path.with_name(f"{path.name}-shm").stat()
        locked = [(stat.st_dev, stat.st_ino) for stat in stats]
        self._path, self._file = str(path), locked[0]
        _count_locked_files(locked, 1)
        self._unregister = weakref.finalize(self, _count_locked_files, locked, -1)

    def find_replacement(self) -> StoreError | None:
        """Return an error if the database was removed or replaced: a write would go to a file without a name."""
        try:
            found = os.stat(self._path)  # noqa: PTH116  # before each transaction, so without a Path
        except OSError:
            problem = "removed or moved"
        else:
            if (found.st_dev, found.st_ino) == self._file:
                return None
            problem = "replaced by another file"
        self.lost = True
        return StoreError(f"the database {self._path!r} was {problem} while it was in use; nothing was written")

    def close(self) -> None:
        """Close the connection and unregister its locks."""
        super().close()
        if hasattr(self, "_unregister"):
            self._unregister()


@cache
def migration_scripts() -> tuple[str, ...]:
    """Return the scripts that create the schema, in order."""
    return tuple(file.read_text("utf-8") for file in sorted(Path(__file__).with_name("migrations").glob("*.sql")))


def connect(path: Path, durability: Durability, *, wait: bool) -> sqlite3.Connection:
    """Open the database; create or migrate it if needed. Without ``wait``, a locked database is an error at once.

    Raises ``sqlite3.OperationalError`` when it is locked, otherwise vaka's errors.
    """
    timeout = LOCK_TIMEOUT if wait else 0.0
    until = time.monotonic() + timeout
    while True:
        try:
            return _open_connection(path, durability, timeout)
        except SQLITE_ERRORS as error:
            if not is_locked(error):
                raise _opening_error(path, translate_error(error)) from error
            if time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _opening_error(path: Path, error: VakaError) -> VakaError:
    """Return the error for a file that cannot be opened; it names the file."""
    if isinstance(error, Corrupt):
        return NotADatabase(f"the store {str(path)!r} cannot be opened: {error}")
    return CannotOpen(f"the store {str(path)!r} cannot be opened: {error}") if type(error) is StoreError else error


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
        connection.create_function("has_metadata", 2, _contains_metadata, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _count_locked_files(locked: list[tuple[int, int]], by: int) -> None:
    with _open_lock:
        for file in locked:
            POSIX_LOCKED_FILES[file] += by
            if not POSIX_LOCKED_FILES[file]:
                del POSIX_LOCKED_FILES[file]


def _create_file(path: Path) -> None:
    """Create the file, readable by this user only; an existing file is not even opened.

    Closing its descriptor would drop the POSIX locks of every connection this process has to it: another process that
    ends would believe itself the last one and remove the write-ahead log while this one still writes to it.
    """
    try:
        with _open_lock:  # no other thread registers locks of the file before it is closed
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileExistsError:
        if path.is_dir():
            raise CannotOpen(f"the database {str(path)!r} cannot be opened: it is a folder") from None
    except OSError as error:
        problem = error.strerror
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            problem = f"its folder does not exist; create it with: mkdir -p {shlex.quote(str(path.parent))}"
        raise CannotOpen(f"the database {str(path)!r} cannot be opened: {problem}") from error


def _contains_casefold(title: str, text: str) -> bool:
    return text.casefold() in title.casefold()


def _contains_metadata(metadata: str, wanted: str) -> bool:
    return bool(metadata) and has_metadata(msgspec.json.decode(metadata), msgspec.json.decode(wanted))


def _configure_and_migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    connection.execute("pragma secure_delete = fast")  # what is deleted is overwritten where that writes no more pages
    if _schema_version(connection, path) == 0:
        connection.execute("pragma auto_vacuum = incremental")
    if connection.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
        raise ConfigError(f"SQLite cannot keep a write-ahead log beside {str(path)!r}; choose a local disk")
    connection.execute("pragma journal_size_limit = 16777216")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    if _schema_version(connection, path) < len(migration_scripts()):
        connection.execute("begin immediate")
        version = _schema_version(connection, path)  # another process may have migrated it meanwhile
        for number, script in enumerate(migration_scripts()[version:], version + 1):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("commit")


def _read_identity(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return the application id, the schema version, and whether there are tables, from one snapshot."""
    own_transaction = not connection.in_transaction
    if own_transaction:
        connection.execute("begin")  # another process may be creating the schema now
    try:
        filled = connection.execute("select 1 from sqlite_schema").fetchone() is not None
        application: int = connection.execute("pragma application_id").fetchone()[0]
        version: int = connection.execute("pragma user_version").fetchone()[0]
    finally:
        if own_transaction and connection.in_transaction:
            connection.execute("commit")
    return application, version, filled


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations the file has; ``ConfigError`` for a file of another program or a newer vaka."""
    application, version, filled = _read_identity(connection)
    if application != APPLICATION_ID:
        if application or version or filled:
            raise ConfigError(f"{str(path)!r} is a database of another program; give the store a file of its own")
        return 0
    newest = len(migration_scripts())
    if version > newest:
        raise ConfigError(
            f"{str(path)!r} was written by a newer vaka: its schema is {version}, this one knows {newest}"
        )
    return version
