"""The events that wait for the next write, folded: a turn must know them before they are in the log."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, AgentPath, CallId, EventScope
from vaka.core.types.message import NO_USAGE, ToolResult, Usage, text_of
from vaka.core.types.state import SessionState

Entry: TypeAlias = tuple[EventScope, Body]
"""The body of an event and where it belongs."""


class PendingView:
    """Deferred events, folded. The state of a turn is the state of its log with this view on top."""

    __slots__ = (
        "calls_made",
        "inputs",
        "open_calls",
        "results",
        "script_model_calls",
        "texts",
        "turn_started",
        "usage",
        "values",
    )

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.turn_started = False
        self.inputs: tuple[str, ...] = ()
        """The keys of the inputs with which a turn begins."""
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
            kind = type(body)
            if kind in _VIEW_HANDLERS:
                _VIEW_HANDLERS[kind](self, scope, body)

    def usage_under(self, path: AgentPath) -> Usage:
        """Return the usage of the agent at ``path`` and of its children."""
        if not self.usage:
            return NO_USAGE
        total = NO_USAGE
        for at, usage in self.usage:
            if at[: len(path)] == path:
                total = total + usage
        return total

    def steered_inputs(self, state: SessionState) -> tuple[str, ...]:
        """Return the keys of the inputs that join the turn, without the inputs with which it begins."""
        queued = state.inputs.values()
        return tuple([added.key for added in queued if added.policy == "steer" and added.key not in self.inputs])

    def next_call_number(self, state: SessionState, path: AgentPath) -> int:
        """Return the number of the next tool call of the agent at ``path``."""
        return state.calls_made_by(path) + self.calls_made.get(path, 0) + 1

    def start_turn(self, scope: EventScope, body: progress.TurnStarted) -> None:
        self.turn_started, self.inputs = True, body.inputs

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


_VIEW_HANDLERS: dict[type[Body], Callable[[PendingView, EventScope, Any], None]] = {
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
