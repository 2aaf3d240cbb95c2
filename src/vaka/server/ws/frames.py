"""The frames of the WebSocket protocol ``agent.v1+json``.

A client sends requests ``{"id", "method", "params"}``. The server sends a reply ``{"id", "result"}`` or
``{"id", "error"}`` to each, events of subscriptions ``{"sub", "event"}``, and control frames ``{"ctl"}``.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from vaka.core.types.event import Channel, Event
from vaka.core.types.message import Audio, Document, Image, Text
from vaka.core.types.wire_form import encode_json
from vaka.server.kit.bodies import check_json
from vaka.server.kit.problems import Problem

SUBPROTOCOL = "agent.v1+json"
PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 1024 * 1024
"""The largest frame that a client may send."""

RequestId: TypeAlias = int | str
TurnInput: TypeAlias = str | list[Text | Image | Audio | Document]
"""A text, or parts of content."""
ErrorCode: TypeAlias = str

CLOSE_OVERLOADED = 4100
CLOSE_SILENT = 4101
CLOSE_SLOW_CONSUMER = 4108
CLOSE_DRAINING = 4200
CLOSE_TOKEN_EXPIRED = 4201
CLOSE_PROTOCOL = 4400
CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_NO_SESSION = 4404
CLOSE_QUOTA = 4429


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of a request; a field that is not known is an error."""


class HelloParams(Params, frozen=True, kw_only=True):
    """The name of the client, the protocol versions it speaks, and the last cursor it has, for the server's log."""

    client: str = ""
    versions: tuple[int, ...] = (PROTOCOL_VERSION,)
    last: str = ""


class AuthParams(Params, frozen=True, kw_only=True):
    """An API key or JWT: the first one of the connection, or a new one of the same principal before it expires."""

    token: str


class SubscribeParams(Params, frozen=True, kw_only=True):
    """Which events to send: events of one session after a cursor, or with ``*`` the new events of all sessions."""

    session: str
    after: str = ""
    """The cursor of the last event the client has; ``""`` or ``0``: all events, ``now``: only new ones."""
    channels: tuple[Channel, ...] = ()
    types: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """Only events of the agent at this path and of the agents below it."""
    depth: int | None = None
    """How many levels below ``path`` to include; 0: the agent at ``path`` alone."""


class UnsubscribeParams(Params, frozen=True, kw_only=True):
    """The subscription to end."""

    sub: str


class TurnStartParams(Params, frozen=True, kw_only=True):
    """An input of a session; ``key`` makes the request safe to repeat."""

    session: str
    input: TurnInput
    key: str = ""
    agent: str = ""
    """The agent of a session that does not exist yet."""
    model: str = ""
    options: dict[str, Any] = {}
    on_conflict: Literal["reject", "enqueue", "interrupt", "rollback", "steer"] = "enqueue"


class TurnSteerParams(Params, frozen=True, kw_only=True):
    """An input that joins the running turn."""

    session: str
    input: TurnInput
    key: str = ""


class TurnCancelParams(Params, frozen=True, kw_only=True):
    """The turn to stop: ``current``, the id of the running one, or the key of an input that waits."""

    session: str
    turn: str = "current"
    note: str = ""


class Remember(Params, frozen=True, kw_only=True):
    """For how long an approval holds, and the rule it adds; without a rule the suggested one."""

    scope: Literal["session", "project", "user"]
    rule: str = ""


class ApprovalResolveParams(Params, frozen=True, kw_only=True):
    """The decision of a person on an approval, or the answer to a question."""

    id: str
    decision: Literal["approve", "edit", "reject", "answer"]
    edited_args: dict[str, Any] | None = None
    answer: Any | UnsetType = UNSET
    message: str = ""
    remember: Remember | None = None


class StateGetParams(Params, frozen=True, kw_only=True):
    """The session whose state to return."""

    session: str


class SessionForkParams(Params, frozen=True, kw_only=True):
    """The session to copy, up to a cursor or checkpoint label; default: all of it."""

    session: str
    at: str = ""
    id: str = ""
    title: str = ""


class AckParams(Params, frozen=True, kw_only=True):
    """The last event of a subscription that the client has stored."""

    sub: str
    cursor: str


