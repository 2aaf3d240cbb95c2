"""Group commit: appends requested at the same time are checked, sealed and written together.

``InvariantChecker`` rejects entries that break the pairing of calls and results or the order of turns; ``PendingView``
shows the entries that wait for the next write to a turn that must know them before they are in the log.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.session.state import SessionState, call_id
from vaka.core.types import control, monitor, progress
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, AgentPath, CallId, EventScope
from vaka.core.types.message import ToolResult, Usage, text_of

Entry: TypeAlias = tuple[EventScope, Body]


class InvariantChecker:
    """The part of a state that the invariants need, with the entries checked so far; the state is not changed."""

    def __init__(self, state: SessionState) -> None:
        self.open_calls: dict[CallId, AgentPath] = {}
        for id in state.open:
            self.open_calls[id] = state.open[id].path
        self.state, self.turn_running, self.seq = state, state.turn is not None, state.seq
        self.calls_made: dict[AgentPath, int] = {}

    def check(self, entries: Iterable[tuple[EventScope, Body]]) -> None:
        """Check the next entries. Raises ``LogError``; the checker cannot be used after it."""
        for scope, body in entries:
            self.seq += 1
            if not body.durable:
                raise LogError(f"{body.type} is live and cannot be appended")
            check = _CHECKS.get(type(body))
            if check is not None:
                check(self, scope.path, body)

    def check_tool_called(self, path: AgentPath, body: progress.ToolCalled) -> None:
        """A call has the next id of its agent."""
        self._require_turn(body)
        id, number = body.call.id, self.calls_made.get(path, self.state.calls_made_by(path)) + 1
        if id != call_id(path, number):
            raise LogError(f"call id {id!r} is known or out of order, expected {call_id(path, number)!r}")
        self.calls_made[path] = number
        self.open_calls[id] = path

    def check_tool_started(self, path: AgentPath, body: progress.ToolStarted) -> None:
        self._require_open(body.call.id, body)

    def check_tool_returned(self, path: AgentPath, body: progress.ToolReturned) -> None:
        self._require_open(body.result.call, body)

    def check_tool_ended(self, path: AgentPath, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """A call has one result."""
        self._require_open(body.result.call, body)
        del self.open_calls[body.result.call]

    def check_step_started(self, path: AgentPath, body: progress.StepStarted) -> None:
        """A step of an agent begins when all calls of the one before have results."""
        self._require_turn(body)
        self._require_none_open(body, [call for call, owner in self.open_calls.items() if owner == path])

    def check_script_event(self, path: AgentPath, body: monitor.ScriptCalled | monitor.ScriptAnswered) -> None:
        self._require_turn(body)

    def check_compacted(self, path: AgentPath, body: control.ContextCompacted) -> None:
        """Compaction happens between steps, and the window only moves forward."""
        self._require_none_open(body, [call for call, owner in self.open_calls.items() if owner[: len(path)] == path])
        if not self.state.window <= body.keep_from <= self.seq:
            raise LogError(f"{body.type} keeps from {body.keep_from}, expected {self.state.window} to {self.seq}")

    def check_reverted(self, path: AgentPath, body: control.SessionReverted) -> None:
        """A writer appends only the rewind of a turn by itself, without open calls; others need the log reopened."""
        if body.onward is None:
            raise LogError(f"{body.type} cannot be appended by the writer: its state must be read from the store")
        self._require_turn(body)
        self._require_none_open(body, list(self.open_calls))
        if not 0 < body.to < self.seq:
            raise LogError(f"{body.type} to {body.to}, expected 1 to {self.seq - 1}")

    def check_turn_started(self, path: AgentPath, body: progress.TurnStarted) -> None:
        if self.turn_running:
            raise LogError("turn.started while a turn is running")
        self._require_none_open(body, list(self.open_calls))
        self.turn_running = True

    def check_turn_ended(self, path: AgentPath, body: Body) -> None:
        self._require_none_open(body, list(self.open_calls))
        self._require_turn(body)
        self.turn_running = False

    def _require_turn(self, body: Body) -> None:
        if not self.turn_running:
            raise LogError(f"{body.type} without a turn")

    def _require_open(self, call: CallId, body: Body) -> None:
        if call not in self.open_calls:
            raise LogError(f"{body.type} for call {call!r}, which is unknown or already has its result")

    def _require_none_open(self, body: Body, open_calls: list[CallId]) -> None:
        if open_calls:
            raise LogError(f"{body.type} while {', '.join(open_calls)} has no result")


_CHECKS: dict[type[Body], Callable[[InvariantChecker, AgentPath, Any], None]] = {
    progress.ToolCalled: InvariantChecker.check_tool_called,
    progress.ToolStarted: InvariantChecker.check_tool_started,
    progress.ToolReturned: InvariantChecker.check_tool_returned,
    **dict.fromkeys((progress.ToolCompleted, progress.ToolFailed), InvariantChecker.check_tool_ended),
    progress.StepStarted: InvariantChecker.check_step_started,
    **dict.fromkeys((monitor.ScriptCalled, monitor.ScriptAnswered), InvariantChecker.check_script_event),
    progress.TurnStarted: InvariantChecker.check_turn_started,
    **dict.fromkeys(progress.TURN_ENDS, InvariantChecker.check_turn_ended),
    control.ContextCompacted: InvariantChecker.check_compacted,
    control.SessionReverted: InvariantChecker.check_reverted,
}


class AppendGroup:
    """The entries of one append. The first ``deferred_count`` were deferred earlier and are written with them."""

    __slots__ = ("deferred_count", "entries", "error", "events", "owner", "release", "waiting")

    def __init__(self, entries: Sequence[Entry], deferred_count: int = 0, *, release: bool = False) -> None:
        self.entries, self.deferred_count, self.release = entries, deferred_count, release
        self.events: Sequence[Event] = ()
        self.error: LogError | None = None
        self.owner: AppendGroup | None = None
        self.waiting = True
        """True until it is written or rejected."""

    def reject(self, error: LogError) -> "AppendGroup | None":
        """Reject the group; return a group of its deferred entries, which may still be written."""
        self.error, self.waiting = error, False
        if self.owner is not None:
            self.owner.error = error
        if not self.deferred_count:
            return None
        rest = AppendGroup(self.entries[: self.deferred_count])
        rest.owner = self
        return rest

    def withdraw(self) -> bool:
        """Remove the caller's own entries; return whether deferred ones are left to write."""
        self.entries, self.deferred_count, self.release = self.entries[: self.deferred_count], 0, False
        return bool(self.entries)


