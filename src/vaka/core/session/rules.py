"""What an append may not do: the pairing of calls and results, and the order of turns."""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.session.place import Place
from vaka.core.session.state import State, call_id
from vaka.core.types import control, monitor, progress
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, Path


def check(state: State, entries: Iterable[tuple[Place, Body]]) -> None:
    """Raise ``LogError`` if appending these bodies would break a rule; look only, change nothing."""
    View(state).take(entries)


class View:
    """The part of a state the rules look at, with the entries seen so far."""

    def __init__(self, state: State) -> None:
        self.open: dict[CallId, Path] = {id: call.path for id, call in state.open.items()}
        self.state, self.turn, self.seq = state, state.turn is not None, state.seq
        self.made: dict[Path, int] = {}

    def take(self, entries: Iterable[tuple[Place, Body]]) -> None:
        """Take more entries into account. After a ``LogError`` the view is of no more use."""
        for place, body in entries:
            self.seq += 1
            if not body.durable:
                raise LogError(f"{body.type} is live and cannot be appended")
            rule = _RULES.get(type(body))
            if rule is not None:
                rule(self, place.path, body)

    def called(self, path: Path, body: progress.ToolCalled) -> None:
        """A call id is new, and the next of its agent."""
        self._in_turn(body)
        id, number = body.call.id, self.made.get(path, self.state.made(path)) + 1
        if id != call_id(path, number):
            raise LogError(f"call id {id!r} is known or out of order, expected {call_id(path, number)!r}")
        self.made[path] = number
        self.open[id] = path

    def started(self, path: Path, body: progress.ToolStarted) -> None:
        """Only an open call starts."""
        self._need(body.call.id, body)

    def returned(self, path: Path, body: progress.ToolReturned) -> None:
        """Only an open call returns."""
        self._need(body.result.call, body)

    def answered(self, path: Path, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        """A call has one result."""
        self._need(body.result.call, body)
        del self.open[body.result.call]

    def step(self, path: Path, body: progress.StepStarted) -> None:
        """No step of an agent begins while a call of its is open."""
        self._in_turn(body)
        self._none_open(body, [call for call, where in self.open.items() if where == path])

    def scripted(self, path: Path, body: monitor.ScriptCalled | monitor.ScriptAnswered) -> None:
        """A script works only in a turn."""
        self._in_turn(body)

    def compacted(self, path: Path, body: control.ContextCompacted) -> None:
        """Compaction happens between steps, and the window only ever moves on."""
        self._none_open(body, [call for call, where in self.open.items() if where[: len(path)] == path])
        if not self.state.window <= body.keep_from <= self.seq:
            raise LogError(f"{body.type} keeps from {body.keep_from}, expected {self.state.window} to {self.seq}")

    def reverted(self, path: Path, body: control.SessionReverted) -> None:
        """A rewind is read from the store, not folded into an open log; a turn that goes on has no call open."""
        if body.onward is None:
            raise LogError(f"{body.type} while the log is open: what it means is read from the store")
        self._in_turn(body)
        self._none_open(body, list(self.open))
        if not 0 < body.to < self.seq:
            raise LogError(f"{body.type} to {body.to}, expected 1 to {self.seq - 1}")

    def begun(self, path: Path, body: progress.TurnStarted) -> None:
        """One turn at a time."""
        if self.turn:
            raise LogError("turn.started while a turn is running")
        self._none_open(body, list(self.open))
        self.turn = True

    def ended(self, path: Path, body: Body) -> None:
        """A turn ends with every call answered."""
        self._none_open(body, list(self.open))
        self._in_turn(body)
        self.turn = False

    def _in_turn(self, body: Body) -> None:
        if not self.turn:
            raise LogError(f"{body.type} without a turn")

    def _need(self, call: CallId, body: Body) -> None:
        if call not in self.open:
            raise LogError(f"{body.type} for call {call!r}, which is unknown or already has its result")

    def _none_open(self, body: Body, still: list[CallId]) -> None:
        if still:
            raise LogError(f"{body.type} while {', '.join(still)} has no result")


_RULES: dict[type[Body], Callable[[View, Path, Any], None]] = {
    progress.ToolCalled: View.called,
    progress.ToolStarted: View.started,
    progress.ToolReturned: View.returned,
    progress.ToolCompleted: View.answered,
    progress.ToolFailed: View.answered,
    progress.StepStarted: View.step,
    monitor.ScriptCalled: View.scripted,
    monitor.ScriptAnswered: View.scripted,
    progress.TurnStarted: View.begun,
    progress.TurnCompleted: View.ended,
    progress.TurnFailed: View.ended,
    progress.TurnCancelled: View.ended,
    progress.TurnInterrupted: View.ended,
    control.ContextCompacted: View.compacted,
    control.SessionReverted: View.reverted,
}
