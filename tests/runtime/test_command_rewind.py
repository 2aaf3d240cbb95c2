"""Rewind with files restores what commands changed, and names what it cannot restore."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import read_log, wait_until
from tests.runtime.workshop import Workshop, make_workshop
from vaka.config.options import Commands, Workspace
from vaka.core.ports.store import Retention
from vaka.core.ports.tool import COMMAND_FILES_KEY, World
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import FileChanged, FileError, InvalidInput
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import ToolStarted
from vaka.runtime.command_records import records_folder
from vaka.runtime.file_rewind import FileRewind
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, calls, say


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A repository with uncommitted work."""
    return make_workshop(tmp_path / "work", is_repository=True)


@pytest.fixture(params=[True, False], ids=["repository", "folder"])
def any_workshop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    """A folder, in a repository or not."""
    return make_workshop(tmp_path / "work", is_repository=request.param)


async def test_a_rewind_restores_every_change_of_a_command(any_workshop: Workshop) -> None:
    before = any_workshop.read()
    await any_workshop.run(
        "touch made.txt; sed -i s/one/ONE/ a.txt; rm doomed.txt; chmod +x run.sh; mkdir -p new/deep/er empty; "
        "echo x > new/deep/f; ln -s a.txt link; rm -r sub; echo file > sub; echo more >> mine.txt"
    )
    after = any_workshop.read()
    assert after != before
    looked = await any_workshop.preview()
    assert looked.restored == ("a.txt", "doomed.txt", "mine.txt", "run.sh", "sub/b.txt")
    assert looked.removed == ("link", "made.txt", "new/deep/f", "sub")
    assert (looked.changed, looked.lost, looked.commands) == ((), (), 0)
    assert any_workshop.read() == after, "looking touches nothing"
    end = await any_workshop.head()
    await any_workshop.rewind()
    assert any_workshop.read() == before
    await any_workshop.rewind(end)
    assert {name: text for name, text in after.items() if name not in ("new/deep/er/", "empty/")} == any_workshop.read()


async def test_the_repository_and_its_index_are_not_touched(any_workshop: Workshop) -> None:
    if not (any_workshop.folder / ".git").exists():
        any_workshop.git("init", "-q")
    any_workshop.git("add", "mine.txt")
    files = sorted(path for path in (any_workshop.folder / ".git").rglob("*") if path.is_file())
    before = [(path, path.read_bytes()) for path in files]
    status = any_workshop.git("--no-optional-locks", "status", "--porcelain")
    await any_workshop.run("echo x > a.txt; echo y > new.txt")
    await any_workshop.rewind()
    assert [(path, path.read_bytes()) for path in files] == before
    assert sorted(path for path in (any_workshop.folder / ".git").rglob("*") if path.is_file()) == files
    assert any_workshop.git("--no-optional-locks", "status", "--porcelain") == status


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
    assert await workshop.preview() == FileRewind(restored=("a.txt",), removed=("n.txt",), ran=1)
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


async def test_ignored_files_are_named_and_stay(any_workshop: Workshop) -> None:
    any_workshop.git("init", "-q")
    any_workshop.write({"out/x": "1", "other.log": "1"})
    await any_workshop.run(
        "echo 2 > old.log; rm other.log; echo 3 > new.log; touch out/y; mkdir cache; touch cache/z.log"
    )
    after = any_workshop.read()
    looked = await any_workshop.preview()
    assert looked == FileRewind(lost=("cache", "new.log", "old.log", "other.log", "out"), ran=1)
    await any_workshop.rewind()
    assert any_workshop.read() == after


async def test_a_file_that_is_no_longer_ignored_is_not_removed(workshop: Workshop) -> None:
    workshop.git("init", "-q")
    workshop.write({"out/precious": "1"})
    await workshop.run("echo > .gitignore; touch new.txt")
    assert (await workshop.preview()).restored == (".gitignore",)
    await workshop.rewind()
    found = workshop.read()
    assert (found["old.log"], found["out/precious"], found[".gitignore"]) == ("1\n", "1", "*.log\nout/\n")


