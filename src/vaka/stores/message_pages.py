"""Code that the message indexes of all stores share: filters, page cursors, and the ranking of hits in windows."""

import hashlib
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, get_args

from vaka.core.ports.messages import (
    MAX_QUERY_LENGTH,
    SEARCH_WINDOW,
    ListPosition,
    MessageFilter,
    MessagePage,
    MessageQuery,
    MessageRole,
    MessageRow,
    MessageSearch,
    SearchHit,
    decode_cursor,
    encode_cursor,
)
from vaka.core.types.decode import decode, decode_batch
from vaka.core.types.errors import Corrupt, InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, Digest
from vaka.stores.common import has_metadata
from vaka.stores.message_rows import (
    MAX_INDEXED_CHARACTERS,
    indexed_blobs_of,
    searchable_text,
    searchable_text_of,
    without_content,
)
from vaka.text.search import ParsedQuery, cut_snippet, parse_query
from vaka.text.words import split_words

LISTED_ROLES: tuple[MessageRole, ...] = ("user", "assistant", "tool")
_DATE_LENGTH = len("2026-01-31")


MAX_INDEXED_WORDS = 16_000
"""Words of a message that a search finds; PostgreSQL knows the positions of so many."""
MAX_WORD_CHARACTERS = 2 * MAX_INDEXED_CHARACTERS
"""Characters of all words of a message: folding makes words longer, and a row of PostgreSQL has a megabyte of them."""

MAX_BLOB_BYTES = 4 * MAX_INDEXED_CHARACTERS
"""Bytes of a blob that are read for its text."""
BLOBS_CHUNK = 16
"""Messages whose blobs are read at once to find those with a keyword."""


def words_of(event: Event, blobs: Mapping[Digest, bytes]) -> list[str]:
    """Return the words by which the message is found that an event is."""
    words = split_words(searchable_text_of(event, blobs))[:MAX_INDEXED_WORDS]
    if sum(map(len, words)) <= MAX_WORD_CHARACTERS:
        return words
    return words[: bisect_right([*accumulate(map(len, words))], MAX_WORD_CHARACTERS)]


@lru_cache(maxsize=1024)
def scope_word(kind: str, *names: str) -> str:
    """Return the word that stands for a namespace or a session in a word index; no text has such a word."""
    return name_word(kind, *names)


def name_word(kind: str, *names: str) -> str:
    """Return a word that stands for names."""
    digest = _hash_names(*names[:-1]).copy()
    _add_name(digest, names[-1])
    return f"_{kind}{digest.hexdigest()}"


@lru_cache(maxsize=1024)
def _hash_names(*names: str) -> "hashlib.blake2b":
    """Return the hash of names; it is continued for other names, for example of the messages of a session."""
    digest = hashlib.blake2b(digest_size=8)
    for name in names:
        _add_name(digest, name)
    return digest


def _add_name(digest: "hashlib.blake2b", name: str) -> None:
    part = name.encode("utf-8", "surrogatepass")
    digest.update(len(part).to_bytes(8, "big") + part)


def decode_intact(bodies: Sequence[object]) -> list[Event | None]:
    """Return the events that these stored bytes encode; ``None`` in the place of a missing or damaged event."""
    stored = [body for body in bodies if isinstance(body, bytes)]
    if len(stored) == len(bodies):
        with suppress(Corrupt):
            return [*decode_batch(stored)]
    events: list[Event | None] = []
    for body in bodies:
        event = None
        with suppress(Corrupt):
            event = decode(body) if isinstance(body, bytes) else None
        events.append(event)
    return events


