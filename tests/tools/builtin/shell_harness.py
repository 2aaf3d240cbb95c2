"""A session whose tools run real commands; one supervisor serves several runtimes, as in one process."""

from pathlib import Path
from typing import Any

from tests.tools.builtin.harness import ToolHarness
from vaka.config.options import Permissions
from vaka.core.ports.sandbox import Sandbox
from vaka.core.ports.tool import ToolContext, World
from vaka.core.types.ids import AgentPath as CallPath
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import Allow, ToolSpec, Verdict
from vaka.runtime.runtime import Runtime
from vaka.sandbox.select import select_sandbox
from vaka.tools.builtin import builtin_tools
from vaka.tools.builtin.shell.supervisor import CommandOptions, CommandScope, ShellSupervisor
from vaka.tools.function import tool


class AllowEverything:
    """A policy that allows every call."""

    def judge(self, call: ToolCall, spec: ToolSpec, path: CallPath) -> Verdict:
        return Allow()

    def visible(self, spec: ToolSpec) -> bool:
        return True


SHELL_TOOLS = ("Bash", "BashOutput", "BashStatus", "KillTask", "Read")


class PersistentSupervisor(ShellSupervisor):
    """A supervisor that outlives the runtimes that use it."""

    async def close(self, session: SessionId | None = None) -> None:
        """Kill the commands of a session; only ``end_all`` kills all."""
        if session is not None:
            await super().close(session)

    async def end_all(self) -> None:
        await super().close()


class ShellHarness(ToolHarness):
    """A harness with commands."""

    def __init__(self, root: Path, *roots: Path, sandbox: Sandbox | None = None, **options: Any) -> None:
        super().__init__(root, *roots, tools=[*builtin_tools(SHELL_TOOLS), lull])
        self.sandbox = sandbox or select_sandbox("off")
        self.options, self.scope = CommandOptions(**options), CommandScope()
        self.shells = PersistentSupervisor(self.scope, self.options)

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime with the files and commands of the harness."""
        rt = super().runtime(**{"permissions": Permissions(policy=AllowEverything(), ask="deny"), **options})
        rt.env.world = World(files=self.files, sandbox=self.sandbox, shells=self.shells, cwd=str(self.root))
        return rt

    async def restart(self) -> None:
        """Simulate a restart of the process."""
        await self.shells.end_all()
        self.shells = PersistentSupervisor(self.scope, self.options)

    async def bash(self, command: str, **more: Any) -> ToolResult:
        return await self.call("Bash", command=command, **more)


@tool(effect="read")
async def lull(context: ToolContext, id: str) -> str:
    """Wait until a command in the background has ended."""
    shells = context.world.shells
    assert isinstance(shells, ShellSupervisor)
    shell = shells.find(context.session, id)
    assert shell is not None
    await shell.wait_for_end(30)
    return shell.status
