"""A session with real files: tools are called by the loop, and their state is in a real log."""

import os
from pathlib import Path
from typing import Any

import msgspec

from tests.runtime.runtime_fixtures import agent, collect, log_writer, merge_options, read_log, results_by_call, runtime
from vaka.config.options import Permissions, Storage
from vaka.core.ports.tool import Tool, World
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolStarted
from vaka.files.workspace import WorkspaceFiles
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools.builtin import builtin_tools

FILE_TOOLS = ("Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read", "Write")


class ToolHarness:
    """A folder, a session in it and the built-in tools, with a scripted model that makes the calls of a test."""

    def __init__(self, root: Path, *roots: Path, tools: list[Tool] | None = None) -> None:
        self.root, self.store = root, MemoryStore()
        self.files: Any = WorkspaceFiles(root, roots, home=root)
        self.tools = builtin_tools(FILE_TOOLS) if tools is None else tools
        self.secrets: tuple[str, ...] = ()
        """Secrets that must be redacted."""
        self.last_messages: list[Any] = []
        """The messages of the last prompt."""
        self.script: list[Any] = []
        """The scripted steps of the model in this session."""

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime with the files of the harness."""
        rt = runtime(
            self.store,
            **merge_options(
                {"permissions": Permissions(mode="bypassPermissions"), "storage": Storage(secrets=self.secrets)},
                options,
            ),
        )
        rt.env.world = World(files=self.files, cwd=str(self.root))
        return rt

    async def run_calls(self, *requests: tuple[str, dict[str, Any]], at_once: bool = False) -> list[ToolResult]:
        """Call tools one after the other in a new runtime, and return their results."""
        answers = [call(name, **arguments) for name, arguments in requests]
        self.script += [*([calls(*answers)] if at_once else answers), say("done")]
        model = ScriptedModel(*self.script)
        before = len(await self.results())
        async with self.runtime() as rt:
            await (await rt.open(agent(model, *self.tools), id="s")).run("Go.")
        self.last_messages = list(model.prompts[-1].messages)
        return (await self.results())[before:]

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Call one tool and return its result."""
        return (await self.run_calls((name, arguments)))[0]

    async def rerun_after_crash(self, call: int) -> ToolResult:
        """Simulate a crash before the result of a call was written; return the result of the repeated call."""
        log = await read_log(self.store, "s")
        cut = next(
            at
            for at, event in enumerate(log)
            if isinstance(event.data, ToolStarted) and event.data.call.id == f"call_{call}"
        )
        self.store = MemoryStore()
        await log_writer(self.store, "s", log[: cut + 1])()
        async with self.runtime() as rt:
            await collect((await rt.open(agent(ScriptedModel(*self.script), *self.tools), id="s")).resume())
        return results_by_call(await read_log(self.store, "s"))[f"call_{call}"]

    async def results(self) -> list[ToolResult]:
        """Return every result of the session so far."""
        try:
            return list(results_by_call(await read_log(self.store, "s")).values())
        except LookupError:
            return []

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file in the folder."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target


def value_of(result: ToolResult) -> Any:
    """Return the data of a result that succeeded."""
    assert not result.failed, result.text
    return msgspec.to_builtins(result.value)


def child_processes() -> list[str]:
    """Return the command lines of running child processes."""
    commands: list[str] = []
    for folder in Path("/proc").iterdir():
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().decode()
        except (OSError, IndexError):
            continue
        if state[1] == str(os.getpid()) and state[0] != "Z":
            commands.append(command)
    return commands
