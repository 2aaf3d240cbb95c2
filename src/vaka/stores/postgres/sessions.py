"""The index: which sessions there are and what they wait for."""

from collections.abc import Sequence

from vaka.core.ports.store import Page, Pending, Query, SessionInfo
from vaka.core.session.index import asked
from vaka.core.types.errors import Busy, NotFound
from vaka.core.types.event import decode
from vaka.core.types.ids import SessionId
from vaka.stores.page import cursor_of
from vaka.stores.page import place as page_place
from vaka.stores.postgres.database import Connection, Database, Record
from vaka.stores.postgres.rows import folded, info_of
from vaka.stores.postgres.text import beyond, place, raw, text

_FIND = (
    "select *, (owner is not null and lease_until >= now()) as live from vaka.sessions where namespace = $1 and id = $2"
)
_EXISTS = "select from vaka.sessions where namespace = $1 and id = $2"
_FORGET = "select * from vaka.forget($1, $2, null, false)"
_DECISIONS = (
    "select d.session, e.body from vaka.decisions d join vaka.events e "
    "on e.namespace = d.namespace and e.session = d.session and e.seq = d.seq where d.namespace = $1"
)
_LIST = "select *, (owner is not null and lease_until >= now()) as live from vaka.sessions where"
_STATUS = {
    "closed": "closed",
    "idle": "not closed and turn = '' and inputs = 0",
    "queued": "not closed and turn = '' and inputs > 0",
    "running": "not closed and turn <> '' and pending = 0",
    "waiting": "not closed and turn <> '' and pending > 0",
}


class Sessions:
    """The index of one namespace."""

    def __init__(self, namespace: bytes, database: Database) -> None:
        self._namespace, self._database = namespace, database

    async def find(self, session: SessionId) -> SessionInfo | None:
        """Return the session's row, ``None`` when there is no such session."""
        where = place(self._namespace, session)
        row = await self._database.row(_FIND, where.namespace, where.session)
        return None if row is None else info_of(row)

    async def list(self, query: Query) -> Page:
        """Return one page of sessions."""
        statement, arguments = _select(self._namespace, query)
        rows = await self._database.fetch(statement, *arguments)
        page = [info_of(row) for row in rows[: query.limit]]
        return Page(sessions=tuple(page), next=cursor_of(page[-1]) if len(rows) > len(page) else "")

    async def delete(self, session: SessionId) -> None:
        """Forget a session and all it holds. ``Busy`` while it has a writer, ``NotFound`` when there is none."""
        where = place(self._namespace, session)

        async def forget(connection: Connection) -> list[Record]:
            return await connection.fetch(_FORGET, where.namespace, where.session)

        if await self._database.run(forget, again=False):
            return
        if await self._database.row(_EXISTS, where.namespace, where.session) is None:
            raise NotFound(f"there is no session {session!r}")
        raise Busy(f"session {session!r} has a writer")

    async def decisions(self, session: SessionId | None = None) -> Sequence[Pending]:
        """Return what people still have to decide, oldest first, in one session or in all."""
        if session is None:
            rows = await self._database.fetch(_DECISIONS, self._namespace)
        else:
            where = place(self._namespace, session)
            rows = await self._database.fetch(f"{_DECISIONS} and d.session = $2", where.namespace, where.session)
        found = [pending for row in rows for pending in asked(SessionId(text(row["session"])), (decode(row["body"]),))]
        return sorted(found, key=lambda pending: (pending.event.ts, pending.session, pending.seq))


def _select(namespace: bytes, query: Query) -> tuple[str, list[object]]:
    """Return the statement for a page and one row more, with its arguments."""
    after = page_place(query)
    arguments: list[object] = [namespace]
    wanted = ["namespace = $1"]

    def want(condition: str, value: bytes) -> None:
        if value:
            arguments.append(value)
            wanted.append(condition.format(f"${len(arguments)}"))

    if query.status is not None:
        wanted.append(_STATUS[query.status])
    prefix = raw(query.prefix)
    want("agent = {0}", raw(query.agent))
    want("origin = {0}", raw(query.origin))
    want("position({0}::bytea in folded) > 0", folded(query.text))
    want("id >= {0}", prefix)
    want("id < {0}", beyond(prefix) or b"")
    want("updated > {0}", raw(query.updated_after))
    want("updated < {0}", raw(query.updated_before))
    if after is not None:
        arguments += [raw(after[0]), raw(after[1])]
        wanted.append(f"(updated, id) < (${len(arguments) - 1}, ${len(arguments)})")
    arguments.append(query.limit + 1)
    return f"{_LIST} {' and '.join(wanted)} order by updated desc, id desc limit ${len(arguments)}", arguments
