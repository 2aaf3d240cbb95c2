"""Rewind with files restores what the commands of a killed process changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.workshop import Workshop
from vaka.config.options import Workspace
from vaka.runtime.command_records import records_folder


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


def kill_in_a_command(folder: Path, database: str) -> None:
    """Run a session in another process and kill it while its command runs."""
    script = f"""
import asyncio, vaka
from vaka.testing.models import ScriptedModel, call, calls, say
async def main():
    model = ScriptedModel(call("Bash", command="echo new > a.txt; touch made; sleep 1000"))
    agent = vaka.Agent("a", model=model, tools=["Bash"])
    async with vaka.Runtime(
        store={database!r}, agent=agent, workspace=vaka.Workspace(cwd={str(folder)!r}),
        commands=vaka.Commands(sandbox="off"),
        permissions=vaka.Permissions(mode="bypassPermissions"),
    ) as rt:
        await (await rt.open(id="s")).run("Go.")
asyncio.run(main())
"""
    killed = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "made").exists():
        assert killed.poll() is None
        os.sched_yield()
    killed.kill()
    killed.wait()


@pytest.fixture
def killed_shop(tmp_path: Path) -> Workshop:
    """A folder with a command that ran when its process was killed."""
    folder, database = tmp_path / "work", f"sqlite:///{tmp_path}/vaka.db"
    folder.mkdir()
    shop = Workshop(folder, store=database)
    shop.write({"a.txt": "old\n"})
    kill_in_a_command(folder, database)
    return shop


async def test_the_changes_of_a_killed_process_are_restored(killed_shop: Workshop) -> None:
    """Another process takes the turn back."""
    shop, records = killed_shop, records_folder()
    records.rename(records.with_name("away"))
    async with shop.runtime() as rt:
        looked = await rt.preview_rewind("s", "1")
        assert (looked.restored, looked.commands) == ((), 1)
        assert "not stored any more" in looked.reasons[0]
    shutil.rmtree(records)
    records.with_name("away").rename(records)
    async with shop.runtime() as rt:
        assert (await rt.preview_rewind("s", "1")).restored == ("a.txt",)
        await rt.rewind("s", "1", files=True, interrupt=True)
    assert shop.read() == {"a.txt": "old\n"}


async def test_a_restore_of_changes_by_a_killed_process_is_not_taken_for_a_change(killed_shop: Workshop) -> None:
    async with killed_shop.runtime() as rt:
        await rt.rewind("s", "1", files=True, interrupt=True)
        assert (await rt.file_changes("s")).files == ()
        assert (await rt.preview_rewind("s", "1")).restored == ()
    await killed_shop.run("touch later")  # its record is not compared with the begin of the killed command
    async with killed_shop.runtime() as rt:
        assert [one.path for one in (await rt.file_changes("s")).files] == ["later"]
        await rt.rewind("s", "1", files=True)
        assert killed_shop.read() == {"a.txt": "old\n"}


async def test_changes_after_those_of_a_killed_process_are_restored_with_them(killed_shop: Workshop) -> None:
    async with killed_shop.runtime() as rt:
        await rt.rewind("s", "1", interrupt=True)
    edit = {"file_path": "a.txt", "old_string": "new", "new_string": "newer"}
    await killed_shop.run(("Read", {"file_path": "a.txt"}), ("Edit", edit), "touch later")
    async with killed_shop.runtime() as rt:
        found = (await rt.file_changes("s")).files
        assert [(one.path, one.before, one.now, one.is_shared) for one in found] == [
            ("a.txt", b"old\n", b"newer\n", False),
            ("made", None, b"", False),
            ("later", None, b"", False),
        ]
        await rt.rewind("s", "1", files=True)
    assert killed_shop.read() == {"a.txt": "old\n"}


async def test_a_runtime_that_records_no_commands_says_what_it_cannot_restore(killed_shop: Workshop) -> None:
    killed_shop.options["workspace"] = Workspace(snapshots=False)
    async with killed_shop.runtime() as rt:
        looked = await rt.preview_rewind("s", "1")
        assert (looked.restored, looked.commands) == ((), 1)
        assert "commands are not recorded here" in looked.reasons[0]
        await rt.rewind("s", "1", files=True, interrupt=True)
    assert killed_shop.read() == {"a.txt": "new\n", "made": ""}
