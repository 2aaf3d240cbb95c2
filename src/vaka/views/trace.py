"""``TraceFold``: the events of a session as traces, one per turn: a tree of spans with times, tokens and costs.

The fold is pure and incremental: ``add`` takes the stored events in order, each in constant time.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from vaka.core.types import control, monitor, progress
from vaka.core.types.context import ContextCompacted
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall, Usage

SpanKind: TypeAlias = Literal["turn", "step", "model", "tool", "subagent", "script", "approval", "hook", "compaction"]
SpanStatus: TypeAlias = Literal["ok", "error", "running", "waiting"]

MAX_DETAIL_CHARS = 300
_SCRIPT_START, _SCRIPT_END = "start", "end"


class TraceTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of model calls. ``input`` includes cached tokens, ``output`` tokens of reasoning."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    total: int = 0

    @classmethod
    def from_usage(cls, usage: Usage) -> "TraceTokens":
        return cls(
            input=usage.input,
            output=usage.output,
            cached=usage.cache_read,
            reasoning=usage.reasoning,
            total=usage.total,
        )


class SpanError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a span failed."""

    code: str
    message: str


class SpanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A span as JSON; times are milliseconds after the start of the trace, ``end_ms`` is null while it runs."""

    id: str
    parent: str
    kind: SpanKind
    name: str
    path: AgentPath
    start_ms: int
    end_ms: int | None
    status: SpanStatus
    cursor: str
    end_cursor: str
    detail: dict[str, Any]
    tokens: TraceTokens | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    ttft_ms: int | UnsetType = UNSET
    error: SpanError | UnsetType = UNSET


class TraceHead(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a trace without its spans."""

    id: str
    session: str
    agent: str
    status: SpanStatus
    started: str
    duration_ms: int
    tokens: TraceTokens
    cost: float
    ttft_ms: int | None
    """Milliseconds from the start of the turn to the first piece of an answer; null if it was not measured."""
    error: SpanError | UnsetType = UNSET


class TraceSummary(TraceHead, frozen=True, kw_only=True):
    """A trace with the number of its spans."""

    spans: int


class TraceDocument(TraceHead, frozen=True, kw_only=True):
    """A trace with its spans, each after its parent."""

    spans: list[SpanDocument]


class Span(msgspec.Struct, kw_only=True):
    """A piece of work: when it began and ended in milliseconds since 1970, and the events that say so."""

    id: str
    parent: str
    kind: SpanKind
    name: str
    path: AgentPath
    start: int
    end: int | None = None
    status: SpanStatus = "running"
    usage: Usage | None = None
    ttft_ms: int | None = None
    cursor: str = ""
    end_cursor: str = ""
    error: SpanError | None = None
    detail: dict[str, Any] = {}


class Trace:
    """One turn."""

    def __init__(self, event: Event, agent: str) -> None:
        self.id = event.turn
        self.session = event.session
        self.agent = agent
        self.started, self.start = event.ts, _milliseconds(event.ts)
        self.last = self.start
        """The time of the last event."""
        root = Span(id=event.turn, parent="", kind="turn", name=agent, path=(), start=self.start, cursor=event.id)
        self.spans: list[Span] = [root]
        self.by_id: dict[str, Span] = {root.id: root}
        self.open: dict[str, Span] = {root.id: root}
        self.steps: dict[AgentPath, Span] = {}
        self.models: dict[AgentPath, Span] = {}
        self.scripts: dict[AgentPath, Span] = {}
        self.usage = Usage()
        self.error: SpanError | None = None

    @property
    def root(self) -> Span:
        return self.spans[0]

    @property
    def ttft_ms(self) -> int | None:
        """Milliseconds from the start of the turn to the first piece of an answer."""
        first = next((span for span in self.spans if span.ttft_ms is not None), None)
        return first.start - self.start + (first.ttft_ms or 0) if first else None

    @property
    def status(self) -> SpanStatus:
        if self.root.status == "running" and any(span.status == "waiting" for span in self.open.values()):
            return "waiting"
        return self.root.status

    def summarize(self) -> TraceSummary:
        """Return the trace without its spans."""
        return TraceSummary(**_head_of(self.id, [self]), spans=len(self.spans))

    def describe(self) -> TraceDocument:
        """Return the trace with its spans."""
        return TraceDocument(
            **_head_of(self.id, [self]), spans=[describe_span(span, self.start) for span in self.spans]
        )

    def add_span(self, event: Event, kind: SpanKind, id: str, parent: str, name: str) -> Span:
        """Open a span that begins with an event."""
        start = _milliseconds(event.ts)
        span = Span(id=id, parent=parent, kind=kind, name=name, path=event.path, start=start, cursor=event.id)
        self.spans.append(span)
        self.by_id[id] = self.open[id] = span
        return span

    def close_span(self, span: Span, event: Event, error: SpanError | None = None) -> None:
        """End a span with an event."""
        self.open.pop(span.id, None)
        span.end, span.end_cursor = _milliseconds(event.ts), event.id
        span.status, span.error = ("error", error) if error else ("ok", None)

    def parent_at(self, path: AgentPath) -> str:
        """Return the id of the span that work of the agent at ``path`` belongs to."""
        script = self.scripts.get(path)
        if script is not None:
            return script.id
        step = self.steps.get(path)
        return step.id if step is not None else self.agent_at(path)

    def agent_at(self, path: AgentPath) -> str:
        """Return the id of the span of the agent at ``path``: the turn, a subagent, or the call that runs a script."""
        if not path:
            return self.id
        known = f"agent:{'/'.join(path)}"
        if known in self.by_id:
            return known
        numbers = [name.removeprefix("agent-").partition("-")[0] for name in path]
        call = f"call_{'.'.join(numbers)}"
        return call if call in self.by_id else self.agent_at(path[:-1])


