"""What SQLite's errors mean for whoever asked."""

import sqlite3

from vaka.core.types.errors import Busy, Corrupt, InvalidInput, StoreError, Unavailable, VakaError

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_CONSTRAINT}
_DISK = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_PERM: "the database may not be used",
    sqlite3.SQLITE_NOLFS: "the database is too large for its disk",
}
# The commit's last page did not get to the file, so it did not happen.
_NOT_COMMITTED = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY}

ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""What using a connection may raise."""


def code_of(error: BaseException) -> int:
    """Return SQLite's extended code of an error, 0 when it has none."""
    return getattr(error, "sqlite_errorcode", 0) or 0


def is_locked(error: BaseException) -> bool:
    """Whether another process was in the way."""
    return code_of(error) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translate(error: BaseException) -> VakaError:
    """Return what to raise for an error of a statement; nothing it did is kept."""
    code, text = code_of(error) & 0xFF, str(error)
    if is_locked(error):
        return Busy("the database is locked by another process; try again")
    if code in _DISK:
        return StoreError(f"{_DISK[code]} ({text}); nothing was written")
    # A missing table or column, and text that is no text, can only come from changed bytes: the schema is ours.
    if (
        code in _CORRUPT
        or isinstance(error, UnicodeDecodeError)
        or text.startswith(("no such", "malformed", "Could not decode"))
    ):
        return Corrupt(f"the database is damaged: {text}")
    if code in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH} or not isinstance(error, sqlite3.Error):
        return InvalidInput(f"this cannot be stored: {text}")
    return StoreError(f"SQLite: {text}")


def translate_commit(error: sqlite3.Error) -> VakaError:
    """Return what to raise when the commit itself failed."""
    if code_of(error) in _NOT_COMMITTED or code_of(error) & 0xFF in _CORRUPT:
        return translate(error)
    return Unavailable(f"the commit failed, whether it happened shows when the log is read again: {error}")
