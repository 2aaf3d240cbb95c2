"""Content that an application ships in its package, as a folder or in a ZIP file, below the files on disk."""

import json
import zipfile
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime, write
from vaka.config.options import Workspace
from vaka.errors import ConfigError
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say

FILES = {
    "CLAUDE.md": "Embedded memory.",
    ".claude/settings.json": json.dumps({"outputStyle": "calm"}),
    ".claude/output-styles/calm.md": "Be calm.",
    ".claude/rules/1-first.md": "First embedded rule.",
    ".claude/rules/2-second.md": "Second embedded rule.",
    ".claude/skills/sail/SKILL.md": "---\nname: sail\ndescription: Sails.\n---\nHoist the sail.",
    ".claude/skills/sail/references/knots.md": "A bowline.",
    ".claude/skills/row/SKILL.md": "---\nname: row\ndescription: Rows.\n---\nTake the oars.",
    ".claude/commands/crew/call.md": "Call $1.",
    ".claude/agents/cook.md": "---\nname: cook\ndescription: Cooks.\n---\nYou cook.",
}


@pytest.fixture(params=["folder", "zip"])
def overlay(request: pytest.FixtureRequest, tmp_path: Path) -> Traversable:
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
            for name, text in FILES.items():
                archive.writestr(f"app/{name}", text)
        tree: Traversable = zipfile.Path(tmp_path / "app.zip", "app/")
        return tree
    for name, text in FILES.items():
        write(tmp_path / "app" / name, text)
    return tmp_path / "app"


async def run_in(folder: Path, overlay: Traversable, model: Any, prompt: str = "Go.", **more: Any) -> list[Any]:
    store = MemoryStore()
    source = ProjectSource(overlay=overlay, **more)
    async with runtime(
        store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=source),
        permissions=vaka.Permissions(mode="bypassPermissions"),
    ) as rt:
        await (await rt.open(agent(model), id="s")).run(prompt)
    return await read_log(store, "s")


async def test_an_application_brings_its_content_and_nothing_is_written(folder: Path, overlay: Traversable) -> None:
    uses = calls(
        call("Skill", skill="sail"),
        call("Skill", skill="sail", file="references/knots.md"),
        call("Skill", skill="sail", file="../row/SKILL.md"),
        call("Task", prompt="Cook.", subagent_type="cook"),
    )
    model = ScriptedModel(uses, say("done"), agents={"cook": [say("cooked")]})
    log = await run_in(folder, overlay, model, "/crew:call Ann")
    system = model.prompts[0].system
    texts = ("Embedded memory.", "First embedded rule.", "Second embedded rule.", "Be calm.")
    assert [system.index(text) for text in texts] == sorted(system.index(text) for text in texts)
    assert model.prompts[0].messages[0].content[0].text == "Call Ann."  # type: ignore[union-attr]  # a message with text
    results = results_by_call(log)
    assert "references/knots.md" in results["call_1"].text
    assert results["call_1"].text.endswith("Hoist the sail.")
    assert results["call_2"].text == "A bowline."
    assert "there is no file '../row/SKILL.md'; there are: references/knots.md" in results["call_3"].text
    assert results["call_4"].text.startswith("cooked")
    assert next(prompt.system for prompt in model.prompts if prompt.agent == "cook").startswith("You cook.")
    assert [path.name for path in folder.rglob("*")] == [".git"]


async def test_files_on_disk_win_one_by_one(folder: Path, overlay: Traversable) -> None:
    write(folder / "CLAUDE.md", "Memory of the project.")
    write(folder / ".claude/skills/sail/SKILL.md", "---\nname: sail\ndescription: Sails here.\n---\nDisk sail.")
    write(folder / ".claude/rules/1-first.md", "First rule of the project.")
    write(folder / ".claude/settings.json", json.dumps({"outputStyle": "default"}))
    model = ScriptedModel(calls(call("Skill", skill="sail"), call("Skill", skill="row")), say("done"))
    log = await run_in(folder, overlay, model)
    system = model.prompts[0].system
    assert "Memory of the project." in system
    assert "First rule of the project." in system
    assert "Second embedded rule." in system
    for text in ("Embedded memory.", "First embedded rule.", "Be calm."):
        assert text not in system
    menu = next(spec.description for spec in model.prompts[0].tools if spec.name == "Skill")
    assert menu.endswith("- sail: Sails here.\n- row: Rows.")
    assert results_by_call(log)["call_1"].text.endswith("Disk sail.")
    assert results_by_call(log)["call_2"].text.endswith("Take the oars.")


async def test_settings_and_hooks_of_an_application_hold_below_those_on_disk(folder: Path, tmp_path: Path) -> None:
    hook = {"hooks": [{"type": "command", "command": "echo A note of the application."}]}
    rules = {"deny": ["look"], "allow": ["change"]}
    document = {"hooks": {"UserPromptSubmit": [hook]}, "permissions": rules}
    write(tmp_path / "app/.claude/settings.json", json.dumps(document))
    write(folder / ".claude/settings.json", json.dumps({"permissions": {"deny": ["change"]}}))
    model = ScriptedModel(calls(call("look"), call("change"), call("pass")), say("done"))

    def tool_named(name: str) -> Any:
        async def work() -> str:
            """Work."""
            return name

        return vaka.tool(work, name=name, effect="read")

    store = MemoryStore()
    source = ProjectSource(overlay=str(tmp_path / "app"), settings=True)
    async with runtime(store, workspace=Workspace(cwd=str(folder)), project=Project(content=source)) as rt:
        tools = [tool_named(name) for name in ("look", "change", "pass")]
        await (await rt.open(agent(model, *tools), id="s")).run("Go.")
    log = await read_log(store, "s")
    assert [result.failed for _, result in sorted(results_by_call(log).items())] == [True, True, False]
    assert "A note of the application." in str(model.prompts[0].messages)


def test_an_overlay_that_is_not_a_folder_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder; give a folder, or importlib"):
        ProjectSource(overlay=str(folder / "missing")).load(str(folder))
