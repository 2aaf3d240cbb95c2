"""TodoWrite: one list for each agent of a session, stored in its log."""

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, read_log, results_by_call
from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import StateChanged
from vaka.core.types.ids import SessionId
from vaka.middleware import TodoList
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path, tools=builtin_tools(["TodoWrite"]))


def todo(content: str, status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"content": content, "status": status, **more}


async def test_the_todo_list_is_replaced_and_stored(bench: ToolHarness) -> None:
    first = await bench.call("TodoWrite", todos=[todo("Build", "in_progress", activeForm="Building"), todo("Test")])
    assert first.text == "[>] Build\n[ ] Test"
    current = [
        {"content": "Build", "status": "in_progress", "activeForm": "Building"},
        {"content": "Test", "status": "pending", "activeForm": "Test"},
    ]
    assert value_of(first) == {"todos": current, "previous": []}
    second = await bench.call("TodoWrite", todos=[todo("Build", "completed")])
    assert value_of(second)["previous"] == current
    assert (await bench.call("TodoWrite", todos=[])).text == "The list is empty."
    changes = [event.data for event in await read_log(bench.store, "s") if isinstance(event.data, StateChanged)]
    assert [change.key for change in changes] == ["todos"] * 3
    assert changes[-1].value is None


async def test_the_same_list_again_changes_nothing(bench: ToolHarness) -> None:
    for _ in range(2):
        assert not (await bench.call("TodoWrite", todos=[todo("Build")])).failed
    log = await read_log(bench.store, "s")
    assert sum(isinstance(event.data, StateChanged) for event in log) == 1


async def test_two_items_in_progress_are_an_error(bench: ToolHarness) -> None:
    both = await bench.call("TodoWrite", todos=[todo("A", "in_progress"), todo("B", "in_progress")])
    assert both.text == "InvalidInput: one item can be in_progress, not 2: 'A', 'B'"
    assert (await bench.call("TodoWrite", todos=[todo("A", "begun")])).reason == "invalid_arguments"
    assert (await bench.call("TodoWrite", todos=[todo(" ")])).failed
    assert (await bench.call("TodoWrite", todos=[todo("x")] * 201)).failed


async def test_each_session_has_a_list_of_its_own(bench: ToolHarness) -> None:
    await bench.call("TodoWrite", todos=[todo("Mine")])
    model = ScriptedModel(call("TodoWrite", todos=[todo("Theirs")]), say("done"))
    async with bench.runtime() as rt:
        await (await rt.open(agent(model, *bench.tools), id="other")).run("Go.")
    assert value_of(results_by_call(await read_log(bench.store, "other"))["call_1"])["previous"] == []


async def test_a_child_agent_has_a_list_of_its_own(bench: ToolHarness) -> None:
    inner = ScriptedModel(agents={"digger": [call("TodoWrite", todos=[todo("Dig")]), say("dug")]})
    child = agent(inner, *bench.tools, name="digger", middleware=[TodoList(every=1)])
    outer = ScriptedModel(call("TodoWrite", todos=[todo("Build")]), call("digger", prompt="Dig."), say("done"))
    async with bench.runtime() as rt:
        await (await rt.open(agent(outer, *bench.tools, child, middleware=[TodoList(every=1)]), id="s")).run("Go.")
    log = await read_log(bench.store, "s")
    stored = [event.data.key for event in log if isinstance(event.data, StateChanged)]
    assert stored[0] == "todos"
    assert stored[1].startswith("todos/")
    assert "system-reminder" not in str(inner.prompts[0].messages)
    assert "[ ] Build" in str(outer.prompts[-1].messages[-1])
    left = (await reopen(bench.store, SessionId("s"))).state.values
    assert list(left) == ["todos"], "what a child kept is over with it"
