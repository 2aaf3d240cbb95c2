"""The hash chain of a log: seal successive events, and verify stored ones."""

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Raw

from vaka.core.session.redaction import Secrets
from vaka.core.types.control import SessionErased
from vaka.core.types.decode import decode, decode_batch
from vaka.core.types.errors import Corrupt, LogError
from vaka.core.types.event import VERSION, Body, Channel, Custom, Event, Progress, Unknown, type_and_channel
from vaka.core.types.ids import EventScope, SessionId
from vaka.core.types.wire_form import DurableForm, encode_json


def _is_plain(kind: Any) -> bool:
    """Whether a type holds integers and strings only, so that decoding its bytes yields an equal value."""
    kind = getattr(kind, "__supertype__", kind)
    if kind in (str, int, bool, None, type(None), ...) or get_origin(kind) is Literal:
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return all(_is_plain(field.type) for field in msgspec.structs.fields(kind))
    return bool(get_args(kind)) and all(map(_is_plain, get_args(kind)))


_BodyKind: TypeAlias = tuple[str, Channel, Callable[[bytes], Any] | None]
"""Type, channel, and how to decode the body of an event from its bytes; ``None`` if it would be an equal one."""

_body_kinds: dict[type[Body], _BodyKind] = {}


def _body_kind(body: Body) -> _BodyKind:
    kind = type(body)
    name, channel = type_and_channel(body)
    if kind is Unknown or kind is Custom:  # not kept in ``_body_kinds``: the number of their types is not bounded
        return name, channel, _data_decoder(Custom) if kind is Custom else None
    is_equal = isinstance(body, Progress) and _is_plain(kind)
    _body_kinds[kind] = name, channel, None if is_equal else _data_decoder(kind)
    return _body_kinds[kind]


@cache
def _data_decoder(kind: type[Body]) -> Callable[[bytes], Any]:
    """Return a decoder of the body of an event. A struct with only this field makes it skip the rest of the event."""
    return msgspec.json.Decoder(msgspec.defstruct(kind.__name__, [("data", kind)], gc=False)).decode


class Position(NamedTuple):
    """The position of an event that is not loaded."""

    seq: int
    epoch: int
    hash: str


def seal(event: Event, *, epoch: int, seq: int, prev: str) -> Event:
    """Return an event as a durable one. Raises ``LogError`` if its bytes could not be decoded."""
    before = Position(seq - 1, epoch, prev)
    return seal_chain(event.session, before, [(event, event.data)], event.ts, v=event.v)[0]


def seal_chain(
    session: SessionId,
    last: Event | Position | None,
    entries: Sequence[tuple[EventScope | Event, Body]],
    ts: str,
    secrets: Secrets | None = None,
    v: int = VERSION,
) -> list[Event]:
    """Seal ``entries``, without ``secrets``, as the events that follow ``last``. Raises ``LogError``.

    The body of an event is decoded from its bytes, so it is what a reader gets and shares no mutable value with the
    caller. Bytes that could not be decoded are an error.
    """
    events: list[Event] = []
    seq, epoch, prev = (last.seq, last.epoch, last.hash) if last else (0, 1, "")
    name = ""
    try:
        for scope, body in entries:
            seq += 1
            id = f"{epoch}.{seq}"
            turn = scope.turn
            step = scope.step
            path = scope.path
            kind = type(body)
            name, channel, decode_data = _body_kinds[kind] if kind in _body_kinds else _body_kind(body)
            data: Any = Raw(body.raw) if type(body) is Unknown else body
            # By position: with keywords msgspec takes 0.4 µs to make a struct instead of 0.1.
            stored = encode_json(DurableForm(v, seq, id, ts, session, turn, step, path, channel, name, data, prev))
            digest = sha256(stored).hexdigest()
            data = body if decode_data is None else decode_data(stored).data
            events += (Event(data, session, ts, turn, step, path, v, seq, id, prev, stored, digest),)
            prev = digest
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LogError(f"{name[:80]} cannot be encoded: {error}") from error
    if secrets is None or not secrets.is_active or not secrets.may_contain(events):
        return events
    clean = [
        (scope, secrets.redact_struct(event.data) if secrets.may_contain([event]) else body)
        for event, (scope, body) in zip(events, entries, strict=True)
    ]
    return seal_chain(session, last, clean, ts, v=v)


_ERASED_TAIL = len(',"erased":""}') + 64


def hash_of(stored: bytes) -> str:
    """Return the hash of a stored event: the ``prev`` of the next event."""
    if b',"erased":"' in stored[-_ERASED_TAIL:]:
        return decode(stored).hash
    return sha256(stored).hexdigest()


class HashChain:
    """Verifies the stored events after ``seq``, whose hash is ``prev``, in order."""

    def __init__(self, session: SessionId, seq: int = 0, prev: str = "") -> None:
        self.session, self.seq = session, seq
        self.prev: str = prev
        self.erased = 0
        """The number of erased events among those read; ``check_erased`` checks it."""

    def check_next(self, seq: int, stored: bytes) -> Event:
        """Return the next event. Raises ``Corrupt`` if it is not the event that was written."""
        event = decode(stored)
        if not seq == event.seq == self.seq + 1:
            raise Corrupt(f"session {self.session!r}: expected event {self.seq + 1}, found {event.seq} at {seq}")
        if event.prev != self.prev:
            raise Corrupt(f"session {self.session!r}: event {seq} does not follow from event {self.seq}: bytes changed")
        self.seq, self.prev = seq, event.hash
        if event.erased:
            self.erased += 1
        return event

    def check_erased(self, listing: Event | None) -> None:
        """Raise ``Corrupt`` unless the ``session.erased`` of the log accounts for every erased event that was read."""
        body = listing.data if listing is not None else None
        if not isinstance(body, SessionErased):
            raise Corrupt(
                f"session {self.session!r}: data of events up to {self.seq} are missing, and no event says why"
            )
        if self.erased > body.events:
            raise Corrupt(f"session {self.session!r}: {self.erased} events have no data, {body.events} were erased")

    def check_end(self, head: int, hash: str) -> None:
        """Raise ``Corrupt`` unless the chain ends at the head that the index has."""
        if self.seq != head or (head and self.prev != hash):
            raise Corrupt(f"session {self.session!r}: the log ends at {self.seq}, its index says {head}: bytes changed")


class SelectedEvents:
    """Decodes stored events that are not successive, and verifies them by the SHA-256 of all their bytes."""

    def __init__(self, session: SessionId, count: int, digest: str) -> None:
        self.events: list[Event] = []
        self._session = session
        self._expected = (count, digest)
        self._digest = sha256()

    def add(self, rows: Sequence[Any]) -> None:
        """Add the stored bytes of the next events. Raises ``Corrupt`` if they are not events."""
        try:
            self._digest.update(b"".join(rows))
        except TypeError as error:
            raise Corrupt(f"session {self._session!r}: an event is not stored as bytes") from error
        self.events += decode_batch(rows)

    def check_end(self) -> list[Event]:
        """Return the events. Raises ``Corrupt`` if their number or their digest is another one."""
        if (len(self.events), self._digest.hexdigest()) != self._expected:
            raise Corrupt(f"session {self._session!r}: the selected events differ from the events of the digest")
        return self.events
