"""What the fold keeps. Plain data, small, and stored as a snapshot now and then."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.control import ApprovalRequested, ApprovalResolved, InputPolicy, QuestionAnswered, QuestionAsked
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import AgentPath, CallId, DecisionId, Digest, MessageId, TurnId, digest_of
from vaka.core.types.message import FailureReason, Text, ToolCall, ToolResult, Usage
from vaka.core.types.progress import SubagentCompleted
from vaka.core.types.tool import Effect, Grant

FOLD_VERSION = "4"
"""The version of the fold. Raise it when the same events come to mean another state: old snapshots are then ignored."""

CallPhase: TypeAlias = Literal["called", "started", "returned"]


class OpenCall(msgspec.Struct, omit_defaults=True):
    """A call without a result yet."""

    call: ToolCall
    path: AgentPath
    message: MessageId
    step: int
    number: int
    """Which call of its agent this is; it is part of the id, so that no id is ever used twice."""
    streak: int = 1
    """How many calls in a row, this one included, asked for the same thing."""
    phase: CallPhase = "called"
    effect: Effect = "once"
    key: str = ""
    deadline: str = ""
    attempt: int = 0
    result: ToolResult | None = None
    approval: DecisionId | None = None
    asked: tuple[int, ...] = ()
    """Which model calls the tool has made, by their numbers: run again, it makes the same ones."""

    def sealed_result(self, reason: FailureReason, text: str) -> ToolResult:
        """Return the result of a call that will get no other."""
        if self.phase == "returned":  # what looks at results has not seen this one, so nobody else does
            text = f"{text} It had returned; what it returned was not passed on."
        if self.phase == "started" and self.effect == "once":
            text = f"{text} It had begun: its outcome is unknown, verify before repeating it."
            reason = "outcome_unknown"
        return ToolResult(call=self.call.id, content=(Text(text=text),), failed=True, reason=reason)


class DecisionRecord(msgspec.Struct, omit_defaults=True):
    """Something a person was asked, and what came of it."""

    id: DecisionId
    call: CallId | None = None
    path: AgentPath = ()
    approval: ApprovalRequested | None = None
    question: QuestionAsked | None = None
    resolved: ApprovalResolved | None = None
    answered: QuestionAnswered | None = None
    expired: bool = False

    @property
    def waiting(self) -> bool:
        """True until someone has decided or the time is over."""
        return self.resolved is None and self.answered is None and not self.expired

    @property
    def expires(self) -> str:
        """When it is too late, ``""`` for never."""
        asked = self.approval or self.question
        return asked.expires if asked else ""


class AgentProgress(msgspec.Struct, omit_defaults=True):
    """How far one agent has come in the running turn."""

    agent: str = ""
    step: int = 0
    phase: Literal["idle", "asking", "answered"] = "idle"
    calls: int = 0
    """Calls the answer of this step made."""
    number: int = 1
    """Which model call of its agent the last one is, on the live branch."""
    made: int = 0
    """Calls made so far; the root's are counted for the whole session, in ``State.calls``."""
    tools: dict[str, int] = {}
    usage: Usage = Usage()
    below: Usage = Usage()
    """What its own children have used; the root's are counted in ``Running.usage``."""
    last: Digest | None = None
    streak: int = 0
    """How many calls in a row were equal to the last one."""
    done: SubagentCompleted | None = None


class RunningTurn(msgspec.Struct, omit_defaults=True):
    """The unfinished turn."""

    id: TurnId
    agent: str
    interrupted: str | None = None
    """Set once someone wants it to stop."""
    resumed: int = 0
    rewinds: int = 0
    """How often it went back in its own conversation."""
    rejected: str = ""
    """The tool that a person did not let the root agent call, without a word: the turn ends with the calls it has."""
    usage: Usage = Usage()