class PingParams(Params, frozen=True, kw_only=True):
    """Nothing."""


class ClientRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="method"
):
    """A request of a client."""

    id: RequestId


class Hello(ClientRequest, frozen=True, kw_only=True, tag="hello"):
    """Name the client and learn the limits of the server."""

    params: HelloParams = HelloParams()


class Auth(ClientRequest, frozen=True, kw_only=True, tag="auth"):
    """Authenticate the connection, or renew its token."""

    params: AuthParams


class Subscribe(ClientRequest, frozen=True, kw_only=True, tag="subscribe"):
    """Receive the events of a session."""

    params: SubscribeParams


class Unsubscribe(ClientRequest, frozen=True, kw_only=True, tag="unsubscribe"):
    """End a subscription."""

    params: UnsubscribeParams


class TurnStart(ClientRequest, frozen=True, kw_only=True, tag="turn.start"):
    """Store an input; its turn runs whether or not the connection stays open."""

    params: TurnStartParams


class TurnSteer(ClientRequest, frozen=True, kw_only=True, tag="turn.steer"):
    """Add an input to the running turn."""

    params: TurnSteerParams


class TurnCancel(ClientRequest, frozen=True, kw_only=True, tag="turn.cancel"):
    """Stop the running turn."""

    params: TurnCancelParams


class ApprovalResolve(ClientRequest, frozen=True, kw_only=True, tag="approval.resolve"):
    """Decide an approval or answer a question."""

    params: ApprovalResolveParams


class StateGet(ClientRequest, frozen=True, kw_only=True, tag="state.get"):
    """Return a session and its open decisions."""

    params: StateGetParams


class SessionFork(ClientRequest, frozen=True, kw_only=True, tag="session.fork"):
    """Copy a session."""

    params: SessionForkParams


class Ack(ClientRequest, frozen=True, kw_only=True, tag="ack"):
    """Confirm that events were stored."""

    params: AckParams


class Ping(ClientRequest, frozen=True, kw_only=True, tag="ping"):
    """Show that the client is alive; any other request does, too."""

    params: PingParams = PingParams()


ClientFrame: TypeAlias = (
    Hello
    | Auth
    | Subscribe
    | Unsubscribe
    | TurnStart
    | TurnSteer
    | TurnCancel
    | ApprovalResolve
    | StateGet
    | SessionFork
    | Ack
    | Ping
)


class ServerStruct(msgspec.Struct, frozen=True, kw_only=True):
    """What the server sends."""


class ConnectionLimits(ServerStruct, frozen=True, kw_only=True):
    """The limits of a connection."""

    subscriptions: int
    queue_bytes: int
    queue_frames: int


class HelloResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``hello``."""

    server: str
    version: int
    heartbeat_ms: int
    max_frame: int
    limits: ConnectionLimits


class AuthResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``auth``."""

    principal: str
    namespace: str
    scopes: tuple[str, ...]


class SubscribeResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``subscribe``: the head of the log then, and how many stored events up to it are read again."""

    sub: str
    cursor: str
    replayed: int


class UnsubscribeResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``unsubscribe``: the last stored event that was sent."""

    sub: str
    cursor: str


class TurnResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``turn.start`` and ``turn.steer``: the key of the input, and the cursor its events follow."""

    session: str
    key: str
    cursor: str


class TurnCancelResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``turn.cancel``: whether a running turn was asked to stop, or a waiting input was withdrawn."""

    session: str
    cancelled: Literal["turn", "input"]


class AckResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``ack``."""

    sub: str
    cursor: str


class PingResult(ServerStruct, frozen=True, kw_only=True):
    """The result of ``ping``: the time of the server."""

    ts: str


class ResultReply(ServerStruct, frozen=True, kw_only=True):
    """The result of a request."""

    id: RequestId
    result: Any


class FrameError(ServerStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused. A request that is ``retryable`` may succeed later without a change."""

    code: ErrorCode
    message: str
    retryable: bool = msgspec.field(default_factory=lambda: False)  # a factory: it is encoded, too
    data: dict[str, Any] | None = None


