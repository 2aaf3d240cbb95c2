"""The envelope of every event, and the bytes it is stored as.

A *body* is the content of an event (``progress``, ``control`` and ``monitor`` define them all); its base class is its
channel. An ``Event`` adds the session, agent, time and position in the log. A durable event is encoded once: the stored
bytes are those that are hashed, sent and exported.
"""

import hashlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, dataclass_transform, get_args, get_origin

import msgspec

from vaka.core.types.errors import Corrupt, LogError
from vaka.core.types.ids import AgentPath, SessionId, TurnId

Channel: TypeAlias = Literal["progress", "control", "monitor"]

VERSION = 1
"""The highest ``v`` this code may act on. Raised only for an event that older code must not ignore."""

BODY_TYPES: "dict[str, type[Body]]" = {}
"""Every known body, by type."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _BodyMeta(msgspec.StructMeta):
    """Makes ``class X(Progress, tag="x.happened", durable=False)`` a frozen struct and registers its type."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, tag: str = "", durable: bool = True
    ) -> "_BodyMeta":
        body = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, omit_defaults=True, gc=False)
        body.type, body.durable = tag, durable  # type: ignore[attr-defined]  # declared on Body, set for each class
        if tag:
            BODY_TYPES[tag] = body  # type: ignore[assignment]  # only subclasses of Body have this metaclass
        return body


class Body(msgspec.Struct, metaclass=_BodyMeta):
    """What happened."""

    type: ClassVar[str]
    durable: ClassVar[bool]
    channel: ClassVar[Channel] = "monitor"


class Progress(Body):
    """What a user watches."""

    channel: ClassVar[Channel] = "progress"


class Control(Body):
    """Inputs, decisions, and changes of the session."""

    channel: ClassVar[Channel] = "control"


class Monitor(Body):
    """What an operator watches."""

    channel: ClassVar[Channel] = "monitor"


class Custom(Monitor, tag="custom"):
    """An event of somebody else's making; its type on the wire is ``custom.<name>``."""

    name: str
    value: Any = None


