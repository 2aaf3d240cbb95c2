"""Terminal text: escaped strings, tables, JSON, a status line, and events as progress, transcript or stream."""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TextIO

import click
import msgspec

from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall, ToolResult, text_of

MAX_LINE_WIDTH = 100
"""Characters of arguments and results that a line shows."""


def as_printable(text: str, *, lines: bool = True) -> str:
    """Return ``text`` without what could steer a terminal: such characters are shown as escapes."""
    if text.isprintable():
        return text
    keep = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in text)


def shorten(text: str, width: int = MAX_LINE_WIDTH) -> str:
    """Return the beginning of a text on one line."""
    line = as_printable(" ".join(text.split()), lines=False)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def compact_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def call_text(call: ToolCall, width: int = MAX_LINE_WIDTH) -> str:
    """Return a call on one line."""
    return f"{call.name} {shorten(call.raw or compact_json(call.arguments), width)}"


class ProgressRenderer:
    """The lines a person sees while a turn runs. Remembers the names of the calls it has shown."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self._call_names: dict[CallId, str] = {}

    def render_line(self, event: Event) -> str:
        """Return what to show of an event, ``""`` for nothing."""
        shown = self._tool_line(event) or _decision_line(event) or self._status_line(event)
        return f"{'  ' * len(event.path)}{shown}" if shown else ""

    def _tool_line(self, event: Event) -> str:
        match event.data:
            case progress.ToolCalled(call=call):
                self._call_names[call.id] = call.name
                return ""
            case progress.ToolStarted(call=call, attempt=attempt):
                self._call_names[call.id] = call.name
                return f"→ {call_text(call)}" + (f" (attempt {attempt})" if attempt > 1 else "")
            case progress.ToolCompleted(result=result):
                return f"← {self._call_name(result)}: {shorten(result.text)}"
            case progress.ToolFailed(result=result):
                return f"✗ {self._call_name(result)}: {shorten(result.text)}"
            case _:
                return ""

    def _status_line(self, event: Event) -> str:
        match event.data:
            case progress.TurnResumed():
                return "going on with the unfinished turn"
            case progress.SubagentStarted(agent=agent):
                return f"⇒ agent {agent}"
            case monitor.ModelFailed(model=model, message=message, retried=retried):
                return f"{model} failed, trying again: {shorten(message)}" if retried else ""
            case monitor.BudgetWarning(budget=budget, used=used, limit=limit):
                return f"{budget}: {used:g} of {limit:g} used"
            case monitor.Logged(level="warning" | "error" as level, message=message):
                return f"{level}: {shorten(message)}"
            case _:
                return self._verbose_line(event)

    def _verbose_line(self, event: Event) -> str:
        if not self.verbose:
            return ""
        match event.data:
            case progress.MessageDiscarded(reason=reason):
                return f"what came of the answer does not count: {shorten(reason)}"
            case progress.StepStarted(number=number, model=model):
                return f"step {number} ({model})"
            case monitor.UsageRecorded(usage=usage):
                return f"{usage.input} tokens in, {usage.output} out"
            case _:
                return ""

    def _call_name(self, result: ToolResult) -> str:
        return self._call_names.get(result.call, result.call)


def _decision_line(event: Event) -> str:
    match event.data:
        case control.ApprovalRequested(approval=approval, call=call, reason=reason):
            return f"? {approval} asks: {call_text(call)}" + (f" ({shorten(reason)})" if reason else "")
        case control.ApprovalResolved():
            return _resolution_line(event.data)
        case control.ApprovalExpired(approval=approval):
            return f"nobody decided in time: {approval}"
        case control.QuestionAsked(question=question, text=text):
            return f"? {question} asks: {shorten(text)}"
        case control.QuestionAnswered(question=question, by=by):
            return f"answered by {as_printable(by or 'somebody', lines=False)}: {question}"
        case _:
            return ""


def scope_text(body: Body) -> str:
    """Say for how long an answer counts."""
    scope, until = getattr(body, "scope", ""), getattr(body, "until", "")
    return f"{scope} until {until}" if until else scope


def _resolution_line(body: control.ApprovalResolved) -> str:
    """Return who decided what: where, for how long, by which rule, and why."""
    done = "approved" if body.decision == "approve" else "refused"
    where = f" ({body.source})" if body.source else ""
    kept = f" for the {scope_text(body)}: {', '.join(body.rule.splitlines())}" if body.rule else ""
    edit = f" as {shorten(compact_json(body.edit))}" if body.edit is not None else ""
    why = f" ({shorten(body.message)})" if body.message else ""
    by = as_printable(body.by or "somebody", lines=False)
    return f"{done} by {by}{where}: {body.approval}{edit}{kept}{why}"


class Transcript:
    """A session as people read it: who said what, which tools ran."""

    def __init__(self, *, markdown: bool = False) -> None:
        self.markdown = markdown
        self._progress = ProgressRenderer()

    def render_event(self, event: Event) -> str:
        """Return what to show of an event, ``""`` for nothing."""
        match event.data:
            case control.InputAdded(content=content):
                return self._message_text("User", text_of(content))
            case progress.MessageCompleted(content=content) if text_of(content):
                return self._message_text("Agent" if not event.path else f"Agent {event.path[-1]}", text_of(content))
            case progress.TurnFailed(code=code, message=message):
                return self._note_text(f"failed ({code}): {message}")
            case progress.TurnInterrupted(note=note) | progress.TurnCancelled(note=note):
                return self._note_text(f"{event.type.removeprefix('turn.')}{f': {note}' if note else ''}")
            case progress.TurnCompleted(stop="limit", limit=limit):
                return self._note_text(f"limit reached: {limit}")
            case control.SessionForked(origin=origin, cursor=cursor):
                return self._note_text(f"forked from {origin}@{cursor}")
            case control.SessionReverted(to=to):
                return self._note_text(f"taken back to {to}")
            case _:
                line = self._progress.render_line(event)
                return self._note_text(line) if line else ""

    def _message_text(self, who: str, text: str) -> str:
        return f"## {who}\n\n{text}\n" if self.markdown else f"{who}: {as_printable(text)}"

    def _note_text(self, text: str) -> str:
        return f"- {text}\n" if self.markdown else f"  {as_printable(text)}"


class AnswerStream:
    """The answer on a terminal as it arrives, each character once."""

    delta_type: type[progress.TextDelta | progress.ReasoningDelta] = progress.TextDelta

    def __init__(self, *, hide_reasoning: bool = True) -> None:
        """``aside``: what a model thinks is not shown, so it does not end the line either."""
        self.shown_text: str = ""
        """What was shown of the message that is last."""
        self._ignored_types: tuple[type[Body], ...] = (progress.ToolArgsDelta, progress.MessageSnapshot)
        self._ignored_types += (progress.ReasoningDelta,) if hide_reasoning else ()
        self._message = ""
        self._block = self._block_start = 0
        self._line_open = False

    def show_event(self, event: Event) -> None:
        """Show what an event adds to the root agent's answer."""
        body = event.data
        if event.path:
            return
        if isinstance(body, progress.TextDelta | progress.ReasoningDelta) and type(body) is self.delta_type:
            self._append(body.message_id, body.block, body.text, body.offset)
        elif isinstance(body, progress.MessageSnapshot) and body.of == self.delta_type.type:
            self._append(body.message_id, body.block, body.text, 0)
        elif not isinstance(body, self._ignored_types):
            self.close()

    def close(self) -> None:
        """End the line that is open."""
        if self._line_open:
            self.write("\n")
            self._line_open = False

    def write(self, text: str) -> None:
        """Show some characters."""
        click.echo(text, nl=False)
        sys.stdout.flush()

    def _append(self, message: str, block: int, text: str, offset: int) -> None:
        if message != self._message:
            self.close()
            self.shown_text = ""
            self._message, self._block, self._block_start = message, block, 0
        if block != self._block:
            self._block, self._block_start = block, len(self.shown_text)
        seen = len(self.shown_text) - self._block_start
        if offset > seen:
            return  # a gap: the whole text comes at the end
        fresh = text[seen - offset :]
        if fresh:
            self.write(as_printable(fresh))
            self.shown_text += fresh
            self._line_open = True


