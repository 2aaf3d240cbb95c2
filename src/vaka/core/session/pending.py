"""A view of the events that wait for the next write, for a turn that must know them before they are in the log."""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.session.group_commit import Entry
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, AgentPath, CallId, EventScope
from vaka.core.types.message import ToolResult, Usage, text_of


class PendingView:
    """Deferred events, folded. The state of a turn is the state of its log with this view on top."""

    __slots__ = (
        "calls_made", "open_calls", "results", "script_model_calls", "texts", "turn_started", "usage", "values",
    )  # fmt: skip

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.turn_started = False
        self.texts: dict[AgentPath, str] = {}
        """The last answer of each agent."""
        self.usage: list[tuple[AgentPath, Usage]] = []
        self.values: dict[str, JSON] = {}
        self.calls_made: dict[AgentPath, int] = {}
        self.open_calls: set[CallId] = set()
        self.results: list[tuple[EventScope, ToolResult]] = []
        self.script_model_calls = 0
        """The highest number of a model call that a script has begun."""
        for scope, body in entries:
            handler = _HANDLERS.get(type(body))
            if handler is not None:
                handler(self, scope, body)

    def usage_under(self, path: AgentPath) -> Usage:
        """Return the usage of the agent at ``path`` and of its children."""
        if not self.usage:
            return _NO_USAGE
        return sum((usage for at, usage in self.usage if at[: len(path)] == path), _NO_USAGE)

    def start_turn(self, scope: EventScope, body: progress.TurnStarted) -> None:
        self.turn_started = True

    def add_message(self, scope: EventScope, body: progress.MessageCompleted) -> None:
        text = text_of(body.content)
        if text:
            self.texts[scope.path] = text

    def add_usage(self, scope: EventScope, body: monitor.UsageRecorded) -> None:
        self.usage.append((scope.path, body.usage))

    def set_value(self, scope: EventScope, body: control.StateChanged) -> None:
        self.values[body.key] = body.value

    def add_call(self, scope: EventScope, body: progress.ToolCalled) -> None:
        self.calls_made[scope.path] = self.calls_made.get(scope.path, 0) + 1
        self.open_calls.add(body.call.id)

    def add_result(self, scope: EventScope, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        self.open_calls.discard(body.result.call)
        self.results.append((scope, body.result))

    def add_script_call(self, scope: EventScope, body: monitor.ScriptCalled) -> None:
        self.script_model_calls = max(self.script_model_calls, body.model)


_NO_USAGE = Usage()

_HANDLERS: dict[type[Body], Callable[[PendingView, EventScope, Any], None]] = {
    progress.TurnStarted: PendingView.start_turn,
    progress.MessageCompleted: PendingView.add_message,
    progress.ToolCalled: PendingView.add_call,
    progress.ToolCompleted: PendingView.add_result,
    progress.ToolFailed: PendingView.add_result,
    monitor.UsageRecorded: PendingView.add_usage,
    monitor.ScriptCalled: PendingView.add_script_call,
    control.StateChanged: PendingView.set_value,
}

NOTHING_PENDING = PendingView()
