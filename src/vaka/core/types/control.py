"""Control events: inputs, approvals, questions, and the session's own state."""

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from vaka.core.types.event import Control
from vaka.core.types.ids import JSON, CallId, DecisionId, Digest, TurnId
from vaka.core.types.message import Content, ToolCall, Usage
from vaka.core.types.tool import Grant

InputPolicy: TypeAlias = Literal["queue", "steer", "interrupt"]
"""How an input treats the running turn: wait for its end, join it, or stop it."""

ApprovalScope: TypeAlias = Literal["once", "session", "project", "user"]
"""How long an approval holds: for the call, for the session, or as a rule in the settings of project or user."""

APPROVAL_SCOPES: tuple[ApprovalScope, ...] = get_args(ApprovalScope)


class InputAdded(Control, tag="input.added"):
    """Someone said something to the session. ``key`` is unique in it: the same key again is the same input."""

    key: str
    content: Content
    policy: InputPolicy = "queue"
    source: str = ""
    model: str = ""
    """The model that answers: a name or a tier; the agent's own model when empty."""
    options: dict[str, Any] = {}
    """Model options of this turn; they override the options of the agent."""
    metadata: dict[str, Any] = {}
    """Data of the client about the message, for filters of message lists."""


class InputWithdrawn(Control, tag="input.withdrawn"):
    """An input that no turn had taken was taken back. It is not part of the conversation."""

    input: str
    """The key of the input."""
    by: str = ""


class InterruptRequested(Control, tag="interrupt.requested"):
    """Someone wants the running turn to stop."""

    key: str
    note: str = ""
    by: str = ""


class ApprovalRequested(Control, tag="approval.requested"):
    """A call waits for a person. The answer counts for exactly this call, tool, rule and time."""

    approval: DecisionId
    call: ToolCall
    digest: Digest
    spec: Digest
    reason: str = ""
    rule: str = ""
    layer: str = ""
    message: str = ""
    expires: str = ""
    decisions: tuple[str, ...] = ()
    """The allowed ones of ``approve``, ``edit`` and ``reject``; all when empty. ``reject`` is always allowed."""
    grant: str = ""
    """The rules, one per line, that an approval for longer than once adds unless the person writes others."""
    scopes: tuple[str, ...] = ()
    """The allowed scopes of an approval; when empty every scope if there is a ``grant``, otherwise ``once``."""
    asks: tuple[str, ...] = ()
    """The names of all rules that ask, when there are more than ``rule``."""
    agent: str = ""
    effect: str = ""
    """The ``Effect`` of the tool."""
    cwd: str = ""
    """The folder that the rules' relative paths start from."""
    folder: str = ""
    """The folder a command starts in, when it is not ``cwd``."""
    lasts: float | None = None
    """Seconds that an approval for the session holds unless the person gives a time; ``None``: to its end."""

    @property
    def rule_names(self) -> frozenset[str]:
        """The names of all rules that ask."""
        return frozenset(self.asks or (self.rule,))

    @property
    def subject(self) -> tuple[Digest, Digest, frozenset[str], str]:
        """The subject of the question: the arguments, the tool, the rules and the starting folder of a command."""
        return self.digest, self.spec, self.rule_names, self.folder

    @property
    def allowed_scopes(self) -> tuple[str, ...]:
        """The scopes an approval may have, ``once`` first."""
        if not self.grant:
            return APPROVAL_SCOPES[:1]
        return tuple(scope for scope in APPROVAL_SCOPES if scope in self.scopes) if self.scopes else APPROVAL_SCOPES


class ApprovalResolved(Control, tag="approval.resolved"):
    """A person has decided. ``edit`` replaces the arguments; what ``rule`` says is allowed for as long as ``scope``."""

    approval: DecisionId
    decision: Literal["approve", "reject"]
    message: str = ""
    edit: dict[str, Any] | None = None
    scope: ApprovalScope = "once"
    by: str = ""
    rule: str = ""
    """The rules that were added, one per line; none when ``scope`` is ``once``."""
    source: str = ""
    """The terminal or program through which the person decided."""
    until: str = ""
    """When an approval for the session expires; ``""``: at its end."""


class ApprovalExpired(Control, tag="approval.expired"):
    """No decision came in time; the call is denied."""

    approval: DecisionId


QuestionKind: TypeAlias = Literal["question", "outcome", "result"]
"""A question to a person, for the ``outcome`` of a call that a crash cut off, or to the client for a ``result``."""


class QuestionAsked(Control, tag="question.asked"):
    """The session wants to know something from a person, or the result of a call from the client."""

    question: DecisionId
    text: str
    options: tuple[str, ...] = ()
    call: CallId | None = None
    expires: str = ""
    kind: QuestionKind = "question"


class QuestionAnswered(Control, tag="question.answered"):
    """A person or the client has answered; ``None`` when there was no answer in time."""

    question: DecisionId
    answer: JSON = None
    by: str = ""


