"""What a terminal shows of a session: finished text for the scroll-back, and the state of what is running.

Everything comes from the events of the session, so a second terminal, and a later one, show the same.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from vaka.cli.display.markdown import MarkdownBlock, MarkdownStream
from vaka.cli.display.plain_renderer import format_seconds, summary_of
from vaka.cli.display.rich_renderer import Renderer
from vaka.cli.render import as_printable, author_of, shorten
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, DecisionId, MessageId
from vaka.core.types.message import Stored, ToolCall, Usage, text_of
from vaka.tools.schema.json_types import is_array

MAX_OUTPUT_LINES = 5
"""Lines of the output of a running command that are shown."""
MAX_OUTPUT_LENGTH = 1000
"""Characters of one line of it."""
MAX_CARDS = 200
"""Tool calls whose whole result can still be shown."""
COMMAND_TOOL = "Bash"
"""The tool of typed commands, whose output is shown whole."""
TODO_KEY = "todos"
"""The session value of the to-do list."""


class RunningCall:
    """A tool call without a result."""

    def __init__(self, call: ToolCall, path: tuple[str, ...], now: float) -> None:
        self.call, self.path, self.since = call, path, now
        self.started = False
        self.output: deque[str] = deque(maxlen=MAX_OUTPUT_LINES)
        self._length = 0
        self._partial = ""

    def add_output(self, text: str, offset: int) -> None:
        """Add printed text; a part that was added before is ignored."""
        new = text[max(self._length - offset, 0) :]
        self._length = max(self._length, offset + len(text))
        *lines, partial = (self._partial + new).split("\n")
        self.output.extend(_last_overprint(line) for line in lines[-10 * MAX_OUTPUT_LINES :] if line.strip())
        self._partial = _last_overprint(partial)

    def tail(self) -> list[str]:
        """Return the last lines of the output, the unfinished one included."""
        lines = [*self.output, *([self._partial] if self._partial.strip() else [])]
        return lines[-MAX_OUTPUT_LINES:]


def _last_overprint(line: str) -> str:
    """Return what a terminal would show of a line that is printed over itself, such as a progress bar, in part."""
    return line[-MAX_OUTPUT_LENGTH:].rstrip("\r").rpartition("\r")[2]


class _Answer:
    """A message of the root agent that is being streamed."""

    def __init__(self) -> None:
        self.stream = MarkdownStream()
        self.length = 0
        """Characters received of all blocks."""
        self._block, self._block_length = 0, 0

    def add(self, block: int, offset: int, text: str) -> list[MarkdownBlock]:
        """Add text of a block at an offset, and return the Markdown blocks that it completes."""
        finished: list[MarkdownBlock] = []
        if block != self._block:
            finished = self.stream.finish() if self.length else []
            self._block, self._block_length = block, 0
        if offset > self._block_length:
            return finished  # a piece was lost; the complete message has it
        new = text[self._block_length - offset :]
        self._block_length += len(new)
        self.length += len(new)
        return finished + self.stream.feed(new)


class SessionView:
    """Folds the events of a session into text for the scroll-back and the state of what is running."""

    def __init__(self, renderer: Renderer, clock: Callable[[], float] = time.monotonic) -> None:
        self.renderer, self._clock = renderer, clock
        self.running: dict[CallId, RunningCall] = {}
        self.pending: dict[DecisionId, Event] = {}
        """Open approvals and questions, oldest first."""
        self.queued: dict[str, str] = {}
        """Inputs that wait for their turn, by key."""
        self.todos: list[dict[str, Any]] = []
        self.children: dict[str, str] = {}
        """The names of running child agents, by id."""
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
        self._answer: _Answer | None = None
        self._answer_id: MessageId | None = None
        self._reasoning_since: float | None = None
        self._handlers: dict[type[Any], Callable[[Event, Any], str]] = {
            control.InputAdded: self._on_input_added,
            control.ApprovalRequested: self._on_asked,
            control.QuestionAsked: self._on_asked,
            control.ApprovalResolved: self._on_decided,
            control.ApprovalExpired: self._on_decided,
            control.QuestionAnswered: self._on_decided,
            control.StateChanged: self._on_state_changed,
            control.SessionReverted: self._on_reverted,
            control.SessionForked: self._on_forked,
            progress.TurnStarted: self._on_turn_started,
            progress.TurnResumed: self._on_turn_resumed,
            progress.TurnCompleted: self._on_turn_ended,
            progress.TurnFailed: self._on_turn_ended,
            progress.TurnCancelled: self._on_turn_ended,
            progress.TurnInterrupted: self._on_turn_ended,
            progress.StepStarted: self._on_step_started,
            progress.TextDelta: self._on_text,
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
            progress.SubagentCompleted: self._on_child_completed,
            monitor.UsageRecorded: self._on_usage,
            monitor.ModelFailed: self._on_model_failed,
            monitor.Logged: self._on_logged,
        }

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return self.turn_since is not None

    @property
    def open_text(self) -> str:
        """The end of the Markdown block of the answer that is not finished."""
        return self._answer.stream.open_block if self._answer is not None else ""

    def take(self, event: Event) -> str:
        """Take an event and return the text that it adds to the scroll-back, ``""`` for none."""
        handler = self._handlers.get(type(event.data))
        return handler(event, event.data) if handler is not None else ""

    def _on_input_added(self, event: Event, body: control.InputAdded) -> str:
        text = text_of(body.content)
        if self.busy and body.policy != "steer":
            self.queued[body.key] = text
            return ""
        return self._show_input(body.key, text)

    def _show_input(self, key: str, text: str) -> str:
        self.queued.pop(key, None)
        return self.renderer.prompt(text) if text else ""

    def _on_turn_started(self, event: Event, body: progress.TurnStarted) -> str:
        if event.path:
            return ""
        self.turn_since = self._clock()
        self.turns += 1
        self.turn_inputs = body.inputs
        self.activity = "thinking"
        return "".join(self._show_input(key, self.queued[key]) for key in body.inputs if key in self.queued)

    def _on_turn_resumed(self, event: Event, body: progress.TurnResumed) -> str:
        self.turn_since, self.activity = self._clock(), "thinking"
        return self.renderer.note("the unfinished turn goes on")

    def _on_turn_ended(self, event: Event, body: Any) -> str:
        if event.path:
            return ""
        text = self._close_answer()
        self.turn_since, self.activity = None, ""
        self.turn_inputs, self.runs_typed_calls = (), False
        self.running.clear()
        self.children.clear()
        match body:
            case progress.TurnFailed(code=code, message=message):
                return text + self.renderer.note(f"failed ({code}): {message}", "failed") + "\n"
            case progress.TurnInterrupted(note=note) | progress.TurnCancelled(note=note):
                word = event.type.removeprefix("turn.")
                return text + self.renderer.note(f"{word}{f': {note}' if note else ''}", "warning") + "\n"
            case progress.TurnCompleted(stop="limit", limit=limit):
                return text + self.renderer.note(f"stopped: the limit of {limit} is reached", "warning") + "\n"
            case _:
                return text

    def _on_text(self, event: Event, body: progress.TextDelta) -> str:
        return self._add_text(event, body.message_id, body.block, body.offset, body.text)

    def _on_snapshot(self, event: Event, body: progress.MessageSnapshot) -> str:
        if body.of == progress.TextDelta.type:
            return self._add_text(event, body.message_id, body.block, body.offset, body.text)
        if body.of == progress.ToolOutputDelta.type and (running := self.running.get(CallId(body.message_id))):
            running.add_output(body.text, body.offset)
        return ""

    def _add_text(self, event: Event, message: MessageId, block: int, offset: int, text: str) -> str:
        if event.path or self.runs_typed_calls:
            return ""
        shown = self._end_reasoning()
        if message != self._answer_id:
            shown += self._close_answer()
            self._answer, self._answer_id = _Answer(), message
        self.activity = "answering"
        assert self._answer is not None  # noqa: S101  # set above, for this message
        return shown + self._render(self._answer.add(block, offset, text))

    def _on_reasoning(self, event: Event, body: progress.ReasoningDelta) -> str:
        if not event.path and self._reasoning_since is None:
            self._reasoning_since, self.activity = self._clock(), "reasoning"
        return ""

    def _end_reasoning(self) -> str:
        since, self._reasoning_since = self._reasoning_since, None
        return self.renderer.note(f"reasoned for {format_seconds(self._clock() - since)}") if since is not None else ""

    def _on_message_completed(self, event: Event, body: progress.MessageCompleted) -> str:
        if event.path or body.model == progress.GIVEN_CALLS:
            return ""
        shown, text = self._end_reasoning(), text_of(body.content)
        stored = next((part for part in body.content if isinstance(part, Stored)), None)
        streamed = self._answer is not None and self._answer_id == body.message_id
        if self._answer is None or not streamed or (self._answer.length > len(text) and stored is None):
            self._answer = _Answer()
        missing = text[self._answer.length :]
        shown += self._render(self._answer.stream.feed(missing))
        self._answer_id = body.message_id
        shown += self._close_answer()
        if stored is not None and not streamed:
            shown += self.renderer.note(f"… the beginning of a text of {stored.size} bytes") + "\n"
        return shown

    def _on_message_discarded(self, event: Event, body: progress.MessageDiscarded) -> str:
        shown = self._close_answer() if self._answer_id == body.message_id else ""
        return shown + self.renderer.note(f"the answer so far is discarded: {shorten(body.reason)}", "warning")

    def _close_answer(self) -> str:
        """Return the rest of the answer; the next text begins a new one."""
        answer, self._answer = self._answer, None
        return self._render(answer.stream.finish()) if answer is not None else ""

    def _render(self, blocks: list[MarkdownBlock]) -> str:
        return "".join(self.renderer.markdown(block.source, continued=block.continued) for block in blocks)

    def _on_tool_called(self, event: Event, body: progress.ToolCalled) -> str:
        self.running[body.call.id] = RunningCall(body.call, tuple(event.path), self._clock())
        return ""

    def _on_tool_started(self, event: Event, body: progress.ToolStarted) -> str:
        running = self.running.setdefault(body.call.id, RunningCall(body.call, tuple(event.path), self._clock()))
        running.started, running.call = True, body.call
        self.activity = f"{as_printable(body.call.name, lines=False)} {shorten(summary_of(body.call), 60)}"
        return ""

    def _on_tool_output(self, event: Event, body: progress.ToolOutputDelta) -> str:
        running = self.running.get(CallId(body.message_id))
        if running is not None:
            running.add_output(body.text, body.offset)
        return ""

    def _on_tool_ended(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> str:
        running = self.running.pop(body.result.call, None)
        self.activity = "thinking"
        if running is None:
            return ""
        self.cards.append((running.call, body))
        shown = self._close_answer() if not event.path else ""
        full = self.runs_typed_calls and running.call.name == COMMAND_TOOL
        return shown + self.renderer.tool_call(running.call, body.result, depth=len(event.path), full=full) + "\n"

    def _on_child_started(self, event: Event, body: progress.SubagentStarted) -> str:
        self.children[body.child] = body.agent
        return self.renderer.note(f"{'  ' * len(event.path)}⇒ agent {as_printable(body.agent, lines=False)}")

    def _on_child_completed(self, event: Event, body: progress.SubagentCompleted) -> str:
        self.children.pop(body.child, None)
        return ""

    def _on_asked(self, event: Event, body: control.ApprovalRequested | control.QuestionAsked) -> str:
        id = body.approval if isinstance(body, control.ApprovalRequested) else body.question
        self.pending[id] = event
        return ""

    def _on_decided(self, event: Event, body: Any) -> str:
        id = getattr(body, "approval", "") or getattr(body, "question", "")
        asked = self.pending.pop(DecisionId(id), None)
        if asked is None:
            return ""
        what = "question" if isinstance(asked.data, control.QuestionAsked) else summary_line(asked)
        match body:
            case control.ApprovalResolved(decision="approve"):
                return self.renderer.note(f"approved by {author_of(body)}: {what}")
            case control.ApprovalResolved(message=message):
                return self.renderer.note(f"refused by {author_of(body)}: {what}{f' ({message})' if message else ''}")
            case control.QuestionAnswered(answer=answer):
                return self.renderer.note(f"answered by {author_of(body)}: {shorten(str(answer))}")
            case _:
                return self.renderer.note(f"expired without a decision: {what}", "warning")

    def _on_usage(self, event: Event, body: monitor.UsageRecorded) -> str:
        self.usage += body.usage
        if not event.path and body.call is None and body.usage.total:
            self.context_tokens = body.usage.total
        return ""

    def _on_step_started(self, event: Event, body: progress.StepStarted) -> str:
        if event.path:
            return ""
        self.runs_typed_calls = body.model == progress.GIVEN_CALLS
        if not self.runs_typed_calls:
            self.model, self.activity = body.model or self.model, "thinking"
        return "".join(self._show_input(key, self.queued[key]) for key in body.inputs if key in self.queued)

    def _on_model_failed(self, event: Event, body: monitor.ModelFailed) -> str:
        if not body.retried:
            return ""
        return self.renderer.note(f"{body.model} failed, trying again: {shorten(body.message)}", "warning")

    def _on_logged(self, event: Event, body: monitor.Logged) -> str:
        if body.level not in ("warning", "error"):
            return ""
        return self.renderer.note(f"{body.level}: {shorten(body.message)}", "warning")

    def _on_state_changed(self, event: Event, body: control.StateChanged) -> str:
        if body.key == TODO_KEY:
            items = body.value if is_array(body.value) else []
            self.todos = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
        return ""

    def _on_reverted(self, event: Event, body: control.SessionReverted) -> str:
        self.running.clear()
        self.pending.clear()
        return self.renderer.note(f"rewound to event {body.to}{f': {body.reason}' if body.reason else ''}") + "\n"

    def _on_forked(self, event: Event, body: control.SessionForked) -> str:
        return self.renderer.note(f"forked from {body.origin}@{body.cursor}") + "\n"


def summary_line(asked: Event) -> str:
    """Return the call that an approval is about, in one line."""
    body = asked.data
    assert isinstance(body, control.ApprovalRequested)  # noqa: S101  # questions have no call
    return f"{as_printable(body.call.name, lines=False)} {shorten(summary_of(body.call), 60)}"


def todo_lines(todos: list[dict[str, Any]]) -> Iterator[str]:
    """Return the to-do list, one line for each item."""
    marks = {"completed": "✓", "in_progress": "→"}
    for item in todos:
        status = str(item.get("status", ""))
        text = item.get("activeForm") if status == "in_progress" else item.get("content")
        yield f"{marks.get(status, '○')} {shorten(str(text or item.get('content', '')))}"
