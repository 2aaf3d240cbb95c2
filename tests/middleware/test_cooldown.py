"""CoolDown: a tool that was just used is refused for some time."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.core.types.errors import ConfigError
from vaka.middleware import CoolDown, CoolDownRule
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say


async def run_calls(cool: CoolDown, *waits: float, fails: bool = False) -> list[str]:
    """Call a tool repeatedly with these seconds between the calls; return the text of each result."""
    clock, store = FakeClock(auto=True), MemoryStore()

    @vaka.tool(effect="read", poll=True)
    async def look(number: int) -> str:
        """Look."""
        if fails:
            raise OSError("no")
        return "ok"

    async def pass_time(turn: Any, prompt: Any) -> Any:
        step: int = turn.scope.step
        if 1 < step <= len(waits) + 1:
            clock.advance(waits[step - 2])
        return prompt

    lines = [call("look", number=number) for number in range(len(waits) + 1)]
    passing = vaka.Middleware.from_functions("passing", before_model=pass_time)
    bot = agent(ScriptedModel(*lines, say("done")), look, middleware=[cool, passing])
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        await (await rt.open(bot, id="s")).run("Go.")
    return [result.text for result in results_by_call(await read_log(store, "s")).values()]


async def test_a_cool_down_of_seconds_refuses_calls_with_the_time_left() -> None:
    assert await run_calls(CoolDown({"look": 10.0}), 4.0, 6.0, 1.0) == [
        "ok",
        "look is cooling down for 6.0 s; do something else meanwhile",
        "ok",
        "look is cooling down for 9.0 s; do something else meanwhile",
    ]


async def test_a_cool_down_of_steps_refuses_calls_with_the_steps_left() -> None:
    assert await run_calls(CoolDown({"*": CoolDownRule(steps=2)}), 0, 0, 0) == [
        "ok",
        "look is cooling down for 2 more steps; do something else meanwhile",
        "look is cooling down for 1 more steps; do something else meanwhile",
        "ok",
    ]


async def test_a_cool_down_with_failures_starts_after_repeated_failures() -> None:
    cool = CoolDownRule(seconds=5, failures=2)
    assert await run_calls(CoolDown({"look": cool}), 0, 0) == ["ok", "ok", "ok"]
    texts = await run_calls(CoolDown({"look": cool}), 0, 0, 9.0, fails=True)
    assert [text[:49] for text in texts] == [
        "OSError: no",
        "OSError: no",
        "look is cooling down after 2 failures in a row fo",
        "OSError: no",
    ]


async def test_of_several_calls_in_one_step_only_one_runs() -> None:
    @vaka.tool(effect="read")
    async def look(number: int) -> str:
        """Look."""
        return f"ok {number}"

    store = MemoryStore()
    at_once = calls(call("look", number=1), call("look", number=2))
    bot = agent(ScriptedModel(at_once, say("done")), look, middleware=[CoolDown({"look": 10.0})])
    async with runtime(store, environment=Environment(clock=FakeClock(auto=True))) as rt:
        await (await rt.open(bot, id="s")).run("Go.")
    assert [result.text for result in results_by_call(await read_log(store, "s")).values() if not result.failed] == [
        "ok 1"
    ]


async def test_a_cool_down_does_not_affect_other_tools_and_sessions() -> None:
    assert await run_calls(CoolDown({"other": 10.0}), 0) == ["ok", "ok"]
    cool = CoolDown({"look": 10.0})
    assert (await run_calls(cool, 0))[0] == "ok"


@pytest.mark.parametrize(
    "wrong", [0.0, -1.0, float("nan"), float("inf"), CoolDownRule(), CoolDownRule(steps=-1), CoolDownRule(failures=3)]
)
def test_an_invalid_cool_down_rule_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        CoolDown({"look": wrong})
