"""The hash chain of a log: seal successive events, and verify stored ones."""

import hashlib
from collections.abc import Sequence

import msgspec

from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Body, Event, decode, seal
from vaka.core.types.ids import EventScope, SessionId


def seal_chain(
    session: SessionId, last: Event | None, entries: Sequence[tuple[EventScope, Body]], ts: str,
    secrets: Secrets | None = None,
) -> list[Event]:  # fmt: skip
    """Seal ``entries``, without ``secrets``, as the events that follow ``last``."""
    events: list[Event] = []
    if secrets is not None and not secrets.json_forms:
        secrets = None
    seq, epoch, prev = (last.seq, last.epoch, last.hash) if last else (0, 1, "")
    for scope, body in entries:
        seq += 1
        event = Event(data=body, session=session, ts=ts, turn=scope.turn, step=scope.step, path=scope.path)
        event = seal(event, epoch=epoch, seq=seq, prev=prev)
        if secrets is not None and secrets.may_contain(event.stored):
            redacted = msgspec.structs.replace(event, data=secrets.redact_struct(event.data))
            event = seal(redacted, epoch=epoch, seq=seq, prev=prev)
        events.append(event)
        prev = event.hash
    return events


def hash_of(stored: bytes) -> str:
    """Return the hash of stored bytes: the ``prev`` of the next event."""
    return hashlib.sha256(stored).hexdigest()


class HashChain:
    """Verifies the stored events after ``seq``, whose hash is ``prev``, in order."""

    def __init__(self, session: SessionId, seq: int = 0, prev: str = "") -> None:
        self.session, self.seq = session, seq
        self.prev: str = prev

    def check_next(self, seq: int, stored: bytes) -> Event:
        """Return the next event. Raises ``Corrupt`` if it is not the one that was written."""
        event = decode(stored)
        if not seq == event.seq == self.seq + 1:
            raise Corrupt(f"session {self.session!r}: expected event {self.seq + 1}, found {event.seq} at {seq}")
        if event.prev != self.prev:
            raise Corrupt(f"session {self.session!r}: event {seq} does not follow from event {self.seq}: bytes changed")
        self.seq, self.prev = seq, event.hash
        return event

    def check_end(self, head: int, hash: str) -> None:
        """Raise ``Corrupt`` unless the chain ends at the head that the index has."""
        if self.seq != head or (head and self.prev != hash):
            raise Corrupt(f"session {self.session!r}: the log ends at {self.seq}, its index says {head}: bytes changed")
