"""The session's row: what it says, who owns it, and a checksum over all of it."""

import sqlite3
import zlib
from typing import Any, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import SessionId

Key: TypeAlias = tuple[str, SessionId]
"""A namespace and a session in it."""

COLUMNS = (
    "head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, origin, owner, checksum"
)
_SELECT = f"select {COLUMNS} from sessions where namespace = ? and session = ?"  # noqa: S608  # nosec B608  # constants
_INSERT = f"insert or ignore into sessions (namespace, session, {COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"  # noqa: S608
_UPDATE = (
    "update sessions set head=?, hash=?, epoch=?, term=?, title=?, agent=?, turn=?, inputs=?, pending=?, closed=?, "
    "created=?, updated=?, origin=?, owner=?, checksum=? "
    "where namespace=? and session=? and head=? and term=? and owner=?"
)

_encode = msgspec.json.Encoder().encode


class Row(NamedTuple):
    """What the index says of a session, and the name of the handle that writes it (``""``: nobody)."""

    info: SessionInfo
    owner: str


def checksum(*fields: object) -> int:
    """Return a number that changes with any of the fields."""
    return zlib.crc32(_encode(fields))


def _fields(key: Key, info: SessionInfo, owner: str) -> tuple[Any, ...]:
    fields = (
        info.head, info.hash, info.epoch, info.term, info.title, info.agent, info.turn, info.inputs, info.pending,
        int(info.closed), info.created, info.updated, info.origin, owner,
    )  # fmt: skip
    return (*fields, zlib.crc32(_encode((key, fields))))


def row_of(key: Key, record: tuple[Any, ...]) -> Row:
    """Return the row that ``COLUMNS`` of a session make; ``Corrupt`` when they are not what was written."""
    fields = record[:-1]
    try:
        intact = zlib.crc32(_encode((key, fields))) == record[-1] and bytes not in map(type, fields)
    except (msgspec.MsgspecError, TypeError, ValueError):
        intact = False
    if not intact:
        raise Corrupt(
            f"session {key[1]!r}: its index row was changed; `vaka doctor --reindex` makes it anew from the log"
        )
    head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, origin, owner = fields
    info = SessionInfo(
        id=key[1], head=head, hash=hash, epoch=epoch, term=term, title=title, agent=agent, turn=turn, inputs=inputs,
        pending=pending, closed=bool(closed), created=created, updated=updated, origin=origin,
    )  # fmt: skip
    return Row(info, owner)


def load(connection: sqlite3.Connection, key: Key) -> Row | None:
    """Return the row of a session, ``None`` when there is no such session.

    Raises ``Corrupt`` when the row was changed, or is gone while its events are there.
    """
    record = connection.execute(_SELECT, key).fetchone()
    if (
        record is None
        and connection.execute("select 1 from events where namespace = ? and session = ? limit 1", key).fetchone()
    ):
        record = connection.execute(_SELECT, key).fetchone()  # it may have been written between the two looks
        if record is None:
            raise Corrupt(
                f"session {key[1]!r}: its index row is gone; `vaka doctor --reindex` makes it anew from the log"
            )
    return row_of(key, record) if record is not None else None


def insert(connection: sqlite3.Connection, key: Key, info: SessionInfo, owner: str) -> bool:
    """Write the first row of a session; false when there is one already."""
    return connection.execute(_INSERT, (*key, *_fields(key, info, owner))).rowcount == 1


def update(connection: sqlite3.Connection, key: Key, info: SessionInfo, owner: str, old: Row) -> bool:
    """Change a row; false when head, term or owner are no longer those of ``old``."""
    guard = (*key, old.info.head, old.info.term, old.owner)
    return connection.execute(_UPDATE, (*_fields(key, info, owner), *guard)).rowcount == 1
