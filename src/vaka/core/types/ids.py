"""Identifiers, agent paths, the scope of an event, and cursors.

An identifier is a plain string or number at run time and a type of its own to a type checker.
"""

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
CallKey = NewType("CallKey", str)
DecisionId = NewType("DecisionId", str)
Digest = NewType("Digest", str)
Term = NewType("Term", int)

AgentPath: TypeAlias = tuple[str, ...]
"""The agent of an event: ``()`` is the root, ``("agent-3",)`` the child that call 3 of the root started."""

_canonical_encoder = msgspec.json.Encoder(order="deterministic")


def digest_of(value: JSON) -> Digest:
    """Return the SHA-256 of a JSON value; the order of keys does not matter."""
    return Digest(hashlib.sha256(_canonical_encoder.encode(value)).hexdigest())


def parse_session_id(text: str) -> SessionId:
    """Return ``text`` as a session id. Raises ``InvalidInput``."""
    if not 0 < len(text) <= 200 or not text.isprintable() or text != text.strip():
        raise InvalidInput(f"session id {text[:80]!r} must be 1 to 200 printable characters without blanks at its ends")
    return SessionId(text)


class EventScope(msgspec.Struct, frozen=True):
    """The turn and the step that an event belongs to, and the agent at ``path``."""

    turn: TurnId = TurnId("")
    step: int = 0
    path: AgentPath = ()


NO_SCOPE = EventScope()


class Cursor(msgspec.Struct, frozen=True, order=True):
    """The position after event ``seq`` of incarnation ``epoch`` of a log; epoch 0 stands for the current one."""

    epoch: int = 0
    seq: int = 0

    @classmethod
    def parse(cls, text: str | None) -> "Cursor":
        """Parse ``"1.42"``, or ``"42"`` for the current epoch; without text, the start. Raises ``InvalidInput``."""
        if not text:
            return cls()
        epoch, dot, seq = text.rpartition(".")
        if not _is_seq_number(seq) or (dot and not _is_seq_number(epoch)):
            raise InvalidInput(f"cursor {text[:60]!r} must be <epoch>.<seq>, such as '1.42', or a bare seq")
        return cls(int(epoch) if dot else 0, int(seq))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}" if self.epoch else str(self.seq)


def _is_seq_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19  # fits the 64-bit integer of a database