async def test_a_folder_that_a_command_renamed_has_its_name_again(any_workshop: Workshop) -> None:
    any_workshop.write({"sub/deep/c.txt": "", "sub/empty.txt": "", "empty.txt": ""})
    before = any_workshop.read()
    await any_workshop.run("mv sub dir", "mv dir/deep .; mkdir -p to/there; mv dir to/there")
    looked = await any_workshop.preview()
    assert (looked.restored, looked.lost) == (("sub/b.txt", "sub/deep/c.txt", "sub/empty.txt"), ())
    assert looked.removed == ("deep/c.txt", "to/there/dir/b.txt", "to/there/dir/empty.txt")
    await any_workshop.rewind()
    assert any_workshop.read() == before


async def test_an_ignored_folder_that_a_command_moved_into_view_is_not_removed(workshop: Workshop) -> None:
    workshop.write({"out/deep/precious": "1", "out/deep/b.txt": "two, but not that of sub\n"})
    await workshop.run("mv out/deep seen; rm -r sub")
    looked = await workshop.preview()
    assert (looked.restored, looked.removed) == (("sub/b.txt",), ())
    assert looked.lost == ("out", "seen/b.txt", "seen/precious")
    await workshop.rewind()
    assert (workshop.folder / "seen/precious").read_text() == "1"


@pytest.mark.parametrize(
    ("change", "removed"),
    [
        ("echo more/ >> .gitignore", ("new.txt",)),
        ("printf '*.log\\nmore/\\nout/\\n' > .gitignore", ("new.txt",)),
        ("echo more/ > sub/.gitignore", ("new.txt", "sub/.gitignore")),
        ("echo '!old.log' >> .gitignore", ()),
        ("printf 'out/\\n*.log\\n' > .gitignore", ()),
        ("sed -i 1d .gitignore", ()),
        ("rm .gitignore", ()),
    ],
)
async def test_new_files_are_removed_if_the_changed_ignore_rules_only_hide_more(
    workshop: Workshop, change: str, removed: tuple[str, ...]
) -> None:
    await workshop.run(f"{change}; touch new.txt")
    assert (await workshop.preview()).removed == removed


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("git add mine.txt", (".git/index",)),
        ("git mv doomed.txt moved.txt", (".git/index",)),
        ("git reset -q --hard", (".git/index",)),
        ("git stash -u", (".git",)),
        ("git branch other", (".git",)),
        ("git branch -D side", (".git",)),
        ("git tag one", (".git",)),
        ("git pack-refs --all; git tag -d old", (".git",)),
        ("git checkout -q -b new", (".git",)),
        ("git stash -u; git stash pop --index", ()),
        ("git gc -q; git status; git diff; touch a.txt; git update-index --refresh", ()),
    ],
)
async def test_what_a_command_changed_in_the_repository_is_named(
    workshop: Workshop, command: str, named: tuple[str, ...]
) -> None:
    workshop.git("branch", "side")
    workshop.git("tag", "old")
    workshop.git("add", "a.txt")
    before = workshop.read()
    await workshop.run(command.replace("git ", "git -c user.name=A -c user.email=a@localhost "))
    assert (await workshop.preview()).lost == named
    await workshop.rewind()
    assert workshop.read() == before