class SessionWorkspace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The folder a session belongs to. Its tools work there, whatever folder a later process is started in."""

    root: str
    directories: tuple[str, ...] = ()
    """Further folders that its tools may read and change."""
    device: int = 0
    inode: int = 0
    """With ``device`` the identity of ``root`` in its file system; 0 where that is not known."""
    host: str = ""
    """The machine; on another one ``inode`` says nothing."""

    def is_same_folder(self, other: "SessionWorkspace") -> bool:
        """Return whether both roots are one folder. Device numbers may change when a file system is mounted again."""
        known = self.inode and other.inode and self.host == other.host
        return self.root == other.root and (not known or self.inode == other.inode)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a session was last run from the command line; ``vaka run`` applies it again unless flags replace it."""

    agent: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    """Files with tools."""
    digests: dict[str, Digest] = {}
    """The SHA-256 of each file of ``agent`` and ``tools``, by its path."""
    flags: dict[str, Any] = {}
    """Further flags by name, such as ``permission_mode``, ``sandbox`` and ``max_steps``."""


class SessionOpened(Control, tag="session.opened"):
    """The first event of a log."""

    agent: str = ""
    metadata: dict[str, Any] = {}
    workspace: SessionWorkspace | None = None
    """``None`` if no tool of the agent works in a folder, and in logs of older versions."""
    run: RunSettings | None = None
    title: str = ""
    """The title; without one it is the beginning of the first input."""
    owner: str = ""
    tags: tuple[str, ...] = ()


class SessionUpdated(Control, tag="session.updated"):
    """The session belongs to another folder, is run in another way, or is described anew; ``None`` changes nothing."""

    workspace: SessionWorkspace | None = None
    run: RunSettings | None = None
    title: str | None = None  # after "" the next input gives one
    owner: str | None = None
    tags: tuple[str, ...] | None = None  # all of them from now on
    metadata: dict[str, Any] | None = None
    """The keys that change; the value ``None`` removes a key."""
    state: str | None = None  # such as ``paused``; a new session is ``active``
    by: str = ""


class SessionForked(Control, tag="session.forked"):
    """This log began as a copy of another one, up to ``cursor``."""

    origin: str
    cursor: str


class Onward(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn that goes back in its own conversation and goes on: what it has done and used still counts."""

    turn: TurnId
    step: int
    rewinds: int
    usage: Usage = Usage()
    """The usage of its agent in this turn; ``spent`` counts the whole turn, ``total`` the session."""
    spent: Usage = Usage()
    total: Usage = Usage()
    models: dict[str, int] = {}
    tools: dict[str, int] = {}
    grants: tuple[Grant, ...] = ()
    """Every grant of the session, also grants after ``to``."""
    children: int = 0
    """The number of child agents that the turn has started."""


class SessionReverted(Control, tag="session.reverted"):
    """The conversation goes on from ``to``; what came after it stays in the log but not in the conversation."""

    to: int
    calls: int = 0
    """The number of calls so far: a call id is never used twice."""
    reason: str = ""
    onward: Onward | None = None
    """The turn that goes on from ``to``, with the inputs added since; without it the turn has ended."""
    grants: tuple[Grant, ...] | None = None
    """The grants that remain: they held at ``to`` and still hold. A rewind never revives an expired grant."""


class SessionClosed(Control, tag="session.closed"):
    """Nothing more is expected here."""

    reason: str = ""


class SessionErased(Control, tag="session.erased"):
    """The data of the events before this one were erased; their hashes stay. Nothing is appended after it."""

    events: int
    """The number of erased events. Events that hold numbers and ids only are kept."""
    blobs: int = 0
    """The number of blobs that were removed, because no other session refers to them."""
    by: str = ""


class Handoff(Control, tag="handoff"):
    """Another agent takes the conversation over."""

    source: str
    target: str
    reason: str = ""


class StateChanged(Control, tag="state.changed"):
    """A value the session keeps has changed."""

    key: str
    value: JSON = None


class StreamReset(Control, tag="stream.reset", durable=False):
    """The cursor was not one of this log: everything follows from the start."""

    reason: str = ""


class StreamEnd(Control, tag="stream.end", durable=False):
    """Nothing more comes on this stream: it was read to its end, and a stream without this event was cut off."""

    reason: str = ""


Asked: TypeAlias = ApprovalRequested | QuestionAsked
"""What opens a decision."""


def decision_of(asked: Asked) -> DecisionId:
    """Return the id of an approval or a question."""
    return asked.approval if isinstance(asked, ApprovalRequested) else asked.question


OfferedBody: TypeAlias = InputAdded | InterruptRequested | ApprovalResolved | QuestionAnswered

_KEY_FIELDS: dict[type, str] = {
    InputAdded: "key",
    InterruptRequested: "key",
    ApprovalResolved: "approval",
    ApprovalExpired: "approval",
    QuestionAnswered: "question",
}


def key_of(body: object) -> str:
    """Return the key of a body, ``""`` when it has none. Of several bodies with one key only the first counts."""
    field = _KEY_FIELDS.get(type(body))
    return getattr(body, field) if field else ""
