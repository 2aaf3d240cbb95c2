"""Build the messages of a prompt from the events of the log. No I/O.

The results of a message's calls directly follow it, in the order of the calls and not of their completion; inputs that
were added meanwhile follow the results.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vaka.core.types import control, progress
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


def build_messages(events: Iterable[Event], path: AgentPath = ()) -> tuple[Message, ...]:
    """Return the conversation of the agent at ``path``."""
    builder = _MessageBuilder(path)
    for event in _since_compaction(list(events), path):
        builder.add(event)
    builder.finish_answer()
    return tuple(builder.messages)


def turn_input_content(events: Iterable[Event], path: AgentPath, turn: TurnId) -> Content:
    """Return the content that started the turn of the agent at ``path``; ``events`` are those of its path."""
    inputs: dict[str, Content] = {}
    for event in events:
        body = event.data
        if isinstance(body, control.InputAdded):
            inputs[body.key] = body.content
        elif isinstance(body, progress.SubagentStarted) and (*event.path, body.child) == path:
            return body.content
        elif isinstance(body, progress.TurnStarted) and event.turn == turn and not path:
            content = tuple(part for key in body.inputs for part in inputs.get(key, ()))
            return content if body.content is None else body.content
    return ()


def _since_compaction(events: list[Event], path: AgentPath) -> list[Event]:
    for at in range(len(events) - 1, -1, -1):
        body = events[at].data
        if type(body) is control.ContextCompacted and events[at].path == path:
            kept = [e for e in events if (e.seq >= body.keep_from and e is not events[at]) or _is_input(e)]
            return [events[at], *kept]
    return events


def _is_input(event: Event) -> bool:
    return isinstance(event.data, control.InputAdded)


class _MessageBuilder:
    """Collects messages; each public method but ``add`` and ``finish_answer`` handles one type of event."""

    def __init__(self, path: AgentPath) -> None:
        self.path = path
        self.messages: list[Message] = []
        self._inputs: dict[str, Content] = {}
        self._answer: AssistantMessage | None = None
        self._calls: list[ToolCall] = []
        self._results: dict[CallId, ToolResult] = {}
        self._turn_start = 0

    def add(self, event: Event) -> None:
        """Handle the next event of the log; ``subagent.started`` is written under the path of the parent."""
        handler = _HANDLERS.get(type(event.data))
        if handler is not None and (event.path == self.path or handler is _MessageBuilder.subagent_started):
            handler(self, event, event.data)

    def input_added(self, event: Event, body: control.InputAdded) -> None:
        """Keep the content until a turn or step names its key."""
        self._inputs[body.key] = body.content

    def tool_called(self, event: Event, body: progress.ToolCalled) -> None:
        """Keep the call for the current answer."""
        if body.message_id:  # calls of scripts are not part of a message
            self._calls.append(body.call)

    def tool_ended(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """Keep the result for the current answer."""
        self._results[body.result.call] = body.result

    def message_completed(self, event: Event, body: progress.MessageCompleted) -> None:
        """Begin a new answer."""
        self.finish_answer()
        self._answer = AssistantMessage(id=body.message_id, content=body.content, model=body.model, stop=body.stop)

    def turn_started(self, event: Event, body: progress.TurnStarted) -> None:
        """Add the inputs of the turn, or the content that ``before_agent`` has put in their place."""
        self.finish_answer()
        self._turn_start = len(self.messages)
        self._add_user_message(body.content if body.content is not None else self._input_content(body.inputs))

    def step_started(self, event: Event, body: progress.StepStarted) -> None:
        """Add the steered inputs that join the turn with this step."""
        self.finish_answer()
        self._add_user_message(self._input_content(body.inputs))

    def subagent_started(self, event: Event, body: progress.SubagentStarted) -> None:
        """Add the input that the parent has given to this agent."""
        if (*event.path, body.child) == self.path:
            self._add_user_message(body.content)

    def turn_failed(self, event: Event, body: progress.TurnFailed) -> None:
        """Remove the messages of a turn whose input was rejected."""
        if body.withdrawn:
            self.finish_answer()
            del self.messages[self._turn_start :]

    def context_compacted(self, event: Event, body: control.ContextCompacted) -> None:
        """Add the summary that replaces the messages before it."""
        self._add_user_message((Text(text=body.summary),))

    def checkpoint_saved(self, event: Event, body: control.CheckpointSaved) -> None:
        """Add the text that names the checkpoint, and the D-Mail that was sent to it."""
        self.finish_answer()
        self._add_user_message(body.told)

    def finish_answer(self) -> None:
        """Append the current answer, with those of its calls that have a result, and the results."""
        if self._answer is None:
            return
        calls = tuple([call for call in self._calls if call.id in self._results])
        self.messages.append(msgspec.structs.replace(self._answer, calls=calls))
        if calls:
            self.messages.append(ToolMessage(results=tuple([self._results[call.id] for call in calls])))
        self._answer, self._calls, self._results = None, [], {}

    def _add_user_message(self, content: Content) -> None:
        if content:
            self.messages.append(UserMessage(content=content))

    def _input_content(self, keys: Iterable[str]) -> Content:
        return tuple([part for key in keys for part in self._inputs.get(key, ())])


_HANDLERS: dict[type[Body], Callable[[_MessageBuilder, Event, Any], None]] = {
    control.InputAdded: _MessageBuilder.input_added,
    control.ContextCompacted: _MessageBuilder.context_compacted,
    control.CheckpointSaved: _MessageBuilder.checkpoint_saved,
    progress.ToolCalled: _MessageBuilder.tool_called,
    progress.ToolCompleted: _MessageBuilder.tool_ended,
    progress.ToolFailed: _MessageBuilder.tool_ended,
    progress.MessageCompleted: _MessageBuilder.message_completed,
    progress.TurnStarted: _MessageBuilder.turn_started,
    progress.TurnFailed: _MessageBuilder.turn_failed,
    progress.StepStarted: _MessageBuilder.step_started,
    progress.SubagentStarted: _MessageBuilder.subagent_started,
}