def format_bound(text: str, *, until: bool = False) -> str:
    """Return a time as it is stored; a date alone is the first moment of its day, or with ``until`` the last one."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
        if until and len(text) <= _DATE_LENGTH:
            moment += timedelta(days=1, milliseconds=-1)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text[:40]!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def path_key(path: AgentPath) -> str:
    """Return a path as the text that a column has; ``""`` for the root."""
    return "/".join(path)


def roles_of(role: str, default: tuple[MessageRole, ...]) -> tuple[str, ...]:
    """Return the roles that a filter selects; ``InvalidInput`` for a role that does not exist."""
    if not role:
        return default
    known = role.strip().lower()
    if known not in get_args(MessageRole):
        raise InvalidInput(f"role {role[:40]!r} must be one of {', '.join(get_args(MessageRole))}")
    return (known,)


class RowConditions(NamedTuple):
    """The part of a filter that the columns of an index decide, normalized."""

    roles: tuple[str, ...]
    since: str = ""
    until: str = ""
    path: str | None = None

    @property
    def has_all_roles(self) -> bool:
        return len(self.roles) == len(get_args(MessageRole))

    def holds(self, message: MessageRow) -> bool:
        return (
            message.role in self.roles
            and message.ts >= self.since
            and (not self.until or message.ts <= self.until)
            and self.path in {None, path_key(message.path)}
        )


def list_conditions(filter: MessageFilter) -> RowConditions:
    """Return the conditions on columns of a list."""
    path = None if filter.path is None else path_key(filter.path)
    since, until = format_bound(filter.since), format_bound(filter.until, until=True)
    return RowConditions(roles_of(filter.role, LISTED_ROLES), since, until, path)


def search_conditions(query: MessageSearch) -> RowConditions:
    """Return the conditions on columns of a search."""
    path = None if query.path is None else path_key(query.path)
    since, until = format_bound(query.since), format_bound(query.until, until=True)
    return RowConditions(roles_of(query.role, get_args(MessageRole)), since, until, path)


def needs_content(filter: MessageFilter) -> bool:
    """Return whether a filter looks into the messages."""
    return bool(filter.keywords or filter.metadata)


def _has_keyword(text: str, filter: MessageFilter) -> bool:
    folded = text.casefold()
    return any(keyword.casefold() in folded for keyword in filter.keywords)


def needs_blobs(message: MessageRow, filter: MessageFilter) -> bool:
    """Return whether the texts of a message that are stored as blobs decide if it has one of the keywords."""
    return (
        bool(filter.keywords and indexed_blobs_of(message.content))
        and has_metadata(message.metadata, filter.metadata)
        and not _has_keyword(message.text, filter)
    )


def has_content(message: MessageRow, filter: MessageFilter, blobs: Mapping[Digest, bytes]) -> bool:
    """Return whether a message has one of the keywords and all metadata of a filter."""
    if not has_metadata(message.metadata, filter.metadata):
        return False
    if not filter.keywords or _has_keyword(message.text, filter):
        return True
    return bool(blobs and indexed_blobs_of(message.content)) and _has_keyword(searchable_text(message, blobs), filter)


async def select_rows(
    rows: Sequence[MessageRow],
    query: MessageQuery,
    load: Callable[[Sequence[MessageRow]], Awaitable[Mapping[Digest, bytes]]],
) -> list[MessageRow]:
    """Return the messages with the content of a filter, enough for a page; ``load`` reads the texts in blobs."""
    found: list[MessageRow] = []
    for begin in range(0, len(rows), BLOBS_CHUNK):
        part = rows[begin : begin + BLOBS_CHUNK]
        undecided = [row for row in part if needs_blobs(row, query.filter)]
        blobs: Mapping[Digest, bytes] = await load(undecided) if undecided else {}
        found += [row for row in part if has_content(row, query.filter, blobs)]
        if len(found) > query.limit:
            break
    return found


def is_descending(query: MessageQuery, position: ListPosition | None) -> bool:
    """Return whether the rows of a page are read from higher to lower seqs."""
    return query.reverse != (position is not None and position.backward)


def list_page(found: Sequence[MessageRow], query: MessageQuery, position: ListPosition | None) -> MessagePage:
    """Return a page of the rows in the order they were read, of which there is one more if others follow."""
    backward = position is not None and position.backward
    rows = list(found[: query.limit])
    more = len(found) > len(rows)
    if backward:
        rows.reverse()
    if not query.include_content:
        rows = [without_content(row) for row in rows]
    has_next, has_prev = (True, more) if backward else (more, position is not None)
    return MessagePage(
        messages=tuple(rows),
        next=encode_cursor((rows[-1].seq, False)) if rows and has_next else "",
        prev=encode_cursor((rows[0].seq, True)) if rows and has_prev else "",
    )


class Candidate(NamedTuple):
    """A message that matches: its place in the order of time, and its score."""

    order: Any
    score: float


class SearchPosition(NamedTuple):
    """Where a page of hits begins: in the window that ends at ``bound``, after the hit of ``score`` and ``order``."""

    bound: Any = None
    inclusive: bool = True
    score: float | None = None
    order: Any = None


def parse_search(query: MessageSearch) -> tuple[ParsedQuery, SearchPosition]:
    """Return the terms and the position of a search; ``InvalidInput`` for a text or limit out of bounds."""
    if len(query.text) > MAX_QUERY_LENGTH:
        raise InvalidInput(
            f"the text of the search has {len(query.text)} characters; at most {MAX_QUERY_LENGTH} are allowed"
        )
    if query.limit < 1:
        raise InvalidInput(f"limit {query.limit} must be at least 1")
    position = SearchPosition()
    if query.after:
        position = SearchPosition(*decode_cursor(query.after, tuple[Any, bool, float | None, Any]))
    return parse_query(query.text), position


async def rank_candidates(
    query: MessageSearch, position: SearchPosition, fetch: Callable[[Any, bool], Awaitable[Sequence[Candidate]]]
) -> tuple[list[Candidate], str]:
    """Return the candidates of one page, best first within their window, and the cursor of the next page.

    ``fetch(bound, inclusive)`` returns the newest ``SEARCH_WINDOW`` matches up to a place in the order of time.
    """
    page: list[Candidate] = []
    while True:
        try:
            window = await fetch(position.bound, position.inclusive)
            ranked = sorted(window, key=lambda candidate: (candidate.score, candidate.order), reverse=True)
            if position.score is not None:
                ranked = [one for one in ranked if (one.score, one.order) < (position.score, position.order)]
        except TypeError as error:  # a cursor of another store
            raise InvalidInput(f"{query.after[:60]!r} is not the cursor of a page") from error
        free = query.limit - len(page)
        page += ranked[:free]
        if len(ranked) > free:
            bound = window[0].order if position.bound is None else position.bound
            return page, encode_cursor((bound, position.inclusive, page[-1].score, page[-1].order))
        if len(window) < SEARCH_WINDOW:
            return page, ""
        position = SearchPosition(window[-1].order, inclusive=False)
        if len(page) == query.limit:
            return page, encode_cursor(position)


def make_hit(message: MessageRow, blobs: Mapping[Digest, bytes], terms: ParsedQuery, score: float) -> SearchHit:
    """Return a message that was found, with the part of its text that matches."""
    snippet, matches = cut_snippet(searchable_text(message, blobs), terms)
    return SearchHit(message=without_content(message), snippet=snippet, matches=matches, score=score)
