"""Rewind with files restores what commands changed, and names what it cannot restore."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import read_log
from vaka.core.ports.command_backups import COMMAND_FILES_KEY
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import FileChanged
from vaka.core.types.progress import ToolStarted
from vaka.runtime.file_rewind import FileRewind
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


class Workshop:
    """A folder in which the commands of a session run, one turn for each list of calls."""

    def __init__(self, folder: Path, store: Any = None, **options: Any) -> None:
        self.folder, self.store, self.options = folder, store or MemoryStore(), options
        self.steps: list[Any] = []

    def runtime(self, *steps: Any) -> Runtime:
        self.steps += steps
        model = ScriptedModel(*self.steps)
        agent = vaka.Agent("a", model=model, tools=["Bash", "Read", "Write", "Edit", "BashOutput", "KillTask"])
        given: dict[str, Any] = {"sandbox": "off", **self.options}
        return vaka.Runtime(
            store=self.store, agent=agent, cwd=str(self.folder), permission_mode="bypassPermissions", **given
        )

    async def run(self, *commands: str | tuple[str, dict[str, Any]]) -> str:
        """Run commands in one turn, one after the other; return the position after it."""
        made = [call("Bash", command=one) if isinstance(one, str) else call(one[0], **one[1]) for one in commands]
        async with self.runtime(*made, say("done")) as rt:
            await (await rt.open(id="s")).run("Go.")
        return await self.head()

    async def head(self) -> str:
        return str(len(await read_log(self.store, "s")))

    async def rewind(self, to: str = "1", **more: Any) -> None:
        async with self.runtime() as rt:
            await rt.rewind("s", to, files=True, **more)

    async def preview(self, to: str = "1") -> FileRewind:
        async with self.runtime() as rt:
            return await rt.files_back("s", to)

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
            elif not list(path.iterdir()):
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


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


@pytest.fixture(params=["repository", "folder"])
def workshop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    """A folder with uncommitted work, in a repository or not."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Workshop(folder)
    made.write({"a.txt": "one\n", "sub/b.txt": "two\n", "doomed.txt": "kept\n", "run.sh": "echo\n"})
    made.write({".gitignore": "*.log\nout/\n", "old.log": "1\n"})
    if request.param == "repository":
        made.git("init", "-q")
        made.git("add", "-A")
        made.git("commit", "-qm", "first")
    made.write({"a.txt": "one, changed by hand\n", "mine.txt": "not added\n"})
    return made


async def test_a_rewind_restores_every_change_of_a_command(workshop: Workshop) -> None:
    before = workshop.read()
    await workshop.run(
        "touch made.txt; sed -i s/one/ONE/ a.txt; rm doomed.txt; chmod +x run.sh; mkdir -p new/deep/er empty; "
        "echo x > new/deep/f; ln -s a.txt link; rm -r sub; echo file > sub; echo more >> mine.txt"
    )
    after = workshop.read()
    assert after != before
    looked = await workshop.preview()
    assert looked.restored == ("a.txt", "doomed.txt", "mine.txt", "run.sh", "sub/b.txt")
    assert looked.removed == ("link", "made.txt", "new/deep/f", "sub")
    assert (looked.changed, looked.lost, looked.commands) == ((), (), 0)
    assert workshop.read() == after, "looking touches nothing"
    end = await workshop.head()
    await workshop.rewind()
    assert workshop.read() == before
    await workshop.rewind(end)
    assert {name: text for name, text in after.items() if name not in ("new/deep/er/", "empty/")} == workshop.read()


async def test_the_repository_and_its_index_are_not_touched(workshop: Workshop) -> None:
    if not (workshop.folder / ".git").exists():
        workshop.git("init", "-q")
    workshop.git("add", "mine.txt")
    files = sorted(path for path in (workshop.folder / ".git").rglob("*") if path.is_file())
    before = [(path, path.read_bytes()) for path in files]
    status = workshop.git("--no-optional-locks", "status", "--porcelain")
    await workshop.run("echo x > a.txt; echo y > new.txt")
    await workshop.rewind()
    assert [(path, path.read_bytes()) for path in files] == before
    assert sorted(path for path in (workshop.folder / ".git").rglob("*") if path.is_file()) == files
    assert workshop.git("--no-optional-locks", "status", "--porcelain") == status


async def test_each_turn_is_taken_back_on_its_own_and_again(workshop: Workshop) -> None:
    places, states = list[str](), list[dict[str, str]]()
    for text in ("1", "2", "3"):
        places.append(await workshop.run(f"echo {text} > a.txt; echo {text} > new{text}.txt"))
        states.append(workshop.read())
    for at in (1, 0, 2, 1, 2, 0):
        await workshop.rewind(places[at])
        assert workshop.read() == states[at]


async def test_changes_by_commands_and_file_tools_are_restored_together(workshop: Workshop) -> None:
    before = workshop.read()
    await workshop.run(
        ("Read", {"file_path": "a.txt"}),
        ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        "sed -i s/two/three/ a.txt; echo x > n.txt",
        ("Read", {"file_path": "a.txt"}),
        ("Edit", {"file_path": "a.txt", "old_string": "three", "new_string": "four"}),
        ("Read", {"file_path": "n.txt"}),
        ("Write", {"file_path": "n.txt", "content": "y"}),
    )
    assert workshop.read() != before
    assert await workshop.preview() == FileRewind(restored=("a.txt",), removed=("n.txt",))
    await workshop.rewind()
    assert workshop.read() == before


