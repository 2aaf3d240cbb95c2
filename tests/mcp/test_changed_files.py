"""Files with MCP servers that are edited while a runtime is open: what starts, what ends and what stays."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.cli.kit import bootstrap
from vaka.cli.settings_source import follow_settings
from vaka.core.types.monitor import Logged, McpChanged
from vaka.runtime import options
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say

PLAIN_SERVER = Path(__file__).with_name("plain_server.py")


def server(**env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(PLAIN_SERVER)], "env": env}


class Project:
    """A trusted folder with a file of servers, and a session as a command opens it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.store = MemoryStore()
        (root / "project/.git").mkdir(parents=True)
        self.write("home/.claude/settings.json", {"permissions": {"allow": ["mcp__p", "mcp__q", "change"]}})

    def write(self, name: str, document: Any) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))

    def serve(self, *text: str, **servers: Any) -> None:
        self.write("project/.mcp.json", text[0] if text else {"mcpServers": servers})

    def trust(self, trusted: bool) -> None:
        bootstrap.config_context().trust.record(self.root / "project", trusted)

    async def run(self, model: Any, changes: "list[Callable[[], None]]", *tools: Any) -> "list[list[Any]]":
        """Run a turn after each change; return the states of the servers after each turn."""
        settings = bootstrap.load_flag_settings({})
        settings.wants_servers = True
        person = agent(model, *tools)
        policy = bootstrap.policy_from_settings(settings)
        states: list[list[Any]] = []
        async with runtime(
            self.store,
            environment=options.Environment(clock=self.clock),
            agent=person,
            permissions=vaka.Permissions(policy=policy, ask="deny"),
            project=options.Project(**bootstrap.server_options(settings, person)),
        ) as rt:
            follow_settings(rt, settings)
            session = await rt.open(id="s")
            for change in changes:
                change()
                await session.run("Go.")
                states.append([(status.server, status.state) for status in rt.mcp_status()])
        return states

    async def results(self) -> list[Any]:
        """Return the results in the order of their calls, which may end in another one."""
        found = results_by_call(await read_log(self.store, "s"))
        return [found[id] for id in sorted(found, key=lambda id: int(id.rpartition("_")[2]))]

    async def bodies(self, kind: type) -> list[Any]:
        return [event.data for event in await read_log(self.store, "s") if isinstance(event.data, kind)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    made = Project(tmp_path)
    monkeypatch.chdir(tmp_path / "project")
    made.trust(True)
    return made


def nothing() -> None:
    """Change nothing."""


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def tools_of(model: Any, prompt: int, prefix: str) -> list[Any]:
    return [spec for spec in model.prompts[prompt].tools if spec.name.startswith(prefix)]


async def test_servers_follow_their_file_from_turn_to_turn_and_a_broken_file_keeps_them(project: Project) -> None:
    both = calls(call("mcp__p__pid"), call("mcp__q__pid"))
    model = ScriptedModel(both, say("1"), both, say("2"), say("3"), both, say("4"), say("5"))
    states = await project.run(
        model,
        [
            lambda: project.serve(p=server(), q=server(A="1")),
            lambda: project.serve("{ half"),
            nothing,
            lambda: project.serve(q=server(A="2"), p=server()),
            lambda: project.serve(p=server()),
        ],
    )
    assert states == [
        *[[("p", "ready"), ("q", "ready")]] * 3,
        [("q", "ready"), ("p", "ready")],
        [("p", "ready")],
    ]
    p1, q1, p2, q2, p3, q3 = (int(result.text) for result in await project.results())
    assert p1 == p2 == p3, "the connection of a server whose entry did not change stays"
    assert q1 == q2 != q3, "a changed entry starts its server anew"
    assert tools_of(model, 0, "mcp__p__") == tools_of(model, 7, "mcp__p__") != []
    assert not tools_of(model, 7, "mcp__q__")
    assert not any(is_running(process) for process in (p1, q1, q3))
    (warning,) = await project.bodies(Logged)
    assert ".mcp.json:1: not JSON" in warning.message
    changes = [(event.server, event.change) for event in await project.bodies(McpChanged)]
    assert changes == [("p", "ready"), ("q", "ready"), ("q", "closed")]


async def test_a_server_that_may_not_run_any_more_is_closed_before_the_next_tool_call(project: Project) -> None:
    project.serve(p=server())
    denied = {"deniedMcpServers": [{"serverName": "p"}]}
    edits: list[Callable[[], None]] = [
        lambda: project.write("project/.claude/settings.json", denied),
        lambda: project.trust(False),
    ]
    steps = iter(edits)

    @vaka.tool(effect="once")
    async def change() -> str:
        """Edit the settings."""
        project.clock.advance(2)
        next(steps)()
        return "changed"

    pid = call("mcp__p__pid")
    model = ScriptedModel(pid, call("change"), pid, say("1"), pid, call("change"), pid, say("2"), say("3"))
    states = await project.run(
        model, [nothing, lambda: project.write("project/.claude/settings.json", {}), nothing], change
    )
    first, _, second, third, _, fourth = await project.results()
    assert "deniedMcpServers of" in second.text
    assert "not trusted" in fourth.text
    assert (first.failed, second.failed, third.failed, fourth.failed) == (False, True, False, True)
    assert first.text != third.text
    assert not is_running(int(first.text))
    assert states == [[("p", "idle")]] * 3
    assert not tools_of(model, 3, "mcp__p__")
    changes = [(event.server, event.change) for event in await project.bodies(McpChanged)]
    assert changes == [("p", "ready"), ("p", "closed")] * 2
