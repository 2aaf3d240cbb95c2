"""From the events of a turn to what it came to."""

from collections.abc import Sequence

from vaka.core.types import progress
from vaka.core.types.control import InputAdded, SessionOpened
from vaka.core.types.errors import Cancelled, Interrupted, Rejected, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.runtime.options import Response

_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)
_COUNTED = frozenset[type]({*_ENDS, progress.StepStarted, progress.ToolCalled, progress.ToolFailed})
_REFUSED = ("denied", "expired")


class Watcher:
    """Finds the turn that answers an input among the events of a session, and sums it up."""

    def __init__(self, session: SessionId, *, key: str = "", turn: str = "") -> None:
        self.session, self.key, self.turn = session, key, turn
        self.end: Event | None = None
        self.steps = 0
        self.calls: list[str] = []
        self.denied: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether the turn's last event was seen."""
        return self.end is not None

    def of_turn(self, events: Sequence[Event]) -> list[Event]:
        """Return those of some events that belong to the turn."""
        mine: list[Event] = []
        for event in events:
            if event.turn == self.turn if self.turn else self._found(event):
                mine.append(event)
                if type(event.data) in _COUNTED:
                    self.see(event)
        return mine

    def _found(self, event: Event) -> bool:
        """Whether an event belongs to the turn, which is known from the event that takes the input on."""
        body = event.data
        if isinstance(body, progress.TurnStarted | progress.StepStarted) and self.key in body.inputs:
            self.turn = event.turn
            return True
        if isinstance(body, InputAdded):
            return body.key == self.key
        if isinstance(body, progress.TurnQueued):
            return body.input == self.key
        return isinstance(body, SessionOpened)

    def see(self, event: Event) -> None:
        """Count an event of the turn."""
        body = event.data
        if type(body) not in _COUNTED:
            return
        if isinstance(body, _ENDS) and not event.path:
            self.end = event
        elif isinstance(body, progress.StepStarted) and not event.path:
            self.steps += 1
        elif isinstance(body, progress.ToolCalled):
            self.calls.append(body.call.name)
        elif isinstance(body, progress.ToolFailed) and body.result.reason in _REFUSED:
            self.denied.append(body.result.call)

    def summary(self) -> Response:
        """Return what the turn came to."""
        if self.end is None:
            raise TurnError("the turn has not ended")
        body = self.end.data
        assert isinstance(body, _ENDS)  # noqa: S101  # see() keeps nothing else
        stop = {"turn.failed": "failed", "turn.cancelled": "cancelled", "turn.interrupted": "interrupted"}
        return Response(
            text=body.text, session_id=self.session, turn_id=self.end.turn,
            stop=getattr(body, "stop", None) or stop[body.type],  # type: ignore[arg-type]  # one of the literals
            limit=getattr(body, "limit", ""), usage=body.usage, steps=self.steps, tool_calls=tuple(self.calls),
            denied=tuple(self.denied), code=getattr(body, "code", ""),
            message=getattr(body, "message", "") or getattr(body, "note", ""),
        )  # fmt: skip

    def response(self) -> Response:
        """Return what the turn came to; raise ``TurnError`` when that is no answer."""
        summary = self.summary()
        if summary.stop in ("end", "limit"):
            return summary
        kinds: dict[str, type[TurnError]] = {"cancelled": Cancelled, "interrupted": Interrupted}
        kind = Rejected if summary.code == Rejected.code else kinds.get(summary.stop, TurnError)
        raise kind(summary.message or summary.stop, code=summary.code, result=summary)
