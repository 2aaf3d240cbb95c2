"""The conversation as the model sees it. Pure: events in, messages out.

Results stand right behind the message that made the calls, in the order of the calls, whatever order they came in; an
input that came meanwhile follows them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.content import Content, Text
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, Path, TurnId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage


def messages(events: Iterable[Event], path: Path = ()) -> tuple[Message, ...]:
    """Return the conversation of the agent at ``path``."""
    thread = _Thread(path)
    for event in _since_compaction(list(events), path):
        thread.take(event)
    thread.close()
    return tuple(thread.messages)


def told(events: Iterable[Event], path: Path, turn: TurnId) -> Content:
    """Return what the agent at ``path`` was told when its turn began; ``events`` are those of its path."""
    inputs: dict[str, Content] = {}
    for event in events:
        body = event.data
        if isinstance(body, control.InputAdded):
            inputs[body.key] = body.content
        elif isinstance(body, progress.SubagentStarted) and (*event.path, body.child) == path:
            return body.content
        elif isinstance(body, progress.TurnStarted) and event.turn == turn and not path:
            said = tuple(part for key in body.inputs for part in inputs.get(key, ()))
            return said if body.content is None else body.content
    return ()


def _since_compaction(events: list[Event], path: Path) -> list[Event]:
    for at in range(len(events) - 1, -1, -1):
        body = events[at].data
        if isinstance(body, control.ContextCompacted) and events[at].path == path:
            kept = [e for e in events if (e.seq >= body.keep_from and e is not events[at]) or _input(e)]
            return [events[at], *kept]
    return events


def _input(event: Event) -> bool:
    return isinstance(event.data, control.InputAdded)


class _Thread:
    """A conversation under construction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[Message] = []
        self._inputs: dict[str, Content] = {}
        self._answer: AssistantMessage | None = None
        self._calls: list[ToolCall] = []
        self._results: dict[CallId, ToolResult] = {}
        self._turn = 0

    def take(self, event: Event) -> None:
        """Take the next event."""
        rule = _RULES.get(type(event.data))
        if rule is not None and (event.path == self.path or rule is _Thread.child):
            rule(self, event, event.data)

    def input(self, event: Event, body: control.InputAdded) -> None:
        """Something was said."""
        self._inputs[body.key] = body.content

    def called(self, event: Event, body: progress.ToolCalled) -> None:
        """A call of the answer."""
        if body.message_id:  # a script's calls are not part of what was said
            self._calls.append(body.call)

    def ended(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """The result of a call."""
        self._results[body.result.call] = body.result

    def answered(self, event: Event, body: progress.MessageCompleted) -> None:
        """The model has answered."""
        self.close()
        self._answer = AssistantMessage(id=body.message_id, content=body.content, model=body.model, stop=body.stop)

    def begun(self, event: Event, body: progress.TurnStarted) -> None:
        """A turn takes inputs on."""
        self.close()
        self._turn = len(self.messages)
        self._say(body.content if body.content is not None else self._content(body.inputs))

    def joined(self, event: Event, body: progress.StepStarted) -> None:
        """A step takes inputs on that came meanwhile."""
        self.close()
        self._say(self._content(body.inputs))

    def child(self, event: Event, body: progress.SubagentStarted) -> None:
        """This agent was started by its parent."""
        if (*event.path, body.child) == self.path:
            self._say(body.content)

    def failed(self, event: Event, body: progress.TurnFailed) -> None:
        """What a withdrawn turn said does not count."""
        if body.withdrawn:
            self.close()
            del self.messages[self._turn :]

    def compacted(self, event: Event, body: control.ContextCompacted) -> None:
        """A summary stands for what came before."""
        self._say((Text(text=body.summary),))

    def marked(self, event: Event, body: control.CheckpointSaved) -> None:
        """A place the model may go back to."""
        self.close()
        self._say(body.told)

    def close(self) -> None:
        """Put down the answer under construction, with the results its calls have."""
        if self._answer is None:
            return
        calls = tuple(call for call in self._calls if call.id in self._results)
        self.messages.append(msgspec.structs.replace(self._answer, calls=calls))
        if calls:
            self.messages.append(ToolMessage(results=tuple(self._results[call.id] for call in calls)))
        self._answer, self._calls, self._results = None, [], {}

    def _say(self, content: Content) -> None:
        if content:
            self.messages.append(UserMessage(content=content))

    def _content(self, keys: Iterable[str]) -> Content:
        return tuple(part for key in keys for part in self._inputs.get(key, ()))


_RULES: dict[type[Body], Callable[[_Thread, Event, Any], None]] = {
    control.InputAdded: _Thread.input,
    control.ContextCompacted: _Thread.compacted,
    control.CheckpointSaved: _Thread.marked,
    progress.ToolCalled: _Thread.called,
    progress.ToolCompleted: _Thread.ended,
    progress.ToolFailed: _Thread.ended,
    progress.MessageCompleted: _Thread.answered,
    progress.TurnStarted: _Thread.begun,
    progress.TurnFailed: _Thread.failed,
    progress.StepStarted: _Thread.joined,
    progress.SubagentStarted: _Thread.child,
}
