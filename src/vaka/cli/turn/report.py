"""The result of a turn, and its report as text or JSON."""

import asyncio
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vaka.cli.display.plain_renderer import format_cost, tokens_text
from vaka.cli.kit.errors import APPROVAL, LIMIT, MODEL, OK, ErrorDescription, describe_error, exit_code_of
from vaka.cli.kit.render import as_printable, compact_json, shorten, typed_command
from vaka.cli.kit.stdout import echo, own_stdout
from vaka.cli.strings import translate
from vaka.core.types import control, monitor, progress
from vaka.core.types.ending import Response
from vaka.core.types.errors import Closed, Rejected, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import ToolResult, Usage
from vaka.runtime.turn_stream import TurnCollector

if TYPE_CHECKING:
    from vaka.cli.display.turn_display import TurnDisplay
    from vaka.runtime.structured_output import OutputSchema

_ATOMIC_BYTES = select.PIPE_BUF if sys.platform != "win32" else 0
"""Bytes that fit into any pipe that can be written to at all."""
_DECISION_TYPES = (control.ApprovalResolved, control.ApprovalExpired, control.QuestionAnswered)
_REFUSAL_REASONS = ("denied", "expired")


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: the last line of ``stream-json``, the only one of ``json``."""

    status: str
    """completed, limit, denied, suspended, failed, cancelled or interrupted."""
    exit_code: int
    text: str = ""
    session_id: str | None = None
    turn_id: str | None = None
    stop: str | None = None
    limit: str | None = None
    structured_output: Any = None
    """The parsed answer, with an output schema."""
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
    """Collects the result of one turn from its events."""

    def __init__(self) -> None:
        self.session: SessionId | None = None
        self.collector = TurnCollector(SessionId(""))
        self.models: dict[str, Usage] = {}
        self.calls: dict[CallId, dict[str, Any]] = {}
        self.denials: list[dict[str, Any]] = []
        self.recovered = True
        """False after a refused call, until another call succeeds."""
        self.is_shared = False
        """Whether the reader of the turn records its events in ``collector``."""
        self.signal = 0
        """The exit code of the signal that stopped the turn, else 0."""
        self._started_at = time.monotonic()
        self._first_output_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the turn has ended."""
        return self.collector.ended

    def begin_turn(self) -> None:
        """Forget a turn that has ended: another one begins, whose result this is."""
        self.collector = TurnCollector(SessionId(""))
        self.is_shared = False
        self.models = {}
        self.calls = {}
        self.denials = []
        self.recovered = True
        self._first_output_at = None
        self._started_at = time.monotonic()

    def share_collector(self, session: SessionId) -> TurnCollector:
        """Return the collector for the reader of a new turn; without it, ``record`` has to record every event."""
        self.is_shared, self.collector.session = True, session
        return self.collector

    def record(self, event: Event) -> None:
        if not self.is_shared:
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
        return bool(self.collector.turn)

    def build_result(
        self, failure: ErrorDescription | None = None, decisions: Sequence[dict[str, Any]] = ()
    ) -> RunResult:
        """Return the result; ``failure`` is why the turn has no end event, ``decisions`` are what it waits for."""
        ended = self.collector.summarize() if self.collector.ended else None
        status, code = _status_of(ended, failure, suspended=bool(decisions), recovered=self.recovered)
        code = self.signal or code if status in ("interrupted", "cancelled") else code
        now = time.monotonic()
        usage = ended.usage if ended else sum(self.models.values(), Usage())
        durations = {
            "total_ms": _milliseconds(now - self._started_at),
            "ttft_ms": self._first_output_at and _milliseconds(self._first_output_at - self._started_at),
        }
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
            durations=durations,
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


