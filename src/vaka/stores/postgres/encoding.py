"""Between the core's types and the columns of the tables: text as bytes, session keys, index rows."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import asyncpg

from vaka.core.ports.store import SessionInfo
from vaka.core.session.index_rows import blobs_of
from vaka.core.types.control import key_of
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.append_checks import decision_changes

MAX_NAME_BYTES = 1000
"""Bytes in the name of a session or namespace: two of them fit into an index."""


def encode_text(text: str) -> bytes:
    """Return the bytes of any text at all, NUL and lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(raw: bytes) -> str:
    """Return the text that ``raw`` gave these bytes for."""
    return raw.decode("utf-8", "surrogatepass")


def digest_text(text: str) -> bytes:
    """Return what stands for a text that is only looked up, however long it is."""
    return hashlib.sha256(encode_text(text)).digest()


def encode_name(text: str) -> bytes:
    """Return the bytes of the name of a session or namespace."""
    found = encode_text(text)
    if len(found) > MAX_NAME_BYTES:
        raise InvalidInput(f"the name {text[:40]!r}… has {len(found)} bytes; at most {MAX_NAME_BYTES} are possible")
    return found


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first bytes that come after all that begin with ``prefix``, ``None`` when there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class PostgresKey(NamedTuple):
    """A session of a namespace, as it stands in the tables; ``key`` is its short name in notifications."""

    namespace: bytes
    session: bytes
    key: str


def postgres_key(namespace: bytes, session: str) -> PostgresKey:
    """Return the place of a session."""
    found = encode_name(session)
    digest = hashlib.blake2b(len(namespace).to_bytes(8, "big") + namespace + found, digest_size=16)
    return PostgresKey(namespace, found, digest.hexdigest())


DIGEST_LENGTH = 64
"""Characters in the name of a blob; what is longer names none."""


def info_of(row: "asyncpg.Record") -> SessionInfo:
    """Return the session that a row describes; ``live`` is computed by whoever asks, on the server's clock."""
    return SessionInfo(
        id=SessionId(decode_text(row["id"])),
        head=row["head"],
        hash=row["hash"],
        epoch=row["epoch"],
        term=row["term"],
        title=decode_text(row["title"]),
        agent=decode_text(row["agent"]),
        turn=decode_text(row["turn"]),
        inputs=row["inputs"],
        pending=row["pending"],
        closed=row["closed"],
        created=decode_text(row["created"]),
        updated=decode_text(row["updated"]),
        origin=decode_text(row["origin"]),
        live=row["live"],
    )


def encode_casefold(title: str) -> bytes:
    """Return a text as it is searched for: upper and lower case alike."""
    return encode_text(title.casefold())


def session_columns(info: SessionInfo) -> tuple[object, ...]:
    """Return what the log says of a session, in the order of ``vaka.append``."""
    return (
        info.head,
        info.hash,
        info.epoch,
        encode_text(info.title),
        encode_casefold(info.title),
        encode_text(info.agent),
        encode_text(info.turn),
        info.inputs,
        info.pending,
        info.closed,
        encode_text(info.created),
        encode_text(info.updated),
        encode_text(info.origin),
    )


class IndexEntries:
    """The further rows that events bring: their keys, what they settle and ask, the blobs they name."""

    def __init__(self, session: SessionId, events: Sequence[Event]) -> None:
        opened, done, everything = decision_changes(session, events)
        self.keys = [(digest_text(key), event.seq) for event in events if (key := key_of(event.data))]
        self.settled = [None] if everything else [digest_text(decision) for decision in done]
        """``None`` settles all that were asked before."""
        self.asked = {digest_text(pending.id): pending.seq for pending in opened}
        names = {digest for event in events for digest in blobs_of(event)}
        self.blobs = sorted(encode_text(digest) for digest in names if len(digest) <= DIGEST_LENGTH)


def transpose_rows(rows: Iterable[Sequence[object]], width: int) -> list[list[object]]:
    """Return the columns of some rows, also when there are none."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]
