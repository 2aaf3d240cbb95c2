"""Words as the bytes the database keeps, and short names for places in it."""

import hashlib
from typing import NamedTuple

from vaka.core.types.errors import InvalidInput

LONGEST = 1000
"""Bytes in the name of a session or namespace: two of them fit into an index."""


def raw(text: str) -> bytes:
    """Return the bytes of any text at all, NUL and lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def text(raw: bytes) -> str:
    """Return the text that ``raw`` gave these bytes for."""
    return raw.decode("utf-8", "surrogatepass")


def short(text: str) -> bytes:
    """Return what stands for a text that is only looked up, however long it is."""
    return hashlib.sha256(raw(text)).digest()


def name(text: str) -> bytes:
    """Return the bytes of the name of a session or namespace."""
    found = raw(text)
    if len(found) > LONGEST:
        raise InvalidInput(f"the name {text[:40]!r}… has {len(found)} bytes; at most {LONGEST} are possible")
    return found


def beyond(prefix: bytes) -> bytes | None:
    """Return the first bytes that come after all that begin with ``prefix``, ``None`` when there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class Place(NamedTuple):
    """A session of a namespace, as it stands in the tables; ``key`` is its short name in notifications."""

    namespace: bytes
    session: bytes
    key: str


def place(namespace: bytes, session: str) -> Place:
    """Return the place of a session."""
    found = name(session)
    digest = hashlib.blake2b(len(namespace).to_bytes(8, "big") + namespace + found, digest_size=16)
    return Place(namespace, found, digest.hexdigest())