class Report:
    """Prints one run in one of three formats: ``text``, ``json`` or ``stream-json``."""

    def __init__(self, output: str, *, quiet: bool = False, verbose: bool = False, file: Path | None = None) -> None:
        self.quiet, self.file = quiet, file
        self.recorder = TurnRecorder()
        self.final_result: RunResult | None = None
        self.output_schema: OutputSchema | None = None
        """The schema that the answer must match."""
        self.is_stored = False
        """Whether the summary names the command that continues the session."""
        self.store = ""
        """The store that the command line names, for the commands that are printed."""
        self.server = ""
        """The server that has run the turn, where its decisions are made."""
        self._session_written = False
        self._display = None if quiet else _make_display(verbose=verbose)
        self.set_format(output)

    def set_format(self, format: str) -> None:
        """Choose the format; only before anything is written."""
        self.format = format
        if self._display is not None:
            self._display.streams_answers = format == "text" and own_stdout().isatty()

    def write_session(self, **facts: Any) -> None:
        """Write the first line of ``stream-json``."""
        self._session_written = True
        if self.format == "stream-json":
            _write_line(msgspec.json.encode({"type": "session", **facts}))

    def write_input_error(self, line: int, code: str, message: str) -> None:
        """Write that a line of the input could not be used."""
        _write_line(msgspec.json.encode({"type": "error", "line": line, "error": {"code": code, "message": message}}))

    def replay(self, event: Event) -> None:
        """Record an event that was printed before."""
        self.recorder.record(event)
        if self._display is not None:
            self._display.skip(event)

    async def write_event(self, event: Event) -> None:
        """Print an event; a slow reader of stdout does not block the event loop."""
        if isinstance(event.data, progress.TurnStarted) and self.recorder.ended and not self.recorder.is_shared:
            self._report_earlier_turn()
        self.recorder.record(event)
        if self.format == "stream-json":
            await write_line_unblocked(event.to_json())
        if self._display is not None:
            self._display.show(event)

    def show_decision(self, event: Event) -> None:
        """Print who has decided what; the events of a turn do not include it."""
        if self._display is not None and isinstance(event.data, _DECISION_TYPES):
            self._display.show(event)

    @property
    def display(self) -> "TurnDisplay | None":
        """The display of progress, ``None`` if quiet."""
        return self._display

    def _report_earlier_turn(self) -> None:
        """Print how a turn ended that was finished first."""
        ended = self.recorder.collector.summarize()
        text = translate("an earlier turn has ended ({stop}): {text}", stop=ended.stop, text=ended.text or ended.error)
        self.print_note(text.rstrip(": "))
        self.recorder.begin_turn()

    def print_note(self, text: str) -> None:
        """Print a line of progress on stderr, unless quiet."""
        if text and self._display is not None:
            self._display.note(text)

    def finish(self, decisions: Sequence[dict[str, Any]] = (), *, hint: str = "") -> int:
        """Write the result of a turn that has ended or waits; return the exit code. ``hint``: what avoids refusals."""
        result = self._write_result(None, decisions)
        if result.status in ("failed", "limit", "cancelled", "interrupted"):
            click.echo(f"error: {_error_text(result)}", err=True)
        elif result.status == "denied" and result.error is not None:
            click.echo(f"error: {_error_text(result)}; send another prompt to continue", err=True)
        elif result.status == "denied":
            names = ", ".join(denial["name"] for denial in result.denials)
            advice = f"; {hint}" if hint else ""
            click.echo(f"error: refused: {as_printable(names)}; no call succeeded after that{advice}", err=True)
        elif hint:
            self.print_note(hint)
        for decision in decisions:
            click.echo(translate("waiting: {what}", what=decision_hint(decision, self.store, self.server)), err=True)
        if not decisions:
            self._print_summary(result)
        return result.exit_code

    def _print_summary(self, result: RunResult) -> None:
        """Print what the turn has used, and how the session goes on."""
        if self.format != "text" or not result.turn_id:
            return
        facts = [tokens_text(result.usage["total"]) if result.usage["total"] else ""]
        facts += [format_cost(result.cost)]
        if self.is_stored and (result.error or {}).get("code") != Closed.code:
            command = typed_command("run", "--session", result.session_id or "", store=self.store)
            facts += [translate("continue with: {command}", command=command)]
        self.print_note(" · ".join(fact for fact in facts if fact))

    def write_failure(self, error: BaseException) -> None:
        """Write the result of a run that broke off; the caller prints the error."""
        if self.final_result is None:
            self._write_result(describe_error(error), ())

    def _write_result(self, failure: ErrorDescription | None, decisions: Sequence[dict[str, Any]]) -> RunResult:
        self.final_result = result = self._parse_output(self.recorder.build_result(failure, decisions))
        if self._display is not None:
            self._display.close()
        if self.format == "json":
            _write_line(msgspec.json.encode(result))
        elif self.format == "stream-json":
            if not self._session_written:
                self.write_session(session_id=None)
            _write_line(msgspec.json.encode({"type": "result", **msgspec.to_builtins(result)}))
        elif self.format == "text" and result.text and not self._was_streamed(result.text):
            echo(result.text)
        if self.file is not None and (result.text or result.exit_code == OK):
            self.file.write_text(result.text, encoding="utf-8")
        return result

    def _parse_output(self, result: RunResult) -> RunResult:
        """Return a result with the answer parsed by the output schema; an answer that does not match is a failure."""
        if self.output_schema is None or result.stop != "end":
            return result
        try:
            value = self.output_schema.parse(result.text)
        except TurnError as error:
            fault = {"code": error.code, "message": str(error)}
            return msgspec.structs.replace(result, status="failed", exit_code=MODEL, error=fault)
        text = self.output_schema.extract_json(result.text)
        return msgspec.structs.replace(result, text=text, structured_output=to_plain_data(value))

    def _was_streamed(self, text: str) -> bool:
        return self._display is not None and self._display.has_written(text)


def to_plain_data(value: Any) -> Any:
    """Return a parsed answer, a Pydantic model included, as plain data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=str)


def decision_hint(decision: dict[str, Any], store: str = "", server: str = "") -> str:
    """Return an open decision with the command that settles it, or the server where it is decided."""
    id, summary = decision["id"], as_printable(decision["summary"], lines=False)
    if decision["kind"] == "approval":
        summary += f" ({shorten(decision['reason'])})" if decision["reason"] else ""
    if server:
        return f"{id} {summary} · {translate('decide it at {server}', server=server)}"
    if decision["kind"] == "approval":
        return f"{id} {summary} · {typed_command('approvals', 'resolve', id, store=store)} --approve|--reject"
    return f"{id} {summary} · {typed_command('approvals', 'answer', id, store=store)} ANSWER"


def _error_text(result: RunResult) -> str:
    if result.error is not None:
        return as_printable(" ".join(f"{result.error['message']}".split()))
    return f"limit reached: {result.limit}" if result.limit else compact_json(result.status)


async def write_line_unblocked(line: bytes) -> None:
    """Write a line of the result; where that could block, in a thread."""
    output = own_stdout().fileno()
    if len(line) < _ATOMIC_BYTES and select.select([], [output], [], 0)[1]:
        _write_line(line)
    else:
        await asyncio.to_thread(_write_line, line)


def _write_line(line: bytes) -> None:
    output = own_stdout().buffer
    output.write(line + b"\n")
    output.flush()


def _make_display(*, verbose: bool) -> "TurnDisplay":
    from vaka.cli.display.turn_display import TurnDisplay

    return TurnDisplay(verbose=verbose)
