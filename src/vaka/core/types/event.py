"""Events: what happened in a session, one after the other. Everything else in vaka makes, stores or reads them.

An ``Event`` is a *body* with the session, agent, time and position that it belongs to. The body says what happened; its
class is the type of the event, and its base class the channel. The bodies are in ``progress``, ``control``, ``context``
and ``monitor``. All are plain, immutable data: what acts on them is elsewhere.

Where to read on: ``wire_form`` is the JSON of an event, ``decode`` reads it, ``core.session.hash_chain`` seals an event
that becomes part of a log, ``core.session.fold`` computes the state of a session from them.
"""

from hashlib import sha256
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw

from vaka.core.types.body import BodyMeta
from vaka.core.types.ids import AgentPath, SessionId, TurnId
from vaka.core.types.wire_form import LiveForm, encode_json

Channel: TypeAlias = Literal["progress", "control", "monitor"]

VERSION = 1
"""The highest ``v`` this code may act on. Raised only for an event that older code must not ignore."""


class Body(msgspec.Struct, metaclass=BodyMeta):
    """What happened.

    A body is durable, and then part of the log, or live, and then shown while it happens and never stored. Fields are
    only ever added, each with a default, so that old logs stay readable and old code can read new ones.
    """

    type: ClassVar[str]
    durable: ClassVar[bool]
    channel: ClassVar[Channel] = "monitor"


class Progress(Body):
    """What a user watches: turns, steps, messages, tool calls, and the pieces of an answer as they arrive."""

    channel: ClassVar[Channel] = "progress"


class Control(Body):
    """What changes the course of a session: inputs, decisions of people, interrupts, settings, forks and rewinds."""

    channel: ClassVar[Channel] = "control"


class Monitor(Body):
    """What an operator watches: usage, failures of models, warnings. No state of a conversation depends on it."""

    channel: ClassVar[Channel] = "monitor"


class Custom(Monitor, tag="custom"):
    """An event that an application defines; its type on the wire is ``custom.<name>``."""

    name: str
    value: Any = None


class Unknown(Body, tag="unknown"):
    """An event of a type this code does not know, kept as it came, so that it can be passed on unchanged.

    It is also the body of an erased event, which has no data left.
    """

    name: str
    raw: bytes
    of: Channel = "monitor"


def type_and_channel(body: Body) -> tuple[str, Channel]:
    """Return the type as it is stored, and the channel."""
    if isinstance(body, Unknown):
        return body.name, body.of
    return f"custom.{body.name}" if isinstance(body, Custom) else body.type, body.channel


class Event(msgspec.Struct, frozen=True, gc=False):
    """A body with its position in a log.

    A durable event has a position: ``seq`` counts from 1 without gaps, and ``prev`` is the ``hash`` of the event before
    it, which makes the log a chain that shows every change of its bytes. ``Event(data=…, session=…, ts=…)`` is a live
    event; it has no ``seq``, ``id`` or ``prev``. Two events are equal if their wire forms are.
    """

    data: Body
    session: SessionId
    ts: str
    """When it happened: RFC 3339 in UTC, with milliseconds."""
    turn: TurnId = TurnId("")
    step: int = 0
    path: AgentPath = ()
    """The agent: ``()`` is the root, ``("agent-3",)`` the child that call 3 of the root started."""
    v: int = VERSION
    """The version of vaka's events that a reader must know to act on this one."""
    seq: int = 0
    """The position in the log; 0 for a live event."""
    id: str = ""
    """The cursor of a durable event, ``<epoch>.<seq>``; ``""`` for a live one."""
    prev: str = ""
    """The hash of the event before it; ``""`` for the first one of a log."""
    stored: bytes = b""
    """The bytes of a durable event, or of a live event that was read."""
    digest: str = ""
    """The hash, if it is known already; use ``hash``."""
    erased: str = ""
    """Of an event whose data were erased: the SHA-256 of its original bytes, which stays its hash."""

    @property
    def type(self) -> str:
        """The type as it is stored: ``custom.<name>`` for a ``Custom``, the original one for an ``Unknown``."""
        return type_and_channel(self.data)[0]

    @property
    def channel(self) -> Channel:
        """The channel as it is stored."""
        return type_and_channel(self.data)[1]

    @property
    def hash(self) -> str:
        """SHA-256 of the bytes that were stored: the ``prev`` of the event after this one; ``""`` for a live event."""
        return self.digest or self.erased or (sha256(self.stored).hexdigest() if self.seq else "")

    @property
    def epoch(self) -> int:
        """The incarnation of the log, the first number of the cursor."""
        return 1 if self.id[:2] in ("1.", "") else int(self.id.partition(".")[0])

    def to_json(self) -> bytes:
        """Return the wire form: the stored bytes of a durable event, the JSON of a live one."""
        if self.stored:
            return self.stored
        body = self.data
        name, channel = type_and_channel(body)
        data = Raw(body.raw) if isinstance(body, Unknown) else body
        return encode_json(
            LiveForm(self.v, self.ts, self.session, self.turn, self.step, self.path, channel, name, data)
        )

    def to_sse(self) -> bytes:
        """Return the wire form as a server-sent event; a durable one has its cursor as ``id``."""
        cursor = f"id: {self.id}\n" if self.seq else ""
        return f"{cursor}event: {self.type}\ndata: ".encode() + self.to_json() + b"\n\n"

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __deepcopy__(self, memo: object) -> "Event":
        return self  # it is immutable, and the wire form of a copied body may name defaults
