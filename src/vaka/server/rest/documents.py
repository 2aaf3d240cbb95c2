"""The JSON documents of the native API. The OpenAPI document is generated from these types."""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, Asked
from vaka.core.types.decision_text import DecisionKind, DecisionText, text_of_decision
from vaka.core.types.message import Audio, Document, Image, Text, ToolCall, Usage
from vaka.core.types.message_documents import CallDocument
from vaka.server.kit.problems import Problem

TurnStatus: TypeAlias = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
InputPart: TypeAlias = Text | Image | Audio | Document


class UsageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost of model calls; ``total`` is input and output together."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    total: int = 0
    cost: float = 0.0


def usage_document(usage: Usage) -> UsageDocument:
    return UsageDocument(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        reasoning=usage.reasoning,
        total=usage.total,
        cost=usage.cost,
    )


class DecisionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An approval or a question that a turn waits for, or the result of a client's tool."""

    id: str
    kind: DecisionKind
    session: str
    agent: str
    turn: str
    path: tuple[str, ...]
    cursor: str
    asked: str
    expires: str
    call: CallDocument | UnsetType = UNSET
    reason: str = ""
    rule: str = ""
    effect: str = ""
    suggested_rule: str | UnsetType = UNSET
    """The rule that ``remember`` adds, if none is given."""
    decisions: tuple[str, ...] = ()
    """The possible values of ``decision``."""
    scopes: tuple[str, ...] = ()
    """The scopes that ``remember`` may have; none: the approval counts for this call only."""
    question: str | UnsetType = UNSET
    options: tuple[str, ...] | UnsetType = UNSET
    text: DecisionText
    """What to show to a person."""


def decision_document(
    row: PendingDecision, *, agent: str = "", client_call: ToolCall | None = None
) -> DecisionDocument:
    """Return a decision from the event that asks for it; ``agent`` is the agent of its session."""
    event, body = row.event, row.event.data
    place: dict[str, Any] = {
        "session": row.session,
        "turn": event.turn,
        "path": event.path,
        "cursor": event.id,
        "asked": event.ts,
    }
    if not isinstance(body, Asked):
        raise Problem(500, "internal", f"event {event.id} of session {row.session!r} does not ask for a decision")
    text = text_of_decision(body, call=client_call)
    place |= {"id": row.id, "kind": text.kind, "expires": body.expires, "text": text}
    if isinstance(body, ApprovalRequested):
        return DecisionDocument(
            agent=body.agent or agent,
            reason=body.reason,
            call=CallDocument(id=body.call.id, name=body.call.name, arguments=body.call.arguments),
            rule=body.rule,
            effect=body.effect,
            suggested_rule=body.grant or UNSET,
            decisions=tuple(each for each in ("approve", "edit", "reject") if each in (body.decisions or (each,))),
            scopes=tuple(scope for scope in body.allowed_scopes if scope != "once"),
            **place,
        )
    call: CallDocument | UnsetType = UNSET
    if client_call is not None:
        call = CallDocument(id=client_call.id, name=client_call.name, arguments=client_call.arguments)
    return DecisionDocument(
        agent=agent,
        call=call,
        decisions=("answer",),
        question=body.text,
        options=body.options or UNSET,
        **place,
    )


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn has no answer."""

    code: str
    message: str
    status: int | UnsetType = UNSET
    """The HTTP status that the doors of other protocols answer with: a 4xx of the model's provider is the same here."""
    retry_after: float | UnsetType = UNSET
    """The number of seconds to wait, if the provider named it."""


class TurnDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, or an input that waits for one."""

    id: str
    """``""`` while the input is queued."""
    key: str
    """The key of its first input."""
    session: str
    status: TurnStatus
    stop: str = ""
    """Why it ended: ``end``, ``limit``, ``failed``, ``cancelled`` or ``interrupted``."""
    limit: str = ""
    """The limit that ended it, when ``stop`` is ``limit``."""
    text: str = ""
    output: Any | UnsetType = UNSET
    """The answer as data, if the agent has an output type."""
    usage: UsageDocument = UsageDocument()
    steps: int = 0
    tool_calls: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    error: ErrorDocument | UnsetType = UNSET
    started: str = ""
    ended: str = ""
    cursor: str = ""
    """The last event of the turn so far."""
    decisions: tuple[DecisionDocument, ...] = ()
