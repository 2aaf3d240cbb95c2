"""Open the database file: create it, configure it, migrate its schema; and translate SQLite's errors into vaka's."""

import logging
import os
import shlex
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from vaka.core.ports.files import POSIX_LOCKED_FILES
from vaka.core.types.errors import (
    Busy,
    CannotOpen,
    ConfigError,
    Corrupt,
    InvalidInput,
    NotADatabase,
    ReadOnlyStore,
    StoreError,
    Unavailable,
    VakaError,
)
from vaka.stores.common import Durability, has_metadata, migration_files, require_known_schema

_CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_CONSTRAINT}

_DISK_MESSAGES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_PERM: "the database may not be used",
    sqlite3.SQLITE_NOLFS: "the database is too large for its disk",
}

# With these the commit's last page was not written to the file, so the transaction was not committed.
_NOT_COMMITTED_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY}

_log = logging.getLogger(__name__)

SQLITE_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""Errors that using a connection may raise."""


def code_of(error: BaseException) -> int:
    """Return SQLite's extended error code, 0 when there is none."""
    return getattr(error, "sqlite_errorcode", 0) or 0


def is_locked(error: BaseException) -> bool:
    """Whether another process held the database's lock."""
    return code_of(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def note_failure(connection: sqlite3.Connection, error: BaseException) -> None:
    """Mark a connection as lost by an I/O error, for example of an fsync."""
    if code_of(error) & 0xFF == sqlite3.SQLITE_IOERR and isinstance(connection, RegisteredConnection):
        connection.lost = True


def find_replacement(connection: sqlite3.Connection) -> StoreError | None:
    """Return the error to raise if the file of a connection was removed or replaced."""
    return connection.find_replacement() if isinstance(connection, RegisteredConnection) else None


def is_lost(connection: sqlite3.Connection) -> bool:
    """Whether the connection must be closed and opened again."""
    return isinstance(connection, RegisteredConnection) and (connection.lost or connection.is_outdated())


def translate_error(error: BaseException) -> VakaError:
    """Return the error to raise for a failed statement; its transaction is rolled back."""
    code, text = code_of(error) & 0xFF, str(error)
    if is_locked(error):
        return Busy("the database is locked by another process; try again")
    if code == sqlite3.SQLITE_READONLY:
        return ReadOnlyStore(f"the database can be read here, but not written ({text}); nothing was written")
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


FileIdentity: TypeAlias = tuple[int, int]
"""The device and the inode of a file."""


def _identity_of(path: Path) -> FileIdentity:
    found = path.stat()
    return found.st_dev, found.st_ino


def _change_of(path: Path) -> tuple[Path, int, int]:
    log = path.with_name(f"{path.name}-wal")
    return path, path.stat().st_mtime_ns, log.stat().st_size if log.exists() else 0


class DatabaseFile:
    """The database file that a handle has opened first. All its connections must be of this file.

    A handle whose file was removed or replaced stays unusable: what it knows of the sessions is in the old file, and
    its writes would go to the new one.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._identity: FileIdentity | None = None
        self.replaced: StoreError | None = None
        """The error of every later use, once the file was found to be removed or replaced."""

    def require_unchanged(self) -> None:
        """Raise the error if the file was removed or replaced, now or before."""
        if self.replaced is None and self._identity is not None:
            self.check(self._path, self._identity)
        if self.replaced is not None:
            raise self.replaced

    def record(self, identity: FileIdentity) -> None:
        """Record the file of a connection that was opened. Raises the error unless it is the first one's."""
        self._identity = self._identity or identity
        if self._identity != identity:
            self.check(self._path, self._identity)
            self.require_unchanged()

    def check(self, path: str, identity: FileIdentity) -> StoreError | None:
        """Return the error if a file of the database was removed or replaced since it was opened."""
        try:
            found = os.stat(path)  # noqa: PTH116  # before each transaction, so without a Path
        except OSError:
            problem = "removed or moved"
        else:
            if (found.st_dev, found.st_ino) == identity:
                return self.replaced
            problem = "replaced by another file"
        if self.replaced is None:
            self.replaced = _replacement_error(path, problem)
            _log.error("%s", self.replaced)
        return self.replaced


def _replacement_error(path: str, problem: str) -> StoreError:
    return StoreError(
        f"the database file {path!r} was {problem} while this process used it; nothing was written. Put the file "
        f"back if that was a mistake, then restart this process: it uses the file that has the name then"
    )


class RegisteredConnection(sqlite3.Connection):
    """A connection that registers the files it has locked in ``POSIX_LOCKED_FILES`` while it is open."""

    lost = False
    """True after an I/O error, and when the database has been replaced: only a new connection knows what it holds."""
    copied_to: "TemporaryDirectory[str] | None" = None
    """The folder of the copy that it reads."""
    unchanged_since: "tuple[Path, int, int] | None" = None
    """The database that is read without locks, its time of change, and the size of its write-ahead log."""

    def register_locks(self, path: Path, file: DatabaseFile) -> None:
        """Register the database and its shared-memory file: closing another descriptor of them drops the locks."""
        locked = [_identity_of(place) for place in (path, path.with_name(f"{path.name}-shm"))]
        log = path.with_name(f"{path.name}-wal")
        self._file = file
        self._files = ((str(path), locked[0]), (str(log), _identity_of(log)))
        file.record(locked[0])
        _count_locked_files(locked, 1)
        self._unregister = weakref.finalize(self, _count_locked_files, locked, -1)

    def find_replacement(self) -> StoreError | None:
        """Return an error if the database was removed or replaced: a write would go to a file without a name."""
        for path, identity in self._files if hasattr(self, "_files") else ():
            if (error := self._file.check(path, identity)) is not None:
                self.lost = True
                return error
        return None

    def is_outdated(self) -> bool:
        """Whether another process has begun to write a database that is read without locks."""
        return self.unchanged_since is not None and self.unchanged_since != _change_of(self.unchanged_since[0])

    def close(self) -> None:
        """Close the connection and unregister its locks."""
        super().close()
        if hasattr(self, "_unregister"):
            self._unregister()
        if self.copied_to is not None:
            self.copied_to.cleanup()


MIGRATIONS = Path(__file__).with_name("migrations")
"""The folder of the scripts that create and change the schema."""


def newest_schema() -> int:
    """Return the schema of this code."""
    return migration_files(MIGRATIONS)[-1][0]


def connect(path: Path, durability: Durability, file: DatabaseFile, *, wait: bool) -> sqlite3.Connection:
    """Open the database; create or migrate it if needed. Without ``wait``, a locked database is an error at once.

    A file that cannot be written is opened for reading. Raises ``sqlite3.OperationalError`` when it is locked,
    otherwise vaka's errors.
    """
    timeout = LOCK_TIMEOUT if wait else 0.0
    until = time.monotonic() + timeout
    while True:
        file.require_unchanged()
        try:
            return _open_connection(path, durability, file, timeout)
        except SQLITE_ERRORS as error:
            if code_of(error) & 0xFF in _READ_ONLY_CODES and not _is_writable(path):
                return _open_read_only(path, file)
            if not is_locked(error):
                raise _opening_error(path, translate_error(error)) from error
            if time.monotonic() >= until:
                raise
        time.sleep(0.01)


_READ_ONLY_CODES = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def _is_writable(path: Path) -> bool:
    """Return whether this process may write the database and create the files that SQLite keeps beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _open_read_only(path: Path, file: DatabaseFile) -> sqlite3.Connection:
    """Open a database that cannot be written and whose shared-memory file does not exist.

    So no process writes it now. ``immutable`` lets SQLite read it without that file, but ignores a write-ahead log: a
    database that has one, as a crash leaves it, is read from a copy.
    """
    log, copy = path.with_name(f"{path.name}-wal"), None
    try:
        opened, options = path, "immutable=1"
        if _has_log(path):
            copy = TemporaryDirectory(prefix="vaka-")
            opened, options = Path(copy.name, path.name), "mode=rw"
            for source in (path, log):
                shutil.copyfile(source, opened.with_name(source.name))
        connection = sqlite3.connect(
            f"file:{quote(str(opened))}?{options}",
            uri=True,
            isolation_level=None,
            cached_statements=256,
            factory=RegisteredConnection,
        )
    except (OSError, sqlite3.Error) as error:
        if copy is not None:
            copy.cleanup()
        raise CannotOpen(f"the store {str(path)!r} cannot be opened for reading: {error}") from error
    connection.copied_to = copy
    try:
        _require_current_schema(connection, path)
        connection.execute("pragma query_only = on")
        _create_functions(connection)
        file.record(_identity_of(path))
        if copy is None:
            connection.unchanged_since = _change_of(path)
    except SQLITE_ERRORS as error:
        connection.close()
        raise _opening_error(path, translate_error(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _require_current_schema(connection: sqlite3.Connection, path: Path) -> None:
    version, newest = _schema_version(connection, path), newest_schema()
    if version < newest:
        raise CannotOpen(
            f"the store {str(path)!r} has schema {version} of an older vaka, this one needs {newest}, and the file "
            f"cannot be written: open it once where it can be"
        )


def _opening_error(path: Path, error: VakaError) -> VakaError:
    """Return the error for a file that cannot be opened; it names the file."""
    if isinstance(error, Corrupt):
        return NotADatabase(f"the store {str(path)!r} cannot be opened: {error}")
    return CannotOpen(f"the store {str(path)!r} cannot be opened: {error}") if type(error) is StoreError else error


def _open_connection(path: Path, durability: Durability, file: DatabaseFile, timeout: float) -> sqlite3.Connection:
    _create_file(path)
    file.record(_identity_of(path))  # before and after: another file may get the name in between
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, cached_statements=256, factory=RegisteredConnection
    )
    try:
        _configure_and_migrate(connection, path)
        connection.register_locks(path, file)
        connection.execute(f"pragma synchronous = {_SYNCHRONOUS[durability]}")
        _create_functions(connection)
    except ConfigError:
        _close_unchanged(connection, path)
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _close_unchanged(connection: sqlite3.Connection, path: Path) -> None:
    """Close the connection to a refused file, also to a file with the write-ahead log of a crashed process.

    The last connection to a file writes the log into it, unless that connection may only read.
    """
    with ExitStack() as closed_last:
        if _has_log(path):
            with suppress(sqlite3.Error):
                reader = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
                closed_last.callback(reader.close)
                reader.execute("select 1 from sqlite_schema").fetchone()
        connection.close()


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _create_functions(connection: sqlite3.Connection) -> None:
    connection.create_function("has", 2, _contains_casefold, deterministic=True)
    connection.create_function("has_metadata", 2, _contains_metadata, deterministic=True)


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
    if _schema_version(connection, path) < newest_schema():
        connection.execute("begin immediate")
        version = _schema_version(connection, path)  # another process may have migrated it meanwhile
        for number, file in migration_files(MIGRATIONS):
            if number > version:
                for statement in split_statements(file.read_text("utf-8")):
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("commit")


def split_statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. ``executescript`` would commit the transaction before them."""
    lines: list[str] = []
    for line in script.splitlines(keepends=True):
        lines.append(line)
        if sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines = []
    yield "".join(lines)


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
    """Return the schema of the file, 0 for an empty one. Raises ``ConfigError`` for a file that is refused."""
    application, version, filled = _read_identity(connection)
    if application != APPLICATION_ID:
        if application or version or filled:
            raise ConfigError(f"{str(path)!r} is a database of another program; give the store a file of its own")
        return 0
    store = f"--store {shlex.quote(f'sqlite:///{path.absolute()}')}"
    require_known_schema(
        version,
        newest_schema(),
        f"the store {str(path)!r}",
        backup=f"vaka store backup vaka.backup {store}",
        restore=f"vaka store restore vaka.backup --replace {store}",
    )
    return version
