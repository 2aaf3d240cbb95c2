"""The tool ``Task`` with general-purpose, explore and plan, in a runtime without a project."""

from pathlib import Path
from typing import Any

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Workspace
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


@vaka.tool(effect="read")
def look() -> str:
    """Look."""
    return "a shore"


@vaka.tool(effect="once")
def change() -> str:
    """Change."""
    return "changed"


async def test_task_runs_the_built_in_child_agents_and_two_of_them_only_read(folder: Path) -> None:
    tasks = [call("Task", prompt="Go.", subagent_type=name) for name in ("general-purpose", "explore", "plan", "x")]
    lines = {
        "general-purpose": [call("change"), say("made")],
        "explore": [say("found")],
        "plan": [calls(call("look"), call("change")), say("planned")],
    }
    model, store = ScriptedModel(calls(*tasks), say("done"), agents=lines), MemoryStore()
    async with runtime(
        store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(child_agents=True),
        permissions=vaka.Permissions(mode="bypassPermissions"),
    ) as rt:
        await (await rt.open(agent(model, look, change, "Read", "Grep", "Bash"), id="s")).run("Go.")
    results = results_by_call(await read_log(store, "s"))
    answers = [results[f"call_{number}"].text.partition("\n")[0] for number in (1, 2, 3)]
    assert answers == ["made", "found", "planned"]
    assert results["call_4"].text == "InvalidInput: there is no agent 'x'; there are: general-purpose, explore, plan"
    offered = {prompt.agent: {spec.name for spec in prompt.tools} for prompt in model.prompts}
    own = {"look", "change", "Read", "Grep", "Bash"}
    assert offered == {
        "assistant": {*own, "Task"},
        "general-purpose": {*own, "Task"},
        "explore": {"Read", "Grep"},
        "plan": {*own, "Task"},
    }
    texts = [result.text for result in results.values()]
    assert ("changed" in texts, "this agent only reads (permissionMode: plan)" in texts) == (True, True)


async def test_a_rule_denies_a_built_in_child_agent(folder: Path) -> None:
    model, store = ScriptedModel(call("Task", prompt="Go.", subagent_type="plan"), say("done")), MemoryStore()
    async with runtime(
        store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(child_agents=True),
        permissions=vaka.Permissions(deny=("Task(plan)",)),
    ) as rt:
        await (await rt.open(agent(model), id="s")).run("Go.")
    assert results_by_call(await read_log(store, "s"))["call_1"].reason == "denied"


async def test_a_project_offers_its_own_agents_and_a_runtime_without_the_option_none(folder: Path) -> None:
    descriptions: list[dict[str, str]] = []
    options: tuple[dict[str, Any], ...] = (
        {},
        {"project": Project(child_agents=True)},
        {"project": Project(content=ProjectSource())},
        {"project": Project(child_agents=True, content=ProjectSource())},
    )
    for given in options:
        model = ScriptedModel(say("done"))
        async with runtime(workspace=Workspace(cwd=str(folder)), **given) as rt:
            await (await rt.open(agent(model))).run("Go.")
        descriptions.append({spec.name: spec.description for spec in model.prompts[0].tools})
    assert descriptions[0] == {}
    assert descriptions[1] == descriptions[2] == descriptions[3]
    assert "- explore: Searches files and reads them" in descriptions[1]["Task"]
