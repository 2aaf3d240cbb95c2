"""When a model does not learn from what it is told of its calls: nothing it says can be used, time after time."""

from vaka.core.loop.scope import Turn
from vaka.core.types.event import Body
from vaka.core.types.progress import ToolCompleted, ToolFailed

INVALID = "invalid_calls"
"""The name of the limit."""
_USELESS = "invalid_arguments"


def hopeless(turn: Turn) -> str:
    """Return the name of the limit when the calls of too many answers in a row all had arguments nobody can use."""
    most, steps = turn.recipe.limits.stop_invalid, dict[int, bool]()
    waiting = [(place.step, body) for place, body in turn.log.deferred if place.path == turn.path]
    if not most or not all(_useless(body) for _, body in waiting):
        return ""
    known = [(event.step, event.data) for event in turn.log.window.at(turn.path) if event.turn == turn.id]
    for step, body in (*known, *waiting):
        if isinstance(body, ToolCompleted | ToolFailed):
            steps[step] = steps.get(step, True) and _useless(body)
    last = [steps.get(number, False) for number in range(turn.at.step, max(turn.at.step - most, 0), -1)]
    return INVALID if len(last) == most and all(last) else ""


def _useless(body: Body) -> bool:
    return not isinstance(body, ToolCompleted | ToolFailed) or body.result.reason == _USELESS
