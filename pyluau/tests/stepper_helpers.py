"""Helpers of the stepper tests."""

from typing import Any

from pyluau import State, Stepper, Waiting

PARALLEL = """
local function parallel(...)
    local main, left, results = coroutine.running(), select('#', ...), {}
    for i, f in {...} do
        spawn(function()
            results[i] = f()
            left -= 1
            if left == 0 then wake(main) end
        end)
    end
    if left > 0 then park() end
    return results
end
"""


def script(state: State, source: str, **options: Any) -> Stepper:
    return state.stepper(source, expose=True, **options)


def drive(stepper: Stepper, args: list[Any], answer: Any = lambda call: call.args[0]) -> tuple[Any, list[Any]]:
    """Answer one call at a time, the oldest first."""
    step = stepper.start(args)
    pending = []
    seen = []
    while isinstance(step, Waiting):
        pending += step.calls
        seen += [(call.id, call.name, call.args) for call in step.calls]
        pending = [call for call in pending if call.id not in step.dropped]
        call = pending.pop(0)
        step = stepper.answer(call.id, answer(call))
    return step.value, seen
