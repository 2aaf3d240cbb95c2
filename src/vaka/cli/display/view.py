"""The display of a session in a terminal: finished text for the scroll-back, and the state of running parts.

Everything comes from the events of the session, so a second terminal, and a later one, show the same.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from vaka.cli.display.call_summary import summary_of, traits_of
from vaka.cli.display.plain_renderer import (
    LineStream,
    MarkdownBlock,
    PlainRenderer,
    PlainStream,
    format_seconds,
    shorten_end,
    tokens_text,
)
from vaka.cli.display.running import RunningAgents, RunningCall
from vaka.cli.kit.render import as_printable, author_of, event_line, resolution_text, shorten, stop_word, width_of
from vaka.cli.strings import translate
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, DecisionId, MessageId
from vaka.core.types.message import Reasoning, Stored, ToolCall, ToolResult, Usage, text_of

if TYPE_CHECKING:
    from vaka.cli.display.markdown import MarkdownStream

MAX_CARDS = 200
"""Tool calls whose whole result can still be shown."""
MAX_TODO_LINES = 8
"""Items of the to-do list that stay on the screen."""
MAX_RUNNING_CALLS = 4
"""Running calls that are shown."""
TICK_SECONDS = 0.1
"""Seconds between two frames of the spinner."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TODO_KEY = "todos"
"""The session value of the to-do list."""

TextStream: TypeAlias = "MarkdownStream | PlainStream | LineStream"
"""Splits streamed text into the blocks that are shown."""


def refused_hosts(result: ToolResult) -> list[str]:
    """Return what a person reads about the hosts that the sandbox has refused to a command."""
    value: Any = result.value
    entries: Any = cast("dict[str, Any]", value).get("refused_hosts") if isinstance(value, dict) else None
    return [_refused_host(entry) for entry in cast("Sequence[Any]", entries)] if isinstance(entries, list) else []


def _refused_host(given: Any) -> str:
    entry = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    rule, place = entry.get("rule"), entry.get("trusted_host")
    flags = [f"--allow '{rule}'"] if rule else []
    flags += [f"--allow-host {place}"] if place else []
    if not flags:
        return translate("the sandbox refused the network to {host}: a rule denies it", host=str(entry.get("host")))
    return translate(
        "the sandbox refused the network to {host}; commands reach it with {flags}",
        host=str(entry.get("host")),
        flags=" ".join(flags),
    )


