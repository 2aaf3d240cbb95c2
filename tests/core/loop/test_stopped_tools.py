"""A tool that is cancelled may return a result, which is kept."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.core.loop.test_stop import stop_turn
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, ToolResult
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

UNKNOWN_OUTCOME = "; its outcome is unknown, verify before repeating it"


async def result_of_stopped_tool(leave: Any) -> ToolResult:
    """Interrupt a running tool, and return the result of its call."""
    store, begun = MemoryStore(), asyncio.Event()

    @vaka.tool
    async def work() -> Any:
        """Work until cancelled."""
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return leave()

    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("work"), say("never")), work), id="s")
        await stop_turn(rt, session, begun.is_set, "interrupt")
    log = await read_log(store, "s")
    check_log(log)
    return results_by_call(log)["call_1"]


async def test_a_tool_that_finishes_as_it_is_stopped_has_its_result() -> None:
    done = await result_of_stopped_tool(lambda: "all of it")
    assert (done.text, done.failed, done.reason) == ("all of it", False, "")


async def test_a_partial_result_of_a_stopped_tool_is_kept_with_a_note() -> None:
    some = ToolResult(call=CallId(""), content=(Text(text="half of it"),), failed=True, reason="error", value={"n": 1})
    done = await result_of_stopped_tool(lambda: some)
    assert done.text.startswith("half of it\n[stopped before it was done")
    assert done.text.endswith(f"{UNKNOWN_OUTCOME}]")
    assert (done.failed, done.reason, done.value) == (True, "interrupted", {"n": 1})


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("broken off")])
async def test_a_tool_that_leaves_without_one_is_in_doubt(error: BaseException) -> None:
    def leave() -> None:
        raise error

    done = await result_of_stopped_tool(leave)
    assert (done.failed, done.reason) == (True, "interrupted")
    assert UNKNOWN_OUTCOME in done.text
    assert ("broken off" in done.text) == isinstance(error, ValueError)
