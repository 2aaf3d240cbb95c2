"""Hooks in Python and shell: they add context, refuse a command, tidy up a file and send the agent on."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import vaka
from vaka.content import text_of
from vaka.hooks import parse_hooks
from vaka.models import Scripted

PROJECT = Path(__file__).parent / "project"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a model's answer that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


ANSWERS = [
    call("Bash", command="rm -rf build"),
    call("Bash", command="echo release: $RELEASE"),
    {"text": "The branch looks fine."},
    call("Write", file_path="notes.md", content="Fixed the anchor.   \n"),
    {"text": "The notes are written."},
]


async def main(folder: Path) -> None:
    """Run the agent in a copy of the project, and print what its hooks did."""
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    settings = json.loads((folder / ".claude/settings.json").read_text("utf-8"))
    hooks = parse_hooks(settings, origin="settings.json").hooks
    agent = vaka.Agent("writer", model=Scripted(ANSWERS), tools=["Bash", "Write"])
    async with vaka.Runtime(
        project=vaka.Project(hooks=hooks),
        workspace=vaka.Workspace(cwd=str(folder)),
        permissions=vaka.Permissions(mode="acceptEdits", allow=["Bash(echo:*)"]),
    ) as runtime:
        session = await runtime.open(agent)
        async for event in session.stream("Prepare the release."):
            show(event)
    print(f"notes.md: {(folder / 'notes.md').read_text('utf-8')!r}")


def show(event: vaka.Event) -> None:
    """Print the events that are about hooks, calls and answers."""
    body: Any = event.data
    if event.type == "turn.started" and body.content:
        print("[prompt]", " / ".join(part.text.strip() for part in body.content))
    elif event.type == "hook.ran":
        print(f"[hook] {body.event}: {body.output or 'nothing to say'}")
    elif event.type in ("tool.completed", "tool.failed"):
        print("[tool]", body.result.text.splitlines()[0])
    elif event.type == "agent.continued":
        print("[sent on]", body.text)
    elif event.type == "message.completed" and (text := text_of(body.content)):
        print("[says]", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder).resolve()))
