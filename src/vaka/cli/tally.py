"""From the events of a turn to the result a program reads."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.cli.errors import APPROVAL, LIMIT, OK, Told, exit_code
from vaka.core.types import monitor, progress
from vaka.core.types.errors import Rejected
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import ToolResult
from vaka.core.types.usage import Usage
from vaka.runtime.options import Response
from vaka.runtime.outcome import Watcher

_REFUSED = ("denied", "expired")


class Result(msgspec.Struct, frozen=True, kw_only=True):
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


class Tally:
    """Counts the events of one turn."""

    def __init__(self) -> None:
        self.session: SessionId | None = None
        self.watcher = Watcher(SessionId(""))
        self.models: dict[str, Usage] = {}
        self.calls: dict[CallId, dict[str, Any]] = {}
        self.denials: list[dict[str, Any]] = []
        self.recovered = True
        """False from a refused call on, until another call succeeds."""
        self.signal = 0
        """The exit code a signal asked for, when one came."""
        self._began = time.monotonic()
        self._first: float | None = None

    def see(self, event: Event) -> None:
        """Count an event."""
        self.watcher.see(event)
        body = event.data
        if not isinstance(body, progress.TurnQueued):
            self.watcher.turn = self.watcher.turn or event.turn
        if isinstance(body, progress.TextDelta | progress.MessageSnapshot | progress.MessageCompleted):
            self._first = self._first or time.monotonic()
        elif isinstance(body, monitor.UsageRecorded):
            self.models[body.model] = self.models.get(body.model, Usage()) + body.usage
        elif isinstance(body, progress.ToolCalled | progress.ToolStarted):
            call = body.call
            self.calls[call.id] = {"id": call.id, "name": call.name, "arguments": call.arguments, "status": "open"}
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            self._settled(body.result)

    @property
    def begun(self) -> bool:
        """Whether the turn runs, or has run."""
        return bool(self.watcher.turn)

    def result(self, told: Told | None = None, decisions: Sequence[dict[str, Any]] = ()) -> Result:
        """Return what the turn came to; ``told`` is why it came to no end, ``decisions`` what it waits for."""
        ended = self.watcher.summary() if self.watcher.ended else None
        status, code = _verdict(ended, told, suspended=bool(decisions), recovered=self.recovered)
        code = self.signal or code if status in ("interrupted", "cancelled") else code
        now = time.monotonic()
        usage = ended.usage if ended else sum(self.models.values(), Usage())
        return Result(
            status=status, exit_code=code, text=ended.text if ended else "", session_id=self.session,
            turn_id=self.watcher.turn or None, stop=ended.stop if ended else None,
            limit=(ended.limit if ended else "") or None,
            usage=_tokens(usage), models={name: _tokens(used) for name, used in self.models.items()}, cost=usage.cost,
            steps=self.watcher.steps, tool_calls=list(self.calls.values()), denials=self.denials,
            decisions=list(decisions), error=_error(ended, told),
            durations={"total_ms": _ms(now - self._began), "ttft_ms": self._first and _ms(self._first - self._began)},
        )  # fmt: skip

    def _settled(self, result: ToolResult) -> None:
        call = self.calls.setdefault(result.call, {"id": result.call, "name": "", "arguments": {}})
        call["status"] = "failed" if result.failed else "completed"
        if result.failed:
            call["reason"] = result.reason
        if result.reason in _REFUSED:
            self.denials.append({"id": result.call, "name": call["name"], "message": result.text})
            self.recovered = False
        elif not result.failed:
            self.recovered = True


def _verdict(ended: Response | None, told: Told | None, *, suspended: bool, recovered: bool) -> tuple[str, int]:
    if suspended:
        return "suspended", APPROVAL
    if ended is None:
        interrupted = told is not None and told.code in ("interrupted", "terminated")
        return ("interrupted" if interrupted else "failed"), told.exit if told else 1
    if ended.stop == "end":
        return ("completed", OK) if recovered else ("denied", APPROVAL)
    if ended.stop == "limit":
        return "limit", LIMIT
    if ended.code == Rejected.code:
        return "denied", APPROVAL
    return ended.stop, exit_code(ended.code or ended.stop)


def _error(ended: Response | None, told: Told | None) -> dict[str, str] | None:
    if ended is not None and ended.stop not in ("end", "limit"):
        return {"code": ended.code or ended.stop, "message": ended.message or ended.stop}
    return {"code": told.code, "message": told.message} if told is not None and ended is None else None


def _tokens(usage: Usage) -> dict[str, Any]:
    return {**msgspec.structs.asdict(usage), "total": usage.total}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