class ReasoningStream(AnswerStream):
    """What a model thinks, as it arrives, beside the answer."""

    delta_type = progress.ReasoningDelta

    def __init__(self) -> None:
        super().__init__(hide_reasoning=True)

    def write(self, text: str) -> None:
        """Show some characters on stderr."""
        click.secho(text, nl=False, err=True, dim=True)


def print_json(value: Any) -> None:
    """Write a value as JSON on one line, or indented for a person."""
    text = msgspec.json.encode(value)
    click.echo(msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a head; to a pipe nothing is cut."""
    lines = [tuple(head), *(tuple(as_printable(cell, lines=False) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        text = "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]])
        click.echo(text.rstrip()[:edge])


def format_age(ts: str) -> str:
    """Return how long ago a time of the log was, in one unit."""
    seconds = max(time.time() - datetime.fromisoformat(ts).timestamp(), 0) if ts else 0
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


_CLEAR_LINE = "\x1b[1A\x1b[2K"
"""One line up, and nothing left of it: the line is whole each time, so that whatever comes next has one of its own."""


class StatusLine:
    """Tells each step in one line that is written anew on a terminal; elsewhere only the first step and the end.

    A step begins with the words of the first one; the end does not.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._prefix = ""

    def __call__(self, text: str) -> None:
        """Take the next words."""
        screen = self._stream or sys.stderr
        goes_on = bool(self._prefix) and text.startswith(self._prefix)
        if screen.isatty():
            again = _CLEAR_LINE if self._prefix else ""
            click.echo(again + click.style(as_printable(text), dim=True), file=screen)
        elif not goes_on:
            click.echo(as_printable(text), file=screen)
        self._prefix = self._prefix if goes_on else "" if self._prefix else text