class TraceFold:
    """Folds the stored events of one session into traces."""

    def __init__(self) -> None:
        self.traces: dict[str, Trace] = {}
        """The traces by turn, oldest first."""
        self._decisions: dict[str, tuple[Trace, Span]] = {}
        self._current: Trace | None = None

    def add(self, event: Event) -> None:
        """Take the next event. Ignore live events, and events of turns whose start was not seen."""
        body = event.data
        if not event.seq:
            return
        if isinstance(body, progress.TurnStarted) and not event.path:
            self._current = self.traces[event.turn] = Trace(event, body.agent)
            return
        if isinstance(body, control.SessionReverted):
            self._end_reverted(event, body)
            return
        if _is_decided(body):
            self._close_decision(event, body)
            return
        trace = self.traces.get(event.turn)
        if trace is not None:
            trace.last = _milliseconds(event.ts)
            self._add_to(trace, event)

    def add_all(self, events: Iterable[Event]) -> "TraceFold":
        for event in events:
            self.add(event)
        return self

    def _add_to(self, trace: Trace, event: Event) -> None:
        body = event.data
        match body:
            case progress.StepStarted() | progress.StepCompleted():
                _add_step(trace, event, body)
            case progress.MessageCompleted() | progress.MessageDiscarded() | monitor.ModelFailed():
                _end_model(trace, event, body)
            case monitor.UsageRecorded():
                _add_usage(trace, event, body)
            case progress.SubagentStarted() | progress.SubagentCompleted():
                _add_subagent(trace, event, body)
            case monitor.ScriptCalled() | monitor.ScriptAnswered():
                _add_script(trace, event, body)
            case control.ApprovalRequested() | control.QuestionAsked():
                self._open_decision(trace, event, body)
            case monitor.HookRan():
                _add_hook(trace, event, body)
            case _ if isinstance(body, progress.TURN_ENDS):
                self._end_turn(trace, event, body)
            case _:
                _add_call(trace, event, body)

    # ------------------------------------------------------------------------------------------------------ decisions

    def _open_decision(
        self, trace: Trace, event: Event, body: control.ApprovalRequested | control.QuestionAsked
    ) -> None:
        if isinstance(body, control.ApprovalRequested):
            id = body.approval
            name = body.call.name
            detail = {"rule": body.rule}
        else:
            id = body.question
            name = "question"
            detail = {"text": _shorten(body.text)}
        call = body.call.id if isinstance(body, control.ApprovalRequested) else body.call
        asking = trace.by_id.get(call) if call else None
        parent = asking.id if asking is not None else trace.parent_at(event.path)
        span = trace.add_span(event, "approval", id, parent, name)
        span.status, span.detail = "waiting", detail
        if asking is not None and asking.status == "running":
            asking.status = "waiting"
        self._decisions[id] = (trace, span)

    def _close_decision(self, event: Event, body: Body) -> None:
        id, decision, by = _decision_of(body)
        trace, span = self._decisions.pop(id, (None, None))
        if trace is None or span is None:
            return
        refused = SpanError(code=decision, message="") if decision in ("reject", "expired") else None
        trace.close_span(span, event, refused)
        trace.last = max(trace.last, _milliseconds(event.ts))
        span.detail = {**span.detail, "decision": decision, **({"by": by} if by else {})}
        asking = trace.by_id.get(span.parent)
        if asking is not None and asking.kind == "tool":
            waited = asking.detail.get("waiting_ms", 0) + _milliseconds(event.ts) - span.start
            asking.detail = {**asking.detail, "waiting_ms": waited}
            asking.status = "running" if asking.end is None else asking.status

    # ---------------------------------------------------------------------------------------------------------- ends

    def _end_turn(self, trace: Trace, event: Event, body: Body) -> None:
        stop, error = _turn_end(body)
        for span in list(trace.open.values()):
            self._decisions.pop(span.id, None)
            trace.close_span(span, event, error)
        trace.error = error
        trace.root.detail = {**trace.root.detail, "stop": stop}

    def _end_reverted(self, event: Event, body: control.SessionReverted) -> None:
        """End the turn that a rewind has cut, unless it goes on from there."""
        trace = self._current
        if trace is not None and trace.root.end is None and body.onward is None:
            for span in list(trace.open.values()):
                self._decisions.pop(span.id, None)
                trace.close_span(span, event)
            trace.root.detail = {**trace.root.detail, "stop": "reverted"}


