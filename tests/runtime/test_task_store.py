"""``Options.task_store``: one task board for all sessions of a runtime."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import vaka
from vaka.config.options import Storage, Workspace
from vaka.content import ToolResult
from vaka.errors import ConfigError
from vaka.models import Scripted
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore

TOOLS = ("TaskCreate", "TaskGet", "TaskList", "TaskUpdate")


def call(name: str, **arguments: object) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def create(subject: str) -> dict[str, Any]:
    return call("TaskCreate", subject=subject, activeForm=f"Doing {subject}")


async def run_calls(runtime: vaka.Runtime, session: str, *calls: dict[str, Any]) -> list[Any]:
    """Run the calls in a turn of a session; return their values."""
    agent = vaka.Agent("planner", model=Scripted([*calls, {"text": "Done."}]), tools=TOOLS)
    results: list[Any] = []
    async for event in (await runtime.open(agent, id=session)).stream("Plan."):
        if event.type in ("tool.completed", "tool.failed"):
            result: ToolResult = getattr(event.data, "result")  # noqa: B009  # both types have one
            results.append(result.text if event.type == "tool.failed" else result.value)
    return results


async def subjects(runtime: vaka.Runtime, session: str) -> list[str]:
    [board] = await run_calls(runtime, session, call("TaskList"))
    return [task["subject"] for task in board["tasks"]]


async def test_by_default_every_session_has_its_own_board() -> None:
    async with vaka.Runtime(permissions=vaka.Permissions(allow=TOOLS)) as runtime:
        await run_calls(runtime, "a", create("Build"))
        assert await subjects(runtime, "a2") == []


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{path}/tasks.db"])
async def test_sessions_share_the_board_of_a_task_store(tmp_path: Path, url: str) -> None:
    async with vaka.Runtime(
        storage=Storage(task_store=url.format(path=tmp_path)), permissions=vaka.Permissions(allow=TOOLS)
    ) as runtime:
        assert await subjects(runtime, "reads-first") == []
        [made] = await run_calls(runtime, "a", create("Build"))
        [changed] = await run_calls(runtime, "b", call("TaskUpdate", taskId=made["taskId"], status="done"))
        assert (changed["task"]["subject"], changed["revision"]) == ("Build", 2)
        [task] = await run_calls(runtime, "c", call("TaskGet", taskId=made["taskId"]))
        assert task["status"] == "completed"


async def test_a_given_store_stays_open_and_keeps_the_board() -> None:
    tasks = MemoryStore()
    async with vaka.Runtime(storage=Storage(task_store=tasks), permissions=vaka.Permissions(allow=TOOLS)) as runtime:
        await run_calls(runtime, "a", create("Build"))
    async with vaka.Runtime(storage=Storage(task_store=tasks), permissions=vaka.Permissions(allow=TOOLS)) as runtime:
        assert await subjects(runtime, "a") == ["Build"]


async def test_sessions_and_the_board_may_be_in_one_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db")
    async with vaka.Runtime(
        store=store, storage=Storage(task_store=store), permissions=vaka.Permissions(allow=TOOLS)
    ) as runtime:
        await run_calls(runtime, "a", create("Build"))
        assert await subjects(runtime, "b") == ["Build"]
    await store.close()


async def test_changes_of_many_sessions_and_runtimes_at_once_are_all_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    tasks = MemoryStore()
    for place in (url, tasks):
        async with (
            vaka.Runtime(storage=Storage(task_store=place), permissions=vaka.Permissions(allow=TOOLS)) as first,
            vaka.Runtime(storage=Storage(task_store=place), permissions=vaka.Permissions(allow=TOOLS)) as second,
        ):
            await run_calls(first, "opens", create("0"))
            turns = [(runtime, f"s{number}") for number in range(4) for runtime in (first, second)]
            await asyncio.gather(
                *[run_calls(runtime, id, create(f"{id}/{n}")) for n, (runtime, id) in enumerate(turns)]
            )
            assert len(await subjects(first, "reads")) == 9


async def test_a_rejected_change_leaves_the_board_as_it_is() -> None:
    async with vaka.Runtime(
        storage=Storage(task_store="memory:"), permissions=vaka.Permissions(allow=TOOLS)
    ) as runtime:
        [made] = await run_calls(runtime, "a", create("Build"))
        [failed] = await run_calls(runtime, "b", call("TaskUpdate", taskId=made["taskId"], blockedBy=[made["taskId"]]))
        assert "cannot wait for itself" in failed
        [task] = await run_calls(runtime, "c", call("TaskGet", taskId=made["taskId"]))
        assert task["blockedBy"] == []


async def test_secrets_are_redacted_on_the_shared_board() -> None:
    async with vaka.Runtime(
        storage=Storage(task_store="memory:", secrets=("swordfish-1234",)), permissions=vaka.Permissions(allow=TOOLS)
    ) as runtime:
        await run_calls(runtime, "a", create("Use swordfish-1234"))
        assert await subjects(runtime, "b") == ["Use [redacted]"]


async def test_file_tools_cannot_write_the_files_of_a_task_store(tmp_path: Path) -> None:
    write = [call("Write", file_path=name, content="forged") for name in ("tasks.db", "tasks.db-journal")]
    agent = vaka.Agent("forger", model=Scripted([*write, {"text": "Done."}]), tools=("Write",))
    async with vaka.Runtime(
        workspace=Workspace(cwd=str(tmp_path)),
        storage=Storage(task_store=f"sqlite:///{tmp_path}/tasks.db"),
        permissions=vaka.Permissions(allow=("Write",)),
    ) as runtime:
        events = [event.type async for event in (await runtime.open(agent)).stream("Forge it.")]
    assert (events.count("tool.failed"), events.count("tool.completed")) == (2, 0)
    assert not list(tmp_path.glob("*"))


@pytest.mark.parametrize("value", [5, {}, {"values": 1}, object(), MemoryStore().values, MemoryStore])
def test_a_task_store_of_the_wrong_kind_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="task_store must be a store or a URL"):
        vaka.Runtime(storage=Storage(task_store=value))


def test_an_unknown_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not known"):
        vaka.Runtime(storage=Storage(task_store="tasks.db"))
