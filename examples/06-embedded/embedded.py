"""Content inside of a package: as it is, with a file on disk that replaces one of it, and from a ZIP file."""

import asyncio
import importlib.resources
import tempfile
import zipfile
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import vaka
from vaka.models import Scripted

PACKAGE = Path(__file__).parent / "harbour"
ANSWERS: list[dict[str, Any]] = [
    {
        "tool_calls": [
            {"name": "Skill", "arguments": {"skill": "moor", "args": "Mind the tide."}},
            {"name": "Bash", "arguments": {"command": "echo not allowed"}},
        ]
    },
    {"text": "She is moored."},
]


async def run(title: str, overlay: Traversable, folder: Path) -> None:
    """Run one turn with the content of the package, and print what the model read."""
    print(f"{title}:")
    source = vaka.ProjectSource(overlay=overlay, settings=True)
    agent = vaka.Agent("master", model=Scripted(ANSWERS), tools=["Bash"])
    async with vaka.Runtime(workspace=vaka.Workspace(cwd=str(folder)), project=vaka.Project(content=source)) as runtime:
        session = await runtime.open(agent)
        async with session.stream("/moor-ship Holokai") as turn:
            async for event in turn:
                show(event)


def show(event: vaka.Event) -> None:
    """Print the prompt, the results of calls and the answer."""
    body: Any = event.data
    if event.type == "turn.started" and body.content:
        print("  [prompt]", body.content[0].text)
    elif event.type in ("tool.completed", "tool.failed"):
        print(f"  [{'refused' if body.result.failed else 'tool'}]", body.result.text.splitlines()[-1])
    elif event.type == "turn.completed":
        print("  [says]", body.text)


async def main(folder: Path) -> None:
    """Run with the package, with a project that replaces one of its files, and with the package in a ZIP file."""
    empty, project = folder / "empty", folder / "project"
    skill = project / ".claude/skills/moor/SKILL.md"
    for place in (empty, skill.parent):
        place.mkdir(parents=True)
    skill.write_text("---\nname: moor\ndescription: How we moor here.\n---\nUse four lines. $ARGUMENTS\n", "utf-8")
    await run("the package", importlib.resources.files("harbour"), empty)
    await run("a project with its own skill", importlib.resources.files("harbour"), project)
    with zipfile.ZipFile(folder / "app.zip", "w") as archive:
        for path in sorted(PACKAGE.rglob("*")):
            archive.write(path, path.relative_to(PACKAGE.parent))
    await run("a ZIP file", zipfile.Path(folder / "app.zip", "harbour/"), empty)
    print("files in the empty folder:", len(list(empty.iterdir())))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder).resolve()))
