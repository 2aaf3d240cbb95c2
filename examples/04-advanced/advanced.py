"""A command, a skill, a child agent, rules, a hook, a server of tools, and middleware that watches all of it."""

import asyncio
import importlib.util
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import vaka
from vaka.agentsdk import PermissionRequest
from vaka.middleware import Logging, RateLimit
from vaka.models import Scripted

PROJECT = Path(__file__).parent / "project"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool for an answer of the model."""
    return {"name": name, "arguments": arguments}


MODEL = Scripted(
    [
        {"tool_calls": [call("Skill", skill="tides", args="14:00"), call("mcp__harbour__depth", place="channel")]},
        {
            "tool_calls": [
                call("Task", prompt="Is the channel free?", subagent_type="pilot"),
                call("Bash", command="echo depth noted"),
                call("Bash", command="rm -rf /tmp/charts"),
            ]
        },
        {"tool_calls": [call("Write", file_path="permit.txt", content="Holokai may enter at 14:00.\n")]},
        {"text": "The Holokai may enter at 14:00.", "usage": {"input": 900, "output": 12}},
        {"agent": "pilot", "text": "The channel is free.", "usage": {"input": 80, "output": 5}},
    ]
)


class Monitor(vaka.Middleware):
    """Counts the calls of tools, those of child agents included."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def after_tool(self, turn: vaka.Turn, call: vaka.ToolCall, result: vaka.ToolResult) -> vaka.ToolResult:
        """Count a call that has ended."""
        self.calls[f"{call.name} {'failed' if result.failed else 'ok'}"] += 1
        return result


async def decide(request: PermissionRequest) -> Literal["allow", "deny", "ask"]:
    """Decide about a call that the rules ask about."""
    print(f"[approval] {request.tool_name}: {request.tool_params['file_path']}")
    return "allow"


async def main(folder: Path) -> None:
    """Run one turn in a copy of the project, and print what happened."""
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    server = {"command": sys.executable, "args": [str(folder / "servers/harbour.py")], "timeoutSeconds": 60}
    records: list[dict[str, Any]] = []
    monitor = Monitor()
    agent = vaka.Agent(
        "master",
        model=MODEL,
        tools=["Bash", "Read", "Write"],
        limits=vaka.Limits(max_steps=10, max_tokens=50_000),
        middleware=[RateLimit(rate=5, concurrent=2), Logging(records.append), monitor],
    )
    async with vaka.Runtime(
        workspace=vaka.Workspace(cwd=str(folder)),
        project=vaka.Project(
            content=vaka.ProjectSource(settings=True),
            mcp={"harbour": server} if importlib.util.find_spec("mcp") else {},
        ),
        permissions=vaka.Permissions(handler=decide),
    ) as runtime:
        session = await runtime.open(agent)
        async with session.stream("/enter Holokai") as turn:
            async for event in turn:
                show(event)
        stats = await runtime.stats(session.id)
    print("[calls]", ", ".join(sorted(monitor.calls)))
    print("[tokens]", {name: used.usage.total for name, used in stats.by_agent.items()})
    print(f"[log] {len(records)} records, the last of {records[-1]['point']}")
    print("[permit]", (folder / "permit.txt").read_text("utf-8").strip())


def show(event: vaka.Event) -> None:
    """Print the prompt, the results of calls and the answer."""
    body: Any = event.data
    if event.type == "turn.started" and body.content:
        print("[prompt]", " / ".join(part.text.strip() for part in body.content))
    elif event.type in ("tool.completed", "tool.failed"):
        lines = [line for line in body.result.text.splitlines() if line and not line.startswith("Base folder")]
        print(f"[{'refused' if body.result.failed else 'tool'}]", lines[0])
    elif event.type == "turn.completed":
        print("[says]", body.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder).resolve()))
