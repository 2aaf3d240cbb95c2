"""The index row of a session, its owner, and a checksum over both."""

import sqlite3
import zlib
from typing import Any, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import SessionId

SqliteKey: TypeAlias = tuple[str, SessionId]
"""A namespace and a session in it."""

_FIELDS = (
    "head", "hash", "epoch", "term", "title", "agent", "turn", "inputs", "pending", "closed", "created", "updated",
    "origin", "owner", "minute", "checksum",
)  # fmt: skip
COLUMNS = ", ".join(_FIELDS)
_SELECT_ROW = (
    f"select {COLUMNS} from sessions where namespace = ?1 and session = ?2 "  # noqa: S608  # nosec B608  # constants
    f"union all select {', '.join('null' for _ in _FIELDS)} from events where namespace = ?1 and session = ?2 limit 1"
)
"""The row; if there is none but there are events, a row of nothing."""
_INSERT_ROW = f"insert or ignore into sessions ({COLUMNS}, namespace, session) values ({','.join('?' * 18)})"  # noqa: S608
_WORK_COLUMNS = ("turn", "inputs", "closed")
"""What ``sessions_with_work`` depends on."""


def _update_statement(*, work: bool, minute: bool) -> str:
    """Return the statement that changes a row; it writes the pages of an index only if it names its columns."""
    left_out = {*(() if work else _WORK_COLUMNS), *(() if minute else ("minute",))}
    sets = ", ".join(f"{name}=?{place}" for place, name in enumerate(_FIELDS, 1) if name not in left_out)
    return f"update sessions set {sets} where namespace=?17 and session=?18 and head=?19 and term=?20 and owner=?21"  # noqa: S608  # nosec B608  # constants


_UPDATES = {
    (work, minute): _update_statement(work=work, minute=minute) for work in (True, False) for minute in (True, False)
}

_encode = msgspec.json.Encoder().encode


class SessionRow(NamedTuple):
    """What the index says of a session, and the name of the handle that writes it (``""``: nobody)."""

    info: SessionInfo
    owner: str


def checksum(*fields: object) -> int:
    """Return a number that changes with any of the fields."""
    return zlib.crc32(_encode(fields))


def minute_of(time: str) -> str:
    """Return the part of a time by which sessions are listed."""
    return time[:16]


def _values_of(key: SqliteKey, info: SessionInfo, owner: str) -> tuple[Any, ...]:
    fields = (
        info.head, info.hash, info.epoch, info.term, info.title, info.agent, info.turn, info.inputs, info.pending,
        int(info.closed), info.created, info.updated, info.origin, owner,
    )  # fmt: skip
    return (*fields, minute_of(info.updated), zlib.crc32(_encode((key, fields))))


def parse_row(key: SqliteKey, record: tuple[Any, ...]) -> SessionRow:
    """Return the row that ``COLUMNS`` of a session make; ``Corrupt`` when they are not what was written."""
    *_, minute, crc = record
    fields = record[:-2]
    try:
        intact = zlib.crc32(_encode((key, fields))) == crc and bytes not in map(type, fields)
    except (msgspec.MsgspecError, TypeError, ValueError):
        intact = False
    if not intact or minute != minute_of(fields[11]):
        raise Corrupt(
            f"session {key[1]!r}: its index row was changed; `vaka doctor --reindex` makes it anew from the log"
        )
    head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, origin, owner = fields
    info = SessionInfo(
        id=key[1], head=head, hash=hash, epoch=epoch, term=term, title=title, agent=agent, turn=turn, inputs=inputs,
        pending=pending, closed=bool(closed), created=created, updated=updated, origin=origin,
    )  # fmt: skip
    return SessionRow(info, owner)


def load_row(connection: sqlite3.Connection, key: SqliteKey) -> SessionRow | None:
    """Return the row of a session, ``None`` when there is no such session.

    Raises ``Corrupt`` when the row was changed, or is gone while its events are there.
    """
    record = connection.execute(_SELECT_ROW, key).fetchone()
    if record is None:
        return None
    if record[-1] is None:
        raise Corrupt(f"session {key[1]!r}: its index row is gone; `vaka doctor --reindex` makes it anew from the log")
    return parse_row(key, record)


def insert_row(connection: sqlite3.Connection, key: SqliteKey, info: SessionInfo, owner: str) -> bool:
    """Write the first row of a session; false when there is one already."""
    return connection.execute(_INSERT_ROW, (*_values_of(key, info, owner), *key)).rowcount == 1


def update_row(connection: sqlite3.Connection, key: SqliteKey, info: SessionInfo, owner: str, old: SessionRow) -> bool:
    """Change a row; false when head, term or owner are no longer those of ``old``."""
    was = old.info
    work = info.turn != was.turn or info.inputs != was.inputs or info.closed != was.closed
    statement = _UPDATES[work, minute_of(info.updated) != minute_of(was.updated)]
    values = (*_values_of(key, info, owner), *key, was.head, was.term, old.owner)
    return connection.execute(statement, values).rowcount == 1
