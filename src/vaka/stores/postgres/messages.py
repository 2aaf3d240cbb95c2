"""The messages of one namespace: list, find, count and search them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vaka.core.ports.messages import (
    SEARCH_WINDOW,
    ListPosition,
    MessagePage,
    MessageQuery,
    MessageRow,
    MessageSearch,
    MessageStats,
    SearchPage,
    parse_list_cursor,
)
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.message_counts import NOTHING_COUNTED, CountedMessages, MessageCounts
from vaka.stores.message_pages import (
    Candidate,
    RowConditions,
    decode_intact,
    is_descending,
    list_conditions,
    list_page,
    make_hit,
    needs_content,
    parse_search,
    rank_candidates,
    scope_word,
    search_conditions,
    select_rows,
)
from vaka.stores.message_rows import indexed_blobs_of, message_of
from vaka.stores.postgres.database import PostgresConnection, PostgresDatabase, PostgresRecord
from vaka.stores.postgres.encoding import decode_text, digest_text, encode_name, encode_text, postgres_key
from vaka.stores.postgres.hub import PostgresHub, PostgresPort
from vaka.stores.postgres.message_rows import encode_terms, insert_messages, load_blobs

MAX_OWNED_SESSIONS = 64
"""The most sessions of an owner that the query of the words names. For an owner with more, the hits are checked."""

FILTER_CHUNK = 500
"""Messages that are read at once to find those with a keyword."""

BACKLOG_EVENTS = 1024
"""Events of an older session that get message rows in one transaction."""

_TOOL_NAME = (
    "case when m.role = 'tool' then (select c.name from vaka.messages c where c.namespace = m.namespace "
    "and c.session = m.session and c.id = m.id and c.role = 'call' limit 1) end as name"
)
_BODY = (
    "(select e.body from vaka.events e where e.namespace = m.namespace and e.session = m.session and e.seq = m.seq) "
    "as body"
)
"""The event of a message. A join would read all events of the session while the server has no statistics of them."""
_SELECT_ROWS = (
    "select m.namespace, m.session, m.seq, m.id, m.role from vaka.messages m where m.namespace = $1 and m.session = $2"
)
_SELECT_WITH_SESSION = (
    "select exists (select from vaka.message_backlog b where b.namespace = s.namespace and b.session = s.id) as waits, "  # noqa: S608  # nosec B608  # constants
    f"m.session, m.seq, {_BODY}, {_TOOL_NAME} from vaka.sessions s left join lateral ({{}}) m on true "
    "where s.namespace = $1 and s.id = $2 order by m.seq {}"
)
"""The messages of a query and, also if there are none, whether the session was written before the index existed."""
_SELECT_STATS = (
    "select exists (select from vaka.message_backlog b where b.namespace = s.namespace and b.session = s.id) as waits, "
    "(select k.number from vaka.messages k where k.namespace = $1 and k.session = $2 and k.seq = $3) as mark, c.*, "
    "(select f.ts from vaka.messages f where f.namespace = $1 and f.session = $2 and f.seq = c.first) as begun, "
    "l.ts as ended, l.number from vaka.sessions s cross join lateral (select count(*) as messages, "
    "count(*) filter (where m.role = 'user') as users, count(*) filter (where m.role = 'assistant') as answers, "
    "sum(m.size)::bigint as size, min(m.seq) as first, max(m.seq) as last from vaka.messages m "
    "where m.namespace = $1 and m.session = $2 and m.seq > $3 and m.role <> 'call') c "
    "left join vaka.messages l on l.namespace = $1 and l.session = $2 and l.seq = c.last "
    "where s.namespace = $1 and s.id = $2"
)
"""The counts of the messages after $3, and whether that message is still there."""
_SELECT_OWNED = "select id from vaka.sessions where namespace = $1 and belongs_to = $2 and belongs_to <> '' limit $3"
_SELECT_HITS = (
    f"select m.number, m.session, m.seq, {_BODY}, {_TOOL_NAME} from vaka.messages m "  # noqa: S608  # nosec B608  # constants
    "where m.namespace = $1 and m.number = any ($2::bigint[])"
)
_SELECT_BACKLOG = (
    "select b.session from vaka.message_backlog b left join vaka.sessions s on s.namespace = b.namespace "
    "and s.id = b.session where b.namespace = $1 and ($2::bytea is null or b.session = $2) order by s.updated limit 1"
)
_LOCK_BACKLOG = "select seq from vaka.message_backlog where namespace = $1 and session = $2 for update"
_SELECT_EVENTS = (
    "select seq, body from vaka.events where namespace = $1 and session = $2 and seq > $3 order by seq limit $4"
)
_ADVANCE_BACKLOG = "update vaka.message_backlog set seq = $3 where namespace = $1 and session = $2"
_END_BACKLOG = "delete from vaka.message_backlog where namespace = $1 and session = $2"


class _Statement:
    """Conditions on messages, and their arguments after the given arguments."""

    def __init__(self, arguments: list[object], conditions: RowConditions) -> None:
        self.arguments = arguments
        self.conditions: list[str] = []
        if not conditions.has_all_roles:
            self.add("m.role = any ({}::text[])", list(conditions.roles))
        if conditions.since:
            self.add("m.ts >= {}", encode_text(conditions.since))
        if conditions.until:
            self.add("m.ts <= {}", encode_text(conditions.until))
        if conditions.path is not None:
            self.add("m.path = {}", encode_text(conditions.path))

    def add(self, condition: str, value: object) -> None:
        self.arguments.append(value)
        self.conditions.append(condition.format(f"${len(self.arguments)}"))

    def copy(self) -> "_Statement":
        copy = object.__new__(_Statement)
        copy.arguments, copy.conditions = [*self.arguments], [*self.conditions]
        return copy

    @property
    def sql(self) -> str:
        return "".join(f" and {condition}" for condition in self.conditions)


class PostgresMessages(PostgresPort):
    def __init__(self, namespace: bytes, hub: PostgresHub) -> None:
        super().__init__(namespace, hub)
        self._counts = MessageCounts()

    async def list(self, session: SessionId, query: MessageQuery) -> MessagePage:
        position = parse_list_cursor(query)
        statement = _Statement([self._namespace, encode_name(session)], list_conditions(query.filter))
        filtered = needs_content(query.filter)
        limit = FILTER_CHUNK if filtered else query.limit + 1
        descending = is_descending(query, position)
        found: list[MessageRow] = []
        place = position
        while True:
            chunk = await self._read_rows(session, statement, place, limit, descending)
            found += await select_rows(chunk, query, self._load_texts) if filtered else chunk
            if len(found) > query.limit or len(chunk) < limit:
                return list_page(found, query, position)
            place = ListPosition(chunk[-1].seq)

    async def _load_texts(self, messages: Sequence[MessageRow]) -> dict[Digest, bytes]:
        digests = [digest for message in messages for digest in indexed_blobs_of(message.content)]
        return await load_blobs(self._database.fetch, self._namespace, digests)

    async def find(self, session: SessionId, id: str) -> MessageRow | None:
        select = f"{_SELECT_ROWS} and m.id = $3 and m.role <> 'call' order by m.seq limit 1"
        sql, arguments = _SELECT_WITH_SESSION.format(select, "asc"), (encode_name(session), digest_text(id))
        found = await self._fetch_messages(session, sql, self._namespace, *arguments)
        return found[0] if found else None

    async def stats(self, session: SessionId) -> MessageStats:
        known = self._counts.get(session)
        row = await self._fetch_row(_SELECT_STATS, encode_name(session), known.seq)
        if row is not None and row["waits"]:
            await index_backlog(self._database, self._namespace, encode_name(session))
            return await self.stats(session)
        if row is None:
            raise NotFound(f"there is no session {session!r}")
        if known.seq and row["mark"] != known.mark:
            self._counts.put(session, NOTHING_COUNTED)
            return await self.stats(session)
        return self._counts.put(session, _add_counts(known, row))

    async def search(self, query: MessageSearch) -> SearchPage:
        terms, position = parse_search(query)
        statement = _Statement([self._namespace], search_conditions(query))
        if not terms.required:
            return SearchPage()
        await index_backlog(self._database, self._namespace)
        scopes = await self._find_scopes(query, statement)
        if not scopes:
            return SearchPage()
        # As constants, so that the server plans each search by how often its words occur. They have no dollar sign.
        words = encode_terms(terms)
        statement.conditions.append(f"m.words @@ $q$({' | '.join(scopes)}) & {words}$q$::tsquery")
        rank = f"ts_rank(m.words, $q${words}$q$::tsquery, 1)"

        async def fetch(bound: Any, inclusive: bool) -> Sequence[Candidate]:
            one = statement.copy()
            if bound is not None:
                if type(bound) is not int:
                    raise TypeError(bound)
                one.add(f"m.number {'<=' if inclusive else '<'} {{}}", bound)
            select = (
                f"select m.number, m.words from vaka.messages m where m.namespace = $1{one.sql} "  # noqa: S608  # nosec B608  # constants
                f"order by m.number desc limit {SEARCH_WINDOW}"
            )
            sql = f"select m.number, {rank} as score from ({select}) m order by m.number desc"  # noqa: S608  # nosec B608  # constants
            return [Candidate(*row) for row in await self._database.fetch(sql, *one.arguments)]

        page, following = await rank_candidates(query, position, fetch)
        found = await self._fetch(_SELECT_HITS, [candidate.order for candidate in page])
        rows: dict[int, MessageRow] = {}
        for row in found:
            with suppress(Corrupt):  # listing the session reports it
                rows[row["number"]] = _messages_of([row])[0]
        blobs = await self._load_texts([*rows.values()])
        hits = [make_hit(rows[number], blobs, terms, score) for number, score in page if number in rows]
        return SearchPage(hits=tuple(hits), next=following)

    async def _read_rows(
        self, session: SessionId, statement: _Statement, place: ListPosition | None, limit: int, descending: bool
    ) -> Sequence[MessageRow]:
        statement = statement.copy()
        if place is not None:
            statement.add(f"m.seq {'<' if descending else '>'} {{}}", place.seq)
        order = "desc" if descending else "asc"
        select = f"{_SELECT_ROWS}{statement.sql} order by m.seq {order} limit {limit}"
        sql = _SELECT_WITH_SESSION.format(select, order)
        found = await self._fetch_messages(session, sql, *statement.arguments)
        if found is None:
            raise NotFound(f"there is no session {session!r}")
        return found

    async def _fetch_messages(self, session: SessionId, sql: str, *arguments: object) -> Sequence[MessageRow] | None:
        """Return the messages of ``_SELECT_WITH_SESSION``; ``None`` when the session does not exist.

        If the session was written before the index existed, it gets its rows first.
        """
        found = await self._database.fetch(sql, *arguments)
        if found and found[0]["waits"]:
            await index_backlog(self._database, self._namespace, encode_name(session))
            found = await self._database.fetch(sql, *arguments)
        return _messages_of([row for row in found if row["seq"] is not None]) if found else None

    async def _find_scopes(self, query: MessageSearch, statement: _Statement) -> Sequence[str]:
        """Return the words of which a message must have one, and add the conditions that they do not cover."""
        namespace = decode_text(self._namespace)
        sessions: Sequence[str] | None = None
        if query.agent:
            statement.add(_session_condition("agent"), encode_text(query.agent))
        if query.session:
            sessions = [query.session]
            statement.add("m.session = {}", encode_name(query.session))
        if query.owner:
            owner = encode_text(query.owner)
            statement.add(_session_condition("belongs_to"), owner)
            owned = await self._fetch(_SELECT_OWNED, owner, MAX_OWNED_SESSIONS + 1) if sessions is None else []
            if sessions is None and len(owned) <= MAX_OWNED_SESSIONS:
                sessions = [decode_text(row["id"]) for row in owned]
        if sessions is None:
            return [f"'{scope_word('n', namespace)}'"]
        return [f"'{scope_word('s', namespace, session)}'" for session in sessions]


def _session_condition(column: str) -> str:
    return (
        "exists (select from vaka.sessions s where s.namespace = m.namespace and s.id = m.session "  # nosec B608  # constants
        f"and s.{column} = {{}})"
    )


def _messages_of(rows: Sequence[PostgresRecord]) -> list[MessageRow]:
    """Return the messages of rows; ``Corrupt`` if the event of a row is missing or is not a message."""
    messages: list[MessageRow] = []
    for row, event in zip(rows, decode_intact([row["body"] for row in rows]), strict=True):
        name, session = decode_text(row["name"]) if row["name"] else "", SessionId(decode_text(row["session"]))
        message = message_of(session, event, name=name) if event is not None else None
        if message is None or message.seq != row["seq"]:
            raise Corrupt(
                f"session {session!r}: event {row['seq']} or its row in the message index is damaged; "
                "check the session with `vaka sessions verify`, or rebuild the index with `vaka doctor --reindex`"
            )
        messages.append(message)
    return messages


def _add_counts(known: CountedMessages, row: PostgresRecord) -> CountedMessages:
    if not row["messages"]:
        return known
    users = row["users"]
    answers = row["answers"]
    count = row["messages"]
    newer = MessageStats(
        message_count=count,
        user_message_count=users,
        assistant_message_count=answers,
        tool_message_count=count - users - answers,
        first_message_at=decode_text(row["begun"]),
        last_message_at=decode_text(row["ended"]),
        size_bytes=row["size"],
    )
    return CountedMessages(row["last"], row["number"], known.add(newer))


async def index_backlog(database: PostgresDatabase, namespace: bytes, session: bytes | None = None) -> None:
    """Insert the message rows of sessions that were written before the index existed: of one, or of all."""
    while rows := await database.fetch(_SELECT_BACKLOG, namespace, session):
        name: bytes = rows[0]["session"]

        async def work(connection: PostgresConnection, name: bytes = name) -> None:
            async with connection.transaction():
                await _insert_backlog_rows(connection, namespace, name)

        await database.run(work)


async def _insert_backlog_rows(connection: PostgresConnection, namespace: bytes, session: bytes) -> None:
    """Insert the message rows of the next events of a session of the backlog."""
    after = await connection.fetchval(_LOCK_BACKLOG, namespace, session)
    if after is None:  # another process was faster
        return
    found = await connection.fetch(_SELECT_EVENTS, namespace, session, after, BACKLOG_EVENTS)
    events = [event for event in decode_intact([row["body"] for row in found]) if event]
    await insert_messages(connection, postgres_key(namespace, decode_text(session)), events)
    if len(found) == BACKLOG_EVENTS:
        await connection.execute(_ADVANCE_BACKLOG, namespace, session, found[-1]["seq"])
    else:
        await connection.execute(_END_BACKLOG, namespace, session)
