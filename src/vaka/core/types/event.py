"""The envelope of every event, and the bytes it is stored as.

A *body* is the content of an event (``progress``, ``control``, ``context`` and ``monitor`` define them); its base class
is its channel. An ``Event`` adds the session, agent, time and position in the log; its fields are those of the wire
form, so that ``msgspec.json.encode(event)`` encodes it. The bytes of a durable event are encoded, hashed and stored
once.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, dataclass_transform

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import force_setattr

from vaka.core.types.errors import Corrupt
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
    """An event that an application defines; its type on the wire is ``custom.<name>``."""

    name: str
    value: Any = None


class Unknown(Body, tag="unknown"):
    """An event of a type this code does not know, kept as it came; or an erased one, with no data left."""

    name: str
    raw: bytes
    of: Channel = "monitor"


def type_and_channel(body: Body) -> tuple[str, Channel]:
    """Return the type as it is stored, and the channel."""
    if isinstance(body, Unknown):
        return body.name, body.of
    return f"custom.{body.name}" if isinstance(body, Custom) else body.type, body.channel


class _Unencoded:
    """The values of an event besides its wire form: a struct does not encode the slots of a plain base class."""

    __slots__ = ("body", "hash", "stored")


class _Absent(str):
    """The ``prev`` of a live event, left out of its wire form; the first event of a log has the ``prev`` ``""``."""

    __slots__ = ()


_ABSENT = _Absent()
_GIVEN: Any = msgspec.field(default_factory=lambda: None)
"""The default of a field that ``_EventMeta`` always sets. A required field cannot follow one that may be omitted."""


class _EventMeta(msgspec.StructMeta):
    """Makes ``Event(data=…, session=…, ts=…)`` a live event."""

    def __call__(
        self,
        *,
        data: Body,
        session: SessionId,
        ts: str,
        turn: TurnId = TurnId(""),
        step: int = 0,
        path: AgentPath = (),
        v: int = VERSION,
    ) -> "Event":
        kind = type(data)
        if kind is not Custom and kind is not Unknown:
            return _new_live(v, 0, "", ts, session, turn, step, path, data.channel, data.type, data, _ABSENT)
        name, channel = type_and_channel(data)
        if not isinstance(data, Unknown):
            return _new_live(v, 0, "", ts, session, turn, step, path, channel, name, data, _ABSENT)
        event = new_verbatim(v, 0, "", ts, session, turn, step, path, channel, name, Raw(data.raw), _ABSENT)
        return set_unencoded(event, data, b"")


class Event(_Unencoded, msgspec.Struct, metaclass=_EventMeta, frozen=True, omit_defaults=True, gc=False):
    """A body with its position in a log. Live events have no ``seq``, ``id`` or ``prev``."""

    v: int
    seq: int = 0
    id: str = ""
    """The cursor of a durable event, ``""`` for a live one."""
    ts: str = _GIVEN
    session: SessionId = _GIVEN
    turn: TurnId = _GIVEN
    step: int = _GIVEN
    path: AgentPath = _GIVEN
    channel: Channel = _GIVEN
    type: str = _GIVEN
    """The type as it is stored: ``custom.<name>`` for a ``Custom``, the original one for an ``Unknown``."""
    data: Body = _GIVEN
    prev: str = _ABSENT
    erased: str = ""
    """Of an event whose data were erased: the SHA-256 of its original bytes, which stays its hash."""
    stored: ClassVar[bytes] = b""
    """The bytes of a durable event, not part of the wire form."""
    hash: ClassVar[str] = ""
    """SHA-256 of the bytes that were stored: the ``prev`` of the event after this one."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            data: Body,
            session: SessionId,
            ts: str,
            turn: TurnId = TurnId(""),
            step: int = 0,
            path: AgentPath = (),
            v: int = VERSION,
        ) -> None: ...

    @property
    def epoch(self) -> int:
        """The incarnation of the log, the first number of the cursor."""
        return 1 if self.id[:2] in ("1.", "") else int(self.id.partition(".")[0])

    def to_json(self) -> bytes:
        """Return the wire form: the stored bytes of a durable event, the JSON of a live one."""
        return self.stored or encode_json(self)

    def to_sse(self) -> bytes:
        """Return the wire form as a server-sent event; a durable one has its cursor as ``id``."""
        cursor = f"id: {self.id}\n" if self.seq else ""
        return f"{cursor}event: {self.type}\ndata: ".encode() + self.to_json() + b"\n\n"

    def __eq__(self, other: object) -> bool:
        """Durable events are equal if their stored bytes are, live ones if their fields are."""
        if not isinstance(other, Event):
            return NotImplemented
        if self.stored or other.stored:
            return self.stored == other.stored
        names = self.__struct_fields__
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    def __hash__(self) -> int:
        return hash(self.stored or encode_json(self))

    def __copy__(self) -> "Event":
        return self

    def __deepcopy__(self, memo: object) -> "Event":
        return self


class _DurableEvent(Event, frozen=True, omit_defaults=True, gc=False):
    stored, hash = _Unencoded.__dict__["stored"], _Unencoded.__dict__["hash"]


