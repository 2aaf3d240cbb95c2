"""Hooks of skills, commands and agents hold while these are in use; hooks of plugins hold always."""

import json
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime, write
from vaka.config.options import Workspace
from vaka.config.settings import ConfigContext
from vaka.core.types.message import UserMessage, text_of
from vaka.hooks import Hook
from vaka.project.components import components_in_force
from vaka.project.content import ProjectSource
from vaka.project.hook_sources import ComponentHooks, hooks_in_force
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

GUARD = """hooks:
  PreToolUse:
    - matcher: look
      hooks:
        - type: command
          command: "echo 'not while {name} is in use' >&2; exit 2"
"""
STOP = """  Stop:
    - hooks:
        - {{type: command, once: true, command: "echo 'check {name}' >&2; exit 2"}}
"""


@vaka.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@vaka.tool(effect="once")
async def pay() -> str:
    """Pay."""
    return "paid"


def write_component(path: Path, name: str, head: str = GUARD) -> Path:
    return write(path, f"---\nname: {name}\ndescription: Does it.\n{head.format(name=name)}---\nDo it.\n")


async def run_turns(folder: Path, model: Any, *prompts: str, **source: Any) -> list[Any]:
    """Run turns in one session and return its log."""
    store = MemoryStore()
    options: dict[str, Any] = {
        "permissions": vaka.Permissions(mode="bypassPermissions"),
        "project": Project(content=ProjectSource(**source)),
    }
    async with runtime(store, workspace=Workspace(cwd=str(folder)), **options) as rt:
        session = await rt.open(agent(model, look), id="s")
        for prompt in prompts:
            await session.run(prompt)
    log = await read_log(store, "s")
    check_log(log)
    return log


def texts_of(log: list[Any], tool: str = "look") -> list[str]:
    """Return the results of the calls of a tool, in the order of their calls."""
    results = results_by_call(log)
    calls = [event.data.call for event in log if event.type == "tool.called"]
    return [results[called.id].text for called in calls if called.name == tool]


async def test_the_hooks_of_a_skill_hold_from_its_use_to_the_end_of_the_turn(folder: Path) -> None:
    write_component(folder / ".claude/skills/deploy/SKILL.md", "deploy", GUARD + STOP)
    model = ScriptedModel(
        call("look"),
        call("Skill", skill="deploy"),
        call("look"),
        say("done"),
        say("checked"),
        call("look"),
        say("done"),
    )
    log = await run_turns(folder, model, "One.", "Two.")
    assert texts_of(log) == ["seen", "not while deploy is in use", "seen"]
    assert [event.data.text for event in log if event.type == "agent.continued"] == ["check deploy"]
    denied = await run_turns(folder, ScriptedModel(call("look"), say("done"), say("checked")), "/deploy now")
    assert texts_of(denied) == ["not while deploy is in use"]


async def test_a_turn_that_another_process_resumes_keeps_the_hooks_and_submits_no_prompt_again(folder: Path) -> None:
    write_component(folder / ".claude/skills/deploy/SKILL.md", "deploy")
    scout = agent(ScriptedModel(agents={"scout": [call("pay"), say("paid")]}), pay, name="scout")
    lines = (call("Skill", skill="deploy"), call("scout", prompt="Pay."), call("look"), say("done"), say("again"))
    store = MemoryStore()
    names = ("SessionStart", "UserPromptSubmit", "SubagentStart")
    hooks = [Hook(event=name, command=f"echo {name} | tee -a fired") for name in names]
    options: dict[str, Any] = {
        "permissions": vaka.Permissions(confirm=("pay",), allow=("Skill",), ask="suspend"),
        "project": Project(content=ProjectSource(), hooks=hooks),
    }
    async with runtime(store, workspace=Workspace(cwd=str(folder)), **options) as rt:
        with pytest.raises(vaka.Suspended):
            await (await rt.open(agent(ScriptedModel(*lines), look, scout), id="s")).run("Go.")
    async with runtime(store, workspace=Workspace(cwd=str(folder)), **options) as rt:
        [pending] = await rt.decisions("s")
        await rt.resolve(pending.id, "approve")
        model = ScriptedModel(*lines)
        session = await rt.open(agent(model, look, scout), id="s")
        await session.resume().wait()
        await session.run("And now?")
    log = await read_log(store, "s")
    check_log(log)
    assert texts_of(log) == ["not while deploy is in use"]
    started = ["SessionStart", "UserPromptSubmit", "SubagentStart", "SessionStart", "UserPromptSubmit"]
    assert (folder / "fired").read_text().split() == started
    said = [text_of(m.content) for m in model.prompts[-1].messages if isinstance(m, UserMessage)]
    assert [text.split() for text in said] == [
        ["Go.", "SessionStart", "UserPromptSubmit"],
        ["And", "now?", "SessionStart", "UserPromptSubmit"],
    ]


