"""A custom tool beside selected built-in tools."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

import vaka
from vaka.models import Scripted

STORY = "The vaka left Hilo before dawn.\nBy noon the vaka was out of sight.\n"
MODEL = Scripted(
    [
        {"tool_calls": [{"name": "Glob", "arguments": {"pattern": "*.txt"}}]},
        {"tool_calls": [{"name": "word_count", "arguments": {"path": "story.txt", "word": "vaka"}}]},
        {"tool_calls": [{"name": "Bash", "arguments": {"command": "rm story.txt"}}]},
        {"text": "The story speaks of the vaka twice. I could not have removed it."},
    ]
)


@vaka.tool(effect="read")
async def word_count(
    context: vaka.ToolContext,
    path: Annotated[str, "The file, inside the workspace."],
    word: Annotated[str, "The word to look for."],
) -> int:
    """Count how often a word occurs in a file."""
    found = await context.files.read(path)
    return found.data.decode("utf-8").lower().split().count(word.lower())


async def main(folder: str) -> None:
    """Run the agent in a folder."""
    async with vaka.Runtime(
        model=MODEL,
        workspace=vaka.Workspace(cwd=folder),
        tools=vaka.ToolSelection(builtin=("glob", "file_read"), extra=(word_count,)),
    ) as runtime:
        session = await runtime.open()
        async for event in session.stream("How often does the story speak of the vaka?"):
            body: Any = event.data
            if event.type in ("tool.completed", "tool.failed"):
                print(f"{event.type}: {body.result.text.strip()}")
            elif event.type == "turn.completed":
                print(body.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "story.txt").write_text(STORY, "utf-8")
        asyncio.run(main(folder))