class WriteAttempt(msgspec.Struct, frozen=True, eq=False):
    """A write that was sent to the store and may have been committed."""

    group_events: Sequence[tuple[AppendGroup, Sequence[Event]]]
    events: Sequence[Event]
    release: bool

    def was_written(self, tail: Sequence[Event]) -> bool:
        """Whether ``tail``, the stored events after the old head, begins with these."""
        return [event.stored for event in self.events] == [event.stored for event in tail[: len(self.events)]]

    def deliver_events(self) -> None:
        for group, events in self.group_events:
            group.events, group.waiting = events, False


def seal_groups(
    state: SessionState,
    groups: Sequence[AppendGroup],
    seal: Callable[[Sequence[Entry], Sequence[Event]], Sequence[Event]],
) -> WriteAttempt:
    """Return the groups that keep the invariants, with their events; reject the others.

    ``seal`` takes entries and the events before them.
    """
    checker = InvariantChecker(state)
    accepted: list[tuple[AppendGroup, Sequence[Event]]] = []
    events: list[Event] = []
    release, queue = False, list(groups)
    while queue:
        group = queue.pop(0)
        try:
            checker.check(group.entries)
            sealed = seal(group.entries, events)
        except LogError as error:
            rest = group.reject(error)
            queue[:0] = [rest] if rest else []
            checker = InvariantChecker(state)
            for other, _ in accepted:
                checker.check(other.entries)
        else:
            accepted.append((group, sealed))
            events += sealed
            release = release or group.release
    return WriteAttempt(accepted, events, release)


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
            handler = _VIEW_HANDLERS.get(type(body))
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