def _add_step(trace: Trace, event: Event, body: progress.StepStarted | progress.StepCompleted) -> None:
    path = event.path
    if isinstance(body, progress.StepCompleted):
        step = trace.steps.pop(path, None)
        if step is not None:
            trace.close_span(step, event)
        return
    step = trace.add_span(event, "step", f"step:{event.id}", trace.agent_at(path), f"step {body.number}")
    trace.steps[path] = step
    if body.model != progress.GIVEN_CALLS:
        _begin_model(trace, event, body.model, step.id)


def _begin_model(trace: Trace, event: Event, model: str, parent: str) -> None:
    trace.models[event.path] = trace.add_span(event, "model", f"model:{event.id}", parent, model)


def _end_model(
    trace: Trace, event: Event, body: progress.MessageCompleted | progress.MessageDiscarded | monitor.ModelFailed
) -> None:
    span = trace.models.get(event.path)
    if isinstance(body, monitor.ModelFailed):
        if span is not None and span.end is None:
            trace.close_span(span, event, SpanError(code=body.code, message=_shorten(body.message)))
        if span is not None and body.retried:
            _begin_model(trace, event, body.model, span.parent)
    elif isinstance(body, progress.MessageDiscarded):
        if span is not None and span.end is None:
            trace.close_span(span, event, SpanError(code="discarded", message=_shorten(body.reason)))
    elif span is not None and span.end is None:
        trace.close_span(span, event)
        span.name = body.model or span.name
        span.detail = {"stop": body.stop}


def _add_usage(trace: Trace, event: Event, body: monitor.UsageRecorded) -> None:
    span = trace.models.get(event.path)
    if body.call is not None or span is None or span.usage is not None:
        call = body.call if body.call is not None and body.call in trace.by_id else ""
        parent = call or trace.parent_at(event.path)
        span = trace.add_span(event, "model", f"model:{event.id}", parent, body.model)
        trace.close_span(span, event)
    span.usage = body.usage
    span.ttft_ms = body.first_ms or None
    trace.usage += body.usage


def _add_subagent(trace: Trace, event: Event, body: progress.SubagentStarted | progress.SubagentCompleted) -> None:
    id = f"agent:{'/'.join((*event.path, body.child))}"
    if isinstance(body, progress.SubagentStarted):
        parent = body.call if body.call in trace.by_id else trace.parent_at(event.path)
        trace.add_span(event, "subagent", id, parent, body.agent).path = (*event.path, body.child)
        return
    failed = SpanError(code=body.reason or "failed", message=_shorten(body.text)) if body.failed else None
    path = (*event.path, body.child)
    inner = [spans.pop(path, None) for spans in (trace.models, trace.steps, trace.scripts)]
    for span in (*inner, trace.by_id.get(id)):
        if span is not None and span.end is None:
            trace.close_span(span, event, failed)


def _add_script(trace: Trace, event: Event, body: monitor.ScriptCalled | monitor.ScriptAnswered) -> None:
    path = event.path
    if isinstance(body, monitor.ScriptCalled):
        if body.model:
            _begin_model(trace, event, body.name, trace.parent_at(path))
        return
    script = trace.scripts.get(path)
    if body.number == 0 and body.name == _SCRIPT_START:
        script = trace.add_span(event, "script", f"script:{event.id}", trace.agent_at(path), "script")
        trace.scripts[path] = script
    elif script is None:
        return
    elif body.number == 0 and body.name == _SCRIPT_END:
        trace.close_span(trace.scripts.pop(path), event)
    else:
        script.detail = {"requests": script.detail.get("requests", 0) + 1}
        model = trace.models.get(path)
        if model is not None and model.end is None and model.name == body.name:
            failed = SpanError(code="failed", message=_shorten(body.error)) if body.error else None
            trace.close_span(model, event, failed)


def _add_hook(trace: Trace, event: Event, body: monitor.HookRan) -> None:
    span = trace.add_span(event, "hook", f"hook:{event.id}", trace.parent_at(event.path), body.event)
    failed = SpanError(code=str(body.status), message=_shorten(body.output)) if body.status else None
    trace.close_span(span, event, failed)
    span.start = max(trace.start, span.start - body.duration_ms)
    span.detail = {"command": _shorten(body.command)}


