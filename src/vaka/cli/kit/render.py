"""Terminal text: escaped strings, tables, JSON, a status line, and events as lines or as a transcript."""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TextIO
from unicodedata import east_asian_width
from urllib.parse import urlsplit

import click
import msgspec

from vaka.cli.kit.stdout import echo, own_stdout, result_width
from vaka.cli.strings import translate
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId
from vaka.core.types.message import ToolCall, text_of

MAX_LINE_WIDTH = 100
"""Characters of arguments and results that one line shows."""


MAX_MARKS = 4
"""Combining characters shown on one letter; more would be drawn over the lines above and below."""

_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u1ab0-\u1aff"
    f"\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]{{{MAX_MARKS + 1},}}"
)
_JOINER = re.compile("(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])")
"""A joiner within a word or a symbol, as some scripts and emoji need it."""


def typed_command(*words: str, store: str = "") -> str:
    """Return a command of vaka as it is typed, with its store, unless that has a password."""
    named = ("--store", store) if store and not urlsplit(store).password else ()
    return as_printable(quote_words("vaka", *words, *named), lines=False)


def quote_words(*words: str) -> str:
    """Return words as a shell reads them."""
    import shlex  # only hints show commands

    return shlex.join(words)


def as_printable(text: str, *, lines: bool = True, joiners: bool = False) -> str:
    """Return ``text`` with control and invisible characters escaped, so that it cannot control the terminal.

    With ``joiners`` those between two other characters that are not ASCII stay.
    """
    if not text.isascii():
        text = _MARKS.sub(lambda marks: marks[0][:MAX_MARKS], text)
    if text.isprintable():
        return text
    if lines and "\n" in text:
        return "\n".join(as_printable(line, joiners=joiners) for line in text.split("\n"))
    keep = "\t" if lines else ""
    kept = {match.start() for match in _JOINER.finditer(text)} if joiners else ()
    return "".join(c if c.isprintable() or c in keep or n in kept else json.dumps(c)[1:-1] for n, c in enumerate(text))


