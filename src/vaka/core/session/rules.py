"""What an append may not do: the pairing of calls and results, and the order of turns."""

from collections.abc import Iterable

from vaka.core.session.state import State, call_id
from vaka.core.types import control, progress
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, Path

_TURN_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)


def check(state: State, entries: Iterable[tuple[Path, Body]]) -> None:
    """Raise ``LogError`` if appending these bodies would break a rule; look only, change nothing."""
    view = _View(state)
    for path, body in entries:
        if not body.durable:
            raise LogError(f"{body.type} is live and cannot be appended")
        view.take(path, body)


class _View:
    """The part of a state the rules look at, with the entries seen so far."""

    def __init__(self, state: State) -> None:
        self.open: dict[CallId, Path] = {id: call.path for id, call in state.open.items()}
        self.state, self.turn = state, state.turn is not None
        self.made: dict[Path, int] = {}

    def take(self, path: Path, body: Body) -> None:
        match body:
            case progress.ToolCalled(call=call):
                self._call(path, call.id)
            case progress.ToolStarted(call=call):
                self._need(call.id, body)
            case progress.ToolReturned(result=result):
                self._need(result.call, body)
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                self._need(result.call, body)
                del self.open[result.call]
            case progress.StepStarted():
                self._none_open(path, body)
            case progress.TurnStarted():
                self._start()
            case control.ContextCompacted() | control.SessionReverted():
                self._none_open(None, body)
            case _ if isinstance(body, _TURN_ENDS):
                self._end(body)
            case _:
                return

    def _call(self, path: Path, id: CallId) -> None:
        number = self.made.get(path, self.state.made(path)) + 1
        if id != call_id(path, number):
            raise LogError(f"call id {id!r} is known or out of order, expected {call_id(path, number)!r}")
        self.made[path] = number
        self.open[id] = path

    def _need(self, call: CallId, body: Body) -> None:
        if call not in self.open:
            raise LogError(f"{body.type} for call {call!r}, which is unknown or already has its result")

    def _none_open(self, path: Path | None, body: Body) -> None:
        still = [call for call, where in self.open.items() if path is None or where == path]
        if still:
            raise LogError(f"{body.type} while {', '.join(still)} has no result")

    def _start(self) -> None:
        if self.turn:
            raise LogError("turn.started while a turn is running")
        self.turn = True

    def _end(self, body: Body) -> None:
        self._none_open(None, body)
        if not self.turn:
            raise LogError(f"{body.type} without a turn")
        self.turn = False
