"""The index of one namespace."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from vaka.core.ports.store import Page, Pending, Query, SessionInfo, Status
from vaka.core.session.chain import hash_of
from vaka.core.session.index import asked, replace
from vaka.core.types.errors import Busy, Corrupt, NotFound
from vaka.core.types.event import decode
from vaka.core.types.ids import DecisionId, SessionId
from vaka.stores.page import cursor_of, place
from vaka.stores.sqlite import logs, rows
from vaka.stores.sqlite.part import Part
from vaka.stores.sqlite.rows import Key, Row

_WORK = "closed = 0 and (turn <> '' or inputs > 0)"
"""The words of the index ``sessions_with_work``, so that it is used."""
_STATUS: dict[Status, str] = {
    "closed": "closed = 1",
    "idle": "closed = 0 and turn = '' and inputs = 0",
    "queued": f"{_WORK} and turn = ''",
    "running": f"{_WORK} and turn <> '' and pending = 0",
    "waiting": f"{_WORK} and turn <> '' and pending > 0",
}
_LIST = f"select session, {rows.COLUMNS} from sessions where "  # noqa: S608  # nosec B608  # constants
_PENDING = (
    "select d.session, d.decision, d.seq, d.hash, e.body from decisions d "
    "left join events e on e.namespace = d.namespace and e.session = d.session and e.seq = d.seq where d.namespace = ?"
)


class Sessions(Part):
    """Find, list, delete, and what waits for a person."""

    async def find(self, session: SessionId) -> SessionInfo | None:
        """Return the session's row."""
        row = await self._database.ask(partial(rows.load, key=self._key(session)))
        return self._shown(row) if row is not None else None

    async def list(self, query: Query) -> Page:
        """Return one page of sessions."""
        work = partial(_list, namespace=self._namespace, query=query, after=place(query))
        found = await (self._database.aside(work) if query.text else self._database.ask(work))  # all titles: takes long
        page = found[: query.limit]
        return Page(
            sessions=tuple(self._shown(row) for row in page),
            next=cursor_of(page[-1].info) if len(found) > len(page) else "",
        )

    async def delete(self, session: SessionId) -> None:
        """Forget a session."""
        await self._database.write(partial(self._delete, self._key(session)), rows=1)

    async def decisions(self, session: SessionId | None = None) -> Sequence[Pending]:
        """Return what people still have to decide."""
        found = await self._database.ask(partial(_decisions, namespace=self._namespace, session=session))
        return sorted(found, key=lambda row: (row.event.ts, row.session, row.seq))

    def _shown(self, row: Row) -> SessionInfo:
        live = bool(row.owner) and self._hub.writes(self._key(row.info.id), row.owner)
        return replace(row.info, live=True) if live else row.info

    def _delete(self, key: Key, connection: sqlite3.Connection) -> None:
        query = "select owner from sessions where namespace = ? and session = ?"  # a damaged row can go as well
        found = connection.execute(query, key).fetchone()
        if found is None:
            query = "select 1 from events where namespace = ? and session = ? limit 1"
            if connection.execute(query, key).fetchone() is None:
                raise NotFound(f"there is no session {key[1]!r}")
        elif self._hub.writes(key, str(found[0])):
            raise Busy(f"session {key[1]!r} has a writer")
        logs.remove(connection, key)


def _list(connection: sqlite3.Connection, namespace: str, query: Query, after: tuple[str, str] | None) -> "list[Row]":
    conditions: list[tuple[str, tuple[Any, ...]]] = [("namespace = ?", (namespace,))]
    if query.status is not None:
        conditions.append((_STATUS[query.status], ()))
    if query.prefix:
        conditions.append(("session >= ? and session < ?", (query.prefix, f"{query.prefix}\U0010ffff")))
    texts = {"agent = ?": query.agent, "origin = ?": query.origin, "has(title, ?)": query.text}
    conditions += [(condition, (value,)) for condition, value in texts.items() if value]
    # The minute is what the index knows, and it finds little more than what is asked for.
    since, before = query.updated_after, query.updated_before
    if since:
        conditions.append(("minute >= ? and updated > ?", (rows.minute_of(since), since)))
    if before:
        conditions.append(("minute <= ? and updated < ?", (rows.minute_of(before), before)))
    if after is not None:
        conditions.append(("minute <= ? and (updated, session) < (?, ?)", (rows.minute_of(after[0]), *after)))
    where = " and ".join(condition for condition, _ in conditions)
    values = [value for _, some in conditions for value in some]
    statement = f"{_LIST}{where} order by minute desc, updated desc, session desc limit ?"
    found = connection.execute(statement, (*values, query.limit + 1)).fetchall()
    return [rows.row_of((namespace, session), tuple(record)) for session, *record in found]


def _decisions(connection: sqlite3.Connection, namespace: str, session: SessionId | None) -> "list[Pending]":
    if session is None:
        found = connection.execute(_PENDING, (namespace,)).fetchall()
    else:
        found = connection.execute(f"{_PENDING} and d.session = ?", (namespace, session)).fetchall()
    return [_pending((namespace, SessionId(name)), *record) for name, *record in found]


def _pending(key: Key, decision: str, seq: int, hash: str, body: bytes | None) -> Pending:
    stored = logs.bytes_of(key, seq, body)
    if hash_of(stored) == hash:
        for row in asked(key[1], [decode(stored)]):
            if row.id == DecisionId(decision) and row.seq == seq:
                return row
    raise Corrupt(f"session {key[1]!r}: decision {decision!r} is not what was asked; see `vaka doctor --reindex`")