class MessageText:
    """The text of the root agent's messages, or their reasoning, in blocks; each character once."""

    def __init__(
        self,
        new_stream: Callable[[], TextStream],
        *,
        delta: type[progress.TextDelta | progress.ReasoningDelta] = progress.TextDelta,
    ) -> None:
        self.hidden_bytes = 0
        """The size of the last message, if it is stored elsewhere and only its beginning could be returned."""
        self._last_text = ""
        self._is_stored = False
        self._new_stream, self._delta = new_stream, delta
        self._stream: TextStream | None = None
        self._message: MessageId | None = None
        self._length = 0
        """Characters received of all blocks of the message."""
        self._block, self._block_length = 0, 0

    @property
    def open_block(self) -> str:
        """The block that is not finished."""
        return self._stream.open_block if self._stream is not None else ""

    def has_text_of(self, message: MessageId) -> bool:
        return message == self._message and self._length > 0

    def take(self, event: Event) -> list[MarkdownBlock]:
        """Return the blocks that an event completes."""
        body = event.data
        if event.path:
            return []
        if isinstance(body, self._delta):
            return self._add(body.message_id, body.block, body.offset, body.text)
        if isinstance(body, progress.MessageSnapshot):
            is_ours = body.of == self._delta.type
            return self._add(body.message_id, body.block, body.offset, body.text) if is_ours else []
        if isinstance(body, progress.MessageCompleted):
            return self._complete(body)
        return self.close() if isinstance(body, _CLOSING_TYPES) else []

    def _add(self, message: MessageId, block: int, offset: int, text: str) -> list[MarkdownBlock]:
        blocks: list[MarkdownBlock] = []
        if message != self._message:
            blocks = self.close()
            self._message = message
            self._length = 0
            self._block = block
            self._block_length = 0
        self._stream = self._stream or self._new_stream()
        if block != self._block:
            blocks += self._stream.finish() if self._length else []
            self._block, self._block_length = block, 0
        if offset > self._block_length:
            return blocks  # a piece was lost; the complete message has it
        new = text[self._block_length - offset :]
        self._block_length += len(new)
        self._length += len(new)
        return blocks + self._stream.feed(new)

    def _complete(self, body: progress.MessageCompleted) -> list[MarkdownBlock]:
        """Add what was not received of a message, and end it."""
        if self._delta is progress.ReasoningDelta or body.model == progress.GIVEN_CALLS:
            return self.close()
        text = text_of(body.content)
        stored = next((part for part in body.content if isinstance(part, Stored)), None)
        streamed = self._message == body.message_id and self._length > 0
        blocks: list[MarkdownBlock] = []
        if not streamed or (self._length > len(text) and stored is None):
            blocks, self._length = self.close(), 0
        if missing := text[self._length :]:
            self._stream = self._stream or self._new_stream()
            blocks += self._stream.feed(missing)
        self._message, self._length = body.message_id, max(len(text), self._length)
        self._last_text, self._is_stored = text, stored is not None
        self.hidden_bytes = stored.size if stored is not None and not streamed else 0
        return blocks + self.close()

    def has_all_of(self, text: str) -> bool:
        """Whether a text is the last message, all of which was returned."""
        return len(text) == self._length if self._is_stored else text == self._last_text

    def close(self) -> list[MarkdownBlock]:
        """Return the rest of the text."""
        stream, self._stream = self._stream, None
        return stream.finish() if stream is not None else []


_CLOSING_TYPES = (
    progress.MessageDiscarded,
    progress.ToolStarted,
    progress.ToolCompleted,
    progress.ToolFailed,
    *progress.TURN_ENDS,
)
"""Events after which a message has no more text."""


_REASONING_ENDS = (progress.MessageCompleted, progress.MessageDiscarded, *progress.TURN_ENDS)


class ShownText(NamedTuple):
    """The text that an event adds, in order."""

    before: str = ""
    answer: str = ""
    after: str = ""


