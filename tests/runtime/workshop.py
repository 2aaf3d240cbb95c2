"""A folder in which the commands of a session run, for tests of rewind with files."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vaka
from tests.runtime.runtime_fixtures import merge_options, read_log
from vaka.config.options import Commands, Workspace
from vaka.core.types.ids import SessionId
from vaka.runtime.file_rewind import FileRewind
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


class Workshop:
    """A folder in which the commands of a session run, one turn for each list of calls."""

    def __init__(self, folder: Path, store: Any = None, **options: Any) -> None:
        self.folder = folder
        self.store = store or MemoryStore()
        self.options = options
        self.steps: list[Any] = []

    def runtime(self, *steps: Any) -> Runtime:
        self.steps += steps
        model = ScriptedModel(*self.steps)
        agent = vaka.Agent("a", model=model, tools=["Bash", "Read", "Write", "Edit", "BashOutput", "KillTask"])
        defaults = {
            "commands": Commands(sandbox="off"),
            "workspace": Workspace(cwd=str(self.folder)),
            "permissions": vaka.Permissions(mode="bypassPermissions"),
        }
        return vaka.Runtime(store=self.store, agent=agent, **merge_options(defaults, self.options))

    async def run(self, *commands: str | tuple[str, dict[str, Any]]) -> str:
        """Run commands in one turn, one after the other; return the position after it."""
        made = [call("Bash", command=one) if isinstance(one, str) else call(one[0], **one[1]) for one in commands]
        async with self.runtime(*made, say("done")) as rt:
            await (await rt.open(id="s")).run("Go.")
            return str(len([event async for event in rt.store.events.read(SessionId("s"))]))

    async def head(self) -> str:
        return str(len(await read_log(self.store, "s")))

    async def rewind(self, to: str = "1", **more: Any) -> None:
        async with self.runtime() as rt:
            await rt.rewind("s", to, files=True, **more)

    async def preview(self, to: str = "1") -> FileRewind:
        async with self.runtime() as rt:
            return await rt.preview_rewind("s", to)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)

    def read(self) -> dict[str, str]:
        """Return the folder without ``.git``: files with their bits, links, and folders that are empty."""
        found: dict[str, str] = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if name.split("/", maxsplit=1)[0] == ".git":
                continue
            if path.is_symlink():
                found[name] = f"-> {os.readlink(path)}"  # noqa: PTH115
            elif path.is_file():
                found[name] = f"{path.read_bytes().decode('latin-1')}{' x' if os.access(path, os.X_OK) else ''}"
            elif path.is_dir() and not list(path.iterdir()):
                found[f"{name}/"] = ""
        return found

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", *arguments],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout


def make_workshop(folder: Path, *, is_repository: bool) -> Workshop:
    folder.mkdir()
    made = Workshop(folder)
    made.write({"a.txt": "one\n", "sub/b.txt": "two\n", "doomed.txt": "kept\n", "run.sh": "echo\n"})
    made.write({".gitignore": "*.log\nout/\n", "old.log": "1\n"})
    if is_repository:
        made.git("init", "-q")
        made.git("add", "-A")
        made.git("commit", "-qm", "first")
    made.write({"a.txt": "one, changed by hand\n", "mine.txt": "not added\n"})
    return made
