"""What governs an agent binds everything below it: child agents, agents of files and scripts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vaka
import vaka.middleware
from tests.runtime.runtime_fixtures import agent, check_log, merge_options, read_log, runtime
from vaka.config.options import Storage, Workspace
from vaka.core.ports.turn_protocols import METHODS
from vaka.core.types.event import Event
from vaka.hooks import Hook
from vaka.middleware import Approval, Deny, Redaction
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

ROOT = Path(__file__).parents[2]
SECRET = "correct-horse-battery"
CARD = "4111 1111 1111 1111"
INVOKE = 'function invoke(ctx) return ctx.invoke("peek", {}) end'
ON_INPUT = """function on_input(ctx, input)
    local ok, found = pcall(ctx.invoke, "peek", {})
    ctx.emit({ text = tostring(ok), eof = true })
end"""

Build = Callable[[Any, dict[str, Any]], vaka.Agent]
ends = [say("done"), say("done")]


def call_it_directly(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    return agent(ScriptedModel(call("peek"), *ends), peek, **governed)


def call_it_in_a_child(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    child = agent(ScriptedModel(agents={"child": [call("peek"), *ends]}), peek, name="child")
    return agent(ScriptedModel(call("child", prompt="Go."), *ends), child, **governed)


def call_it_in_a_grandchild(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    last = agent(ScriptedModel(agents={"last": [call("peek"), *ends]}), peek, name="last")
    child = agent(ScriptedModel(agents={"child": [call("last", prompt="Go."), *ends]}), last, name="child")
    return agent(ScriptedModel(call("child", prompt="Go."), *ends), child, **governed)


def call_it_in_a_task(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    model = ScriptedModel(call("Task", prompt="Go."), *ends, agents={"general-purpose": [call("peek"), *ends]})
    return agent(model, peek, **governed)


def call_it_in_a_script(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    script = vaka.LuauTool(INVOKE, name="script")
    return agent(ScriptedModel(call("script"), *ends), peek, script, **governed)


def call_it_in_a_script_of_a_child(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    script = vaka.LuauTool(INVOKE, name="script")
    child = agent(ScriptedModel(agents={"child": [call("script"), *ends]}), peek, script, name="child")
    return agent(ScriptedModel(call("child", prompt="Go."), *ends), child, **governed)


def call_it_in_an_agent_that_is_a_script(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    child = vaka.LuauAgent("child", ON_INPUT, tools=[peek])
    return agent(ScriptedModel(call("child", prompt="Go."), *ends), child, **governed)


def call_it_in_code_of_a_model(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    script = vaka.LuauTool(INVOKE, name="script", trusted=False)  # it runs in a process of its own
    return agent(ScriptedModel(call("script"), *ends), peek, script, **governed)


CALLERS: tuple[Build, ...] = (
    call_it_directly,
    call_it_in_a_child,
    call_it_in_a_grandchild,
    call_it_in_a_task,
    call_it_in_a_script,
    call_it_in_a_script_of_a_child,
    call_it_in_an_agent_that_is_a_script,
)


class Refusal(vaka.Middleware):
    """Refuses one tool."""

    async def before_tool(self, turn: Any, call: Any) -> Any:
        return Deny("not this one") if call.name == "peek" else call


async def run_governed(
    build: Build, folder: Path, governed: dict[str, Any] | None = None, **options: Any
) -> tuple[list[str], list[Event]]:
    """Let an agent call a tool; return what the tool did, and the log."""
    ran: list[str] = []

    @vaka.tool(effect="read")
    async def peek() -> str:
        """Return something that is secret."""
        ran.append("peek")
        return f"{SECRET} {CARD}"

    store = MemoryStore()
    defaults = {
        "workspace": Workspace(cwd=str(folder)),
        "permissions": vaka.Permissions(ask="deny"),
        "project": Project(content=ProjectSource()),
    }
    async with runtime(store, **merge_options(defaults, options)) as rt:
        await (await rt.open(build(peek, governed or {}), id="s")).run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return ran, log


@pytest.mark.parametrize(
    "build",
    [*CALLERS, pytest.param(call_it_in_code_of_a_model, marks=pytest.mark.exhaustive)],
    ids=lambda build: build.__name__,
)
async def test_what_governs_an_agent_binds_everything_below_it(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    ran, log = await run_governed(build, tmp_path, storage=Storage(secrets=(SECRET,)))
    assert ran == ["peek"]
    stored = b"".join(event.stored for event in log)
    assert SECRET.encode() not in stored
    assert CARD.encode() in stored
    refuse = Hook(event="PreToolUse", matcher="peek", command="exit 2")
    ask = Hook(event="PermissionRequest", matcher="peek", command="exit 2")
    refusals: dict[str, dict[str, Any]] = {
        "a hook": {"project": Project(hooks=[refuse])},
        "a hook about approvals": {
            "project": Project(hooks=[ask]),
            "permissions": vaka.Permissions(confirm=("peek",), ask="wait"),
        },
        "a rule": {"permissions": vaka.Permissions(deny=("peek",), ask="deny")},
        "a question without a person": {"permissions": vaka.Permissions(confirm=("peek",), ask="deny")},
        "a middleware": {"governed": {"middleware": [Refusal()]}},
        "an approval": {"governed": {"middleware": [Approval({"peek": True})]}},
    }
    assert {name: (await run_governed(build, tmp_path, **given))[0] for name, given in refusals.items()} == {
        name: [] for name in refusals
    }
    _, log = await run_governed(build, tmp_path, {"middleware": [Redaction(personal=True)]})
    assert CARD.encode() not in b"".join(event.stored for event in log)


async def test_the_limits_of_an_agent_bind_its_children(tmp_path: Path) -> None:
    for build in (call_it_in_a_child, call_it_in_a_task):
        ran, log = await run_governed(build, tmp_path, {"limits": vaka.Limits(max_children=0)})
        assert (ran, "subagent.started" in [event.type for event in log]) == ([], False)
    _, log = await run_governed(run_an_endless_child, tmp_path, {"limits": vaka.Limits(max_steps=3)})
    steps = [event for event in log if event.type == "step.started" and event.path]
    assert len(steps) == 3


async def test_code_in_a_process_of_its_own_is_governed_by_hooks(tmp_path: Path) -> None:
    refuse = Hook(event="PreToolUse", matcher="peek", command="exit 2")
    assert (await run_governed(call_it_in_code_of_a_model, tmp_path, project=Project(hooks=[refuse])))[0] == []


def test_the_guide_says_truly_which_middleware_governs() -> None:
    text = (ROOT / "docs/guides/middleware.md").read_text("utf-8")
    methods = dict(re.findall(r"^\| `([a-z_]+)\((?:turn.*)?\)` \|.*\| (yes|no) \|$", text, re.MULTILINE))
    assert methods == {name: "yes" if name in vaka.Middleware.inherited else "no" for name in METHODS}
    stated = {
        name: kind.startswith("yes") for name, kind in re.findall(r"^\| `(\w+)\(.*?`  ?\| (yes|no)", text, re.MULTILINE)
    }
    for name in ("Approval", "CoolDown", "Eviction", "Logging", "PatchToolCalls", "RateLimit", "TodoList", "ToolRetry"):
        kind = getattr(vaka.middleware, name)
        own = [at for at in methods if getattr(kind, at, None) is not getattr(vaka.Middleware, at, None)]
        assert stated[name] == bool(set(own) & set(kind.inherited)), name


def run_an_endless_child(peek: Any, governed: dict[str, Any]) -> vaka.Agent:
    @vaka.tool(effect="read")
    async def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    child = agent(ScriptedModel(agents={"child": [call("look", at=n) for n in range(9)]}), look, name="child")
    return agent(ScriptedModel(call("child", prompt="Go."), *ends), child, **governed)
