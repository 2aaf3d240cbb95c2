"""CoolDown: a tool that was just used rests."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.core.types.errors import ConfigError
from vaka.middleware import CoolDown, CoolDownRule
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say


async def run_calls(cool: CoolDown, *waits: float, fails: bool = False) -> list[str]:
    """Call a tool again and again, with so many seconds after each call; return what each call came to."""
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
    async with runtime(store, clock=clock) as rt:
        await (await rt.open(bot, id="s")).run("Go.")
    return [result.text for result in results_by_call(await read_log(store, "s")).values()]


async def test_a_tool_rests_for_seconds_and_says_for_how_long() -> None:
    assert await run_calls(CoolDown({"look": 10.0}), 4.0, 6.0, 1.0) == [
        "ok", "look rests for 6.0 s; do something else meanwhile", "ok",
        "look rests for 9.0 s; do something else meanwhile",
    ]  # fmt: skip


async def test_a_tool_rests_for_steps() -> None:
    found = await run_calls(CoolDown({"*": CoolDownRule(steps=2)}), 0, 0, 0)
    assert found == [
        "ok", "look rests for 2 more steps; do something else meanwhile",
        "look rests for 1 more steps; do something else meanwhile", "ok",
    ]  # fmt: skip


async def test_with_failures_only_a_tool_that_keeps_failing_rests() -> None:
    cool = CoolDownRule(seconds=5, failures=2)
    assert await run_calls(CoolDown({"look": cool}), 0, 0) == ["ok", "ok", "ok"]
    found = await run_calls(CoolDown({"look": cool}), 0, 0, 9.0, fails=True)
    assert [text[:40] for text in found] == [
        "OSError: no", "OSError: no", "look rests after 2 failures in a row for", "OSError: no",
    ]  # fmt: skip


async def test_of_several_calls_in_one_step_one_is_made() -> None:
    @vaka.tool(effect="read")
    async def look(number: int) -> str:
        """Look."""
        return f"ok {number}"

    store = MemoryStore()
    at_once = calls(call("look", number=1), call("look", number=2))
    bot = agent(ScriptedModel(at_once, say("done")), look, middleware=[CoolDown({"look": 10.0})])
    async with runtime(store, clock=FakeClock(auto=True)) as rt:
        await (await rt.open(bot, id="s")).run("Go.")
    assert [result.text for result in results_by_call(await read_log(store, "s")).values() if not result.failed] == [
        "ok 1"
    ]


async def test_other_tools_and_other_sessions_do_not_rest() -> None:
    assert await run_calls(CoolDown({"other": 10.0}), 0) == ["ok", "ok"]
    cool = CoolDown({"look": 10.0})
    assert (await run_calls(cool, 0))[0] == "ok"


@pytest.mark.parametrize(
    "wrong", [0.0, -1.0, float("nan"), float("inf"), CoolDownRule(), CoolDownRule(steps=-1), CoolDownRule(failures=3)]
)
def test_a_rest_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        CoolDown({"look": wrong})
