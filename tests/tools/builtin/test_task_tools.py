"""The task tools: a board in the session's log that survives restarts and is restored by a rewind."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.runtime_fixtures import read_log
from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.types.message import ToolResult
from vaka.tools.builtin import builtin_tools

TASKS = ("TaskCreate", "TaskGet", "TaskList", "TaskUpdate")


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path, tools=builtin_tools(TASKS))


async def create_tasks(bench: ToolHarness, *subjects: str) -> list[str]:
    task = await bench.run_calls(*[("TaskCreate", {"subject": one, "activeForm": f"Doing {one}"}) for one in subjects])
    return [str(value_of(one)["taskId"]) for one in task]


async def update_task(bench: ToolHarness, id: str, **change: Any) -> ToolResult:
    return await bench.call("TaskUpdate", taskId=id, **change)


async def test_a_created_task_can_be_read(bench: ToolHarness) -> None:
    task = await bench.call("TaskCreate", subject=" Test ", activeForm="Testing", description="All of it.")
    id = value_of(task)["taskId"]
    assert task.text == f'{{"taskId":"{id}"}}'
    assert (len(id), int(id, 16) >= 0) == (32, True)
    expected: dict[str, Any] = {
        "id": id,
        "subject": "Test",
        "activeForm": "Testing",
        "description": "All of it.",
        "status": "pending",
        "owner": "",
        "blocks": [],
        "blockedBy": [],
    }
    for name in ("taskId", "task_id", "id"):
        result = await bench.call("TaskGet", **{name: id})
        assert value_of(result) == expected == msgspec.json.decode(result.text)
    assert (await bench.call("TaskGet", taskId="nothing")).text == "NotFound: there is no task 'nothing'"
    assert (await bench.call("TaskGet")).failed
    assert (await bench.call("TaskGet", taskId=id, id="other")).failed
    assert (await bench.call("TaskCreate", subject="x")).reason == "invalid_arguments"
    assert (await bench.call("TaskCreate", subject="  ", activeForm="x")).failed


async def test_waiting_tasks_are_shown_on_both_sides(bench: ToolHarness) -> None:
    build, test, ship = await create_tasks(bench, "Build", "Test", "Ship")
    changed = value_of(await update_task(bench, test, blockedBy=[build], addBlocks=[ship], owner="Ann"))
    assert (changed["task"]["status"], changed["revision"], changed["affected"]) == ("blocked", 4, [build, ship])
    looked = value_of(await bench.call("TaskGet", taskId=test))
    assert looked["blockedBy"] == [{"id": build, "subject": "Build", "status": "pending", "owner": ""}]
    assert looked["blocks"] == [{"id": ship, "subject": "Ship", "status": "blocked", "owner": ""}]
    refused = await update_task(bench, test, status="done", owner="Bob")
    assert (refused.failed, refused.text) == (
        True,
        f"InvalidInput: task {test!r} cannot be completed: it waits for {build}",
    )
    result = value_of(await update_task(bench, build, status="done"))
    assert (result["unblocked"], result["task"]["status"], result["revision"]) == ([test], "completed", 5)
    assert value_of(await update_task(bench, test, owner=""))["task"]["owner"] == ""
    assert value_of(await update_task(bench, test, owner=""))["revision"] == 6


async def test_the_task_list_is_indented_counted_and_filtered(bench: ToolHarness) -> None:
    build, test, ship = await create_tasks(bench, "Build", "Test", "Ship")
    await bench.run_calls(
        ("TaskUpdate", {"taskId": ship, "blockedBy": [test]}),
        ("TaskUpdate", {"taskId": test, "blockedBy": [build]}),
        ("TaskUpdate", {"taskId": build, "status": "in-progress", "owner": "Ann"}),
    )
    listed = await bench.call("TaskList")
    assert listed.text == (
        "3 tasks: 0 pending, 1 in_progress, 0 completed, 2 blocked\n"
        f"- [in_progress] Build (Ann) {build}\n"
        f"  - [blocked] Test {test} <- {build}\n"
        f"    - [blocked] Ship {ship} <- {test}"
    )
    assert [(row["id"], row["depth"]) for row in value_of(listed)["tasks"]] == [(build, 0), (test, 1), (ship, 2)]
    assert value_of(await bench.call("TaskList", status="blocked"))["total"] == 2
    assert value_of(await bench.call("TaskList", owner="aNN"))["total"] == 1
    assert "must be one of" in (await bench.call("TaskList", status="paused")).text


async def test_a_rejected_change_changes_nothing(bench: ToolHarness) -> None:
    one, two = await create_tasks(bench, "One", "Two")
    await update_task(bench, two, blockedBy=[one])
    for change in ({"blockedBy": [two], "owner": "me"}, {"blocks": ["unknown"], "subject": "Other"}, {"blocks": [one]}):
        assert (await update_task(bench, one, **change)).failed
    assert (await update_task(bench, one, colour="red")).failed
    assert "needs a subject" in (await update_task(bench, one, subject="  ", owner="me")).text
    looked = value_of(await bench.call("TaskGet", taskId=one))
    assert (looked["subject"], looked["owner"], [ref["id"] for ref in looked["blocks"]]) == ("One", "", [two])
    assert value_of(await bench.call("TaskList"))["revision"] == 3


async def test_a_deleted_task_blocks_no_other_task(bench: ToolHarness) -> None:
    one, two, three = await create_tasks(bench, "One", "Two", "Three")
    await update_task(bench, one, blocks=[two])
    deleted = value_of(await update_task(bench, one, delete=True))
    assert (deleted["deleted"], deleted["unblocked"], deleted["task"]["id"]) == (True, [two], one)
    assert value_of(await update_task(bench, three, status="deleted"))["deleted"]
    assert [row["id"] for row in value_of(await bench.call("TaskList"))["tasks"]] == [two]
    assert (await update_task(bench, one, delete=True)).failed


async def test_a_repeated_call_creates_no_second_task(bench: ToolHarness) -> None:
    task = await bench.call("TaskCreate", subject="Once", activeForm="Doing it")
    again = await bench.rerun_after_crash(1)
    assert value_of(again) == value_of(task)
    assert value_of(await bench.call("TaskList"))["total"] == 1


async def test_a_rewind_restores_the_board(bench: ToolHarness) -> None:
    (one,) = await create_tasks(bench, "One")
    mark = (await read_log(bench.store, "s"))[-1].id
    message = len(bench.script)
    await update_task(bench, one, status="completed")
    async with bench.runtime() as rt:
        await rt.rewind("s", str(mark))
    del bench.script[message:]
    assert value_of(await bench.call("TaskGet", taskId=one))["status"] == "pending"


async def test_many_tasks_keep_their_order_and_small_values(bench: ToolHarness) -> None:
    task = await bench.run_calls(
        *[("TaskCreate", {"subject": f"t{n}", "activeForm": "x"}) for n in range(150)], at_once=True
    )
    assert len({value_of(one)["taskId"] for one in task}) == 150
    assert value_of(await bench.call("TaskList"))["total"] == 150
    huge = await bench.call("TaskCreate", subject="x", activeForm="x", description="\U0001f600" * 50_000)
    assert not huge.failed
    refused = await bench.call("TaskCreate", subject="x", activeForm="x", description="\x01" * 50_000)
    assert "at most 204800 are stored" in refused.text
    assert value_of(await bench.call("TaskList"))["total"] == 151


def test_each_tool_has_its_effect() -> None:
    assert [(tool.spec.name, tool.spec.effect, tool.spec.layer) for tool in builtin_tools(TASKS)] == [
        ("TaskCreate", "idempotent", "builtin"),
        ("TaskGet", "read", "builtin"),
        ("TaskList", "read", "builtin"),
        ("TaskUpdate", "idempotent", "builtin"),
    ]
