"""Rows of the table of messages, with the words by which they are found."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from vaka.core.types.event import Event
from vaka.core.types.ids import Digest
from vaka.core.types.progress import ToolCalled
from vaka.stores.message_pages import MAX_BLOB_BYTES, path_key, scope_word, words_of
from vaka.stores.message_rows import (
    MESSAGE_ROLES,
    content_of,
    indexed_blobs_of,
    message_id_of,
    message_path_of,
    select_messages,
)
from vaka.stores.postgres.database import PostgresConnection, PostgresRecord
from vaka.stores.postgres.encoding import PostgresKey, decode_text, digest_text, encode_text, hex_bytes, hex_text
from vaka.text.search import ParsedQuery, SearchTerm

_INSERT_MESSAGES = (
    "insert into vaka.messages (namespace, session, seq, role, ts, path, size, id, name, words) "
    "select m.namespace, m.session, m.seq, m.role, m.ts, m.path, m.size, m.id, m.name, m.words::tsvector "
    "from json_to_recordset($1) as m (namespace bytea, session bytea, seq bigint, role text, ts bytea, path bytea, "
    "size integer, id bytea, name bytea, words text) order by m.seq on conflict do nothing"
)


_SELECT_BLOBS = (
    f"select digest, substring(body from 1 for {MAX_BLOB_BYTES}) as body from vaka.blobs "  # noqa: S608  # nosec B608  # constants
    "where namespace = $1 and digest = any ($2::bytea[])"
)

FetchRows: TypeAlias = Callable[..., Awaitable[list[PostgresRecord]]]
"""Runs a statement with its arguments."""


@lru_cache(maxsize=256)
def _scopes_of(namespace: bytes, session: bytes) -> str:
    space, name = decode_text(namespace), decode_text(session)
    return f"'{scope_word('n', space)}' '{scope_word('s', space, name)}'"


def _encode_message(place: PostgresKey, event: Event, blobs: Mapping[Digest, bytes]) -> dict[str, object]:
    """Return the columns of a message as PostgreSQL reads them from JSON."""
    body = event.data
    words = _encode_words(words_of(event, blobs))
    return {
        "namespace": hex_bytes(place.namespace),
        "session": hex_bytes(place.session),
        "seq": event.seq,
        "role": MESSAGE_ROLES[type(body)],
        "ts": hex_text(event.ts),
        "path": hex_text(path_key(message_path_of(event))),
        "size": len(event.stored),
        "id": hex_bytes(digest_text(message_id_of(event))),
        "name": hex_text(body.call.name if isinstance(body, ToolCalled) else ""),
        "words": f"{_scopes_of(place.namespace, place.session)} {words}",
    }


def _encode_words(words: Sequence[str]) -> str:
    """Return words with their positions as the text of a ``tsvector``; none of them has a character to escape."""
    positions: dict[str, list[str]] = {}
    for position, word in enumerate(words, 1):
        positions.setdefault(word, []).append(str(position))
    return " ".join([f"'{_encode_word(word)}':{','.join(places)}" for word, places in positions.items()])


def _encode_word(word: str) -> str:
    """Return a word in ASCII; the code of a beginning is the beginning of the code."""
    if word.isascii():
        return word
    return "".join(character if character.isascii() else f"_{ord(character):06x}" for character in word)


async def load_blobs(fetch: FetchRows, namespace: bytes, digests: Sequence[Digest]) -> dict[Digest, bytes]:
    """Return how blobs begin: the bytes that have the text that is found. Those that are missing are left out."""
    if not digests:
        return {}
    found = await fetch(_SELECT_BLOBS, namespace, [encode_text(digest) for digest in digests])
    return {Digest(decode_text(row["digest"])): row["body"] for row in found}


async def encode_messages(fetch: FetchRows, place: PostgresKey, events: Iterable[Event]) -> list[dict[str, object]]:
    """Return the columns of the messages among events, with the words of texts that are stored as blobs."""
    messages = select_messages(events)
    digests = [digest for event in messages for digest in indexed_blobs_of(content_of(event))]
    blobs = await load_blobs(fetch, place.namespace, digests) if digests else {}
    return [_encode_message(place, event, blobs) for event in messages]


async def insert_messages(connection: PostgresConnection, place: PostgresKey, events: Iterable[Event]) -> None:
    """Insert the rows of the messages among events."""
    if messages := await encode_messages(connection.fetch, place, events):
        await connection.execute(_INSERT_MESSAGES, msgspec.json.encode(messages).decode())


def encode_terms(terms: ParsedQuery) -> str:
    """Return the terms of a query as the text of a ``tsquery``."""
    required = " & ".join(map(_encode_term, terms.required))
    if not terms.excluded:
        return f"({required})"
    return f"({required}) & !({' | '.join(map(_encode_term, terms.excluded))})"


def _encode_term(term: SearchTerm) -> str:
    words = " <-> ".join([f"'{_encode_word(word)}'" for word in term.words])
    return f"({words}{':*' if term.prefix else ''})"
