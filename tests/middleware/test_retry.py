"""ToolRetry: only failed calls of read tools are repeated."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.middleware.stop_reason import stop_reason_of
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect_turn,
    event_types,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.types.errors import ConfigError
from vaka.core.types.progress import ToolOutputDelta
from vaka.middleware import ToolRetry
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say


def flaky_tool(failures: int, effect: Any = "read", **more: Any) -> Any:
    """Return a tool that fails ``failures`` times first, and the list of its attempts."""
    tries: list[int] = []

    async def look(context: vaka.ToolContext) -> str:
        """Look."""
        tries.append(1)
        context.emit(f"try {len(tries)}")
        if len(tries) <= failures:
            raise OSError(f"failure {len(tries)}")
        return f"seen at try {len(tries)}"

    return vaka.tool(look, effect=effect, **more), tries


async def run_with_retry(
    tool: Any, retry: ToolRetry, clock: FakeClock | None = None, **options: Any
) -> tuple[Any, list[Any]]:
    store = MemoryStore()
    bot = agent(ScriptedModel(call("look"), say("done")), tool, middleware=[retry])
    async with runtime(store, environment=Environment(clock=clock or FakeClock(auto=True)), **options) as rt:
        events = await collect_turn(await rt.open(bot, id="s"))
    log = await read_log(store, "s")
    check_log(log)
    return results_by_call(log)["call_1"], events


async def test_a_failed_read_call_is_repeated_with_doubling_pauses() -> None:
    clock, (tool, tries) = FakeClock(auto=True), flaky_tool(2)
    result, events = await run_with_retry(tool, ToolRetry(3, pause=0.5), clock)
    assert (result.text, len(tries), clock.monotonic()) == ("seen at try 3", 3, 1.5)
    assert event_types(events).count("tool.completed") == 1
    deltas = [event.data for event in events if isinstance(event.data, ToolOutputDelta)]
    assert [(delta.block, delta.offset, delta.text) for delta in deltas] == [
        (0, 0, "try 1"),
        (2, 0, "try 2"),
        (4, 0, "try 3"),
    ]


async def test_when_every_attempt_fails_the_last_failure_is_the_result() -> None:
    tool, tries = flaky_tool(9)
    result, _ = await run_with_retry(tool, ToolRetry(2))
    assert (result.text, result.failed, len(tries)) == ("OSError: failure 3", True, 3)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_tool_that_is_not_read_only_is_never_repeated(effect: str) -> None:
    tool, tries = flaky_tool(1, effect)
    result, _ = await run_with_retry(tool, ToolRetry(5), permissions=vaka.Permissions(mode="bypassPermissions"))
    assert (result.failed, len(tries)) == (True, 1)


async def test_only_named_tools_are_repeated() -> None:
    tool, tries = flaky_tool(1)
    await run_with_retry(tool, ToolRetry(5, tools={"other"}))
    assert len(tries) == 1


async def test_a_refused_call_is_not_repeated() -> None:
    tool, tries = flaky_tool(0)
    result, _ = await run_with_retry(tool, ToolRetry(5), permissions=vaka.Permissions(deny=("look",)))
    assert (result.failed, len(tries)) == (True, 0)


async def test_an_interrupt_ends_the_pause() -> None:
    clock, (tool, tries) = FakeClock(), flaky_tool(9)
    bot = agent(ScriptedModel(call("look"), say("done")), tool, middleware=[ToolRetry(5)])
    async with runtime(environment=Environment(clock=clock)) as rt:
        session = await rt.open(bot)
        running = asyncio.create_task(session.run("Go."))
        await clock.wait_for_sleeps()
        await session.interrupt()
        assert await stop_reason_of(running) == "interrupted"
    assert len(tries) == 1


@pytest.mark.parametrize("wrong", [{"times": 0}, {"pause": -1.0}])
def test_invalid_numbers_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToolRetry(**wrong)