async def test_the_hooks_of_an_agent_file_hold_for_that_agent_alone(folder: Path) -> None:
    write_component(folder / ".claude/agents/scout.md", "scout", GUARD + STOP)
    model = ScriptedModel(
        call("Task", prompt="Look.", subagent_type="scout"),
        call("look"),
        say("done"),
        agents={"scout": [call("look"), say("nothing"), say("nothing, checked")]},
    )
    log = await run_turns(folder, model, "Go.")
    assert texts_of(log) == ["not while scout is in use", "seen"]
    assert [event.data.text for event in log if event.type == "agent.continued"] == ["check scout"]
    [answer] = texts_of(log, "Task")
    assert answer.startswith("nothing, checked")


async def test_the_hooks_of_a_component_run_only_in_a_trusted_folder_and_unless_they_are_switched_off(
    folder: Path,
) -> None:
    write_component(folder / ".claude/commands/ship.md", "ship")
    for source in ({"trusted": False}, {"hooks": False}):
        model = ScriptedModel(call("look"), say("done"))
        assert texts_of(await run_turns(folder, model, "/ship", **source)) == ["seen"]
    home = write_component(folder.parent / "home/.claude/commands/ship.md", "ship")
    (folder / ".claude/commands/ship.md").unlink()
    log = await run_turns(folder, ScriptedModel(call("look"), say("done")), "/ship", trusted=False)
    assert texts_of(log) == ["not while ship is in use"]
    assert home.exists()


def test_the_hooks_of_a_plugin_come_from_its_file_and_its_manifest_and_know_its_folder(folder: Path) -> None:
    root = folder / ".claude/plugins/guard"
    inline = {"Stop": [{"hooks": [{"command": "$CLAUDE_PLUGIN_ROOT/stop.sh"}]}]}
    manifest = {"name": "guard", "hooks": ["./more.json", "gone.json", "broken.json", "../out.json", inline]}
    write(root / ".claude-plugin/plugin.json", json.dumps(manifest))
    check = {"command": "python3 ${CLAUDE_PLUGIN_ROOT}/check.py", "env": {"DATA": "${CLAUDE_PLUGIN_ROOT}/data"}}
    document = {"description": "Guards.", "hooks": {"PreToolUse": [{"matcher": "*", "hooks": [check]}]}}
    write(root / "hooks/hooks.json", f"// a comment\n{json.dumps(document)}")
    write(root / "more.json", json.dumps({"hooks": {"Setup": [{"hooks": [{"command": "setup"}]}]}}))
    write(root / "broken.json", "{")
    write(root.parent / "out.json", json.dumps({"hooks": {"Stop": [{"hooks": [{"command": "outside"}]}]}}))
    context = ConfigContext(cwd=folder, home=folder.parent / "home", environ={})
    parsed = hooks_in_force(context, [], trusted=True)
    assert [(hook.event, hook.command) for hook in parsed.hooks] == [
        ("Stop", "$CLAUDE_PLUGIN_ROOT/stop.sh"),
        ("PreToolUse", f"python3 {root}/check.py"),
        ("Setup", "setup"),
    ]
    assert all(hook.env["CLAUDE_PLUGIN_ROOT"] == str(root) for hook in parsed.hooks)
    assert parsed.hooks[1].env["DATA"] == f"{root}/data"
    problems = "\n".join(parsed.problems)
    expected = ("gone.json", "broken.json", "leads out", "hooks.Setup", "it is read anyway")
    assert all(text in problems for text in expected)
    untrusted = hooks_in_force(context, [], trusted=False)
    assert [hook.disabled for hook in untrusted.hooks] == ["the folder is not trusted"] * 3
    assert "not trusted" in "\n".join(untrusted.problems)


def test_sloppy_hooks_in_heads_are_reported_and_the_others_kept(folder: Path) -> None:
    write(folder / ".claude/skills/a/SKILL.md", "---\nname: a\ndescription: A.\nhooks: [1, 2]\n---\n")
    write(folder / ".claude/skills/b/SKILL.md", "---\nname: b\ndescription: B.\nhooks:\n  Stop: check\n---\n")
    hooks = "hooks:\n  Stop:\n    - hooks:\n        - command: >-\n            check\n            --all\n"
    write(folder / ".claude/commands/c.md", f"---\nargument-hint: [one] [two]\n{hooks}---\n")
    write(folder / ".claude/skills/d/SKILL.md", "---\nname: d\ndescription: D.\nhooks: check\n---\n")
    components = components_in_force(ConfigContext(cwd=folder, home=folder.parent / "home", environ={}))
    parsed = ComponentHooks(components, folder, folder.parent / "home", trusted=True).read_heads()
    assert [(hook.event, hook.command, hook.component) for hook in parsed.hooks] == [
        ("Stop", "check", "skill b"),
        ("Stop", "check --all", "command c"),
    ]
    problems = "\n".join(parsed.problems)
    assert "/a/SKILL.md" in problems
    assert "/d/SKILL.md: hooks: expected an object" in problems
    untrusted = ComponentHooks(components, folder, folder.parent / "home", trusted=False).read_heads()
    assert all(hook.disabled == "the folder is not trusted" for hook in untrusted.hooks)