class SessionView:
    """Folds the events of a session into text for the scroll-back and the state of what is running."""

    def __init__(
        self,
        renderer: PlainRenderer,
        clock: Callable[[], float] = time.monotonic,
        *,
        conversation: bool = True,
        live: bool = True,
        verbose: bool = False,
    ) -> None:
        """Show inputs and the ends of turns in a ``conversation``; a run has them in its arguments and its result.

        What is running is shown by ``live_text``, if ``live``; otherwise the line of a call is shown when it starts.
        """
        self.renderer, self._clock = renderer, clock
        self._conversation = conversation
        self._live = live
        self._verbose = verbose
        self.running: dict[CallId, RunningCall] = {}
        self.pending: dict[DecisionId, Event] = {}
        """Open approvals and questions, oldest first."""
        self.queued: dict[str, str] = {}
        """Inputs that wait for their turn, by key."""
        self.todos: list[dict[str, Any]] = []
        self.agents = RunningAgents(clock, self._summarize)
        self.reasoning = ""
        """The reasoning of the last message that has some."""
        self.usage = Usage()
        self.context_tokens = 0
        """Tokens of the last request and its answer."""
        self.model = ""
        self.turn_inputs: tuple[str, ...] = ()
        """The keys of the inputs with which the running turn began."""
        self.runs_typed_calls = False
        """Whether the running turn makes calls that a person typed."""
        self.turn_since: float | None = None
        self.turns = 0
        self.activity = ""
        self.cards: deque[tuple[ToolCall, progress.ToolCompleted | progress.ToolFailed]] = deque(maxlen=MAX_CARDS)
        self.answer = MessageText(renderer.new_stream)
        self._reasoning = MessageText(LineStream, delta=progress.ReasoningDelta)
        self._reasoning_since: float | None = None
        self._head: CallId | None = None
        """The call whose line was shown last, with nothing below it."""
        self._handlers: dict[type[Any], Callable[[Event, Any], str]] = {
            control.InputAdded: self._on_input_added,
            control.InputWithdrawn: self._on_input_withdrawn,
            control.ApprovalRequested: self._on_asked,
            control.QuestionAsked: self._on_asked,
            control.ApprovalResolved: self._on_decided,
            control.ApprovalExpired: self._on_decided,
            control.QuestionAnswered: self._on_decided,
            control.StateChanged: self._on_state_changed,
            control.SessionReverted: self._on_reverted,
            context.ContextCompacted: self._on_compacted,
            control.SessionForked: self._on_forked,
            progress.TurnStarted: self._on_turn_started,
            progress.TurnResumed: self._on_turn_resumed,
            progress.TurnCompleted: self._on_turn_ended,
            progress.TurnFailed: self._on_turn_ended,
            progress.TurnCancelled: self._on_turn_ended,
            progress.TurnInterrupted: self._on_turn_ended,
            progress.StepStarted: self._on_step_started,
            progress.ReasoningDelta: self._on_reasoning,
            progress.ToolOutputDelta: self._on_tool_output,
            progress.MessageSnapshot: self._on_snapshot,
            progress.MessageCompleted: self._on_message_completed,
            progress.MessageDiscarded: self._on_message_discarded,
            progress.ToolCalled: self._on_tool_called,
            progress.ToolStarted: self._on_tool_started,
            progress.ToolCompleted: self._on_tool_ended,
            progress.ToolFailed: self._on_tool_ended,
            progress.SubagentStarted: self._on_child_started,
            monitor.UsageRecorded: self._on_usage,
        }

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self.turn_since is not None

    def take(self, event: Event) -> str:
        """Take an event and return the text that it adds to the scroll-back, ``""`` for none."""
        return "".join(self.take_parts(event))

    def take_parts(self, event: Event) -> ShownText:
        """Take an event and return the text that it adds, with the text of the answer on its own."""
        self.agents.take(event)
        blocks = self.answer.take(event) if not self.runs_typed_calls else []
        before = self._take_reasoning(event, ended=bool(blocks) or isinstance(event.data, _REASONING_ENDS))
        if blocks or isinstance(event.data, progress.TextDelta):
            self.activity = translate("answering") if not event.path else self.activity
        handler = self._handlers.get(type(event.data))
        after = handler(event, event.data) if handler is not None else self._event_note(event)
        shown = ShownText(before, self._render(blocks), after)
        if any(shown):
            body = event.data
            self._head = body.call.id if isinstance(body, progress.ToolStarted) and not self._live else None
        return shown

    def _render(self, blocks: list[MarkdownBlock]) -> str:
        return "".join(self.renderer.markdown(block.source, continued=block.continued) for block in blocks)

    def _event_note(self, event: Event) -> str:
        line = event_line(event.data, verbose=self._verbose)
        return self.renderer.note(f"{'  ' * len(event.path)}{line}", "warning") if line else ""

    def _take_reasoning(self, event: Event, *, ended: bool) -> str:
        """Return the reasoning, if verbose, else how long it took."""
        if event.path:
            return ""
        if self._verbose:
            lines = [*self._reasoning.take(event), *(self._reasoning.close() if ended else ())]
            return "".join(self.renderer.note(line.source) for line in lines)
        since = self._reasoning_since
        if since is None or not ended:
            return ""
        self._reasoning_since = None
        hint = translate(" (Ctrl-T shows it)") if self._conversation and self._live else ""
        return self.renderer.note(translate("reasoned for {time}", time=format_seconds(self._clock() - since)) + hint)

    def _pinned_todos(self) -> list[str]:
        """Return the to-do list while it has items that are not done: those, and the last that are done."""
        is_open = any(item.get("status") != "completed" for item in self.todos)
        lines = list(todo_lines(self.todos)) if is_open else []
        first = next((n for n, item in enumerate(self.todos) if item.get("status") != "completed"), 0)
        start = max(min(first - 1, len(lines) - MAX_TODO_LINES), 0)
        more = len(lines) - start - MAX_TODO_LINES
        return [
            *lines[start : start + MAX_TODO_LINES],
            *([translate("… {count} more", count=more)] if more > 0 else []),
        ]

    def live_text(self, hint: str) -> str:
        """Return what is running: the block that is being written, calls, the to-do list, and a line of activity."""
        renderer = self.renderer
        parts: list[str] = []
        if self.answer.open_block:
            parts.append(renderer.markdown(self.answer.open_block))
        for running in islice((call for call in self.running.values() if not call.path), MAX_RUNNING_CALLS):
            parts.append(renderer.tool_call(running.call, None))
            parts += [renderer.note(f"  │ {line[: renderer.width - 6]}") for line in running.tail()]
        parts += [renderer.note(shorten_end(line, renderer.width - 1)) for line in self.agents.lines()]
        parts += [renderer.note(shorten_end(line, renderer.width - 1)) for line in self._pinned_todos()]
        parts += [renderer.note(translate("queued: {text}", text=shorten(text, 60))) for text in self.queued.values()]
        if self.turn_since is not None:
            parts.append(self._activity_line(self._clock() - self.turn_since, hint))
        return "\n".join(part.rstrip("\n") for part in parts)

    def _activity_line(self, seconds: float, hint: str) -> str:
        frame = SPINNER[int(seconds / TICK_SECONDS) % len(SPINNER)]
        children = translate("{count} agents", count=len(self.agents)) if len(self.agents) > 1 else ""
        tokens = tokens_text(self.usage.output) if self.usage.output else ""
        started = [running.call for running in self.running.values() if running.started]
        activity = f"{started[-1].name} {shorten(self._summarize(started[-1]), 60)}" if started else self.activity
        activity = translate("waiting for an answer") if self.pending and not started else activity
        facts, room = [format_seconds(seconds), tokens, children, hint], self.renderer.width - 2
        for dropped in (tokens, children, hint):
            if width_of(" · ".join(filter(None, facts))) + min(width_of(activity), 30) > room - 5:
                facts.remove(dropped)
        tail = " · ".join(["", *filter(None, facts)])
        return self.renderer.note(f"{frame} {shorten(activity, max(room - width_of(tail) - 2, 6))}{tail}")

    def _on_input_added(self, event: Event, body: control.InputAdded) -> str:
        text = text_of(body.content)
        if self.busy and body.policy != "steer":
            self.queued[body.key] = text
            return ""
        return self._show_input(body.key, text)

    def _on_input_withdrawn(self, event: Event, body: control.InputWithdrawn) -> str:
        self.queued.pop(body.input, None)
        return ""

    def _show_input(self, key: str, text: str) -> str:
        self.queued.pop(key, None)
        return self.renderer.prompt(text) if text and self._conversation else ""

    def _on_turn_started(self, event: Event, body: progress.TurnStarted) -> str:
        if event.path:
            return ""
        self.turn_since = self._clock()
        self.turns += 1
        self.turn_inputs = body.inputs
        self.activity = translate("thinking")
        return "".join(self._show_input(key, self.queued[key]) for key in body.inputs if key in self.queued)

    def _on_turn_resumed(self, event: Event, body: progress.TurnResumed) -> str:
        self.turn_since, self.activity = self._clock(), translate("thinking")
        return self._event_note(event)

    def set_state(self, *, running: bool, pending: dict[DecisionId, Event]) -> None:
        """Set what the events so far may not tell: whether a process runs the turn, and which decisions are open."""
        self.pending = pending
        if not running:
            self._end_turn()
        elif self.turn_since is None:
            self.turn_since, self.activity = self._clock(), translate("thinking")

    def _end_turn(self) -> None:
        self.turn_since, self.activity = None, ""
        self.turn_inputs, self.runs_typed_calls = (), False
        self.running.clear()
        self.agents.clear()

    def _on_turn_ended(self, event: Event, body: Any) -> str:
        if event.path:
            return ""
        self._end_turn()
        return self._turn_end_note(event, body) if self._conversation else ""

    def _turn_end_note(self, event: Event, body: Any) -> str:
        match body:
            case progress.TurnFailed(code=code, message=message):
                text = translate("failed ({code}): {message}", code=code, message=message)
                return self.renderer.note(text, "failed") + "\n"
            case progress.TurnInterrupted(note=note) | progress.TurnCancelled(note=note):
                return self.renderer.note(f"{stop_word(event)}{f': {note}' if note else ''}", "warning") + "\n"
            case progress.TurnCompleted(stop="limit", limit=limit):
                text = translate("stopped: the limit of {limit} is reached", limit=limit)
                return self.renderer.note(text, "warning") + "\n"
            case _:
                return ""

    def _on_snapshot(self, event: Event, body: progress.MessageSnapshot) -> str:
        if body.of == progress.ToolOutputDelta.type and (running := self.running.get(CallId(body.message_id))):
            running.add_output(body)
        return ""

    def _on_reasoning(self, event: Event, body: progress.ReasoningDelta) -> str:
        if not event.path and self._reasoning_since is None:
            self._reasoning_since, self.activity = self._clock(), translate("reasoning")
        return ""

    def _on_message_completed(self, event: Event, body: progress.MessageCompleted) -> str:
        if not event.path:
            parts = [part.text for part in body.content if isinstance(part, Reasoning) and part.text]
            self.reasoning = "\n\n".join(parts) or self.reasoning
        size = self.answer.hidden_bytes if not event.path else 0
        text = translate("… the beginning of a text of {size} bytes", size=size)
        return self.renderer.note(text) + "\n" if size else ""

    def _on_message_discarded(self, event: Event, body: progress.MessageDiscarded) -> str:
        if not self.answer.has_text_of(body.message_id):
            return ""
        text = translate("the answer so far is discarded: {why}", why=shorten(body.reason))
        return self.renderer.note(text, "warning")

    def _on_tool_called(self, event: Event, body: progress.ToolCalled) -> str:
        self.running[body.call.id] = RunningCall(body.call, tuple(event.path), self._clock())
        return ""

    def _on_tool_started(self, event: Event, body: progress.ToolStarted) -> str:
        running = self.running.setdefault(body.call.id, RunningCall(body.call, tuple(event.path), self._clock()))
        running.started, running.call = True, body.call
        attempt = translate("attempt {number}", number=body.attempt)
        again = self.renderer.note(f"{body.call.name}: {attempt}", "warning") if body.attempt > 1 else ""
        return again + ("" if self._live else self.renderer.tool_call(body.call, None, depth=len(event.path)))

    def _on_tool_output(self, event: Event, body: progress.ToolOutputDelta) -> str:
        running = self.running.get(CallId(body.message_id))
        if running is not None:
            running.add_output(body)
        return ""

    def _on_tool_ended(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> str:
        running = self.running.pop(body.result.call, None)
        self.activity = translate("thinking")
        if running is None:
            return ""
        self.cards.append((running.call, body))
        head = self._head != body.result.call
        full = self.runs_typed_calls and bool(traits_of(running.call).command)  # the output of a typed command
        card = self.renderer.tool_call(running.call, body.result, depth=len(event.path), full=full, head=head)
        return "".join([card, *map(self.renderer.note, refused_hosts(body.result)), "\n" if self._live else ""])

    def _summarize(self, call: ToolCall) -> str:
        return summary_of(call, self.renderer.declared)

    def _summarize_approval(self, asked: Event) -> str:
        """Return the call that an approval is about, such that it and the author of a decision fit a line."""
        body = asked.data
        assert isinstance(body, control.ApprovalRequested)  # noqa: S101  # questions have no call
        width = max(min(60, self.renderer.width - 30), 10)
        return f"{as_printable(body.call.name, lines=False)} {shorten(self._summarize(body.call), width)}"

    def _on_child_started(self, event: Event, body: progress.SubagentStarted) -> str:
        return self.renderer.note(f"{'  ' * len(event.path)}{event_line(body)}")

    def _on_asked(self, event: Event, body: control.ApprovalRequested | control.QuestionAsked) -> str:
        id = body.approval if isinstance(body, control.ApprovalRequested) else body.question
        self.pending[id] = event
        return ""

    def _on_decided(self, event: Event, body: Any) -> str:
        id = getattr(body, "approval", "") or getattr(body, "question", "")
        asked = self.pending.pop(DecisionId(id), None)
        if asked is None:
            return ""
        is_question = isinstance(asked.data, control.QuestionAsked)
        what = translate("question") if is_question else self._summarize_approval(asked)
        match body:
            case control.ApprovalResolved() if self.runs_typed_calls:
                return ""  # typing the call was the decision
            case control.ApprovalResolved():
                return self.renderer.note(resolution_text(body, what))
            case control.QuestionAnswered(answer=answer):
                text = translate("answered by {author}: {what}", author=author_of(body), what=shorten(str(answer)))
                return self.renderer.note(text)
            case _:
                return self.renderer.note(translate("expired without a decision: {what}", what=what), "warning")

    def _on_usage(self, event: Event, body: monitor.UsageRecorded) -> str:
        self.usage += body.usage
        if not event.path and body.call is None and body.usage.total:
            self.context_tokens = body.usage.total
        return self._event_note(event)

    def _on_step_started(self, event: Event, body: progress.StepStarted) -> str:
        if event.path:
            return ""
        self.runs_typed_calls = body.model == progress.GIVEN_CALLS
        if not self.runs_typed_calls:
            self.model, self.activity = body.model or self.model, translate("thinking")
        return self._event_note(event) + "".join(
            self._show_input(key, self.queued[key]) for key in body.inputs if key in self.queued
        )

    def _on_state_changed(self, event: Event, body: control.StateChanged) -> str:
        if body.key == TODO_KEY:
            value: object = body.value
            items = cast("list[object]", value) if isinstance(value, list) else []
            self.todos = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
        return ""

    def _on_reverted(self, event: Event, body: control.SessionReverted) -> str:
        self.running.clear()
        self.pending.clear()
        text = translate("rewound to event {to}", to=body.to)
        reason = f": {body.reason}" if body.reason not in ("", f"back to {body.to}") else ""
        return self.renderer.note(f"{text}{reason}") + "\n"

    def _on_compacted(self, event: Event, body: context.ContextCompacted) -> str:
        self.context_tokens = self.context_tokens if event.path else body.after
        return self._event_note(event)

    def _on_forked(self, event: Event, body: control.SessionForked) -> str:
        return self.renderer.note(translate("forked from {origin}", origin=f"{body.origin}@{body.cursor}")) + "\n"


def todo_lines(todos: list[dict[str, Any]]) -> Iterator[str]:
    """Return the to-do list, one line for each item."""
    marks = {"completed": "✓", "in_progress": "→"}
    for item in todos:
        status = str(item.get("status", ""))
        text = item.get("activeForm") if status == "in_progress" else item.get("content")
        yield f"{marks.get(status, '○')} {shorten(str(text or item.get('content', '')))}"