class ErrorReply(ServerStruct, frozen=True, kw_only=True):
    """The error of a request; ``id`` is null if the frame had none that could be read."""

    id: RequestId | None
    error: FrameError


class EventFrame(ServerStruct, frozen=True, kw_only=True):
    """An event of a subscription, as the log has it."""

    sub: str
    event: dict[str, Any]


class ControlMessage(ServerStruct, frozen=True, kw_only=True, tag_field="ctl"):
    """A message about the connection itself."""


class PingControl(ControlMessage, frozen=True, kw_only=True, tag="ping"):
    """The client has sent nothing for a heartbeat; it should send a ``ping``."""


class PressureControl(ControlMessage, frozen=True, kw_only=True, tag="pressure"):
    """The client reads too slowly: no deltas are sent until it has caught up, and then the open blocks whole."""

    active: bool
    queued_frames: int
    queued_bytes: int


class DrainControl(ControlMessage, frozen=True, kw_only=True, tag="drain"):
    """The server is about to close the connection with 4200; the client should connect again after the delay."""

    reconnect_after_ms: int


class SubscriptionEnded(ControlMessage, frozen=True, kw_only=True, tag="ended"):
    """The server has ended a subscription; ``cursor`` is the last event that was sent."""

    sub: str
    cursor: str
    code: ErrorCode
    message: str


ControlFrame: TypeAlias = PingControl | PressureControl | DrainControl | SubscriptionEnded
ServerFrame: TypeAlias = ResultReply | ErrorReply | EventFrame | ControlFrame
RESULTS: dict[str, type[ServerStruct]] = {
    "hello": HelloResult,
    "auth": AuthResult,
    "subscribe": SubscribeResult,
    "unsubscribe": UnsubscribeResult,
    "turn.start": TurnResult,
    "turn.steer": TurnResult,
    "turn.cancel": TurnCancelResult,
    "ack": AckResult,
    "ping": PingResult,
}
"""The results that this protocol defines; the other methods return the objects of the HTTP API."""

METHODS: tuple[str, ...] = tuple(
    str(frame.__struct_config__.tag)
    for frame in (
        Hello,
        Auth,
        Subscribe,
        Unsubscribe,
        TurnStart,
        TurnSteer,
        TurnCancel,
        ApprovalResolve,
        StateGet,
        SessionFork,
        Ack,
        Ping,
    )
)

_decode_frame: Callable[[str | bytes], ClientFrame] = msgspec.json.Decoder(ClientFrame).decode


class _Envelope(msgspec.Struct):
    """The readable fields of an invalid frame."""

    id: RequestId | None = None
    method: Any = None


class InvalidFrame(Exception):
    """A frame that cannot be executed; with the ``id`` of its request, if it has one, it gets an error reply."""

    def __init__(self, id: RequestId | None, code: ErrorCode, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.id = id
        self.code = code
        self.status = status


def parse_frame(text: str | bytes) -> ClientFrame:
    """Return the request that a frame contains. Raises ``InvalidFrame``."""
    try:
        check_json(text if isinstance(text, bytes) else text.encode())
        return _decode_frame(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, Problem) as error:
        raise _explain_frame(text, error) from error


def _explain_frame(text: str | bytes, error: Exception) -> InvalidFrame:
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return InvalidFrame(None, "invalid_frame", f'a frame must be an object {{"id", "method", "params"}}: {error}')
    if envelope.id is not None and envelope.method not in METHODS:
        known = ", ".join(METHODS)
        return InvalidFrame(envelope.id, "unknown_method", f"method must be one of {known}, not {envelope.method!r}")
    return InvalidFrame(envelope.id, "invalid_params", str(error), 422)


def encode_reply(id: RequestId, result: object) -> bytes:
    return encode_json(ResultReply(id=id, result=result))


def encode_error(id: RequestId | None, error: FrameError) -> bytes:
    return encode_json(ErrorReply(id=id, error=error))


def encode_control(frame: ControlFrame) -> bytes:
    return encode_json(frame)


def encode_event(sub: str, event: Event) -> bytes:
    """Return the frame of an event; a stored one keeps its bytes."""
    return b'{"sub":"' + sub.encode() + b'","event":' + event.to_json() + b"}"
