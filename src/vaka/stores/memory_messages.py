"""The message index of the memory store: it is made of the events when it is first used."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vaka.core.ports.messages import (
    SEARCH_WINDOW,
    MessagePage,
    MessageQuery,
    MessageRow,
    MessageSearch,
    MessageStats,
    SearchPage,
    parse_list_cursor,
)
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.memory import MemoryLog, MemoryPort
from vaka.stores.message_pages import (
    LISTED_ROLES,
    Candidate,
    RowConditions,
    has_content,
    is_descending,
    list_conditions,
    list_page,
    make_hit,
    parse_search,
    rank_candidates,
    search_conditions,
    words_of,
)
from vaka.stores.message_rows import indexed_blobs_of, message_of
from vaka.text.search import ParsedQuery, is_match, join_words, score_words


class MemoryMessage(NamedTuple):
    """A message with its joined words and the size of its event."""

    row: MessageRow
    words: str
    size: int

    @property
    def order(self) -> list[Any]:
        """Its place in the order of time."""
        return [self.row.ts, self.row.session, self.row.seq]


class MemoryMessages(MemoryPort):
    """The messages of one namespace."""

    async def list(self, session: SessionId, query: MessageQuery) -> MessagePage:
        position, conditions = parse_list_cursor(query), list_conditions(query.filter)
        messages = self._messages_of(self._log_of(session))
        found: list[MessageRow] = []
        for message in reversed(messages) if is_descending(query, position) else messages:
            row = message.row
            if position is not None and (
                row.seq >= position.seq if is_descending(query, position) else row.seq <= position.seq
            ):
                continue
            if conditions.holds(row) and has_content(
                row, query.filter, self._blobs_of(row) if query.filter.keywords else {}
            ):
                found.append(row)
            if len(found) > query.limit:
                break
        return list_page(found, query, position)

    async def find(self, session: SessionId, id: str) -> MessageRow | None:
        log = self._shared.logs.get((self._namespace, session))
        rows = [message.row for message in self._messages_of(log) if message.row.id == id] if log else []
        return next((row for row in rows if row.role != "call"), None)

    async def stats(self, session: SessionId) -> MessageStats:
        messages = [message for message in self._messages_of(self._log_of(session)) if message.row.role != "call"]
        counts = [sum(message.row.role == role for message in messages) for role in LISTED_ROLES]
        return MessageStats(
            message_count=len(messages),
            user_message_count=counts[0],
            assistant_message_count=counts[1],
            tool_message_count=counts[2],
            first_message_at=messages[0].row.ts if messages else "",
            last_message_at=messages[-1].row.ts if messages else "",
            size_bytes=sum(one.size for one in messages),
        )

    async def search(self, query: MessageSearch) -> SearchPage:
        terms, position = parse_search(query)
        conditions = search_conditions(query)
        if not terms.required:
            return SearchPage()
        found = {tuple(one.order): one for one in self._find_matches(query, terms, conditions)}

        async def fetch(bound: Any, inclusive: bool) -> Sequence[Candidate]:
            orders = sorted(found, reverse=True)
            if bound is not None:
                orders = [order for order in orders if order < tuple(bound) or (inclusive and order == tuple(bound))]
            return [Candidate([*order], score_words(found[order].words, terms)) for order in orders[:SEARCH_WINDOW]]

        page, following = await rank_candidates(query, position, fetch)
        hits = [
            make_hit(row, self._blobs_of(row), terms, score)
            for order, score in page
            for row in [found[tuple(order)].row]
        ]
        return SearchPage(hits=tuple(hits), next=following)

    def _find_matches(
        self, query: MessageSearch, terms: ParsedQuery, conditions: RowConditions
    ) -> Iterator[MemoryMessage]:
        for (space, session), log in self._shared.logs.items():
            if space != self._namespace or query.session not in {"", session}:
                continue
            info = log.info
            if query.owner not in {"", info.owner} or query.agent not in {"", info.agent}:
                continue
            for message in self._messages_of(log):
                if conditions.holds(message.row) and is_match(message.words, terms):
                    yield message

    def _log_of(self, session: SessionId) -> MemoryLog:
        log = self._shared.logs.get((self._namespace, session))
        if log is None:
            raise NotFound(f"there is no session {session!r}")
        return log

    def _messages_of(self, log: MemoryLog) -> Sequence[MemoryMessage]:
        """Return the messages of a log; messages that are new since the last call are indexed now."""
        index = log.index
        messages = index.messages
        if index.indexed == len(log.events):
            return messages
        names = {message.row.id: message.row.name for message in messages if message.row.role == "call"}
        for event in log.events[index.indexed :]:
            row = message_of(log.id, event)
            if row is None:
                continue
            if row.role == "call":
                names[row.id] = row.name
            elif row.role == "tool":
                row = message_of(log.id, event, name=names.get(row.id, "")) or row
            words = join_words(words_of(event, self._blobs_of(row)))
            messages.append(MemoryMessage(row, words, len(event.stored)))
        index.indexed = len(log.events)
        return messages

    def _blobs_of(self, row: MessageRow) -> dict[Digest, bytes]:
        blobs = self._shared.blobs
        entries = {digest: blobs.get((self._namespace, digest)) for digest in indexed_blobs_of(row.content)}
        return {digest: entry[0] for digest, entry in entries.items() if entry is not None}
