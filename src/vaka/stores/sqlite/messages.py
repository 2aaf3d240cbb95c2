"""The messages of one namespace: list, find, count and search them."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from vaka.core.ports.messages import (
    SEARCH_WINDOW,
    ListPosition,
    MessagePage,
    MessageQuery,
    MessageRow,
    MessageSearch,
    MessageStats,
    SearchHit,
    SearchPage,
    parse_list_cursor,
)
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import replace_surrogates
from vaka.stores.message_counts import NOTHING_COUNTED, CountedMessages, MessageCounts
from vaka.stores.message_pages import (
    MAX_BLOB_BYTES,
    Candidate,
    RowConditions,
    is_descending,
    list_conditions,
    list_page,
    make_hit,
    name_word,
    needs_content,
    parse_search,
    rank_candidates,
    scope_word,
    search_conditions,
    select_rows,
)
from vaka.stores.sqlite import message_words, rows
from vaka.stores.sqlite.hub import OpenSqliteStore, SqlitePort
from vaka.stores.sqlite.message_words import WaitingMessage, load_blobs, load_message, load_messages
from vaka.stores.sqlite.rows import SqliteKey
from vaka.text.search import ParsedQuery, SearchTerm, is_match, score_words
from vaka.text.words import is_unspaced

MAX_OWNED_SESSIONS = 64
"""The most sessions of an owner that the query of the word index names. If there are more, the hits are checked."""

FILTER_CHUNK = 500
"""Messages that are read at once to find those with a keyword."""

LONG_SESSION = 50_000
"""Events of a session whose index takes milliseconds to read."""

_FROM_MESSAGES = (
    "select m.seq, m.checksum, e.body from messages m left join events e on e.namespace = m.namespace "
    "and e.session = m.session and e.seq = m.seq where m.namespace = ? and m.session = ?"
)
_SELECT_STATS = (
    "select count(*) filter (where role = 'user'), count(*) filter (where role = 'assistant'), "
    "count(*) filter (where role = 'tool'), min(seq) filter (where role <> 'call'), "
    "max(seq) filter (where role <> 'call'), total(size) filter (where role <> 'call') "
    "from messages where namespace = ? and session = ? and seq > ?"
)
_SELECT_TIME = "select checksum, ts from messages where namespace = ? and session = ? and seq = ?"
_SELECT_KEY = "select seq from names where namespace = ? and session = ? and kind = 'key' and name = ?"
_SELECT_WAITING = (
    "select min(seq) from messages not indexed where number > ? and namespace = ? and session = ? and id = ? "
    "and role <> 'call'"
)
"""The message with an id among those that wait: by their numbers, since the index by seq has the whole session."""
_SELECT_NAMED = (
    "select min(m.seq) from message_words f cross join messages m on m.number = f.rowid where f.message_words match ? "
    "and m.namespace = ? and m.session = ? and m.id = ? and m.role <> 'call'"
)
_SELECT_HEAD = (
    "select s.head, exists (select 1 from message_backlog b where b.namespace = s.namespace and b.session = s.session) "
    "from sessions s where s.namespace = ? and s.session = ?"
)
_SELECT_OWNED = "select session from sessions where namespace = ? and belongs_to = ? and belongs_to <> '' limit ?"
_SELECT_MATCHES = (
    "select f.rowid, f.words from message_words f cross join messages m on m.number = f.rowid "
    "where f.message_words match ?{} order by f.rowid desc limit ?"
)
_SELECT_HIT = (
    "select m.session, m.seq, m.checksum, e.body from messages m left join events e on e.namespace = m.namespace "
    "and e.session = m.session and e.seq = m.seq where m.number = ? and m.namespace = ?"
)


class _Conditions(NamedTuple):
    """Conditions on the rows of messages, and their values."""

    texts: list[str]
    values: list[object]

    def add(self, text: str, *values: object) -> None:
        self.texts.append(text)
        self.values.extend(values)

    def also(self, text: str, *values: object) -> "_Conditions":
        """Return these conditions and one more."""
        return _Conditions([*self.texts, text], [*self.values, *values])

    @property
    def sql(self) -> str:
        return "".join(f" and {text}" for text in self.texts)


def _row_conditions(conditions: RowConditions) -> _Conditions:
    made = _Conditions([], [])
    if not conditions.has_all_roles:
        made.add(f"m.role in ({','.join('?' * len(conditions.roles))})", *conditions.roles)
    if conditions.since:
        made.add("m.ts >= ?", conditions.since)
    if conditions.until:
        made.add("m.ts <= ?", conditions.until)
    if conditions.path is not None:
        made.add("m.path = ?", replace_surrogates(conditions.path))
    return made


class SqliteMessages(SqlitePort):
    def __init__(self, store: OpenSqliteStore) -> None:
        super().__init__(store)
        self._counts = MessageCounts()

    async def list(self, session: SessionId, query: MessageQuery) -> MessagePage:
        position, conditions = parse_list_cursor(query), _row_conditions(list_conditions(query.filter))
        await self._check_session(session)
        descending, filtered = is_descending(query, position), needs_content(query.filter)
        limit = FILTER_CHUNK if filtered else query.limit + 1
        found: list[MessageRow] = []
        place = position
        while True:
            work = partial(_read_rows, self._key(session), conditions, place, limit, descending)
            chunk = await self._database.read(work)
            found += await select_rows(chunk, query, self._load_texts) if filtered else chunk
            if len(found) > query.limit or len(chunk) < limit:
                return list_page(found, query, position)
            place = ListPosition(chunk[-1].seq)
            await asyncio.sleep(0)

    async def _load_texts(self, messages: Sequence[MessageRow]) -> dict[Digest, bytes]:
        def work(connection: sqlite3.Connection) -> dict[Digest, bytes]:
            found: dict[Digest, bytes] = {}
            for message in messages:
                blobs = load_blobs(connection, self._namespace, message.content)
                found |= {digest: data[:MAX_BLOB_BYTES] for digest, data in blobs.items()}
            return found

        return await self._database.run_in_thread(work)

    async def find(self, session: SessionId, id: str) -> MessageRow | None:
        if await self._head_of(session):
            return await self._database.read(partial(_find_row, self._key(session), replace_surrogates(id)))
        return None

    async def stats(self, session: SessionId) -> MessageStats:
        head, known = await self._check_session(session), self._counts.get(session)
        work = partial(_count_messages, self._key(session), known)
        is_long = head - known.seq > LONG_SESSION
        counted = await (self._database.run_in_thread(work) if is_long else self._database.read(work))
        return self._counts.put(session, counted)

    async def search(self, query: MessageSearch) -> SearchPage:
        terms, position = parse_search(query)
        conditions = _row_conditions(search_conditions(query))
        if not terms.required:
            return SearchPage()
        await message_words.index_backlog(self._database, self._namespace)
        await self._hub.index_until(rows.WORDS_BATCH)
        scopes = await self._database.read(partial(self._find_scopes, query, conditions))
        if not scopes:
            return SearchPage()

        async def fetch(bound: Any, inclusive: bool) -> Sequence[Candidate]:
            if bound is not None and type(bound) is not int:
                raise TypeError(bound)
            work = partial(self._find_candidates, terms, scopes, conditions, bound, inclusive)
            return await self._database.run_in_thread(work)

        page, following = await rank_candidates(query, position, fetch)
        hits = await self._database.read(partial(_load_hits, self._namespace, terms, page))
        return SearchPage(hits=tuple(hits), next=following)

    def _find_scopes(
        self, query: MessageSearch, conditions: _Conditions, connection: sqlite3.Connection
    ) -> Sequence[str]:
        """Return the words of ``scope`` of which a message must have one, and add conditions that they do not cover."""
        namespace = self._namespace
        conditions.add("m.namespace = ?", namespace)
        if query.agent:
            conditions.add(_session_condition("agent"), replace_surrogates(query.agent))
        sessions = [query.session] if query.session else None
        if query.session:
            conditions.add("m.session = ?", replace_surrogates(query.session))
        if query.owner:
            owner = replace_surrogates(query.owner)
            conditions.add(_session_condition("belongs_to"), owner)
            if sessions is None:
                statement = (
                    "select session from sessions where namespace = ? and belongs_to = ? and belongs_to <> '' limit ?"
                )
                owned = connection.execute(statement, (namespace, owner, MAX_OWNED_SESSIONS + 1)).fetchall()
                sessions = [session for (session,) in owned] if len(owned) <= MAX_OWNED_SESSIONS else None
        if sessions is None:
            return [scope_word("n", namespace)]
        return [scope_word("s", namespace, session) for session in sessions]

    def _find_candidates(
        self,
        terms: ParsedQuery,
        scopes: Sequence[str],
        conditions: _Conditions,
        bound: int | None,
        inclusive: bool,
        connection: sqlite3.Connection,
    ) -> Sequence[Candidate]:
        """Return the newest matches up to ``bound``: first of the messages whose words are not indexed yet."""
        connection.execute("begin")  # both from one snapshot
        try:
            waiting = self._hub.waiting_words.read(connection)
            within = [one for one in waiting if bound is None or one.number < bound + inclusive]
            found = [
                Candidate(one.number, score_words(one.words, terms))
                for one in within
                if not set(scopes).isdisjoint(one.scope.split())
                and is_match(one.words, terms)
                and _holds(connection, one, conditions)
            ]
            if bound is not None:
                conditions = conditions.also("f.rowid < ?", bound + inclusive)
            query = _SELECT_MATCHES.format(conditions.sql)
            values = (_match_expression(terms, scopes), *conditions.values, max(SEARCH_WINDOW - len(found), 0))
            found += [
                Candidate(number, score_words(words, terms)) for number, words in connection.execute(query, values)
            ]
            return found[:SEARCH_WINDOW]
        finally:
            if connection.in_transaction:
                connection.execute("commit")

    async def _head_of(self, session: SessionId) -> int:
        """Return the head of a session, 0 when there is none.

        If the session was written before the index existed, it gets its message rows now.
        """
        found = await self._fetch(_SELECT_HEAD, replace_surrogates(session))
        if found and found[0][1]:
            await message_words.index_backlog(self._database, self._namespace, session)
        head: int = found[0][0] if found else 0
        return head

    async def _check_session(self, session: SessionId) -> int:
        head = await self._head_of(session)
        if not head:
            raise NotFound(f"there is no session {session!r}")
        return head


def _session_condition(column: str) -> str:
    return (
        "exists (select 1 from sessions s where s.namespace = m.namespace and s.session = m.session "  # noqa: S608  # nosec B608  # constants
        f"and s.{column} = ?)"
    )


def _read_rows(
    key: SqliteKey,
    conditions: _Conditions,
    place: ListPosition | None,
    limit: int,
    descending: bool,
    connection: sqlite3.Connection,
) -> list[MessageRow]:
    """Return the next messages after a place that the columns of the index select."""
    query, values = f"{_FROM_MESSAGES}{conditions.sql}", [*key, *conditions.values]
    if place is not None:
        query, values = f"{query} and m.seq {'<' if descending else '>'} ?", [*values, place.seq]
    query = f"{query} order by m.seq {'desc' if descending else 'asc'} limit ?"
    found = connection.execute(query, [*values, limit]).fetchall()
    return load_messages(connection, key, found)


def _find_row(key: SqliteKey, id: str, connection: sqlite3.Connection) -> MessageRow | None:
    """Return the message with an id: an input by its key, others by the word index or among those that wait for it."""
    lookups: tuple[tuple[str, tuple[object, ...]], ...] = (
        (_SELECT_KEY, (*key, id)),
        (_SELECT_WAITING, (message_words.read_indexed(connection), *key, id)),
        (_SELECT_NAMED, (f'scope : "{name_word("i", *key, id)}"', *key, id)),
    )
    for query, values in lookups:
        found = connection.execute(query, values).fetchone()
        record = connection.execute(f"{_FROM_MESSAGES} and m.seq = ?", (*key, found[0])).fetchone() if found else None
        if record is not None:
            return load_message(connection, key, *record)
    return None


def _count_messages(key: SqliteKey, known: CountedMessages, connection: sqlite3.Connection) -> CountedMessages:
    """Count the messages that are not counted yet; all messages, if the earlier counts are not stored any more."""
    counted = connection.execute(_SELECT_TIME, (*key, known.seq)).fetchone()
    if counted is None or counted[0] != known.mark:
        known = NOTHING_COUNTED
    *counts, first, last, size = connection.execute(_SELECT_STATS, (*key, known.seq)).fetchone()
    if first is None:
        return known
    (_, begun), (mark, ended) = (connection.execute(_SELECT_TIME, (*key, seq)).fetchone() for seq in (first, last))
    newer = MessageStats(
        message_count=sum(counts),
        user_message_count=counts[0],
        assistant_message_count=counts[1],
        tool_message_count=counts[2],
        first_message_at=begun,
        last_message_at=ended,
        size_bytes=int(size),
    )
    return CountedMessages(last, mark, known.add(newer))


def _match_expression(terms: ParsedQuery, scopes: Sequence[str]) -> str:
    """Return a query for FTS5. Words have no characters that it interprets."""
    within = " OR ".join([f'"{scope}"' for scope in scopes])
    expression = " AND ".join([f"scope : ({within})", *map(_term_expression, terms.required)])
    if terms.excluded:
        expression = f"({expression}) NOT ({' OR '.join(map(_term_expression, terms.excluded))})"
    return expression


def _term_expression(term: SearchTerm) -> str:
    if term.prefix and len(term.words) == 1 and len(term.words[0]) == 1 and is_unspaced(term.words[0]):
        return f'characters : "{term.words[0]}"'
    return f'words : "{" ".join(term.words)}"{" *" if term.prefix else ""}'


def _holds(connection: sqlite3.Connection, one: WaitingMessage, conditions: _Conditions) -> bool:
    query = f"select 1 from messages m where m.number = ?{conditions.sql}"  # noqa: S608  # nosec B608  # constants
    return connection.execute(query, (one.number, *conditions.values)).fetchone() is not None


def _load_hits(
    namespace: str, terms: ParsedQuery, page: Sequence[Candidate], connection: sqlite3.Connection
) -> list[SearchHit]:
    hits: list[SearchHit] = []
    for number, score in page:
        record = connection.execute(_SELECT_HIT, (number, namespace)).fetchone()
        if record is None:  # deleted meanwhile
            continue
        with suppress(Corrupt):  # listing the session reports it
            message = load_message(connection, (namespace, SessionId(record[0])), *record[1:])
            hits.append(make_hit(message, load_blobs(connection, namespace, message.content), terms, score))
    return hits
