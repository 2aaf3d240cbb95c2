"""Files are recorded before and after commands, whatever the repository and its settings are."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.files.programs import restore_modes
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.ids import CallId, SessionId
from vaka.files.command_changes import CommandRecord, CommandRecorder, parse_record
from vaka.files.private_index import RecordLimits
from vaka.files.repositories import find_repository, head_of
from vaka.files.snapshots import NO_FILE, FileChange, FileSnapshots
from vaka.files.workspace import WorkspaceFiles
from vaka.stores.memory import MemoryStore
from vaka.testing.files import sha256_digest

USER = 54321
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@localhost", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Recorded:
    """A folder, and a recorder of what a function changes in it."""

    def __init__(self, folder: Path, *more: Path, **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.store = folder, MemoryStore()
        self.storage = folder.parent / "records"
        self.files = WorkspaceFiles(folder, more)
        self.recorder = CommandRecorder([str(folder), *map(str, more)], self.storage, self.store.blobs, **options)

    async def run(self, change: Callable[[], object]) -> CommandRecord:
        begun = await self.recorder.begin_command(CallId("c"), "command")
        change()
        return parse_record(await self.recorder.end_command(begun, SessionId("s")))

    async def undo(self, record: CommandRecord) -> list[str]:
        found = await self.recorder.read_packs(record)
        snapshots = FileSnapshots(self.files, self.store.blobs)
        plan = await snapshots.plan_restore(found.changes)
        assert not plan.changed
        done = await snapshots.apply_steps(plan.steps, await snapshots.load_copies(plan.steps, found.contents))
        await snapshots.remove_empty_folders(record.folders)
        return done

    def repository(self, *options: str) -> None:
        """Make it a repository with one commit of all files."""
        git(self.folder, "init", "-q", *options)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "first")

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "work")


async def test_files_with_line_ends_filters_and_encodings_are_restored_byte_by_byte(recorded: Recorded) -> None:
    ran = recorded.folder.parent / "ran"
    recorded.write(
        ".gitattributes",
        "*.txt text eol=crlf ident\n*.bin filter=evil\n*.u16 text working-tree-encoding=UTF-16\n* text=auto\n",
    )
    contents = {
        "a.txt": b"one\r\ntwo\n$Id$\r\n",
        "b.bin": b"data\r\n",
        "c.u16": "text\n".encode("utf-16"),
        "d": b"x\r\ny\n",
    }
    for name, data in contents.items():
        recorded.write(name, data)
    git(recorded.folder, "init", "-q")
    git(recorded.folder, "add", "-A")
    git(recorded.folder, "commit", "-qm", "first")
    for key, value in {
        "filter.evil.clean": f"touch {ran}; rev",
        "filter.evil.smudge": f"touch {ran}; rev",
        "filter.evil.required": "true",
        "core.autocrlf": "true",
        "core.fsmonitor": f"touch {ran}",
        "core.hooksPath": str(recorded.folder),
    }.items():
        git(recorded.folder, "config", key, value)
    hook = recorded.write("post-index-change", f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)

    record = await recorded.run(lambda: [recorded.write(name, "changed") for name in contents])
    assert await recorded.undo(record) == [*contents]
    assert {name: (recorded.folder / name).read_bytes() for name in contents} == contents
    assert not ran.exists(), "nothing of the folder was run"


@pytest.mark.parametrize("format", ["sha1", "sha256"])
async def test_unchanged_files_of_a_repository_are_not_stored_again(recorded: Recorded, format: str) -> None:
    for number in range(20):
        recorded.write(f"{number}.txt", f"{number}\n" * 10)
    recorded.repository(f"--object-format={format}")
    await recorded.run(lambda: recorded.write("new", "1"))
    objects = [path for path in recorded.storage.glob("*/objects/??/*") if path.is_file()]
    assert len(objects) <= 4, "one file, and the folder before and after"
    record = await recorded.run(lambda: (recorded.folder / "7.txt").unlink())
    assert await recorded.undo(record) == ["7.txt"]
    assert (recorded.folder / "7.txt").read_text() == "7\n" * 10


async def test_a_repository_without_commits_and_one_that_is_damaged_are_recorded(recorded: Recorded) -> None:
    recorded.write("a", "1")
    git(recorded.folder, "init", "-q")
    assert await recorded.undo(await recorded.run(lambda: recorded.write("a", "2"))) == ["a"]
    git(recorded.folder, "add", "-A")
    recorded.write(".git/index", "damaged")
    shutil.rmtree(recorded.folder / ".git/objects")
    fresh = Recorded(recorded.folder)
    shutil.rmtree(fresh.storage)
    assert await fresh.undo(await fresh.run(lambda: fresh.write("a", "3"))) == ["a"]
    assert (recorded.folder / "a").read_text() == "1"


async def test_a_linked_working_tree_and_a_submodule_are_recorded(tmp_path: Path) -> None:
    origin = Recorded(tmp_path / "origin")
    origin.write("a", "1")
    origin.repository()
    main = Recorded(tmp_path / "main")
    main.write("b", "1")
    main.repository()
    git(main.folder, "submodule", "-q", "add", str(origin.folder), "sub")
    git(main.folder, "commit", "-qm", "second")
    record = await main.run(lambda: main.write("sub/a", "2"))
    assert await main.undo(record) == ["sub/a"]
    git(main.folder, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Recorded(tmp_path / "linked")
    repository = find_repository(str(linked.folder))
    assert repository is not None
    assert head_of(repository).startswith("refs/heads/linked ")
    record = await linked.run(lambda: (linked.folder / "b").unlink())
    assert await linked.undo(record) == ["b"]
    assert (linked.folder / "b").read_text() == "1"


async def test_a_folder_inside_a_repository_keeps_to_itself_and_to_the_ignore_rules_above(tmp_path: Path) -> None:
    whole = Recorded(tmp_path / "whole")
    whole.write(".gitignore", "*.log\n")
    whole.write("[sub]/a", "1")
    whole.write("other/b", "1")
    whole.repository()
    git(whole.folder, "gc", "-q")
    recorded = Recorded(whole.folder / "[sub]")

    def change() -> None:
        whole.write("[sub]/a", "2")
        whole.write("[sub]/x.log", "2")
        whole.write("other/b", "2")

    record = await recorded.run(change)
    assert record.lost == ("x.log",)
    assert await recorded.undo(record) == ["a"]


async def test_a_folder_that_becomes_a_repository_is_restored_and_the_repository_named(tmp_path: Path) -> None:
    whole = Recorded(tmp_path / "whole")
    whole.write("sub/a", "1")
    whole.repository()
    recorded = Recorded(whole.folder / "sub")
    recorded.write("untracked", "1")

    def change() -> None:
        git(recorded.folder, "init", "-q")
        recorded.write("a", "2")
        (recorded.folder / "untracked").unlink()
        recorded.write("new", "2")

    record = await recorded.run(change)
    assert record.reasons == ()
    assert await recorded.undo(record) == ["a", "new", "untracked"]
    assert ".git" in record.lost


async def test_an_inner_repository_that_cannot_be_recorded_hides_no_change_elsewhere(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "work", limits=RecordLimits(files=3))
    recorded.write("inner/a", "1")
    git(recorded.folder / "inner", "init", "-q")
    recorded.write("b", "1")

    def change() -> None:
        recorded.write("b", "2")
        for name in "cdefg":
            recorded.write(f"inner/{name}", "2")

    record = await recorded.run(change)
    assert await recorded.undo(record) == ["b"]
    [reason] = record.reasons
    assert reason.startswith(f"{recorded.folder}/inner: 5 of its files")


async def test_a_folder_with_a_line_end_in_its_name_is_restored(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / 'two\nlines "\\')
    recorded.write("a", "1")
    recorded.repository()
    assert await recorded.undo(await recorded.run(lambda: recorded.write("a", "2"))) == ["a"]
    assert (recorded.folder / "a").read_text() == "1"


@pytest.mark.parametrize(
    "head", ["ref: ../../secret\n", "ref: refs/../../../secret\n", "ref: refs/heads/linked\n", "secret\n", None]
)
async def test_a_hostile_repository_puts_no_other_file_into_the_record(recorded: Recorded, head: str | None) -> None:
    secret = recorded.folder.parent / "secret"
    secret.write_text("the secret")
    recorded.write("a", "1")
    recorded.repository()
    (recorded.folder / ".git/refs/heads/linked").symlink_to(secret)
    (recorded.folder / ".git/HEAD").unlink()
    if head is None:
        (recorded.folder / ".git/HEAD").symlink_to(secret)
    else:
        recorded.write(".git/HEAD", head)
    begun = await recorded.recorder.begin_command(CallId("c"), "command")
    assert "secret" not in str(begun).replace(str(recorded.folder), "")


async def test_pipes_in_place_of_the_files_of_a_repository_do_not_stop_the_record(recorded: Recorded) -> None:
    recorded.write("a", "1")
    recorded.repository()

    def change() -> None:
        recorded.write("a", "2")
        for name in ("packed-refs", "refs/heads/pipe", "MERGE_HEAD"):
            os.mkfifo(recorded.folder / ".git" / name)

    record = await recorded.run(change)
    assert await recorded.undo(record) == ["a"]


async def test_several_folders_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    recorded = Recorded(tmp_path / "work", tmp_path / "more")
    record = await recorded.run(lambda: (tmp_path / "more/x").write_text("1"))
    assert await recorded.undo(record) == [str(tmp_path / "more/x")]


async def test_a_folder_that_was_replaced_by_a_link_is_restored_without_following_it(
    recorded: Recorded, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_text("theirs")
    recorded.write("sub/a", "1")

    def change() -> None:
        shutil.rmtree(recorded.folder / "sub")
        (recorded.folder / "sub").symlink_to(tmp_path / "outside")

    record = await recorded.run(change)
    await recorded.undo(record)
    assert (recorded.folder / "sub/a").read_text() == "1"
    assert not (recorded.folder / "sub").is_symlink()
    assert (tmp_path / "outside/a").read_text() == "theirs"


async def test_a_link_that_a_command_changes_is_restored(recorded: Recorded) -> None:
    link = recorded.folder / "link"
    link.symlink_to("missing \udce9")

    def change() -> None:
        link.unlink()
        link.write_text("a file")

    assert await recorded.undo(await recorded.run(change)) == ["link"]
    assert os.readlink(link) == "missing \udce9"  # noqa: PTH115

    def replace() -> None:
        link.unlink()
        link.symlink_to("other")

    record = await recorded.run(replace)
    assert await recorded.undo(record) == ["link"]
    assert os.readlink(link) == "missing \udce9"  # noqa: PTH115


async def test_special_and_unreadable_files_do_not_stop_the_record(recorded: Recorded) -> None:
    os.mkfifo(recorded.folder / "pipe")
    recorded.write("plain", "1")

    def change() -> None:
        recorded.write("plain", "2")
        os.mkfifo(recorded.folder / "pipe2")

    record = await recorded.run(change)
    assert record.reasons == ()
    assert await recorded.undo(record) == ["plain"]
    assert stat.S_ISFIFO((recorded.folder / "pipe").stat().st_mode)


def test_files_and_folders_that_a_command_made_read_only_are_restored_and_closed_ones_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "second").mkdir()
        (folder / "second").chmod(0o777)
        command = [sys.executable, restore_modes.__file__, name, str(USER)]
        done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert msgspec.json.decode(done.stdout) == {
        "lost": ["closed", "listed"],
        "lost later": [],
        "files": {
            "closed/deep/c.txt": "changed",
            "listed/deep/c.txt": "changed",
            "plain.txt": "old",
            "sub/b.txt": "old",
        },
    }


async def test_too_many_changed_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "work", limits=RecordLimits(files=3))
    for name in "abcd":
        recorded.write(name, "1")
    record = await recorded.run(lambda: recorded.write("a", "2"))
    assert (record.packs, record.state) == ((), "ended")
    assert record.reasons == (
        f"{recorded.folder}: 4 of its files, with 0.0 MiB, are new or changed; at most 3 with 256 MiB are recorded",
    )
    assert await recorded.recorder.read_packs(record) == ([], {})


async def test_without_git_the_reason_is_named(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(recorded.folder))
    record = await recorded.run(lambda: recorded.write("a", "2"))
    assert record.reasons == (f"{recorded.folder}: git is not installed",)


async def test_files_of_the_store_are_neither_recorded_nor_named(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    recorded = Recorded(folder, skipped=[str(folder / "vaka.db"), str(folder / "state")])
    recorded.write("state/a", "1")
    record = await recorded.run(lambda: [recorded.write(name, "2") for name in ("vaka.db", "state/a", "x")])
    assert await recorded.undo(record) == ["x"]
    assert record.lost == ()
    assert (folder / "vaka.db").exists()


async def test_records_inside_the_folder_are_not_recorded(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.recorder = CommandRecorder([str(tmp_path)], tmp_path / "records", recorded.store.blobs)
    for _ in range(2):
        record = await recorded.run(lambda: recorded.write("x", "1"))
        assert (await recorded.undo(record), record.lost) == (["x"], ())


async def test_a_command_without_an_end_is_compared_with_the_next_one_or_with_now(recorded: Recorded) -> None:
    recorded.write("a", "1")
    first = parse_record(await recorded.recorder.begin_command(CallId("1"), "killed"))
    recorded.write("a", "2")
    later = parse_record(await recorded.recorder.begin_command(CallId("2"), "next"))
    recorded.write("a", "3")
    found = [await recorded.recorder.compare_trees(first, one) for one in (later, None)]
    assert [[(change.path, change.was, change.becomes) for change in one.changes] for one in found] == [
        [("a", sha256_digest(b"1"), sha256_digest(b"2"))],
        [("a", sha256_digest(b"1"), sha256_digest(b"3"))],
    ]
    shutil.rmtree(recorded.storage)
    with pytest.raises(NotFound, match="not stored any more"):
        await recorded.recorder.compare_trees(first)


async def test_objects_that_nothing_needs_are_removed_after_a_time(recorded: Recorded) -> None:
    recorded.write("a", "old")
    await recorded.run(lambda: recorded.write("a", "new"))
    stored = list(recorded.storage.glob("*/objects/??/*"))
    for path in stored:
        os.utime(path, (1, 1))
    os.utime(next(recorded.storage.glob("*/pruned")), (1, 1))
    await recorded.run(lambda: recorded.write("a", "newer"))
    assert len([path for path in stored if path.exists()]) < len(stored)


async def test_many_changed_files_are_stored_in_several_packs(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "work", limits=RecordLimits(pack_bytes=10))
    for name in "abc":
        recorded.write(name, name * 8)
    record = await recorded.run(lambda: [recorded.write(name, "x") for name in "abc"])
    assert len(record.packs) == 2
    assert await recorded.undo(record) == ["a", "b", "c"]
    assert [(recorded.folder / name).read_text() for name in "abc"] == ["a" * 8, "b" * 8, "c" * 8]


@pytest.mark.parametrize("value", [None, {}, {"call": 1}, "text"])
def test_a_value_that_is_no_record_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="not the record of a command"):
        parse_record(value)


def test_a_change_of_a_link_or_of_no_file_sets_no_mode() -> None:
    assert not FileChange(path="a", root="", was=NO_FILE, becomes="x", new_mode="plain").sets_mode


async def test_contents_over_the_limit_are_named(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "work", limits=RecordLimits(total_bytes=100))
    recorded.write("a", "1" * 60)
    recorded.repository()
    recorded.write("b", "1" * 60)
    record = await recorded.run(lambda: [recorded.write(name, "2") for name in "ab"])
    assert await recorded.undo(record) == ["a"]
    assert record.lost == ("b",)


async def test_a_repository_with_too_many_files_and_one_of_a_partial_copy_are_handled(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "work", limits=RecordLimits(tracked_files=1))
    recorded.write("a", "1")
    recorded.write("b", "1")
    recorded.repository()
    record = await recorded.run(lambda: recorded.write("a", "2"))
    assert record.reasons == (f"{recorded.folder}: it has more than 1 files",)
