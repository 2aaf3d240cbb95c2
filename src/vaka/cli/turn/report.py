"""The output of a run: the result on stdout, progress on stderr, as text, JSON or stream-JSON."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vaka.cli.errors import MODEL, OK, ErrorDescription, describe_error
from vaka.cli.render import AnswerStream, ProgressRenderer, ReasoningStream, as_printable, compact_json
from vaka.cli.turn.result import RunResult, TurnRecorder
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Event, encode
from vaka.core.types.progress import ReasoningDelta

if TYPE_CHECKING:
    from vaka.runtime.structured_output import OutputSchema


class Report:
    """One run's output in one of three shapes: ``text``, ``json`` or ``stream-json``."""

    def __init__(self, output: str, *, quiet: bool = False, verbose: bool = False, file: Path | None = None) -> None:
        self.quiet, self.file = quiet, file
        self.recorder = TurnRecorder()
        self.final_result: RunResult | None = None
        self.output_schema: OutputSchema | None = None
        """What the answer is to be."""
        self._session_written = False
        self._progress = ProgressRenderer(verbose=verbose)
        self._reasoning_stream = ReasoningStream() if verbose and not quiet else None
        self.set_format(output)

    def set_format(self, format: str) -> None:
        """Choose the shape, before anything was written."""
        self.format = format
        live = format == "text" and sys.stdout.isatty() and not self.quiet
        self._answer_stream = AnswerStream(hide_reasoning=self._reasoning_stream is None) if live else None

    def write_session(self, **facts: Any) -> None:
        """Say which session this is, before anything of it."""
        self._session_written = True
        if self.format == "stream-json":
            _write_line(msgspec.json.encode({"type": "session", **facts}))

    async def write_event(self, event: Event) -> None:
        """Show an event. A reader that is slow slows nobody but itself."""
        self.recorder.record(event)
        if self.format == "stream-json":
            await asyncio.to_thread(_write_line, encode(event))
        thinking = isinstance(event.data, ReasoningDelta)
        for shown in (
            (self._answer_stream, self._reasoning_stream) if thinking else (self._reasoning_stream, self._answer_stream)
        ):
            if shown is not None:
                shown.show_event(event)  # who has nothing to show ends its line first
        self.print_note(self._progress.render_line(event))

    def print_note(self, text: str) -> None:
        """Tell the person who watches, if one wants to know."""
        if text and not self.quiet:
            self._close_streams()
            click.secho(as_printable(text), err=True, dim=True)

    def finish(self, decisions: Sequence[dict[str, Any]] = ()) -> int:
        """Write the result of a turn that has ended or waits; return the exit code."""
        result = self._write_result(None, decisions)
        if result.status in ("failed", "limit", "cancelled", "interrupted"):
            click.echo(f"error: {_error_text(result)}", err=True)
        elif result.status == "denied" and result.error is not None:
            click.echo(f"error: {_error_text(result)}; the next prompt says how to go on", err=True)
        elif result.status == "denied":
            names = ", ".join(denial["name"] for denial in result.denials)
            click.echo(f"error: refused: {as_printable(names)}; no call succeeded after that", err=True)
        for decision in decisions:
            click.echo(f"waiting: {decision_hint(decision)}", err=True)
        return result.exit_code

    def write_failure(self, error: BaseException) -> None:
        """Write the result of a run that broke off; what went wrong is said by whoever catches the error."""
        if self.final_result is None:
            self._write_result(describe_error(error), ())

    def _write_result(self, failure: ErrorDescription | None, decisions: Sequence[dict[str, Any]]) -> RunResult:
        self.final_result = result = self._parse_output(self.recorder.build_result(failure, decisions))
        self._close_streams()
        if self.format == "json":
            _write_line(msgspec.json.encode(result))
        elif self.format == "stream-json":
            if not self._session_written:
                self.write_session(session_id=None)
            _write_line(msgspec.json.encode({"type": "result", **msgspec.to_builtins(result)}))
        elif (
            self.format == "text"
            and result.text
            and (self._answer_stream is None or self._answer_stream.shown_text != result.text)
        ):
            click.echo(result.text)
        if self.file is not None and (result.text or result.exit_code == OK):
            self.file.write_text(result.text, encoding="utf-8")
        return result

    def _parse_output(self, result: RunResult) -> RunResult:
        """Return a result with its answer read as data, where data is wanted; what is none is a failure."""
        if self.output_schema is None or result.stop != "end":
            return result
        try:
            value = self.output_schema.parse(result.text)
        except TurnError as error:
            fault = {"code": error.code, "message": str(error)}
            return msgspec.structs.replace(result, status="failed", exit_code=MODEL, error=fault)
        return msgspec.structs.replace(
            result, text=self.output_schema.extract_json(result.text), structured_output=to_plain_data(value)
        )

    def _close_streams(self) -> None:
        """End the lines that are open."""
        for shown in (self._answer_stream, self._reasoning_stream):
            if shown is not None:
                shown.close()


def to_plain_data(value: Any) -> Any:
    """Return a value of any type an answer may have as data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=str)


def decision_hint(decision: dict[str, Any]) -> str:
    """Return what to type to decide something."""
    what = as_printable(decision["summary"], lines=False)
    if decision["kind"] == "approval":
        return f"{decision['id']} {what} · vaka approvals resolve {decision['id']} --approve|--reject"
    return f"{decision['id']} {what} · vaka approvals answer {decision['id']} ANSWER"


def _error_text(result: RunResult) -> str:
    if result.error is not None:
        return " ".join(f"{result.error['message']}".split())
    return f"limit reached: {result.limit}" if result.limit else compact_json(result.status)


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
