"""A project and a home folder with tools that need approval, and answers given from another runtime."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, collect, count_events, merge_options, read_log, runtime
from vaka.core.ports.tool import SHELL_FOLDER_KEY
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import Suspended
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call


class BuiltinLikeTool:
    """A tool as if it came with vaka, which no program has allowed by handing it over."""

    def __init__(self, function: Any, name: str) -> None:
        plain: Any = vaka.tool(function, name=name, description=f"{name} something.")
        self.spec = msgspec.structs.replace(plain.spec, layer="builtin")
        self.parse, self.call = plain.parse, plain.call


class ApprovalProject:
    """Tools that only note what they were asked for, in a project of its own and with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.executed: list[str] = []
        self.store = MemoryStore()
        self.home, self.folder = folder / "home", folder / "app"
        for made in (self.home, self.folder / ".git"):
            made.mkdir(parents=True)

        async def bash(context: vaka.ToolContext, command: str) -> str:
            if command.startswith("cd "):
                context.state.set(SHELL_FOLDER_KEY, str(self.folder / command[3:]))
            self.executed.append(command)
            return "ran"

        async def write(file_path: str, content: str) -> str:
            self.executed.append(file_path)
            return "written"

        self.tools = (BuiltinLikeTool(bash, "Bash"), BuiltinLikeTool(write, "Write"))

    @property
    def local_settings_file(self) -> Path:
        return self.folder / ".claude/settings.local.json"

    def policy(self, **lists: Any) -> LayeredPolicy:
        return LayeredPolicy([Layer(name="user", **lists)], cwd=str(self.folder), home=str(self.home))

    def runtime(self, **options: Any) -> vaka.Runtime:
        rules = options.pop("rules", {})
        store = self.store.open_handle()
        defaults = {"permissions": vaka.Permissions(ask="suspend", policy=self.policy(**rules))}
        return runtime(store, **merge_options(defaults, options))

    def make_agent(self, *lines: Any, **more: Any) -> vaka.Agent:
        return agent(ScriptedModel(*lines), *self.tools, **more)

    async def run_until_asked(self, who: vaka.Agent, **options: Any) -> list[ApprovalRequested]:
        """Let an agent work until only people can go on; return what they are asked."""
        async with self.runtime(**options) as rt:
            session = await rt.open(who, id="s")
            with pytest.raises(Suspended):
                await (
                    session.run("Go.")
                    if not count_events(self.store, "s", "turn.started")
                    else collect(session.resume())
                )
            return [row.event.data for row in await rt.decisions()]  # type: ignore[misc]  # approvals only

    async def resolve(self, asked: ApprovalRequested, decision: str = "approve", **said: Any) -> Any:
        """Answer in a process that knows nothing of the session."""
        async with runtime(self.store.open_handle()) as rt:
            return (await rt.resolve(asked.approval, decision, **said)).data  # type: ignore[arg-type]  # one of two

    async def pending_ids(self) -> list[str]:
        async with runtime(self.store.open_handle()) as rt:
            return [row.id for row in await rt.decisions()]

    async def resume(self, who: vaka.Agent, **options: Any) -> list[Any]:
        async with self.runtime(**options) as rt:
            events = await collect((await rt.open(who, id="s")).resume())
        check_log(await read_log(self.store, "s"))
        return events


def bash_call(command: str) -> Any:
    return call("Bash", command=command)
