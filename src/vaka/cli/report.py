"""What a run writes: the result on stdout, everything else on stderr."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vaka.cli.errors import MODEL, OK, Told, told
from vaka.cli.render import Progress, Stream, Thoughts, compact, printable
from vaka.cli.tally import Result, Tally
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Event, encode
from vaka.core.types.progress import ReasoningDelta

if TYPE_CHECKING:
    from vaka.runtime.shape import Shape


class Report:
    """One run's output in one of three shapes: ``text``, ``json`` or ``stream-json``."""

    def __init__(self, output: str, *, quiet: bool = False, verbose: bool = False, file: Path | None = None) -> None:
        self.quiet, self.file = quiet, file
        self.tally = Tally()
        self.done: Result | None = None
        self.wanted: Shape | None = None
        """What the answer is to be."""
        self._opened = False
        self._progress = Progress(verbose=verbose)
        self._thoughts = Thoughts() if verbose and not quiet else None
        self.shape(output)

    def shape(self, output: str) -> None:
        """Choose the shape, before anything was written."""
        self.output = output
        live = output == "text" and sys.stdout.isatty() and not self.quiet
        self._stream = Stream(aside=self._thoughts is None) if live else None

    def session(self, **facts: Any) -> None:
        """Say which session this is, before anything of it."""
        self._opened = True
        if self.output == "stream-json":
            _write(msgspec.json.encode({"type": "session", **facts}))

    async def event(self, event: Event) -> None:
        """Show an event. A reader that is slow slows nobody but itself."""
        self.tally.see(event)
        if self.output == "stream-json":
            await asyncio.to_thread(_write, encode(event))
        thinking = isinstance(event.data, ReasoningDelta)
        for shown in (self._stream, self._thoughts) if thinking else (self._thoughts, self._stream):
            if shown is not None:
                shown.take(event)  # who has nothing to show ends its line first
        self.note(self._progress.line(event))

    def note(self, text: str) -> None:
        """Tell the person who watches, if one wants to know."""
        if text and not self.quiet:
            self._close()
            click.secho(printable(text), err=True, dim=True)

    def finish(self, decisions: Sequence[dict[str, Any]] = ()) -> int:
        """Write the result of a turn that has ended or waits; return the exit code."""
        result = self._settle(None, decisions)
        if result.status in ("failed", "limit", "cancelled", "interrupted"):
            click.echo(f"error: {_why(result)}", err=True)
        elif result.status == "denied" and result.error is not None:
            click.echo(f"error: {_why(result)}; the next prompt says how to go on", err=True)
        elif result.status == "denied":
            names = ", ".join(denial["name"] for denial in result.denials)
            click.echo(f"error: refused: {printable(names)}; no call succeeded after that", err=True)
        for decision in decisions:
            click.echo(f"waiting: {how_to_decide(decision)}", err=True)
        return result.exit_code

    def failed(self, error: BaseException) -> None:
        """Write the result of a run that broke off; what went wrong is said by whoever catches the error."""
        if self.done is None:
            self._settle(told(error), ())

    def _settle(self, told: Told | None, decisions: Sequence[dict[str, Any]]) -> Result:
        self.done = result = self._read(self.tally.result(told, decisions))
        self._close()
        if self.output == "json":
            _write(msgspec.json.encode(result))
        elif self.output == "stream-json":
            if not self._opened:
                self.session(session_id=None)
            _write(msgspec.json.encode({"type": "result", **msgspec.to_builtins(result)}))
        elif self.output == "text" and result.text and (self._stream is None or self._stream.shown != result.text):
            click.echo(result.text)
        if self.file is not None and (result.text or result.exit_code == OK):
            self.file.write_text(result.text, encoding="utf-8")
        return result

    def _read(self, result: Result) -> Result:
        """Return a result with its answer read as data, where data is wanted; what is none is a failure."""
        if self.wanted is None or result.stop != "end":
            return result
        try:
            value = self.wanted.read(result.text)
        except TurnError as error:
            fault = {"code": error.code, "message": str(error)}
            return msgspec.structs.replace(result, status="failed", exit_code=MODEL, error=fault)
        return msgspec.structs.replace(result, text=self.wanted.json(result.text), structured_output=plain(value))

    def _close(self) -> None:
        """End the lines that are open."""
        for shown in (self._stream, self._thoughts):
            if shown is not None:
                shown.close()


def plain(value: Any) -> Any:
    """Return a value of any type an answer may have as data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=str)


def how_to_decide(decision: dict[str, Any]) -> str:
    """Return what to type to decide something."""
    what = printable(decision["summary"], lines=False)
    if decision["kind"] == "approval":
        return f"{decision['id']} {what} · vaka approvals resolve {decision['id']} --approve|--reject"
    return f"{decision['id']} {what} · vaka approvals answer {decision['id']} ANSWER"


def print_json(value: Any) -> None:
    """Write a value as JSON on one line, or indented for a person."""
    text = msgspec.json.encode(value)
    click.echo(msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text)


def _why(result: Result) -> str:
    if result.error is not None:
        return " ".join(f"{result.error['message']}".split())
    return f"limit reached: {result.limit}" if result.limit else compact(result.status)


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