class _VerbatimEvent(_DurableEvent, frozen=True, omit_defaults=True, gc=False):
    """An event whose body does not encode to the bytes it came as: its encoded ``data`` are those bytes."""

    data = _Unencoded.__dict__["body"]


_new_live: Callable[..., Event] = msgspec.StructMeta.__call__.__get__(Event)
new_durable: Callable[..., Event] = msgspec.StructMeta.__call__.__get__(_DurableEvent)
new_verbatim: Callable[..., Event] = msgspec.StructMeta.__call__.__get__(_VerbatimEvent)
"""Both make an event of all its wire fields, with ``data`` of raw JSON; ``set_unencoded`` completes it."""


def set_unencoded(event: Event, data: Body, stored: bytes) -> Event:
    """Set the body and the stored bytes of a new event, and return it."""
    force_setattr(event, "data", data)
    force_setattr(event, "stored", stored)
    force_setattr(event, "hash", event.erased or (sha256(stored).hexdigest() if stored else ""))
    return event


class _StoredEvent(_VerbatimEvent, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """An event that was read. Its fields are those of ``Event``, in the same order."""

    v: int
    seq: int = 0
    id: str = ""
    ts: str  # pyright: ignore[reportGeneralTypeIssues]  # required
    session: SessionId  # pyright: ignore[reportGeneralTypeIssues]  # required
    turn: TurnId = msgspec.field(default_factory=lambda: TurnId(""))  # a factory: an empty one is encoded, too
    step: int = msgspec.field(default_factory=lambda: 0)
    path: AgentPath = msgspec.field(default_factory=lambda: ())
    channel: Channel  # pyright: ignore[reportGeneralTypeIssues]  # required
    type: str  # pyright: ignore[reportGeneralTypeIssues]  # required
    data: Raw | UnsetType = UNSET  # what is encoded; an erased event has none
    prev: str = _ABSENT
    erased: str = ""

    def __getattr__(self, name: str) -> Any:
        """Return a value that is not set: the hash, or the body of an event that ``structs.replace`` has made."""
        if name == "data":
            return _encoded_data(self)
        if name != "hash":
            raise AttributeError(f"an event has no {name!r}")
        value = self.erased or sha256(self.stored).hexdigest()
        force_setattr(self, name, value)
        return value


_DurableEvent.__name__ = _VerbatimEvent.__name__ = _StoredEvent.__name__ = "Event"  # what ``repr`` shows
encode_json = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_StoredEvent).decode
_encoded_data: Callable[[Event], Any] = Event.__dict__["data"].__get__
_set_encoded_data: Callable[[Event, Body], None] = Event.__dict__["data"].__set__
_body_decoders: dict[str, Callable[[bytes | Raw], Body]] = {}


def _decode_rare_body(event: Event, raw: Any) -> Body:
    """Return a body of a type that has no decoder yet, of a newer version, or of an erased event."""
    if event.erased:
        if raw is not UNSET:
            raise ValueError("it is erased, yet it has data")
        return Unknown(name=event.type, raw=b"", of=event.channel)
    known = BODY_TYPES.get("custom" if event.type.startswith("custom.") else event.type, Unknown)
    if known is not Unknown:
        decoder = msgspec.json.Decoder(known).decode
        if known is not Custom:  # the number of custom types is not bounded
            _body_decoders[event.type] = decoder
        try:
            return decoder(raw)
        except msgspec.ValidationError:
            if event.v <= VERSION:
                raise
    return Unknown(name=event.type, raw=bytes(raw), of=event.channel)


def decode(stored: bytes) -> Event:
    """Return the event these bytes encode. Raises ``Corrupt``."""
    try:
        event = _decode_envelope(stored)
        seq, raw = event.seq, _encoded_data(event)
        if seq and (seq < 0 or event.id != f"1.{seq}"):
            epoch = int(event.id.partition(".")[0])
            if seq < 0 or epoch < 1 or event.id != f"{epoch}.{seq}":
                raise ValueError(f"its id {event.id[:60]!r} is not that of event {seq}")
        decoder = _body_decoders.get(event.type) if event.v <= VERSION and not event.erased else None
        data = decoder(raw) if decoder is not None else _decode_rare_body(event, raw)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise Corrupt(f"stored event cannot be decoded: {error}; it begins with {stored[:60]!r}") from error
    if Raw(encode_json(data)) == raw:  # encoders of other formats than JSON cannot encode raw bytes
        _set_encoded_data(event, data)
    return set_unencoded(event, data, stored if seq else b"")


def decode_batch(rows: Sequence[bytes]) -> list[Event]:
    """Return the events that these bytes encode, for use inside vaka: ids are not checked. Raises ``Corrupt``."""
    events: list[Event] = []
    decode_stored = _decode_envelope
    raw_of = _encoded_data
    set_slot = force_setattr
    decoder_of = _body_decoders.__getitem__
    try:
        for stored in rows:
            event = decode_stored(stored)
            set_slot(event, "data", decoder_of(event.type)(raw_of(event)))
            set_slot(event, "stored", stored)
            events.append(event)
    except (KeyError, TypeError, msgspec.MsgspecError, ValueError, RecursionError):  # a rare, erased or damaged body
        return [decode(stored) for stored in rows]
    return events
