"""The part of the fold that handles inputs: they wait until a turn or a step takes them, or are withdrawn."""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.session.state import QueuedInput, SessionState
from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope


def take_inputs(state: SessionState, seq: int, keys: Iterable[str]) -> None:
    """Record the event that takes inputs; they wait no more."""
    for key in keys:
        queued = state.inputs.pop(key, None)
        if queued:
            state.taken[queued.seq] = seq


def withdrawn_inputs(entries: Iterable[tuple[EventScope, Body]]) -> set[str]:
    """Return the keys of the inputs that events withdraw which are about to be written."""
    return {body.input for _, body in entries if isinstance(body, control.InputWithdrawn)}


def _input_added(state: SessionState, event: Event, body: control.InputAdded) -> None:
    state.closed = False
    state.inputs.setdefault(body.key, QueuedInput(key=body.key, seq=event.seq, policy=body.policy))
    if body.policy == "interrupt" and state.turn and state.turn.interrupted is None:
        state.turn.interrupted = "a new input takes its place"


def _input_withdrawn(state: SessionState, event: Event, body: control.InputWithdrawn) -> None:
    state.inputs.pop(body.input, None)


def _turn_queued(state: SessionState, event: Event, body: progress.TurnQueued) -> None:
    queued = state.inputs.get(body.input)
    if queued:
        queued.announced = True


def _interrupt_requested(state: SessionState, event: Event, body: control.InterruptRequested) -> None:
    if state.turn and state.turn.interrupted is None:
        state.turn.interrupted = body.note


HANDLERS: dict[type[Body], Callable[[SessionState, Event, Any], None]] = {
    control.InputAdded: _input_added, control.InputWithdrawn: _input_withdrawn,
    control.InterruptRequested: _interrupt_requested, progress.TurnQueued: _turn_queued,
}  # fmt: skip
