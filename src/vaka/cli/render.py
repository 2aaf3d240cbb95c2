"""Events as text for people."""

import json
import sys
from typing import Any

import click
import msgspec

from vaka.core.types import control, monitor, progress
from vaka.core.types.content import text_of
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall, ToolResult

WIDTH = 100
"""Characters of arguments and results that a line shows."""


def printable(text: str, *, lines: bool = True) -> str:
    """Return ``text`` without what could steer a terminal: such characters are shown as escapes."""
    if text.isprintable():
        return text
    keep = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in text)


def short(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text on one line."""
    line = printable(" ".join(text.split()), lines=False)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def call_text(call: ToolCall, width: int = WIDTH) -> str:
    """Return a call on one line."""
    return f"{call.name} {short(call.raw or compact(call.arguments), width)}"


class Progress:
    """The lines a person sees while a turn runs. Remembers the names of the calls it has shown."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self._calls: dict[CallId, str] = {}

    def line(self, event: Event) -> str:
        """Return what to show of an event, ``""`` for nothing."""
        shown = self._tool(event) or _decision(event) or self._other(event)
        return f"{'  ' * len(event.path)}{shown}" if shown else ""

    def _tool(self, event: Event) -> str:
        match event.data:
            case progress.ToolCalled(call=call):
                self._calls[call.id] = call.name
                return ""
            case progress.ToolStarted(call=call, attempt=attempt):
                self._calls[call.id] = call.name
                return f"→ {call_text(call)}" + (f" (attempt {attempt})" if attempt > 1 else "")
            case progress.ToolCompleted(result=result):
                return f"← {self._name(result)}: {short(result.text)}"
            case progress.ToolFailed(result=result):
                return f"✗ {self._name(result)}: {short(result.text)}"
            case _:
                return ""

    def _other(self, event: Event) -> str:
        match event.data:
            case progress.TurnResumed():
                return "going on with the unfinished turn"
            case progress.SubagentStarted(agent=agent):
                return f"⇒ agent {agent}"
            case monitor.ModelFailed(model=model, message=message, retried=retried):
                return f"{model} failed, trying again: {short(message)}" if retried else ""
            case monitor.BudgetWarning(budget=budget, used=used, limit=limit):
                return f"{budget}: {used:g} of {limit:g} used"
            case monitor.Logged(level="warning" | "error" as level, message=message):
                return f"{level}: {short(message)}"
            case _:
                return self._detail(event)

    def _detail(self, event: Event) -> str:
        if not self.verbose:
            return ""
        match event.data:
            case progress.MessageDiscarded(reason=reason):
                return f"what came of the answer does not count: {short(reason)}"
            case progress.StepStarted(number=number, model=model):
                return f"step {number} ({model})"
            case monitor.UsageRecorded(usage=usage):
                return f"{usage.input} tokens in, {usage.output} out"
            case _:
                return ""

    def _name(self, result: ToolResult) -> str:
        return self._calls.get(result.call, result.call)


def _decision(event: Event) -> str:
    match event.data:
        case control.ApprovalRequested(approval=approval, call=call, reason=reason):
            return f"? {approval} asks: {call_text(call)}" + (f" ({short(reason)})" if reason else "")
        case control.ApprovalResolved():
            return _resolved(event.data)
        case control.ApprovalExpired(approval=approval):
            return f"nobody decided in time: {approval}"
        case control.QuestionAsked(question=question, text=text):
            return f"? {question} asks: {short(text)}"
        case control.QuestionAnswered(question=question, by=by):
            return f"answered by {printable(by or 'somebody', lines=False)}: {question}"
        case _:
            return ""


def lasting(body: Body) -> str:
    """Say for how long an answer counts."""
    scope, until = getattr(body, "scope", ""), getattr(body, "until", "")
    return f"{scope} until {until}" if until else scope


def _resolved(body: control.ApprovalResolved) -> str:
    """Return who decided what: where, for how long, by which rule, and why."""
    done = "approved" if body.decision == "approve" else "refused"
    where = f" ({body.source})" if body.source else ""
    kept = f" for the {lasting(body)}: {', '.join(body.rule.splitlines())}" if body.rule else ""
    edit = f" as {short(compact(body.edit))}" if body.edit is not None else ""
    why = f" ({short(body.message)})" if body.message else ""
    by = printable(body.by or "somebody", lines=False)
    return f"{done} by {by}{where}: {body.approval}{edit}{kept}{why}"


class Transcript:
    """A session as people read it: who said what, which tools ran."""

    def __init__(self, *, markdown: bool = False) -> None:
        self.markdown = markdown
        self._progress = Progress()

    def text(self, event: Event) -> str:
        """Return what to show of an event, ``""`` for nothing."""
        match event.data:
            case control.InputAdded(content=content):
                return self._said("User", text_of(content))
            case progress.MessageCompleted(content=content) if text_of(content):
                return self._said("Agent" if not event.path else f"Agent {event.path[-1]}", text_of(content))
            case progress.TurnFailed(code=code, message=message):
                return self._note(f"failed ({code}): {message}")
            case progress.TurnInterrupted(note=note) | progress.TurnCancelled(note=note):
                return self._note(f"{event.type.removeprefix('turn.')}{f': {note}' if note else ''}")
            case progress.TurnCompleted(stop="limit", limit=limit):
                return self._note(f"limit reached: {limit}")
            case control.SessionForked(origin=origin, cursor=cursor):
                return self._note(f"forked from {origin}@{cursor}")
            case control.SessionReverted(to=to):
                return self._note(f"taken back to {to}")
            case _:
                line = self._progress.line(event)
                return self._note(line) if line else ""

    def _said(self, who: str, text: str) -> str:
        return f"## {who}\n\n{text}\n" if self.markdown else f"{who}: {printable(text)}"

    def _note(self, text: str) -> str:
        return f"- {text}\n" if self.markdown else f"  {printable(text)}"


class Stream:
    """The answer on a terminal as it arrives, each character once."""

    kind: type[progress.TextDelta | progress.ReasoningDelta] = progress.TextDelta

    def __init__(self, *, aside: bool = True) -> None:
        """``aside``: what a model thinks is not shown, so it does not end the line either."""
        self.shown: str = ""
        """What was shown of the message that is last."""
        self._quiet: tuple[type[Body], ...] = (progress.ToolArgsDelta, progress.MessageSnapshot)
        self._quiet += (progress.ReasoningDelta,) if aside else ()
        self._message = ""
        self._block = self._before = 0
        self._open = False

    def take(self, event: Event) -> None:
        """Show what an event adds to the root agent's answer."""
        body = event.data
        if event.path:
            return
        if isinstance(body, progress.TextDelta | progress.ReasoningDelta) and type(body) is self.kind:
            self._more(body.message_id, body.block, body.text, body.offset)
        elif isinstance(body, progress.MessageSnapshot) and body.of == self.kind.type:
            self._more(body.message_id, body.block, body.text, 0)
        elif not isinstance(body, self._quiet):
            self.close()

    def close(self) -> None:
        """End the line that is open."""
        if self._open:
            self.write("\n")
            self._open = False

    def write(self, text: str) -> None:
        """Show some characters."""
        click.echo(text, nl=False)
        sys.stdout.flush()

    def _more(self, message: str, block: int, text: str, offset: int) -> None:
        if message != self._message:
            self.close()
            self.shown = ""
            self._message, self._block, self._before = message, block, 0
        if block != self._block:
            self._block, self._before = block, len(self.shown)
        seen = len(self.shown) - self._before
        if offset > seen:
            return  # a gap: the whole text comes at the end
        fresh = text[seen - offset :]
        if fresh:
            self.write(printable(fresh))
            self.shown += fresh
            self._open = True


class Thoughts(Stream):
    """What a model thinks, as it arrives, beside the answer."""

    kind = progress.ReasoningDelta

    def __init__(self) -> None:
        super().__init__(aside=True)

    def write(self, text: str) -> None:
        """Show some characters on stderr."""
        click.secho(text, nl=False, err=True, dim=True)
