"""The state of a session: small plain data that the fold computes and snapshots store."""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.control import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    InputPolicy,
    QuestionAnswered,
    QuestionAsked,
    RunSettings,
    SessionWorkspace,
)
from vaka.core.types.ids import AgentPath, CallId, CallKey, DecisionId, Digest, MessageId, TurnId, digest_of
from vaka.core.types.message import FailureReason, Text, ToolCall, ToolResult, Usage
from vaka.core.types.progress import SubagentCompleted
from vaka.core.types.tool import Effect, Grant

CallPhase: TypeAlias = Literal["called", "started", "returned"]


class OpenCall(msgspec.Struct, omit_defaults=True):
    """A call without a result yet."""

    call: ToolCall
    path: AgentPath
    message: MessageId
    step: int
    number: int
    """The number of the call among the calls of its agent; as part of the id it makes the id unique."""
    streak: int = 1
    """The number of steps in a row with an equal call, including this one."""
    phase: CallPhase = "called"
    effect: Effect = "once"
    key: CallKey = CallKey("")
    deadline: str = ""
    attempt: int = 0
    result: ToolResult | None = None
    approval: DecisionId | None = None
    asked: tuple[int, ...] = ()
    """The numbers of the model calls that the tool has made; a rerun uses the same numbers."""

    def sealed_result(self, reason: FailureReason, text: str) -> ToolResult:
        """Return the failed result that closes an open call."""
        if self.phase == "returned":  # middleware has not checked this result, so it must not be passed on
            text = f"{text} It had returned; what it returned was not passed on."
        if self.phase == "started" and self.effect == "once":
            text = f"{text} It had begun: its outcome is unknown, verify before repeating it."
            reason = "outcome_unknown"
        return ToolResult(call=self.call.id, content=(Text(text=text),), failed=True, reason=reason)


class DecisionRecord(msgspec.Struct, omit_defaults=True):
    """An approval or a question, and its answer."""

    id: DecisionId
    call: CallId | None = None
    path: AgentPath = ()
    approval: ApprovalRequested | None = None
    question: QuestionAsked | None = None
    resolved: ApprovalResolved | None = None
    answered: QuestionAnswered | None = None
    expired: bool = False
    moved: bool = False
    """Whether the session was bound to another folder after the request, where an approval does not hold."""

    @property
    def waiting(self) -> bool:
        """True until it is decided or has expired."""
        return self.resolved is None and self.answered is None and not self.expired

    @property
    def expires(self) -> str:
        """The deadline, ``""`` for none."""
        request = self.approval or self.question
        return request.expires if request else ""

    def expiry_event(self) -> ApprovalExpired | QuestionAnswered:
        """Return the event of its expiry; an expired approval is a rejection."""
        if self.approval is not None:
            return ApprovalExpired(approval=self.id)
        return QuestionAnswered(question=self.id, answer=None, by="expiry")

    def default_answer(self) -> ApprovalResolved | QuestionAnswered:
        """Return the decision that is taken when no person can be asked."""
        if self.approval is None:
            return QuestionAnswered(question=self.id, answer=None, by="vaka")
        why = "no person can be asked here"
        return ApprovalResolved(approval=self.id, decision="reject", message=why, by="vaka")

    @property
    def refusal(self) -> tuple[FailureReason, str] | None:
        """Why the call of this approval must not run, ``None`` while it may."""
        resolved, request = self.resolved, self.approval
        if self.expired:
            return "expired", "no person approved this call in time, so it was not run"
        if resolved is None:
            return None
        if resolved.decision == "reject":
            message = resolved.message.strip()
            return "denied", f"a person refused this call: {message}" if message else "a person refused this call"
        answer = "edit" if resolved.edit is not None else "approve"
        if request is not None and request.decisions and answer not in request.decisions:
            return "denied", "the answer to this call was not one of those allowed, so it was not run"
        return None


class AgentProgress(msgspec.Struct, omit_defaults=True):
    """The progress of one agent in the running turn."""

    agent: str = ""
    step: int = 0
    phase: Literal["idle", "asking", "answered", "rejected"] = "idle"
    calls: int = 0
    """The number of calls in the answer of this step."""
    number: int = 1
    """The number of the last model call among the calls of its agent, on the live branch."""
    made: int = 0
    """The number of calls so far; ``SessionState.calls`` counts the root's calls for the session."""
    tools: dict[str, int] = {}
    usage: Usage = Usage()
    below: Usage = Usage()
    """The usage of its own children; ``RunningTurn.usage`` includes the usage of the root's children."""
    streaks: dict[Digest, int] = {}
    """The calls of this step, and the number of steps in a row with an equal call."""
    earlier_streaks: dict[Digest, int] = {}
    """The same of the step before."""
    done: SubagentCompleted | None = None
    rejected: int = 0
    """The number of answers that did not fit the output type."""
    continued: int = 0
    """The number of times that middleware continued the agent after its answer."""
    planned_system: Digest | None = None
    """The system prompt with which the last step began, before middleware changed it."""
    system: Digest | None = None
    """The system prompt of the last model call."""
    menu: Digest | None = None
    """The tool list of the last model call."""


class CachedPrompt(msgspec.Struct, omit_defaults=True):
    """The last model call of a conversation, whose prompt a provider has cached."""

    model: str
    tokens: int
    """The tokens in the cache."""
    ts: str
    system: Digest | None = None
    tools: Digest | None = None
    compacted: bool = False
    """Whether the conversation was compacted since."""


class ReportedContext(msgspec.Struct, omit_defaults=True):
    """The size of a conversation as the provider reported it with an answer: the prompt and the answer together."""

    tokens: int
    seq: int
    """The event that recorded it; messages after it are newer."""


