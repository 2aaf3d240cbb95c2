"""Erasing the data of events: what stays of a log, and the event that says so. Pure."""

from collections.abc import Sequence

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.session.hash_chain import Position, seal_chain
from vaka.core.types.control import SessionErased, SessionForked
from vaka.core.types.event import Event, Unknown
from vaka.core.types.ids import NO_SCOPE
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import StepCompleted
from vaka.core.types.wire_form import ErasedForm, encode_json

KEPT_TYPES = (SessionErased, SessionForked, StepCompleted, UsageRecorded)
"""Events that hold numbers and ids only: how long a session was and what it cost stays known."""


def erase_event(event: Event) -> Event:
    """Return an event without its data. Its position and its hash stay, so the event after it still follows from it."""
    if event.erased or isinstance(event.data, KEPT_TYPES):
        return event
    stored = encode_json(
        ErasedForm(
            event.v,
            event.seq,
            event.id,
            event.ts,
            event.session,
            event.turn,
            event.step,
            event.path,
            event.channel,
            event.type,
            event.prev,
            event.hash,
        )
    )
    nothing = Unknown(name=event.type, raw=b"", of=event.channel)
    return msgspec.structs.replace(event, data=nothing, stored=stored, digest=event.hash, erased=event.hash)


def count_erased_bytes(events: Sequence[Event], stubs: Sequence[Event]) -> int:
    """Return by how many bytes events have become shorter; the stub of a small one is longer."""
    return sum(max(len(event.stored) - len(stub.stored), 0) for event, stub in zip(events, stubs, strict=True))


def seal_erased(info: SessionInfo, *, events: int, blobs: int, by: str, ts: str) -> Event:
    """Return the event that ends the log that ``info`` describes; ``events`` of it are erased."""
    body = SessionErased(events=events, blobs=blobs, by=by)
    return seal_chain(info.id, Position(info.head, info.epoch, info.hash), [(NO_SCOPE, body)], ts)[0]
