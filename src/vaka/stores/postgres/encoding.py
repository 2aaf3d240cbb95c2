"""Conversion between the core's types and table columns: text as bytes, session keys, index rows."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.types.control import key_of
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.blob_references import blobs_of, select_keyed_or_blob_events
from vaka.stores.common import decision_changes, join_tags, split_tags

MAX_NAME_BYTES = 1000
"""Bytes in the name of a session or namespace: two of them fit into an index entry."""


def encode_text(text: str) -> bytes:
    """Return the bytes of any text, NUL and lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def digest_text(text: str) -> bytes:
    """Return the column value of a text that is only looked up and may be of any length."""
    return hashlib.sha256(encode_text(text)).digest()


def encode_name(text: str) -> bytes:
    """Return the bytes of the name of a session or namespace; ``InvalidInput`` when it is too long."""
    name = encode_text(text)
    if len(name) > MAX_NAME_BYTES:
        raise InvalidInput(f"the name {text[:40]!r}… has {len(name)} bytes; at most {MAX_NAME_BYTES} are allowed")
    return name


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above all that begin with ``prefix``, ``None`` when there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class PostgresKey(NamedTuple):
    """A session of a namespace, as the tables name it; ``key`` is its short name in notifications."""

    namespace: bytes
    session: bytes
    key: str


def postgres_key(namespace: bytes, session: str) -> PostgresKey:
    name = encode_name(session)
    digest = hashlib.blake2b(len(namespace).to_bytes(8, "big") + namespace + name, digest_size=16)
    return PostgresKey(namespace, name, digest.hexdigest())


DIGEST_LENGTH = 64
"""Characters in the name of a blob; a longer text names none."""


_PLAIN_COLUMNS = ("head", "hash", "epoch", "term", "inputs", "pending", "closed", "live", "version", "erased")
_TEXT_COLUMNS = ("id", "title", "agent", "turn", "created", "updated", "origin", "folder", "state")


def info_of(row: "asyncpg.Record") -> SessionInfo:
    """Return the session that a row describes; the statement computes ``live``, on the server's clock."""
    columns: dict[str, Any] = {name: row[name] for name in _PLAIN_COLUMNS}
    columns |= {name: decode_text(row[name]) for name in _TEXT_COLUMNS}
    if row["belongs_to"] or row["tags"] or row["metadata"]:
        columns["owner"], columns["tags"] = decode_text(row["belongs_to"]), split_tags(decode_text(row["tags"]))
        columns["metadata"] = msgspec.json.decode(row["metadata"]) if row["metadata"] else {}
    return SessionInfo(**columns)


LABEL_COLUMNS = ("belongs_to", "tags", "metadata", "state")


def label_columns(info: SessionInfo) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the ``LABEL_COLUMNS`` of a session's row."""
    metadata = msgspec.json.encode(info.metadata) if info.metadata else b""
    return encode_text(info.owner), encode_text(join_tags(info.tags)), metadata, encode_text(info.state)


def encode_casefold(title: str) -> bytes:
    """Return a text as the case-insensitive search compares it."""
    return encode_text(title.casefold())


def session_columns(info: SessionInfo) -> tuple[object, ...]:
    """Return the columns of a session's row, from ``head`` to ``erased``."""
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
        encode_text(info.folder),
        *label_columns(info),
        info.version,
        info.erased,
    )


def hex_bytes(raw: bytes) -> str:
    """Return bytes as PostgreSQL reads them from JSON."""
    return f"\\x{raw.hex()}"


def hex_text(text: str) -> str:
    return f"\\x{text.encode('utf-8', 'surrogatepass').hex()}" if text else "\\x"


class IndexEntries:
    """The index rows of events: their keys, the decisions they settle and ask for, the blobs they name."""

    def __init__(self, session: SessionId, events: Sequence[Event]) -> None:
        opened, settled, settles_all = decision_changes(session, events)
        named = select_keyed_or_blob_events(events)
        self.keys = [(digest_text(key), event.seq) for event in named if (key := key_of(event.data))]
        self.settled = [None] if settles_all else [digest_text(decision) for decision in settled]
        """``None`` settles all older decisions."""
        self.asked = {digest_text(pending.id): pending.seq for pending in opened}
        names = {digest for event in named for digest in blobs_of(event)}
        self.blobs = sorted(encode_text(digest) for digest in names if len(digest) <= DIGEST_LENGTH)


def transpose_rows(rows: Iterable[Sequence[object]], width: int) -> list[list[object]]:
    """Return the columns of rows; ``width`` empty columns when there are no rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]
