"""What an append may not do: the pairing of calls and results, and the order of turns."""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.session.place import Place
from vaka.core.session.state import State, call_id
from vaka.core.types import control, progress
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, Path


def check(state: State, entries: Iterable[tuple[Place, Body]]) -> None:
    """Raise ``LogError`` if appending these bodies would break a rule; look only, change nothing."""
    view = _View(state)
    for place, body in entries:
        if not body.durable:
            raise LogError(f"{body.type} is live and cannot be appended")
        rule = _RULES.get(type(body))
        if rule is not None:
            rule(view, place.path, body)


class _View:
    """The part of a state the rules look at, with the entries seen so far."""

    def __init__(self, state: State) -> None:
        self.open: dict[CallId, Path] = {id: call.path for id, call in state.open.items()}
        self.state, self.turn = state, state.turn is not None
        self.made: dict[Path, int] = {}

    def called(self, path: Path, body: progress.ToolCalled) -> None:
        id, number = body.call.id, self.made.get(path, self.state.made(path)) + 1
        if id != call_id(path, number):
            raise LogError(f"call id {id!r} is known or out of order, expected {call_id(path, number)!r}")
        self.made[path] = number
        self.open[id] = path

    def started(self, path: Path, body: progress.ToolStarted) -> None:
        self._need(body.call.id, body)

    def returned(self, path: Path, body: progress.ToolReturned) -> None:
        self._need(body.result.call, body)

    def answered(self, path: Path, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        self._need(body.result.call, body)
        del self.open[body.result.call]

    def step(self, path: Path, body: progress.StepStarted) -> None:
        self._none_open(path, body)

    def between(self, path: Path, body: Body) -> None:
        self._none_open(None, body)

    def begun(self, path: Path, body: progress.TurnStarted) -> None:
        if self.turn:
            raise LogError("turn.started while a turn is running")
        self.turn = True

    def ended(self, path: Path, body: Body) -> None:
        self._none_open(None, body)
        if not self.turn:
            raise LogError(f"{body.type} without a turn")
        self.turn = False

    def _need(self, call: CallId, body: Body) -> None:
        if call not in self.open:
            raise LogError(f"{body.type} for call {call!r}, which is unknown or already has its result")

    def _none_open(self, path: Path | None, body: Body) -> None:
        still = [call for call, where in self.open.items() if path is None or where == path]
        if still:
            raise LogError(f"{body.type} while {', '.join(still)} has no result")


_RULES: dict[type[Body], Callable[[_View, Path, Any], None]] = {
    progress.ToolCalled: _View.called,
    progress.ToolStarted: _View.started,
    progress.ToolReturned: _View.returned,
    progress.ToolCompleted: _View.answered,
    progress.ToolFailed: _View.answered,
    progress.StepStarted: _View.step,
    progress.TurnStarted: _View.begun,
    progress.TurnCompleted: _View.ended,
    progress.TurnFailed: _View.ended,
    progress.TurnCancelled: _View.ended,
    progress.TurnInterrupted: _View.ended,
    control.ContextCompacted: _View.between,
    control.SessionReverted: _View.between,
}
