"""Build the messages of a prompt from the events of the log.

The results of a message's calls directly follow it, in the order of the calls and not of their completion; inputs that
were added meanwhile follow the results.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from vaka.core.loop.blobs import names_blobs, restore_message
from vaka.core.ports.values import BlobStore
from vaka.core.types import control, progress
from vaka.core.types.context import CheckpointSaved, CompactedHead, ContextCompacted
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId, TurnId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

MAX_KEPT_CHARACTERS = 1024 * 1024
"""A message with a longer text from blobs is loaded for each prompt of a turn instead of being kept in memory."""


def build_messages(events: Iterable[Event], path: AgentPath = ()) -> tuple[Message, ...]:
    """Return the conversation of the agent at ``path``."""
    return Conversation(path, events).messages()


def turn_input_content(events: Iterable[Event], path: AgentPath, turn: TurnId) -> Content:
    """Return the content that started the turn of the agent at ``path``; ``events`` are the events of this path."""
    inputs: dict[str, Content] = {}
    content: Content = ()
    for event in events:
        body = event.data
        if isinstance(body, control.InputAdded):
            inputs[body.key] = body.content
        elif isinstance(body, progress.SubagentStarted) and (*event.path, body.child) == path:
            content = body.content  # those before it are of the conversation that it continues
        elif isinstance(body, progress.TurnStarted) and event.turn == turn and not path:
            content = tuple(part for key in body.inputs for part in inputs.get(key, ()))
            return content if body.content is None else body.content
    return content


class Conversation:
    """The messages of the agent at ``path``, extended by each event; implements ``WindowView``."""

    def __init__(self, path: AgentPath, events: Iterable[Event] = ()) -> None:
        self.path = path
        self.finished: list[Message] = []
        """The messages that do not change any more: all but the last answer and its results."""
        self._with_blobs: list[int] = []
        """The positions of messages that name blobs."""
        self._loaded: dict[int, Message] = {}
        """Messages with the content of their blobs, by position."""
        self._inputs: dict[str, Content] = {}
        self._answer: AssistantMessage | None = None
        self._answer_messages: tuple[Message, ...] | None = None
        self._calls: list[ToolCall] = []
        self._results: dict[CallId, ToolResult] = {}
        self._turn_start = 0
        self._seqs: list[int] = []
        """The event that each message begins with; 0 for the messages of a compaction."""
        self._answer_seq = 0
        self.turns: list[int] = []
        """The positions of the messages that begin a turn."""
        self.inputs: list[int] = []
        """The positions of the messages that are inputs."""
        self.token_totals = [0]
        """The tokens of the first messages, as far as a compaction has counted them."""
        self.compacted: CompactedHead | None = None
        """The messages that its compactions show."""
        self.sent: tuple[Message, ...] | None = None
        """The messages of the last model call of this process."""
        handlers, started = _HANDLERS, Conversation.subagent_started
        for event in _since_compaction(list(events), path):  # ``add`` is inlined: a session may have thousands
            body = event.data
            handler = handlers.get(type(body))
            if handler is not None and (event.path == path or handler is started):
                handler(self, event, body)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages; large parts may still be in blobs."""
        return (*self.finished, *self._open_answer())

    async def load_messages(self, blobs: BlobStore, recent: int | None = None) -> tuple[Message, ...]:
        """Return all messages, or at most ``recent`` of the last ones, with the content of their blobs."""
        answer, first_open = self._open_answer(), len(self.finished)
        if recent is not None and first_open + len(answer) > recent:
            chosen = self.choose_recent(recent)
            return tuple([await self._load(blobs, at, one) if names_blobs(one) else one for at, one in chosen])
        positions = [at for at, message in enumerate(answer, first_open) if names_blobs(message)] if answer else []
        if not self._with_blobs and not positions:
            return (*self.finished, *answer)  # one copy: a long conversation has thousands of messages
        messages = [*self.finished, *answer]
        for position in (*self._with_blobs, *positions):
            messages[position] = await self._load(blobs, position, messages[position])
        return tuple(messages)

    def choose_recent(self, recent: int) -> list[tuple[int, Message]]:
        """Return at most ``recent`` of the last messages, with their positions."""
        finished = self.finished
        answer = self._open_answer()
        first_open = len(self.finished)

        def message_at(position: int) -> Message:
            return finished[position] if position < first_open else answer[position - first_open]

        return [(at, message_at(at)) for at in _recent_positions(first_open + len(answer), recent, message_at)]

    async def _load(self, blobs: BlobStore, position: int, message: Message) -> Message:
        loaded = self._loaded.get(position) or await restore_message(blobs, message)
        if _length_of(loaded) <= MAX_KEPT_CHARACTERS:
            self._loaded[position] = loaded
        return loaded

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seq of the first event of each of ``messages``; a result has the seq of its call, a compaction has 0."""
        return (*self._seqs, *[self._answer_seq] * len(self._open_answer()))

    def newer_than(self, reported: int) -> tuple[int, tuple[Message, ...]]:
        """Return the position of the first finished message that is newer than an answer, and the newer ones after it.

        Event ``reported`` recorded the usage of the answer; the results of its calls are newer. 0 for all messages.
        """
        first, answer = bisect_left(self._seqs, reported) if reported else 0, self._open_answer()
        is_open = bool(answer) and self._answer_seq < reported
        if first and isinstance(self.finished[first - 1], ToolMessage) and not is_open:
            first -= 1
        return first, answer[1:] if is_open else answer

    def forget_loaded(self) -> None:
        """Forget the content of blobs, so that the next prompt loads it again: a blob may be erased meanwhile."""
        self._loaded.clear()
        self.sent = None if self._with_blobs else self.sent

    def add(self, event: Event) -> None:
        """Handle the next event of the log; ``subagent.started`` is written under the path of the parent."""
        kind = type(event.data)
        if kind in _HANDLERS and (event.path == self.path or kind is progress.SubagentStarted):
            _HANDLERS[kind](self, event, event.data)

    def input_added(self, event: Event, body: control.InputAdded) -> None:
        """Keep the content until a turn or step names its key."""
        self._inputs[body.key] = body.content

    def tool_called(self, event: Event, body: progress.ToolCalled) -> None:
        """Keep the call for the current answer."""
        if body.message_id:  # calls of scripts are not part of a message
            self._calls.append(body.call)
            self._reset_open_answer()

    def tool_ended(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """Keep the result for the current answer."""
        self._results[body.result.call] = body.result
        self._reset_open_answer()

    def message_completed(self, event: Event, body: progress.MessageCompleted) -> None:
        """Begin a new answer."""
        self._finish_answer()
        self._answer = AssistantMessage(id=body.message_id, content=body.content, model=body.model, stop=body.stop)
        self._answer_seq = event.seq

    def turn_started(self, event: Event, body: progress.TurnStarted) -> None:
        """Add the inputs of the turn, or the content that ``before_agent`` has put in their place."""
        self._finish_answer()
        self._turn_start = len(self.finished)
        content = self._take_inputs(body.inputs)
        self._add_user_message(body.content if body.content is not None else content, event.seq, turn=True, input=True)

    def step_started(self, event: Event, body: progress.StepStarted) -> None:
        """Add the steered inputs that join the turn with this step."""
        self._finish_answer()
        self._add_user_message(self._take_inputs(body.inputs), event.seq, input=True)

    def output_rejected(self, event: Event, body: progress.OutputRejected) -> None:
        """Add the errors of the answer before it."""
        self._finish_answer()
        self._add_user_message((Text(text=body.feedback),), event.seq)

    def agent_continued(self, event: Event, body: progress.AgentContinued) -> None:
        """Add the text with which a middleware continues the agent."""
        self._finish_answer()
        self._add_user_message((Text(text=body.text),), event.seq)

    def subagent_started(self, event: Event, body: progress.SubagentStarted) -> None:
        """Add the input that the parent has given to this agent."""
        if (*event.path, body.child) == self.path:
            self._finish_answer()
            self._add_user_message(body.content, event.seq, turn=True, input=True)

    def turn_failed(self, event: Event, body: progress.TurnFailed) -> None:
        """Remove the messages of a turn whose input was rejected."""
        if body.withdrawn:
            self._finish_answer()
            del self.finished[self._turn_start :], self._seqs[self._turn_start :]
            del self.token_totals[self._turn_start + 1 :]
            self.turns = [position for position in self.turns if position < self._turn_start]
            self.inputs = [position for position in self.inputs if position < self._turn_start]
            self._with_blobs = [position for position in self._with_blobs if position < self._turn_start]
            self._loaded.clear()

    def context_compacted(self, event: Event, body: ContextCompacted) -> None:
        """Add the messages that replace those before it, and note the calls that it shortens."""
        self.compacted = (self.compacted or CompactedHead()).extend(body)
        for content in self.compacted.messages if body.summary else ():
            self._add_user_message(content, 0)

    def checkpoint_saved(self, event: Event, body: CheckpointSaved) -> None:
        """Add the text that names the checkpoint, and the D-Mail that was sent to it."""
        self._finish_answer()
        self._add_user_message(body.told, event.seq)

    def _open_answer(self) -> tuple[Message, ...]:
        """Return the current answer with its answered calls, and their results."""
        if self._answer is None:
            return ()
        if self._answer_messages is None:
            results = self._results
            calls = tuple([call for call in self._calls if call.id in results]) if self._calls else ()
            if calls:
                if self.compacted is not None:
                    calls, results = self.compacted.shorten(calls, results, self._answer_seq)
                answered = ToolMessage(results=tuple([results[call.id] for call in calls]))
                self._answer_messages = (msgspec.structs.replace(self._answer, calls=calls), answered)
            else:
                self._answer_messages = (self._answer,)
        return self._answer_messages

    def _reset_open_answer(self) -> None:
        self._answer_messages = None
        if self._loaded:
            for position in [position for position in self._loaded if position >= len(self.finished)]:
                del self._loaded[position]

    def _finish_answer(self) -> None:
        if self._answer is not None:
            for message in self._open_answer():
                self._append(message, self._answer_seq)
            self._answer = self._answer_messages = None
            if self._calls or self._results:
                self._calls, self._results = [], {}

    def _append(self, message: Message, seq: int) -> None:
        self._seqs.append(seq)
        if names_blobs(message):
            self._with_blobs.append(len(self.finished))
        self.finished.append(message)

    def _add_user_message(self, content: Content, seq: int, *, turn: bool = False, input: bool = False) -> None:
        if content:
            self.turns += [len(self.finished)] if turn else ()
            self.inputs += [len(self.finished)] if input else ()
            shown = self.compacted.without_old_media(content, seq) if self.compacted is not None and seq else content
            self._append(UserMessage(content=shown), seq)

    def _take_inputs(self, keys: Sequence[str]) -> Content:
        """Return the content of inputs, each once: in older logs a turn and its first step may both take an input."""
        if len(keys) == 1:
            return self._inputs.pop(keys[0], ())
        return tuple([part for key in keys for part in self._inputs.pop(key, ())])


def _length_of(message: Message) -> int:
    contents = [r.content for r in message.results] if isinstance(message, ToolMessage) else [message.content]
    texts = [getattr(part, "text", "") or getattr(part, "data", "") for content in contents for part in content]
    return sum(map(len, texts))


_HANDLERS: dict[type[Body], Callable[[Conversation, Event, Any], None]] = {
    control.InputAdded: Conversation.input_added,
    ContextCompacted: Conversation.context_compacted,
    CheckpointSaved: Conversation.checkpoint_saved,
    progress.ToolCalled: Conversation.tool_called,
    progress.ToolCompleted: Conversation.tool_ended,
    progress.ToolFailed: Conversation.tool_ended,
    progress.MessageCompleted: Conversation.message_completed,
    progress.TurnStarted: Conversation.turn_started,
    progress.TurnFailed: Conversation.turn_failed,
    progress.StepStarted: Conversation.step_started,
    progress.SubagentStarted: Conversation.subagent_started,
    progress.OutputRejected: Conversation.output_rejected,
    progress.AgentContinued: Conversation.agent_continued,
}


def _recent_positions(total: int, recent: int, message_at: Callable[[int], Message]) -> list[int]:
    """Return the positions of at most ``recent`` of ``total`` messages, but never less than the last call and result.

    The first one is an input: if the answers to it are too many, those after it are left out. From 20 messages on the
    choice begins at the same message for ``recent // 10`` messages, so that providers can cache prompts.
    """
    excess, step = total - max(recent, 1), max(recent // 10, 1)
    if excess <= 0:
        return [*range(total)]
    first = _first_position(-(-excess // step) * step, total, recent, message_at)
    if isinstance(message_at(first), UserMessage):
        return [*range(first, total)]
    inputs = (at for at in range(first - 1, -1, -1) if isinstance(message_at(at), UserMessage))
    return [*[at for at in [next(inputs, -1)] if at >= 0], *range(first, total)]


def _first_position(start: int, total: int, recent: int, message_at: Callable[[int], Message]) -> int:
    """Return the first input from ``start`` on, or the first answer that leaves room for its input."""
    for at in range(start, total):
        kind = type(message_at(at))
        if kind is UserMessage or (kind is AssistantMessage and total - at < recent):
            return at
    return next(at for at in range(total - 1, -1, -1) if type(message_at(at)) is not ToolMessage)


def _since_compaction(events: list[Event], path: AgentPath) -> list[Event]:
    """Return the events of a conversation that its prompt is made of, its compactions first.

    These are the last compaction with a summary, the ones without a summary after it, and what they keep.
    """
    found: list[Event] = []
    for event in reversed(events):
        if type(event.data) is ContextCompacted and event.path == path:
            found.append(event)
            if event.data.summary:
                break
    if not found:
        return events
    last = found[-1].data
    keep_from = last.keep_from if isinstance(last, ContextCompacted) and last.summary else 0
    kept = [
        e
        for e in events
        if type(e.data) is not ContextCompacted and (e.seq >= keep_from or isinstance(e.data, control.InputAdded))
    ]
    return [*reversed(found), *kept]