class Unknown(Body, tag="unknown"):
    """An event of a type this code does not know, kept as it came."""

    name: str
    raw: bytes
    of: Channel = "monitor"


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body with its position in a log. Live events have no ``seq``, ``id`` or ``prev``."""

    data: Body
    session: SessionId
    ts: str
    turn: TurnId = TurnId("")
    step: int = 0
    path: AgentPath = ()
    seq: int = 0
    epoch: int = 1
    prev: str = ""
    v: int = VERSION
    stored: bytes = b""
    hash: str = ""
    """SHA-256 of the stored bytes: the ``prev`` of the event after this one."""

    @property
    def id(self) -> str:
        """The cursor of a durable event, ``""`` for a live one."""
        return f"{self.epoch}.{self.seq}" if self.seq else ""

    @property
    def type(self) -> str:
        """The type as it is stored: ``custom.<name>`` for a ``Custom``, the original one for an ``Unknown``."""
        return _type_and_channel(self.data)[0]

    @property
    def channel(self) -> Channel:
        return _type_and_channel(self.data)[1]

    def to_json(self) -> bytes:
        """Return the wire form: the stored bytes of a durable event, the JSON of a live one."""
        return encode(self)

    def to_sse(self) -> bytes:
        """Return the wire form as a server-sent event; a durable one has its cursor as ``id``."""
        cursor = f"id: {self.id}\n" if self.seq else ""
        return f"{cursor}event: {self.type}\ndata: ".encode() + encode(self) + b"\n\n"


_LIVE_FIELDS = ["ts", "session", "turn", "step", "path", "channel", "type", "data"]
_LiveEvent: Any = msgspec.defstruct("_LiveEvent", ["v", *_LIVE_FIELDS], frozen=True, gc=False)
_StoredEvent: Any = msgspec.defstruct("_StoredEvent", ["v", "seq", "id", *_LIVE_FIELDS, "prev"], frozen=True, gc=False)


class _DecodedEvent(msgspec.Struct, frozen=True, gc=False):
    v: int
    ts: str
    session: SessionId
    channel: Channel
    type: str
    data: msgspec.Raw
    turn: TurnId = TurnId("")
    step: int = 0
    path: AgentPath = ()
    seq: int = 0
    id: str = ""
    prev: str = ""


_encode = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_DecodedEvent).decode
_body_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


@cache
def _is_plain_struct(kind: type[msgspec.Struct]) -> bool:
    """Whether a struct holds integers and strings only, so that decoding its bytes yields an equal value."""
    return all(_is_plain_type(field.type) for field in msgspec.structs.fields(kind))


def _is_plain_type(kind: Any) -> bool:
    kind = getattr(kind, "__supertype__", kind)
    if kind in (str, int, bool, None, type(None), ...) or get_origin(kind) is Literal:
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _is_plain_struct(kind)
    return bool(get_args(kind)) and all(_is_plain_type(inner) for inner in get_args(kind))


def _type_and_channel(body: Body) -> tuple[str, Channel]:
    kind = type(body)
    if kind is not Custom and kind is not Unknown:
        return body.type, body.channel
    return (body.name, body.of) if isinstance(body, Unknown) else (f"custom.{body.name}", "monitor")  # type: ignore[attr-defined]  # a Custom


def decode_body(kind: str, raw: bytes | msgspec.Raw, channel: Channel = "monitor") -> Body:
    """Return the body of type ``kind`` that ``raw`` encodes, ``Unknown`` for an unknown type."""
    reader = _body_decoders.get(kind)
    if reader is None:
        known = BODY_TYPES.get("custom" if kind.startswith("custom.") else kind)
        if known is None or known is Unknown:
            return Unknown(name=kind, raw=bytes(raw), of=channel)
        reader = msgspec.json.Decoder(known)
        if known is not Custom:  # the number of custom types is not bounded
            _body_decoders[kind] = reader
    body: Body = reader.decode(raw)
    return body


class _BodyKind(NamedTuple):
    name: str
    channel: Channel
    decode: Callable[[bytes], Body] | None
    """Decodes a body; ``None`` where decoding would yield an equal one."""


_body_kinds: dict[type[Body], _BodyKind] = {}


def _body_kind(body: Body) -> _BodyKind:
    kind = type(body)
    name, channel = _type_and_channel(body)
    if kind is Custom or kind is Unknown:  # the number of their types is not bounded
        return _BodyKind(name, channel, partial(decode_body, name, channel=channel))
    as_is = isinstance(body, Progress) and _is_plain_struct(kind)
    body_kind = _body_kinds[kind] = _BodyKind(name, channel, None if as_is else msgspec.json.Decoder(kind).decode)
    return body_kind


def seal(event: Event, *, epoch: int, seq: int, prev: str) -> Event:
    """Return a durable event with its position and bytes. Raises ``LogError`` if the bytes could not be decoded.

    Its body is decoded from the bytes, so it is what a reader gets and shares no mutable value with the caller.
    """
    data = event.data
    kind, channel, decoder = _body_kinds.get(type(data)) or _body_kind(data)
    try:
        raw: Any = data
        if decoder is not None:
            encoded = data.raw if type(data) is Unknown else _encode(data)
            raw, data = msgspec.Raw(encoded), decoder(encoded)
        stored = _encode(
            _StoredEvent(
                event.v, seq, f"{epoch}.{seq}", event.ts, event.session, event.turn, event.step, event.path, channel,
                kind, raw, prev,
            )
        )  # fmt: skip
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LogError(f"{kind[:80]} cannot be encoded: {error}") from error
    return Event(
        data=data, session=event.session, ts=event.ts, turn=event.turn, step=event.step, path=event.path,
        seq=seq, epoch=epoch, prev=prev, v=event.v, stored=stored, hash=hashlib.sha256(stored).hexdigest(),
    )  # fmt: skip


def encode(event: Event) -> bytes:
    """Return the stored bytes of a durable event, the JSON of a live one."""
    if event.stored:
        return event.stored
    kind, channel = _type_and_channel(event.data)
    data = msgspec.Raw(event.data.raw) if isinstance(event.data, Unknown) else event.data
    return _encode(
        _LiveEvent(event.v, event.ts, event.session, event.turn, event.step, event.path, channel, kind, data)
    )


def decode(stored: bytes) -> Event:
    """Return the event these bytes encode. Raises ``Corrupt``."""
    try:
        wire = _decode_envelope(stored)
        epoch = _epoch_of(wire)
        data = _body_of(wire)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"stored event cannot be decoded: {error}; it begins with {stored[:60]!r}") from error
    return Event(
        data=data, session=wire.session, ts=wire.ts, turn=wire.turn, step=wire.step, path=wire.path,
        seq=wire.seq, epoch=epoch, prev=wire.prev, v=wire.v, stored=stored if wire.seq else b"",
        hash=hashlib.sha256(stored).hexdigest() if wire.seq else "",
    )  # fmt: skip


def _epoch_of(envelope: _DecodedEvent) -> int:
    if not envelope.seq:
        return 1
    epoch = int(envelope.id.partition(".")[0])
    if envelope.seq < 0 or epoch < 1 or envelope.id != f"{epoch}.{envelope.seq}":
        raise ValueError(f"its id {envelope.id[:60]!r} is not that of event {envelope.seq}")
    return epoch


def _body_of(envelope: _DecodedEvent) -> Body:
    try:
        return decode_body(envelope.type, envelope.data, envelope.channel)
    except msgspec.ValidationError:
        if envelope.v <= VERSION:
            raise
        return Unknown(name=envelope.type, raw=bytes(envelope.data), of=envelope.channel)
