"""How a turn ends: seal open calls, build the closing event."""

from typing import Literal

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.stop import TurnStopped
from vaka.core.session.fold import results_for_open_calls
from vaka.core.types import progress
from vaka.core.types.errors import Rejected
from vaka.core.types.event import Body
from vaka.core.types.ids import EventScope
from vaka.core.types.message import FailureReason

_REASONS: dict[str, FailureReason] = {"cancelled": "cancelled", "interrupted": "interrupted"}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a run of the loop ended."""

    kind: Literal["completed", "failed", "cancelled", "interrupted"] = "completed"
    text: str = ""
    limit: str = ""
    code: str = ""
    message: str = ""
    withdrawn: bool = False


def ending_of_stop(turn: Turn, stop: TurnStopped) -> Ending:
    """Return the ending of a run that was stopped."""
    kind = stop.kind
    if kind == "limit":
        return Ending(text=turn.last_text, limit=stop.note)
    return Ending(kind=kind, text=turn.last_text, message=stop.note)


def ending_of_rejection(turn: Turn) -> Ending | None:
    """Return the ending of the root agent after a rejection without a message: the person is to speak next."""
    running = turn.state.turn
    if turn.path or running is None or not running.rejected:
        return None
    note = f"a person refused {running.rejected} and said nothing more"
    return Ending(kind="interrupted", text=turn.last_text, code=Rejected.code, message=note)


async def seal_open_calls(turn: Turn, ending: Ending, text: str) -> None:
    """Defer a failed result for each call of this agent or its children that has none."""
    answered = {result.call for _, result in turn.log.pending.results}
    if turn.log.pending.open_calls:
        await turn.log.append(turn.scope)  # ``tool.called`` must be in the log before the result that seals it
        answered.clear()
    for path, step, result in results_for_open_calls(turn.state, _REASONS.get(ending.kind, "sealed"), text, turn.path):
        if result.call not in answered:
            turn.log.defer(EventScope(turn.id, step, path), progress.ToolFailed(result=result))


def closing_event(turn: Turn, ending: Ending) -> Body:
    """Return the event that ends a turn."""
    usage = turn.turn_usage
    if ending.kind == "failed":
        return progress.TurnFailed(
            code=ending.code, message=ending.message, text=ending.text, withdrawn=ending.withdrawn, usage=usage
        )
    if ending.kind == "cancelled":
        return progress.TurnCancelled(note=ending.message, text=ending.text, usage=usage)
    if ending.kind == "interrupted":
        return progress.TurnInterrupted(note=ending.message, text=ending.text, usage=usage, code=ending.code)
    stop: Literal["end", "limit"] = "limit" if ending.limit else "end"
    return progress.TurnCompleted(text=ending.text, stop=stop, limit=ending.limit, usage=usage)