def width_of(text: str) -> int:
    """Return the columns that a text takes on a terminal: wide characters, such as Chinese ones, take two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, width: int = MAX_LINE_WIDTH) -> str:
    """Return the beginning of a text on one line, with an ellipsis where it is cut."""
    line = as_printable(" ".join(text.split()), lines=False)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def compact_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def call_text(call: ToolCall, width: int = MAX_LINE_WIDTH) -> str:
    return f"{call.name} {shorten(call.raw or compact_json(call.arguments), width)}"


def scope_text(body: Body) -> str:
    """Return the scope of a resolution and until when it applies."""
    scope, until = getattr(body, "scope", ""), getattr(body, "until", "")
    return translate("{scope} until {until}", scope=scope, until=until) if until else scope


def resolution_text(body: control.ApprovalResolved, call: str = "") -> str:
    """Return a decision with its author, edit, rule and reason, about a call or by the id of the approval."""
    author = author_of(body)
    approved = body.decision == "approve"
    refused = translate("refused by {author}", author=author)
    done = translate("approved by {author}", author=author) if approved else refused
    source = _in_parentheses(body.source) if not call else ""
    scope = scope_text(body)
    rules = ", ".join(body.rule.splitlines())
    edited = shorten(compact_json(body.edit))
    rule = translate(" for the {scope}: {rules}", scope=scope, rules=rules) if rules else ""
    edit = translate(" as {edited}", edited=edited) if body.edit is not None else ""
    what = call or body.approval
    return f"{done}{source}: {what}{edit}{rule}{_in_parentheses(shorten(body.message))}"


def author_of(body: Body) -> str:
    return as_printable(getattr(body, "by", "") or "unknown", lines=False)


def _in_parentheses(text: str) -> str:
    return f" ({text})" if text else ""


def compaction_text(body: context.ContextCompacted) -> str:
    """Return what a compaction did, with the tokens of the context before and after it."""
    if body.failure:
        text = translate("older messages left out: {why}", why=shorten(body.failure))
    elif body.summary:
        text = translate("older messages summarized")
    else:
        text = translate("long results of earlier calls shortened")
    sizes = translate("{before} → {after} tokens", before=body.before, after=body.after) if body.before else ""
    return f"{text}{_in_parentheses(sizes)}"


def cache_text(body: monitor.CacheBusted) -> str:
    """Return what made a prompt cache useless; nothing for a loss that is expected, as after a long pause."""
    parts = {
        "tools": translate("the tools have changed"),
        "system": translate("the system prompt has changed"),
        "messages": translate("old messages have changed"),
    }
    if body.cause not in parts:
        return ""
    names = [*[f"+{name}" for name in body.added], *[f"-{name}" for name in body.removed], *body.changed]
    text = f"{parts[body.cause]}{_in_parentheses(shorten(', '.join(names)))}"
    return translate("{tokens} tokens were not read from the prompt cache: {why}", tokens=body.tokens, why=text)


def result_of_compaction(event: Event | None, skipped: str) -> str:
    """Return the result of a compaction that a person asked for; ``skipped`` is why there is no ``event``."""
    if event is not None and isinstance(event.data, context.ContextCompacted):
        return compaction_text(event.data)
    if skipped:
        return translate("not compacted: {why}", why=shorten(skipped))
    return translate("there is nothing to summarize yet")


_LINES: dict[type[Body], Callable[[Any], str]] = {
    progress.ToolStarted: lambda body: (
        f"→ {call_text(body.call)}"
        + _in_parentheses(translate("attempt {number}", number=body.attempt) if body.attempt > 1 else "")
    ),
    progress.TurnResumed: lambda body: translate("resuming the unfinished turn"),
    progress.SubagentStarted: lambda body: translate("⇒ agent {name}", name=body.agent),
    progress.OutputRejected: lambda body: translate("asking again: {why}", why=shorten(body.feedback)),
    monitor.ModelFailed: lambda body: (
        translate("{model} failed, trying again: {why}", model=body.model, why=shorten(body.message))
        if body.retried
        else ""
    ),
    monitor.BudgetWarning: lambda body: translate(
        "{budget}: {used} of {limit} used", budget=body.budget, used=f"{body.used:g}", limit=f"{body.limit:g}"
    ),
    monitor.Logged: lambda body: f"{body.level}: {shorten(body.message)}" if body.level in ("warning", "error") else "",
    control.ApprovalRequested: lambda body: (
        translate("? {id} asks: {what}", id=body.approval, what=call_text(body.call))
        + _in_parentheses(shorten(body.reason))
    ),
    control.ApprovalResolved: resolution_text,
    control.ApprovalExpired: lambda body: translate("expired without a decision: {what}", what=body.approval),
    control.QuestionAsked: lambda body: translate("? {id} asks: {what}", id=body.question, what=shorten(body.text)),
    control.QuestionAnswered: lambda body: translate(
        "answered by {author}: {what}", author=author_of(body), what=body.question
    ),
    context.ContextCompacted: compaction_text,
    monitor.CacheBusted: cache_text,
    control.SessionErased: lambda body: translate("{count} events were erased", count=body.events),
    control.SessionUpdated: lambda body: (
        translate("the session belongs to {folder}", folder=body.workspace.root) if body.workspace else ""
    ),
}
"""The progress line of each kind of event, ``""`` for none."""

_VERBOSE_LINES: dict[type[Body], Callable[[Any], str]] = {
    progress.StepStarted: lambda body: translate("step {number} ({model})", number=body.number, model=body.model),
    monitor.UsageRecorded: lambda body: translate(
        "{input} tokens in, {output} out", input=body.usage.input, output=body.usage.output
    ),
}


def event_line(body: Body, *, verbose: bool = False) -> str:
    """Return the line of an event, ``""`` for none."""
    render = _LINES.get(type(body)) or (_VERBOSE_LINES.get(type(body)) if verbose else None)
    return render(body) if render is not None else ""


def stop_word(event: Event) -> str:
    """Return how a turn ended that was interrupted or cancelled."""
    return translate("interrupted") if event.type == "turn.interrupted" else translate("cancelled")


class Transcript:
    """Renders events as a conversation, in plain text or Markdown; with ``agent`` the conversation of a child agent."""

    def __init__(self, *, markdown: bool = False, agent: AgentPath = ()) -> None:
        self.markdown, self._agent = markdown, agent
        self._call_names: dict[CallId, str] = {}

    def render_event(self, event: Event) -> str:
        """Return the text of an event, ``""`` for none."""
        match event.data:
            case control.InputAdded(content=content) | progress.SubagentStarted(content=content) if self._is_input(
                event
            ):
                return self._message_text(translate("User"), text_of(content))
            case progress.MessageCompleted(content=content) if text_of(content):
                return self._message_text(" ".join([translate("Agent"), *event.path[-1:]]), text_of(content))
            case progress.TurnFailed(code=code, message=message):
                return self._note_text(translate("failed ({code}): {message}", code=code, message=message))
            case progress.TurnInterrupted(note=note) | progress.TurnCancelled(note=note):
                return self._note_text(f"{stop_word(event)}{f': {note}' if note else ''}")
            case progress.TurnCompleted(stop="limit", limit=limit):
                return self._note_text(translate("limit reached: {limit}", limit=limit))
            case control.SessionForked(origin=origin, cursor=cursor):
                return self._note_text(translate("forked from {origin}", origin=f"{origin}@{cursor}"))
            case control.SessionReverted(to=to):
                return self._note_text(translate("rewound to event {to}", to=to))
            case _:
                line = self._line_of(event.data)
                return self._note_text(f"{'  ' * len(event.path)}{line}") if line else ""

    def _is_input(self, event: Event) -> bool:
        body = event.data
        return not isinstance(body, progress.SubagentStarted) or (*event.path, body.child) == self._agent

    def _line_of(self, body: Body) -> str:
        """Return the line of an event; a result has the name of its tool."""
        if isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            sign, result = "✗" if isinstance(body, progress.ToolFailed) else "←", body.result
            return f"{sign} {self._call_names.get(result.call, result.call)}: {shorten(result.text)}"
        if isinstance(body, progress.ToolCalled | progress.ToolStarted):
            self._call_names[body.call.id] = body.call.name
        return event_line(body)

    def _message_text(self, who: str, text: str) -> str:
        return f"## {who}\n\n{text}\n" if self.markdown else f"{who}: {as_printable(text)}"

    def _note_text(self, text: str) -> str:
        return f"- {text}\n" if self.markdown else f"  {as_printable(text)}"


def print_json(value: Any) -> None:
    """Print a value as JSON: on one line, or indented on a terminal."""
    text = msgspec.json.encode(value)
    echo(msgspec.json.format(text, indent=2) if own_stdout().isatty() else text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a head; a terminal cuts long lines, a pipe gets all."""
    lines = [tuple(head), *(tuple(as_printable(cell, lines=False) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    edge = result_width()
    for line in lines:
        text = "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]])
        echo(text.rstrip()[:edge])


def format_age(ts: str) -> str:
    """Return the time since a timestamp of the log, in one unit."""
    seconds = max(time.time() - datetime.fromisoformat(ts).timestamp(), 0) if ts else 0
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


_CLEAR_LINE = "\x1b[1A\x1b[2K"
"""Go up one line and clear it. Each status ends with a newline, so that other output starts on a line of its own."""


class StatusLine:
    """Prints the steps of one operation in one line of a terminal; elsewhere only the first step and the end.

    Each step begins with the text of the first one; the end does not.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._prefix = ""

    def __call__(self, text: str) -> None:
        stream = self._stream or sys.stderr
        is_step = bool(self._prefix) and text.startswith(self._prefix)
        if stream.isatty():
            clear = _CLEAR_LINE if self._prefix else ""
            click.echo(clear + click.style(as_printable(text), dim=True), file=stream)
        elif not is_step:
            click.echo(as_printable(text), file=stream)
        self._prefix = self._prefix if is_step else "" if self._prefix else text


def count_things(count: int, one: str, several: str = "") -> str:
    """Return a number with a noun; ``several`` is its plural, by default with an s."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"