class RunningTurn(msgspec.Struct, omit_defaults=True):
    """The unfinished turn."""

    id: TurnId
    agent: str
    started: int = 0
    """The seq of its ``turn.started``."""
    interrupted: str | None = None
    """The note of an interrupt, once one is requested."""
    resumed: int = 0
    rewinds: int = 0
    """How often the turn rewound its own conversation."""
    rejected: str = ""
    """The root agent's tool that a person rejected without a message: the turn ends after its open calls."""
    usage: Usage = Usage()
    children: int = 0
    """The number of child agents that the turn has started."""


class QueuedInput(msgspec.Struct, omit_defaults=True):
    """An input no turn has taken yet; its content is in the log at ``seq``."""

    key: str
    seq: int
    policy: InputPolicy = "queue"
    announced: bool = False
    """Whether ``turn.queued`` is in the log."""


class SessionState(msgspec.Struct, omit_defaults=True):
    """A session as of event ``seq``."""

    seq: int = 0
    epoch: int = 1
    agent: str = ""
    turn: RunningTurn | None = None
    lanes: dict[str, AgentProgress] = {}
    """The progress of each agent of the running turn, by the key of its path; the root agent has the key ``""``."""
    open: dict[CallId, OpenCall] = {}
    """The calls that have no result."""
    decisions: dict[DecisionId, DecisionRecord] = {}
    """The approvals and questions of the running turn."""
    inputs: dict[str, QueuedInput] = {}
    """The inputs that no turn has taken, by key."""
    grants: list[Grant] = []
    """The grants for the rest of the session."""
    models: dict[str, int] = {}
    """The number of model calls begun, by agent."""
    calls: int = 0
    usage: Usage = Usage()
    window: int = 1
    """The first event of the context window."""
    early_turn: int = 0
    """The ``turn.started`` of a turn that a compaction has cut: it is before the context window."""
    contexts: dict[str, ReportedContext] = {}
    """The reported sizes of the conversations since their last compaction, by the key of the agent."""
    taken: dict[int, int] = {}
    """The seq of each input in the context window, and of the turn or step that took it, which may be much later."""
    checkpoints: dict[str, int] = {}
    marks: dict[str, int] = {}
    """The checkpoints of the last turn that the model may go back to."""
    marked: int = 0
    """The number of the next such checkpoint."""
    values: dict[str, Any] = {}
    caches: dict[str, CachedPrompt] = {}
    """The prompts that providers have cached, by the key of the agent."""
    closed: bool = False
    workspace: SessionWorkspace | None = None
    run: RunSettings | None = None
    metadata: dict[str, Any] = {}
    """The metadata that have changed since the session was opened, by key; ``None`` for removed keys."""

    def replace_with(self, other: "SessionState") -> None:
        """Copy every field of another state."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def agent_progress(self, path: AgentPath) -> AgentProgress:
        """Return the progress of the agent at ``path``, an empty one when it has not begun."""
        return self.lanes.get(agent_key(path)) or AgentProgress()

    def calls_made_by(self, path: AgentPath) -> int:
        return self.agent_progress(path).made if path else self.calls

    def open_calls_of(self, path: AgentPath) -> list[OpenCall]:
        """Return the open calls of the agent at ``path`` in order."""
        return [call for call in self.open.values() if call.path == path] if self.open else []

    def count_model_call(self, agent: str, number: int, call: CallId | None = None) -> None:
        """Count model call ``number`` of an agent, made by tool call ``call``; number 0 counts nothing."""
        if number:
            self.models[agent] = max(self.models.get(agent, 0), number)
        open_call = self.open.get(call) if number and call is not None else None
        if open_call is not None and number not in open_call.asked:  # a rerun after a crash repeats the number
            open_call.asked = (*open_call.asked, number)

    @property
    def early_input_seqs(self) -> list[int]:
        """The events before the context window that are still needed.

        These are the inputs that wait or were taken inside the window, and the inputs of a turn that goes on inside it.
        """
        inputs = {*self.taken, *(queued.seq for queued in self.inputs.values()), self.early_turn}
        return sorted(seq for seq in inputs if 0 < seq < self.window)


def results_for_open_calls(
    state: SessionState, reason: FailureReason, text: str, path: AgentPath = ()
) -> "list[tuple[AgentPath, int, ToolResult]]":
    """Return a failed result for each open call at ``path`` or below, deepest first, with its path and step."""
    calls = [call for call in state.open.values() if call.path[: len(path)] == path]
    calls.sort(key=lambda call: -len(call.path))
    return [(call.path, call.step, call.sealed_result(reason, text)) for call in calls]


def agent_key(path: AgentPath) -> str:
    """Return the key of a path in ``SessionState.lanes``."""
    return "/".join(path) if path else ""


def count_repeats(progress: AgentProgress, calls: Iterable[ToolCall]) -> list[tuple[Digest, int]]:
    """Return the digest of each call of a step and the number of steps in a row with an equal call, this one included.

    Equal calls of one step count once.
    """
    counted: list[tuple[Digest, int]] = []  # a loop, since this runs several times for each call
    for call in calls:
        digest = digest_of([call.name, call.raw or call.arguments])
        counted.append((digest, progress.earlier_streaks.get(digest, 0) + 1))
    return counted


def child_name(number: int, ordinal: int = 1) -> str:
    """Return the name of the ``ordinal``-th child of call ``number``."""
    return f"agent-{number}" if ordinal == 1 else f"agent-{number}-{ordinal}"


def call_id(path: AgentPath, number: int) -> CallId:
    """Return the id of call ``number`` of the agent at ``path``: ``call_2``, or ``call_2.1`` for a child of it."""
    if not path:
        return CallId(f"call_{number}")
    return CallId("call_" + ".".join([*(name.removeprefix("agent-") for name in path), str(number)]))
