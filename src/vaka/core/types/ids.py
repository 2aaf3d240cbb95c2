"""Names of things. Plain strings and numbers at run time, distinct to a type checker."""

import hashlib
from typing import Any, NewType, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput

JSON: TypeAlias = Any
"""Any JSON value. Typed ``Any``: what arrives is checked against a schema, not against this alias."""

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
DecisionId = NewType("DecisionId", str)
Digest = NewType("Digest", str)
Term = NewType("Term", int)
Path: TypeAlias = tuple[str, ...]
"""Which agent speaks: ``()`` is the root, ``("agent-3",)`` the child that call 3 of the root started."""

_canonical = msgspec.json.Encoder(order="deterministic")


def digest_of(value: JSON) -> Digest:
    """Return the SHA-256 of a JSON value, equal for equal values whatever the order of their keys."""
    return Digest(hashlib.sha256(_canonical.encode(value)).hexdigest())


def session_id(text: str) -> SessionId:
    """Return ``text`` as a session id, or raise ``InvalidInput`` saying what an id looks like."""
    if not 0 < len(text) <= 200 or not text.isprintable() or text != text.strip():
        raise InvalidInput(f"session id {text[:80]!r} must be 1 to 200 printable characters without blanks at its ends")
    return SessionId(text)