async def test_a_file_changed_by_another_program_since_is_overwritten_only_by_force(workshop: Workshop) -> None:
    before = workshop.read()
    await workshop.run("echo command > a.txt; echo command > new.txt; echo command > mine.txt")
    workshop.write({"a.txt": "a person\n", "new.txt": "a person\n"})
    after = workshop.read()
    assert (await workshop.preview()).changed == ("a.txt", "new.txt")
    with pytest.raises(FileChanged, match=r"not overwritten: 'a.txt', 'new.txt'"):
        await workshop.rewind()
    assert workshop.read() == after
    end = await workshop.head()
    await workshop.rewind(force=True)
    assert workshop.read() == before
    await workshop.rewind(end)
    assert workshop.read() == after


async def test_a_change_between_two_commands_is_not_taken_back_silently(workshop: Workshop) -> None:
    between = await workshop.run("echo 1 > a.txt")
    workshop.write({"a.txt": "a person\n"})
    await workshop.run("echo 2 >> a.txt")
    await workshop.rewind(between)
    assert workshop.read()["a.txt"] == "a person\n", "the change of the last command alone is taken back"
    with pytest.raises(FileChanged, match=r"a\.txt"):
        await workshop.rewind()


async def test_a_file_that_another_program_made_between_commands_stays(workshop: Workshop) -> None:
    await workshop.run("echo 1 > one.txt")
    workshop.write({"theirs.txt": "a person\n"})
    await workshop.run("echo 2 > two.txt")
    assert (await workshop.preview()).removed == ("one.txt", "two.txt")
    await workshop.rewind()
    assert workshop.read()["theirs.txt"] == "a person\n"


async def test_ignored_files_are_named_and_stay(workshop: Workshop) -> None:
    workshop.git("init", "-q")
    workshop.write({"out/x": "1", "other.log": "1"})
    await workshop.run("echo 2 > old.log; rm other.log; echo 3 > new.log; touch out/y; mkdir cache; touch cache/z.log")
    after = workshop.read()
    looked = await workshop.preview()
    assert looked == FileRewind(lost=("cache", "new.log", "old.log", "other.log", "out"))
    await workshop.rewind()
    assert workshop.read() == after


async def test_a_file_that_is_no_longer_ignored_is_not_removed(workshop: Workshop) -> None:
    workshop.git("init", "-q")
    workshop.write({"out/precious": "1"})
    await workshop.run("echo > .gitignore; touch new.txt")
    assert (await workshop.preview()).restored == (".gitignore",)
    await workshop.rewind()
    found = workshop.read()
    assert (found["old.log"], found["out/precious"], found[".gitignore"]) == ("1\n", "1", "*.log\nout/\n")


async def test_large_files_are_named_and_stay(workshop: Workshop) -> None:
    with (workshop.folder / "large").open("wb") as file:
        file.truncate(40 * 1024**2)
    await workshop.run("echo x >> large; truncate -s 40M larger; echo x > a.txt")
    assert await workshop.preview() == FileRewind(restored=("a.txt",), lost=("large", "larger"))
    await workshop.rewind()
    assert (workshop.folder / "large").stat().st_size == 40 * 1024**2 + 2


async def test_a_commit_of_the_agent_is_named_and_the_files_are_restored(workshop: Workshop) -> None:
    workshop.git("init", "-q")
    before = workshop.read()
    await workshop.run("git add -A; git -c user.name=A -c user.email=a@localhost commit -qm agent; echo x > a.txt")
    assert (await workshop.preview()).lost == (".git",)
    await workshop.rewind()
    assert workshop.read() == before


async def test_a_command_that_only_reads_records_nothing(workshop: Workshop) -> None:
    await workshop.run("ls; cat a.txt | head -1", "git status")
    log = await read_log(workshop.store, "s")
    assert not [event for event in log if isinstance(event.data, StateChanged) and event.data.key == COMMAND_FILES_KEY]
    assert await workshop.preview() == FileRewind()


async def test_the_record_is_in_the_log_before_the_command_runs(workshop: Workshop) -> None:
    await workshop.run("echo x > a.txt")
    log = await read_log(workshop.store, "s")
    started = next(at for at, event in enumerate(log) if isinstance(event.data, ToolStarted))
    begun = log[started + 1].data
    assert isinstance(begun, StateChanged)
    assert begun.key == COMMAND_FILES_KEY


async def test_without_snapshots_the_commands_are_counted(workshop: Workshop) -> None:
    workshop.options["snapshots"] = False
    await workshop.run("echo x > a.txt", "ls")
    assert await workshop.preview() == FileRewind(commands=1)


async def test_names_that_are_not_utf_8_and_files_in_an_inner_repository_are_restored(workshop: Workshop) -> None:
    odd = os.fsdecode(b"caf\xe9\n*")
    inner = workshop.folder / "inner"
    workshop.write({odd: "1", "inner/x": "1", "inner/y": "1"})
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    before = {path: path.read_bytes() for path in workshop.folder.rglob("*") if path.is_file()}
    await workshop.run(
        "for f in caf*; do echo 2 > $f; done; printf 2 > $'caf\\xe9\\n*'; echo 2 > inner/x; rm inner/y; touch inner/z"
    )
    looked = await workshop.preview()
    assert (set(looked.restored), looked.removed) == ({odd, "inner/x", "inner/y"}, ("inner/z",))
    await workshop.rewind()
    assert {path: path.read_bytes() for path in workshop.folder.rglob("*") if path.is_file()} == before


async def test_a_repository_that_a_command_makes_or_removes_is_named(workshop: Workshop) -> None:
    workshop.write({"inner/x": "1"})
    subprocess.run(["git", "init", "-q"], cwd=workshop.folder / "inner", check=True)
    await workshop.run("rm -rf inner; mkdir other; git -C other init -q; touch other/y")
    assert {"inner", "other"} <= set((await workshop.preview()).lost)
