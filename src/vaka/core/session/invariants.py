"""The invariants of a log that every append is checked against: pairing of calls and results, order of turns."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from vaka.core.types import context, control, monitor, progress
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath, CallId, EventScope
from vaka.core.types.state import SessionState, call_id


class InvariantChecker:
    """The part of a state that the invariants need, with the entries checked so far; the state is not changed."""

    def __init__(self, state: SessionState) -> None:
        self.open_calls: dict[CallId, AgentPath] = {}
        for id in state.open:
            self.open_calls[id] = state.open[id].path
        self.state = state
        self.turn_running = state.turn is not None
        self.seq = state.seq
        self.calls_made: dict[AgentPath, int] = {}
        self.taken: tuple[str, ...] = ()
        """The inputs of a turn that begins with these entries."""

    def check(self, entries: Iterable[tuple[EventScope, Body]]) -> None:
        """Check the next entries. Raises ``LogError``; the checker cannot be used after it."""
        seq = self.seq
        for scope, body in entries:
            seq += 1
            if not body.durable:
                raise LogError(f"{body.type} is live and cannot be appended")
            kind = type(body)
            if kind in _CHECKS:
                self.seq = seq
                _CHECKS[kind](self, scope.path, body)
        self.seq = seq

    def check_tool_called(self, path: AgentPath, body: progress.ToolCalled) -> None:
        """A call has the next id of its agent."""
        if not self.turn_running:
            raise _outside_turn(body)
        id, number = body.call.id, self.calls_made.get(path, self.state.calls_made_by(path)) + 1
        if id != call_id(path, number):
            raise LogError(f"call id {id!r} is known or out of order, expected {call_id(path, number)!r}")
        self.calls_made[path] = number
        self.open_calls[id] = path

    def check_tool_started(self, path: AgentPath, body: progress.ToolStarted) -> None:
        if body.call.id not in self.open_calls:
            raise _unknown_call(body, body.call.id)

    def check_tool_returned(self, path: AgentPath, body: progress.ToolReturned) -> None:
        if body.result.call not in self.open_calls:
            raise _unknown_call(body, body.result.call)

    def check_tool_ended(self, path: AgentPath, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """A call has one result."""
        if self.open_calls.pop(body.result.call, None) is None:
            raise _unknown_call(body, body.result.call)

    def check_step_started(self, path: AgentPath, body: progress.StepStarted) -> None:
        """A step of an agent begins when all calls of the one before have results."""
        if not self.turn_running:
            raise _outside_turn(body)
        if self.open_calls:
            self._require_none_open(body, [call for call, owner in self.open_calls.items() if owner == path])

    def check_in_turn(self, path: AgentPath, body: Body) -> None:
        if not self.turn_running:
            raise _outside_turn(body)

    def check_compacted(self, path: AgentPath, body: context.ContextCompacted) -> None:
        """Compaction happens between steps, and the window only moves forward; without a summary it stays."""
        self._require_none_open(body, [call for call, owner in self.open_calls.items() if owner[: len(path)] == path])
        window, last = self.state.window, self.seq if body.summary else self.state.window
        if not window <= body.keep_from <= last:
            raise LogError(f"{body.type} keeps from {body.keep_from}, expected {window} to {last}")

    def check_reverted(self, path: AgentPath, body: control.SessionReverted) -> None:
        """A writer appends only the rewind of a turn by itself, without open calls; others need the log reopened."""
        if body.onward is None:
            raise LogError(f"{body.type} cannot be appended by the writer: its state must be read from the store")
        self.check_in_turn(path, body)
        self._require_none_open(body, self.open_calls)
        if not 0 < body.to < self.seq:
            raise LogError(f"{body.type} to {body.to}, expected 1 to {self.seq - 1}")

    def check_withdrawn(self, path: AgentPath, body: control.InputWithdrawn) -> None:
        """Only an input that waits can be withdrawn."""
        if body.input not in self.state.inputs or body.input in self.taken:
            raise LogError(f"{body.type} of input {body.input!r}, which is unknown or was taken")

    def check_turn_started(self, path: AgentPath, body: progress.TurnStarted) -> None:
        if self.turn_running:
            raise LogError("turn.started while a turn is running")
        if self.open_calls:
            self._require_none_open(body, self.open_calls)
        self.turn_running, self.taken = True, body.inputs

    def check_turn_ended(self, path: AgentPath, body: Body) -> None:
        if self.open_calls:
            self._require_none_open(body, self.open_calls)
        if not self.turn_running:
            raise _outside_turn(body)
        self.turn_running = False

    def _require_none_open(self, body: Body, open_calls: Collection[CallId]) -> None:
        if open_calls:
            raise LogError(f"{body.type} while {', '.join(open_calls)} has no result")


def _outside_turn(body: Body) -> LogError:
    return LogError(f"{body.type} without a turn")


def _unknown_call(body: Body, call: CallId) -> LogError:
    return LogError(f"{body.type} for call {call!r}, which is unknown or already has its result")


_CHECKS: dict[type[Body], Callable[[InvariantChecker, AgentPath, Any], None]] = {
    progress.ToolCalled: InvariantChecker.check_tool_called,
    progress.ToolStarted: InvariantChecker.check_tool_started,
    progress.ToolReturned: InvariantChecker.check_tool_returned,
    **dict.fromkeys((progress.ToolCompleted, progress.ToolFailed), InvariantChecker.check_tool_ended),
    progress.StepStarted: InvariantChecker.check_step_started,
    **dict.fromkeys((monitor.ScriptCalled, monitor.ScriptAnswered), InvariantChecker.check_in_turn),
    progress.TurnStarted: InvariantChecker.check_turn_started,
    **dict.fromkeys(progress.TURN_ENDS, InvariantChecker.check_turn_ended),
    context.ContextCompacted: InvariantChecker.check_compacted,
    control.InputWithdrawn: InvariantChecker.check_withdrawn,
    control.SessionReverted: InvariantChecker.check_reverted,
}