class QueuedInput(msgspec.Struct, omit_defaults=True):
    """An input no turn has taken yet; its content is in the log at ``seq``."""

    key: str
    seq: int
    policy: InputPolicy = "queue"
    announced: bool = False
    """Whether the log says that it waits."""


class SessionState(msgspec.Struct, omit_defaults=True):
    """A session as of event ``seq``."""

    seq: int = 0
    epoch: int = 1
    agent: str = ""
    turn: RunningTurn | None = None
    lanes: dict[str, AgentProgress] = {}
    open: dict[CallId, OpenCall] = {}
    decisions: dict[DecisionId, DecisionRecord] = {}
    inputs: dict[str, QueuedInput] = {}
    grants: list[Grant] = []
    """What people allowed for the rest of the session."""
    models: dict[str, int] = {}
    """Model calls begun, for each agent."""
    calls: int = 0
    usage: Usage = Usage()
    window: int = 1
    """The first event the model still sees."""
    taken: dict[int, int] = {}
    """Where the inputs are that the model still sees, and the event that took each on: they can be far apart."""
    checkpoints: dict[str, int] = {}
    marks: dict[str, int] = {}
    """The checkpoints of the last turn that the model may go back to, and the number of the next one."""
    marked: int = 0
    values: dict[str, Any] = {}
    closed: bool = False

    def replace_with(self, other: "SessionState") -> None:
        """Hold what another state holds."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def agent_progress(self, path: AgentPath) -> AgentProgress:
        """Return how far the agent at ``path`` has come; an empty lane when it has not begun."""
        return self.lanes.get(agent_key(path)) or AgentProgress()

    def calls_made_by(self, path: AgentPath) -> int:
        """Return how many calls the agent at ``path`` has made."""
        return self.agent_progress(path).made if path else self.calls

    def open_calls_of(self, path: AgentPath) -> list[OpenCall]:
        """Return the open calls of the agent at ``path``, in the order they were made."""
        return [call for call in self.open.values() if call.path == path]

    def count_model_call(self, agent: str, number: int, call: CallId | None = None) -> None:
        """Count a model call that says itself which one of its agent it is, and which tool call made it; 0 is none."""
        if number:
            self.models[agent] = max(self.models.get(agent, 0), number)
        made = self.open.get(call) if number and call is not None else None
        if made is not None and number not in made.asked:  # run again after a crash, it has made the same one again
            made.asked = (*made.asked, number)

    @property
    def early_input_seqs(self) -> list[int]:
        """The events from before the window that are still needed: inputs that wait, or were taken on inside it."""
        inputs = {*self.taken, *(queued.seq for queued in self.inputs.values())}
        return sorted(seq for seq in inputs if seq < self.window)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SessionState)


def encode_state(state: SessionState) -> bytes:
    """Return the state as JSON."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> SessionState:
    """Return the state ``dump`` made these bytes of. Raises ``Corrupt`` when it did not."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"snapshot cannot be read: {error}") from error


def agent_key(path: AgentPath) -> str:
    """Return the name of a path in ``State.lanes``."""
    return "/".join(path) if path else ""


def count_repeats(progress: AgentProgress, calls: Iterable[ToolCall]) -> Iterator[tuple[Digest, int]]:
    """Yield what each call asks for, and how many in a row have asked for just that, going on from ``lane``."""
    last, streak = progress.last, progress.streak
    for call in calls:
        asked = digest_of([call.name, call.raw or call.arguments])
        last, streak = asked, streak + 1 if asked == last else 1
        yield last, streak


def child_name(number: int, ordinal: int = 1) -> str:
    """Return the name of the child that call ``number`` started, or of its second, third … child."""
    return f"agent-{number}" if ordinal == 1 else f"agent-{number}-{ordinal}"


def call_id(path: AgentPath, number: int) -> CallId:
    """Return the id of the ``number``-th call of the agent at ``path``: ``call_2``, or ``call_2.1`` below it."""
    return CallId("call_" + ".".join([*(name.removeprefix("agent-") for name in path), str(number)]))
