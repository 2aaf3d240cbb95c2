"""Progress events: turns, steps, messages and tool calls as they happen."""

from typing import Any, Literal, TypeAlias

from vaka.core.types.event import Progress
from vaka.core.types.ids import JSON, CallId, CallKey, Digest, MessageId, SessionId
from vaka.core.types.message import Content, FailureReason, ToolCall, ToolResult, Usage
from vaka.core.types.tool import Effect


class TurnQueued(Progress, tag="turn.queued"):
    """An input waits for the turn before it to end."""

    input: str


class TurnStarted(Progress, tag="turn.started"):
    """A turn answers the inputs named here, in order."""

    agent: str
    inputs: tuple[str, ...]
    content: Content | None = None
    """The content of the inputs after before_agent, when that changed it."""


class TurnResumed(Progress, tag="turn.resumed"):
    """An unfinished turn goes on, in a new process or after a decision."""

    agent: str


class TurnCompleted(Progress, tag="turn.completed"):
    """The turn has its answer; with ``stop: "limit"`` it is the part that was ready when ``limit`` was reached."""

    text: str
    stop: Literal["end", "limit"] = "end"
    limit: str = ""
    usage: Usage = Usage()


class TurnFailed(Progress, tag="turn.failed"):
    """The turn ended in an error. ``withdrawn``: its inputs were refused and are not part of the conversation."""

    code: str
    message: str
    text: str = ""
    withdrawn: bool = False
    usage: Usage = Usage()
    status: int = 0
    """The HTTP status with which the model's provider refused the request; 0 if it was not refused by a status."""
    retry_after: float = 0.0
    """The number of seconds after which the provider accepts the request again; 0 if it named none."""


class TurnCancelled(Progress, tag="turn.cancelled"):
    """The caller withdrew."""

    note: str = ""
    text: str = ""
    usage: Usage = Usage()


class TurnInterrupted(Progress, tag="turn.interrupted"):
    """A person stopped the turn. ``code`` is ``rejected`` when they did so by refusing a call without a word."""

    note: str = ""
    text: str = ""
    usage: Usage = Usage()
    code: str = ""


TURN_ENDS = (TurnCompleted, TurnFailed, TurnCancelled, TurnInterrupted)


GIVEN_CALLS = "given-calls"
"""The model of steps whose tool calls a person has given. They are not counted as model calls."""


class StepStarted(Progress, tag="step.started"):
    """A model call begins. The digests name what the model saw; the texts are blobs."""

    agent: str
    number: int
    model: str = ""
    system: Digest | None = None
    tools: Digest | None = None
    inputs: tuple[str, ...] = ()
    """Inputs that came during the turn and join it here."""


class StepCompleted(Progress, tag="step.completed"):
    """The model's answer is in the log, and every call it made has its result."""

    number: int


class MessageStarted(Progress, tag="message.started", durable=False):
    """A model begins to answer."""

    message_id: MessageId
    model: str = ""


class TextDelta(Progress, tag="text.delta", durable=False):
    """A piece of text as it arrives; the whole text follows in ``message.completed``."""

    message_id: MessageId
    block: int
    offset: int  # code points already sent, so that applying a delta twice changes nothing
    text: str


class ReasoningDelta(Progress, tag="reasoning.delta", durable=False):
    """A piece of reasoning as it arrives."""

    message_id: MessageId
    block: int
    offset: int
    text: str


class ToolArgsDelta(Progress, tag="tool.args.delta", durable=False):
    """A piece of a call's arguments as the model writes them."""

    message_id: MessageId
    block: int
    offset: int
    text: str
    name: str = ""


OutputStream: TypeAlias = Literal["stdout", "stderr"]


class ToolOutputDelta(Progress, tag="tool.output.delta", durable=False):
    """A piece of what a running tool prints. ``message_id`` is the call's id; every stream is a block of its own."""

    message_id: MessageId
    block: int
    offset: int
    text: str
    stream: OutputStream = "stdout"


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolArgsDelta | ToolOutputDelta
"""A piece of an open block; ``message_id`` and ``block`` name the block."""
DELTAS = (TextDelta, ReasoningDelta, ToolArgsDelta, ToolOutputDelta)
DELTA_TYPES = frozenset[type](DELTAS)


class MessageSnapshot(Progress, tag="message.snapshot", durable=False):
    """Everything an open block holds so far; ``of`` is the type of the deltas that go on from here."""

    message_id: MessageId
    block: int
    of: str
    text: str
    name: str = ""
    offset: int = 0
    """Code points before ``text`` that were dropped: of a tool's output only the end is kept."""
    stream: OutputStream = "stdout"
    """The stream of a tool's output."""


class MessageCompleted(Progress, tag="message.completed"):
    """A model's answer, whole; ``cut`` when it ended early, which keeps its text and drops its calls."""

    message_id: MessageId
    content: Content
    model: str = ""
    stop: str = ""
    cut: bool = False
    system: Digest | None = None
    """Set together with ``tools`` when middleware changed the prompt that ``step.started`` names."""
    tools: Digest | None = None
    metadata: dict[str, Any] = {}
    """Data of the client about an answer that was imported."""


class MessageDiscarded(Progress, tag="message.discarded"):
    """What was shown of this message does not count: the model is asked again."""

    message_id: MessageId
    reason: str = ""


class OutputRejected(Progress, tag="output.rejected"):
    """An answer did not fit the output type of its agent; the model reads ``feedback`` and answers again."""

    number: int
    """How often this agent was asked again in this turn, this time included."""
    feedback: str


class AgentContinued(Progress, tag="agent.continued"):
    """A middleware did not let the agent end; the model reads ``text`` and goes on."""

    number: int
    """How often the agent was continued in this turn, this time included."""
    text: str
    by: str = ""
    """The name of the middleware."""


class ToolCalled(Progress, tag="tool.called"):
    """A model asked for a tool."""

    call: ToolCall
    message_id: MessageId


class ToolStarted(Progress, tag="tool.started"):
    """A tool is about to run with exactly these arguments."""

    call: ToolCall
    key: CallKey
    """``<session>/<call>/<random>``, the same for every attempt; logs of earlier versions have no random part."""
    effect: Effect
    deadline: str = ""
    attempt: int = 1


class ToolReturned(Progress, tag="tool.returned"):
    """What a tool gave back, before anything looked at it."""

    result: ToolResult


class ToolCompleted(Progress, tag="tool.completed"):
    """A tool call has its one result."""

    result: ToolResult


class ToolFailed(Progress, tag="tool.failed"):
    """A tool call has its one result: it failed, was refused, ran out of time, or was sealed."""

    result: ToolResult


class SubagentStarted(Progress, tag="subagent.started"):
    """A child agent begins; its events carry ``child`` as the last part of their path."""

    call: CallId
    agent: str
    child: str
    content: Content = ()
    session: SessionId | None = None
    """The session whose log the child writes; only for a child on another machine."""
    after: str = ""
    """The child whose conversation this one continues: one of the same parent by its name, another by its path."""


class SubagentCompleted(Progress, tag="subagent.completed"):
    """A child agent has ended."""

    call: CallId
    agent: str
    child: str
    text: str = ""
    failed: bool = False
    stop: str = "end"
    value: JSON = None
    blob: Digest | None = None
    """The value, when it is large."""
    reason: FailureReason = ""
    """Why a child agent failed, in the word of the result of its call."""
    kept: bool = False
    """Whether another child may continue its conversation."""
