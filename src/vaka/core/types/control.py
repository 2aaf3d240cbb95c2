"""What someone must decide, or has decided."""

from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from vaka.core.types.event import Control
from vaka.core.types.ids import JSON, CallId, DecisionId, Digest, TurnId
from vaka.core.types.message import Content, ToolCall, Usage
from vaka.core.types.tool import Grant

InputPolicy: TypeAlias = Literal["queue", "steer", "interrupt"]
"""What an input does to the turn that is running: wait for its end, join it, or stop it."""

ApprovalScope: TypeAlias = Literal["once", "session", "project", "user"]
"""How long a yes counts: for the call, in the session, or for good, by a rule in the settings of project or user."""

APPROVAL_SCOPES: tuple[ApprovalScope, ...] = get_args(ApprovalScope)


class InputAdded(Control, tag="input.added"):
    """Someone said something to the session. ``key`` is unique in it: the same key again is the same input."""

    key: str
    content: Content
    policy: InputPolicy = "queue"
    source: str = ""
    model: str = ""
    """Who shall answer: a model's name, or a tier. Without it, the agent's own model."""
    options: dict[str, Any] = {}
    """What is asked of the model in this turn, over what its agent asks of it."""


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
    """What of ``approve``, ``edit`` and ``reject`` may be said; all of it when empty. No is always possible."""
    grant: str = ""
    """The rules, one per line, that a yes for longer than once keeps unless the person writes others; ``""``: none."""
    scopes: tuple[str, ...] = ()
    """How long a yes may count; when empty for as long as wanted if there is a ``grant``, and else once."""
    asks: tuple[str, ...] = ()
    """Everything that asks, when it is more than ``rule``."""
    agent: str = ""
    effect: str = ""
    """What a second run of the tool would do."""
    cwd: str = ""
    """The folder the rules hold in."""
    folder: str = ""
    """Where a command would begin, when that is another one."""
    lasts: float | None = None
    """Seconds a yes for the session counts, unless the person says how long; ``None``: for the rest of it."""

    @property
    def rule_names(self) -> frozenset[str]:
        """The names of everything that asks."""
        return frozenset(self.asks or (self.rule,))

    @property
    def allowed_scopes(self) -> tuple[str, ...]:
        """For how long a yes may count, ``once`` first."""
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
    """The rules that were kept, one per line; none when ``scope`` is ``once``."""
    source: str = ""
    """Where the person said so: at which terminal, through which program."""
    until: str = ""
    """When what was allowed for the session no longer is; ``""``: never in it."""


class ApprovalExpired(Control, tag="approval.expired"):
    """Nobody decided in time; the call is denied."""

    approval: DecisionId


class QuestionAsked(Control, tag="question.asked"):
    """The session wants to know something from a person."""

    question: DecisionId
    text: str
    options: tuple[str, ...] = ()
    call: CallId | None = None
    expires: str = ""
    kind: Literal["question", "outcome"] = "question"
    """``outcome``: what became of a call whose return was lost."""


class QuestionAnswered(Control, tag="question.answered"):
    """A person has answered; ``None`` when nobody did in time."""

    question: DecisionId
    answer: JSON = None
    by: str = ""


class SessionOpened(Control, tag="session.opened"):
    """The first event of a log."""

    agent: str = ""
    metadata: dict[str, Any] = {}


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
    """Of its agent in this turn; ``spent`` is that of the whole turn, ``total`` that of the session."""
    spent: Usage = Usage()
    total: Usage = Usage()
    models: dict[str, int] = {}
    tools: dict[str, int] = {}
    grants: tuple[Grant, ...] = ()
    """What people have allowed for the session, also since."""


class SessionReverted(Control, tag="session.reverted"):
    """The conversation goes on from ``to``; what came after it stays in the log but not in the conversation."""

    to: int
    calls: int = 0
    """Calls numbered so far: a call id is never used twice."""
    reason: str = ""
    onward: Onward | None = None
    """The turn that goes on from there; without it the turn has ended. What people said meanwhile is heard again."""
    grants: tuple[Grant, ...] | None = None
    """What is still allowed for the session: going back brings nothing back that was not allowed before it."""


class SessionClosed(Control, tag="session.closed"):
    """Nothing more is expected here."""

    reason: str = ""


class ContextCompacted(Control, tag="context.compacted"):
    """From here on the model sees ``summary`` in place of what came before ``keep_from``."""

    summary: str
    keep_from: int
    before: int = 0
    after: int = 0


class CheckpointSaved(Control, tag="checkpoint.saved"):
    """This place has a name to come back to."""

    label: str
    number: int | None = None
    """Which of the session it is, if the model may go back to it; such names are kept until the next turn."""
    told: Content = ()
    """What the model is told of it."""


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
    """Nothing more comes on this stream."""

    reason: str = ""


OfferedBody: TypeAlias = InputAdded | InterruptRequested | ApprovalResolved | QuestionAnswered


class _KeyFields:
    """The field of a body that is its key in the session: of several with one key, the first counts."""

    fields: ClassVar[dict[type[Control], str]] = {
        InputAdded: "key",
        InterruptRequested: "key",
        ApprovalResolved: "approval",
        ApprovalExpired: "approval",
        QuestionAnswered: "question",
    }


def key_of(body: object) -> str:
    """Return the key an event has in its session, ``""`` when it has none."""
    field = _KeyFields.fields.get(type(body))  # type: ignore[arg-type]  # looked up by whatever it is
    return getattr(body, field) if field else ""
