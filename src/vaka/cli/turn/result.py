"""Fold the events of a turn into the result that ``--output json`` prints."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.cli.errors import APPROVAL, LIMIT, OK, ErrorDescription, exit_code_of
from vaka.core.types import monitor, progress
from vaka.core.types.errors import Rejected
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import ToolResult, Usage
from vaka.runtime.options import Response
from vaka.runtime.session import TurnCollector

_REFUSAL_REASONS = ("denied", "expired")


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. The last line of ``stream-json`` and the whole of ``json``."""

    status: str
    """completed, limit, denied, suspended, failed, cancelled or interrupted."""
    exit_code: int
    text: str = ""
    session_id: str | None = None
    turn_id: str | None = None
    stop: str | None = None
    limit: str | None = None
    structured_output: Any = None
    """The answer as data, where --output-schema wants it."""
    usage: dict[str, Any] = {}
    models: dict[str, dict[str, Any]] = {}
    cost: float = 0.0
    steps: int = 0
    tool_calls: list[dict[str, Any]] = []
    denials: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    durations: dict[str, float | None] = {}
    error: dict[str, str] | None = None


class TurnRecorder:
    """Counts the events of one turn."""

    def __init__(self) -> None:
        self.session: SessionId | None = None
        self.collector = TurnCollector(SessionId(""))
        self.models: dict[str, Usage] = {}
        self.calls: dict[CallId, dict[str, Any]] = {}
        self.denials: list[dict[str, Any]] = []
        self.recovered = True
        """False from a refused call on, until another call succeeds."""
        self.signal = 0
        """The exit code a signal asked for, when one came."""
        self._started_at = time.monotonic()
        self._first_output_at: float | None = None

    def record(self, event: Event) -> None:
        """Count an event."""
        self.collector.record(event)
        body = event.data
        if not isinstance(body, progress.TurnQueued):
            self.collector.turn = self.collector.turn or event.turn
        if isinstance(body, progress.TextDelta | progress.MessageSnapshot | progress.MessageCompleted):
            self._first_output_at = self._first_output_at or time.monotonic()
        elif isinstance(body, monitor.UsageRecorded):
            self.models[body.model] = self.models.get(body.model, Usage()) + body.usage
        elif isinstance(body, progress.ToolCalled | progress.ToolStarted):
            call = body.call
            self.calls[call.id] = {"id": call.id, "name": call.name, "arguments": call.arguments, "status": "open"}
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            self._record_result(body.result)

    @property
    def turn_started(self) -> bool:
        """Whether the turn runs, or has run."""
        return bool(self.collector.turn)

    def build_result(
        self, failure: ErrorDescription | None = None, decisions: Sequence[dict[str, Any]] = ()
    ) -> RunResult:
        """Return what the turn came to; ``told`` is why it came to no end, ``decisions`` what it waits for."""
        ended = self.collector.summarize() if self.collector.ended else None
        status, code = _status_of(ended, failure, suspended=bool(decisions), recovered=self.recovered)
        code = self.signal or code if status in ("interrupted", "cancelled") else code
        now = time.monotonic()
        usage = ended.usage if ended else sum(self.models.values(), Usage())
        return RunResult(
            status=status,
            exit_code=code,
            text=ended.text if ended else "",
            session_id=self.session,
            turn_id=self.collector.turn or None,
            stop=ended.stop if ended else None,
            limit=(ended.limit if ended else "") or None,
            usage=_usage_fields(usage),
            models={name: _usage_fields(used) for name, used in self.models.items()},
            cost=usage.cost,
            steps=self.collector.steps,
            tool_calls=list(self.calls.values()),
            denials=self.denials,
            decisions=list(decisions),
            error=_error_of(ended, failure),
            durations={
                "total_ms": _milliseconds(now - self._started_at),
                "ttft_ms": self._first_output_at and _milliseconds(self._first_output_at - self._started_at),
            },
        )

    def _record_result(self, result: ToolResult) -> None:
        call = self.calls.setdefault(result.call, {"id": result.call, "name": "", "arguments": {}})
        call["status"] = "failed" if result.failed else "completed"
        if result.failed:
            call["reason"] = result.reason
        if result.reason in _REFUSAL_REASONS:
            self.denials.append({"id": result.call, "name": call["name"], "message": result.text})
            self.recovered = False
        elif not result.failed:
            self.recovered = True


def _status_of(
    ended: Response | None, failure: ErrorDescription | None, *, suspended: bool, recovered: bool
) -> tuple[str, int]:
    if suspended:
        return "suspended", APPROVAL
    if ended is None:
        interrupted = failure is not None and failure.code in ("interrupted", "terminated")
        return ("interrupted" if interrupted else "failed"), failure.exit if failure else 1
    if ended.stop == "end":
        return ("completed", OK) if recovered else ("denied", APPROVAL)
    if ended.stop == "limit":
        return "limit", LIMIT
    if ended.code == Rejected.code:
        return "denied", APPROVAL
    return ended.stop, exit_code_of(ended.code or ended.stop)


def _error_of(ended: Response | None, failure: ErrorDescription | None) -> dict[str, str] | None:
    if ended is not None and ended.stop not in ("end", "limit"):
        return {"code": ended.code or ended.stop, "message": ended.error or ended.stop}
    return {"code": failure.code, "message": failure.message} if failure is not None and ended is None else None


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {**msgspec.structs.asdict(usage), "total": usage.total}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