async def test_the_end_of_a_merge_is_named_and_the_conflict_restored(workshop: Workshop) -> None:
    workshop.git("stash", "-u")
    workshop.git("checkout", "-q", "-b", "side")
    workshop.write({"a.txt": "side\n"})
    workshop.git("commit", "-qam", "side")
    workshop.git("checkout", "-q", "-")
    workshop.write({"a.txt": "main\n"})
    workshop.git("commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        workshop.git("merge", "side")
    before = workshop.read()
    assert "<<<<<<<" in before["a.txt"]
    await workshop.run("echo resolved > a.txt; touch note.txt")
    assert (await workshop.preview()).lost == ()
    await workshop.run("git merge --abort")
    assert (await workshop.preview()).lost == (".git",)
    await workshop.rewind()
    assert workshop.read() == before


async def test_empty_folders_are_named_if_a_command_removed_them_and_removed_if_it_made_them(
    any_workshop: Workshop,
) -> None:
    (any_workshop.folder / "empty/deep").mkdir(parents=True)
    any_workshop.write({"box/new.txt": "not added"})
    await any_workshop.run("rm -r empty box; mkdir -p made/deep/er")
    assert (await any_workshop.preview()).lost == ("empty",)
    await any_workshop.rewind()
    assert (any_workshop.folder / "box/new.txt").exists()
    assert not (any_workshop.folder / "made").exists()


async def test_another_rewind_restores_what_could_not_be_restored(workshop: Workshop, tmp_path: Path) -> None:
    before = workshop.read()
    await workshop.run("rm -r sub doomed.txt; echo x > made.txt")
    (workshop.folder / "sub").symlink_to(tmp_path)
    with pytest.raises(
        FileError, match=r"rewound to event 1, but not all.*'sub'.*another rewind with files to 1 restores"
    ):
        await workshop.rewind()
    (workshop.folder / "sub").unlink()
    assert workshop.read() == {name: text for name, text in before.items() if name != "sub/b.txt"}
    await workshop.rewind()
    assert workshop.read() == before


async def test_large_files_are_named_and_stay(workshop: Workshop) -> None:
    with (workshop.folder / "large").open("wb") as file:
        file.truncate(40 * 1024**2)
    await workshop.run("echo x >> large; truncate -s 40M larger; echo x > a.txt")
    assert await workshop.preview() == FileRewind(restored=("a.txt",), lost=("large", "larger"), ran=1)
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
    workshop.options["workspace"] = Workspace(snapshots=False)
    await workshop.run("echo x > a.txt", "ls")
    assert await workshop.preview() == FileRewind(ran=1, commands=1)


async def test_calls_that_ran_no_command_are_not_counted(workshop: Workshop) -> None:
    await workshop.run(("Bash", {"command": "touch x", "shell": "zsh"}), ("Bash", {"command": "ls", "workdir": "none"}))
    assert await workshop.preview() == FileRewind()


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


async def test_changes_while_a_command_runs_in_the_background_are_named_and_need_force(workshop: Workshop) -> None:
    before = workshop.read()
    background = {"command": "echo started > s.txt; read x < fifo; echo late > late.txt; echo end > fifo2"}
    os.mkfifo(workshop.folder / "fifo")
    os.mkfifo(workshop.folder / "fifo2")
    made = [call("Bash", **background, run_in_background=True), call("Bash", command="echo x > other.txt"), say("done")]
    async with workshop.runtime(*made) as rt:
        await (await rt.open(id="s")).run("Go.")
        await asyncio.to_thread((workshop.folder / "fifo").write_text, "go")
        await asyncio.to_thread((workshop.folder / "fifo2").read_text)
        looked = await rt.preview_rewind("s", "1")
        assert "late.txt" in looked.unclear
        assert "other.txt" in looked.removed
        await rt.rewind("s", "1", files=True)
        assert (workshop.folder / "late.txt").exists()
        assert not (workshop.folder / "other.txt").exists()
        await rt.rewind("s", "1", files=True, force=True)
    assert workshop.read() == before


async def test_two_commands_at_once_and_a_timed_out_one_are_restored(workshop: Workshop) -> None:
    before = workshop.read()
    slow = call("Bash", command="echo slow > slow.txt; sleep 1000", timeout=300)
    both = calls(call("Bash", command="echo 1 > 1.txt"), call("Bash", command="echo 2 >> a.txt; echo 2 > 2.txt"))
    async with workshop.runtime(both, slow, say("done")) as rt:
        await (await rt.open(id="s")).run("Go.")
    assert (await workshop.preview()).removed == ("1.txt", "2.txt", "slow.txt")
    await workshop.rewind()
    assert workshop.read() == before


async def test_the_changes_of_an_interrupted_command_are_restored(workshop: Workshop) -> None:
    before = workshop.read()
    async with workshop.runtime(call("Bash", command="echo x > a.txt; touch ready; sleep 1000"), say("done")) as rt:
        session = await rt.open(id="s")
        task = asyncio.create_task(session.run("Go."))
        await wait_until((workshop.folder / "ready").exists)
        await session.interrupt()
        with pytest.raises(vaka.VakaError):
            await task
        await session.rewind("1", files=True)
    assert workshop.read() == before


@pytest.mark.parametrize("sandbox", ["on", "off"])
async def test_commands_of_child_agents_and_scripts_are_restored(workshop: Workshop, sandbox: Any) -> None:
    before = workshop.read()
    lines = {"child": [call("Bash", command="echo child > a.txt"), say("ok")]}
    child = vaka.Agent("child", model=ScriptedModel(agents=lines), tools=["Bash"])
    source = 'function invoke(ctx) return ctx.invoke("Bash", { command = "rm -r sub" }) end'
    model = ScriptedModel(call("child", prompt="Go."), call("script"), call("Bash", command="touch x"), say("done"))
    agent = vaka.Agent("a", model=model, tools=[child.as_tool(), vaka.LuauTool(source, name="script"), "Bash"])
    async with vaka.Runtime(
        store=workshop.store,
        workspace=Workspace(cwd=str(workshop.folder)),
        permissions=vaka.Permissions(mode="bypassPermissions"),
        commands=Commands(sandbox=sandbox),
    ) as rt:
        session = await rt.open(agent, id="s")
        await session.run("Go.")
        assert workshop.read() != before
        effect = await session.rewind("1", files=True)
        assert effect == FileRewind(restored=("a.txt", "sub/b.txt"), removed=("x",), ran=3)
    assert workshop.read() == before


async def test_net_changes_are_the_difference_to_the_begin_of_the_session(workshop: Workshop) -> None:
    async with workshop.runtime() as rt:
        assert (await rt.file_changes("s")).files == ()
    middle = await workshop.run("echo 1 > a.txt; echo 1 > new.txt")
    await workshop.run("echo 2 > a.txt; rm doomed.txt; rm new.txt; ln -s a.txt link")
    async with workshop.runtime() as rt:
        found = (await rt.file_changes("s")).files
        assert [(one.path, one.before, one.now) for one in found] == [
            ("a.txt", b"one, changed by hand\n", b"2\n"),
            ("doomed.txt", b"kept\n", None),
            ("link", None, b"a.txt"),
        ]
        await rt.rewind("s", middle, files=True)
        found = (await rt.file_changes("s")).files
        assert [(one.path, one.now) for one in found] == [("a.txt", b"1\n"), ("new.txt", b"1\n")]
        await rt.rewind("s", "1", files=True)
        assert (await rt.file_changes("s")).files == ()


async def test_former_contents_are_kept_as_long_as_the_session(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shop = Workshop(folder, store=SqliteStore(tmp_path / "vaka.db"))
    shop.write({"a.txt": "old\n"})
    await shop.run("echo new > a.txt")
    assert (await shop.store.gc(Retention(blobs_before="9999"))).blobs == 0
    await shop.rewind()
    assert shop.read() == {"a.txt": "old\n"}
    await shop.store.sessions.delete(SessionId("s"))
    assert (await shop.store.gc(Retention(blobs_before="9999"))).blobs > 0
    await shop.store.close()


async def test_a_rewind_without_files_and_one_in_a_runtime_without_files_are_answered(workshop: Workshop) -> None:
    await workshop.run("echo 1 > a.txt")
    async with workshop.runtime() as rt:
        assert await (await rt.open(id="s")).rewind("1") is None
        rt.env.world = World()
        with pytest.raises(InvalidInput, match="no files to restore"):
            await rt.rewind("s", "1", files=True)


async def test_commands_in_the_sandbox_cannot_read_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shop = Workshop(folder, store=SqliteStore(tmp_path / "vaka.db"), commands=Commands(sandbox="on"))
    shop.write({"a.txt": "old\n"})
    await shop.run(
        "echo new > a.txt", f"ls -R {records_folder()} > listed 2>&1; find {records_folder()} -type f > found"
    )
    assert list(records_folder().rglob("objects/??/*")), "there are records"
    assert shop.read()["found"] == ""
    await shop.store.close()
