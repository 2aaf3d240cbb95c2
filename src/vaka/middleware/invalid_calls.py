"""End a turn whose model keeps calling tools with invalid arguments."""

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.progress import ToolCompleted, ToolFailed

INVALID_CALLS_LIMIT = "invalid_calls"

_INVALID_REASON = "invalid_arguments"


class InvalidCallLimit(Middleware):
    """Ends a turn after ``Limits.stop_invalid`` steps in a row in which every call had invalid arguments."""

    async def after_step(self, turn: Turn) -> str:
        """Return the name of the limit when the last steps, this one included, had only invalid calls."""
        threshold, results, steps = turn.recipe.limits.stop_invalid, turn.log.pending.results, dict[int, bool]()
        if not threshold:
            return ""
        for scope, result in results:
            if scope.path == turn.path and result.reason != _INVALID_REASON:
                return ""
        pending = [(scope.step, result) for scope, result in results if scope.path == turn.path]
        stored = [
            (event.step, event.data.result)
            for event in turn.log.window.events_at(turn.path)
            if event.turn == turn.id and isinstance(event.data, ToolCompleted | ToolFailed)
        ]
        for step, result in (*stored, *pending):
            steps[step] = steps.get(step, True) and result.reason == _INVALID_REASON
        first = max(turn.scope.step - threshold, 0)
        last = [steps.get(number, False) for number in range(turn.scope.step, first, -1)]
        return INVALID_CALLS_LIMIT if len(last) == threshold and all(last) else ""