def _add_call(trace: Trace, event: Event, body: Body) -> None:
    match body:
        case ContextCompacted(before=before, after=after):
            parent, name = trace.parent_at(event.path), f"{before} → {after} tokens"
            trace.close_span(trace.add_span(event, "compaction", f"compaction:{event.id}", parent, name), event)
        case progress.ToolCalled(call=call):
            called = trace.add_span(event, "tool", call.id, trace.parent_at(event.path), call.name)
            called.detail = {"arguments": _arguments_of(call)}
        case progress.ToolStarted(call=call, attempt=attempt):
            if (span := trace.by_id.get(call.id)) is not None:
                began = _milliseconds(event.ts) - span.start
                attempts = {"attempt": attempt} if attempt > 1 else {}
                span.detail = {**span.detail, "arguments": _arguments_of(call), "started_ms": began, **attempts}
                span.status = "running"
        case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
            if (span := trace.by_id.get(result.call)) is not None:
                failed = result.failed or isinstance(body, progress.ToolFailed)
                error = SpanError(code=result.reason or "failed", message=_shorten(result.text)) if failed else None
                trace.close_span(span, event, error)
        case progress.TurnResumed():
            trace.root.detail = {**trace.root.detail, "resumed": trace.root.detail.get("resumed", 0) + 1}
        case _:
            pass


def _turn_end(body: Body) -> tuple[str, SpanError | None]:
    match body:
        case progress.TurnCompleted(stop=stop, limit=limit):
            return limit or stop, None
        case progress.TurnFailed(code=code, message=message):
            return "failed", SpanError(code=code, message=_shorten(message))
        case progress.TurnInterrupted(note=note):
            return "interrupted", SpanError(code="interrupted", message=_shorten(note))
        case progress.TurnCancelled(note=note):
            return "cancelled", SpanError(code="cancelled", message=_shorten(note))
        case _:
            raise AssertionError(body)


def _is_decided(body: Body) -> bool:
    return isinstance(body, control.ApprovalResolved | control.ApprovalExpired | control.QuestionAnswered)


def _decision_of(body: Body) -> tuple[str, str, str]:
    """Return the id of a decision, what was decided, and by whom."""
    match body:
        case control.ApprovalResolved(approval=id, decision=decision, by=by):
            return id, decision, by
        case control.QuestionAnswered(question=id, by=by):
            return id, "answer", by
        case control.ApprovalExpired(approval=id):
            return id, "expired", ""
        case _:
            raise AssertionError(body)


def _arguments_of(call: ToolCall) -> str:
    return _shorten(call.raw or msgspec.json.encode(call.arguments).decode())


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_DETAIL_CHARS else f"{text[: MAX_DETAIL_CHARS - 1]}…"


def describe_span(span: Span, start: int) -> SpanDocument:
    """Return a span as JSON data, with times relative to ``start``."""
    return SpanDocument(
        id=span.id,
        parent=span.parent,
        kind=span.kind,
        name=span.name,
        path=span.path,
        start_ms=span.start - start,
        end_ms=None if span.end is None else span.end - start,
        status=span.status,
        cursor=span.cursor,
        end_cursor=span.end_cursor,
        detail=span.detail,
        error=span.error or UNSET,
        tokens=UNSET if span.usage is None else TraceTokens.from_usage(span.usage),
        cost=UNSET if span.usage is None else span.usage.cost,
        ttft_ms=UNSET if span.ttft_ms is None else span.ttft_ms,
    )


def describe_session(session: str, traces: Iterable[Trace]) -> TraceDocument | None:
    """Return all turns of a session as one trace, with times relative to the first of them; ``None`` without turns."""
    known = list(traces)
    if not known:
        return None
    spans = [describe_span(span, known[0].start) for trace in known for span in trace.spans]
    return TraceDocument(**_head_of(session, known), spans=spans)


def _head_of(id: str, traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the fields of ``TraceHead`` for turns that follow each other."""
    first, last = traces[0], traces[-1]
    end = last.root.end if last.root.end is not None else last.last
    usage = sum((trace.usage for trace in traces), Usage())
    return {
        "id": id,
        "session": first.session,
        "agent": last.agent,
        "status": last.status,
        "started": first.started,
        "duration_ms": end - first.start,
        "tokens": TraceTokens.from_usage(usage),
        "cost": usage.cost,
        "ttft_ms": first.ttft_ms,
        "error": last.error or UNSET,
    }


@lru_cache(maxsize=64)
def _milliseconds(ts: str) -> int:
    return round(datetime.fromisoformat(ts).timestamp() * 1000)


def start_of(trace: TraceDocument) -> int:
    """Return when a trace began, in milliseconds since 1970."""
    return _milliseconds(trace.started)
