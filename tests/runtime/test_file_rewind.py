"""Rewind with files restores what the file tools changed, and keeps the changes of other programs."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, event_types, log_writer, read_log, runtime
from tests.tools.builtin.harness import ToolHarness
from vaka.config.options import Permissions
from vaka.core.ports.files import FileInfo
from vaka.core.ports.store import Retention
from vaka.core.ports.tool import CHANGED_FILE_KEY, Tool, World
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import Busy, FileChanged, FileError, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.progress import ToolStarted
from vaka.files.snapshots import FileSnapshots
from vaka.files.workspace import WorkspaceFiles
from vaka.runtime.file_rewind import FileRewind
from vaka.runtime.runtime import Runtime
from vaka.stores.blob_references import blobs_of
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel
from vaka.tools import ToolTraits

NOTEBOOK = '{"cells": [{"cell_type": "code", "id": "a", "source": "1", "metadata": {}, "outputs": []}], "metadata": {}}'


class RewindBench(ToolHarness):
    """A bench whose files are copied before they change."""

    def __init__(
        self, root: Path, *, copies: bool = True, store: Any = None, tools: "list[Tool] | None" = None
    ) -> None:
        super().__init__(root, tools=tools)
        self.copies = copies
        self.store = store or self.store

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime that lends the files and keeps copies."""
        rt = runtime(self.store, permissions=Permissions(mode="bypassPermissions"), **options)
        snapshots = FileSnapshots(self.files, self.store.blobs) if self.copies else None
        rt.env.world = World(files=self.files, snapshots=snapshots, cwd=str(self.root))
        return rt

    async def head(self) -> str:
        return str(len(await read_log(self.store, "s")))

    async def rewind(self, to: str, **more: Any) -> Event:
        async with self.runtime() as rt:
            return await rt.rewind("s", to, files=True, **more)

    async def preview(self, to: str) -> FileRewind:
        async with self.runtime() as rt:
            return await rt.preview_rewind("s", to)

    def read_files(self) -> dict[str, str]:
        """Return every file and what it holds."""
        found = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_text() for path in sorted(found)}


@pytest.fixture
def bench(tmp_path: Path) -> RewindBench:
    return RewindBench(tmp_path)


async def test_a_rewind_restores_the_conversation_and_the_changes_of_every_file_tool(bench: RewindBench) -> None:
    bench.write("a.py", "one\n")
    bench.write("b.py", "x y\n")
    bench.write("c.ipynb", NOTEBOOK)
    before = bench.read_files()
    await bench.run_calls(
        ("Read", {"file_path": "a.py"}), ("Read", {"file_path": "b.py"}), ("Read", {"file_path": "c.ipynb"})
    )
    place = await bench.head()
    await bench.run_calls(
        ("Write", {"file_path": "new/file.txt", "content": "new"}),
        ("Edit", {"file_path": "a.py", "old_string": "one", "new_string": "two"}),
        ("Write", {"file_path": "a.py", "content": "three\n"}),
        ("MultiEdit", {"file_path": "b.py", "edits": [{"old_string": "x", "new_string": "1"}]}),
        ("NotebookEdit", {"notebook_path": "c.ipynb", "cell_id": "a", "new_source": "2"}),
    )
    after = bench.read_files()
    assert set(after) - set(before) == {"new/file.txt"}
    assert all(after[path] != before[path] for path in before)
    assert await bench.preview(place) == FileRewind(restored=("a.py", "b.py", "c.ipynb"), removed=("new/file.txt",))
    assert bench.read_files() == after, "looking touches nothing"
    event = await bench.rewind(place)
    assert bench.read_files() == before
    assert event.type == "session.reverted"
    assert len(await bench.results()) == 8, "what happened stays readable"
    assert await bench.preview(place) == FileRewind()


async def test_session_rewind_restores_files(bench: RewindBench) -> None:
    await bench.call("Write", file_path="f", content="1")
    async with bench.runtime() as rt:
        await (await rt.open(agent(ScriptedModel()), id="s")).rewind("1", files=True)
    assert bench.read_files() == {}


async def test_files_follow_rewinds_back_and_forth(bench: RewindBench) -> None:
    places: list[str] = []
    for text in ("1", "2", "3"):
        await bench.call("Write", file_path="f", content=text)
        places.append(await bench.head())
    await bench.rewind(places[1])
    assert bench.read_files() == {"f": "2"}
    await bench.rewind(places[0])
    assert bench.read_files() == {"f": "1"}
    await bench.rewind(places[2])
    assert bench.read_files() == {"f": "3"}, "a place that was left can be gone back to, with its files"
    await bench.rewind("1")
    assert bench.read_files() == {}


async def test_files_changed_outside_are_reported_and_overwritten_only_by_force_with_a_backup(
    bench: RewindBench,
) -> None:
    await bench.call("Write", file_path="mine", content="1")
    await bench.call("Write", file_path="theirs", content="1")
    place = await bench.head()
    await bench.call("Write", file_path="mine", content="2")
    await bench.call("Write", file_path="theirs", content="2")
    bench.write("theirs", "a person was here")
    events = await bench.head()
    looked = await bench.preview(place)
    assert (looked.changed, looked.restored) == (("theirs",), ("mine", "theirs"))
    with pytest.raises(FileChanged, match="not overwritten: 'theirs'"):
        await bench.rewind(place)
    assert bench.read_files() == {"mine": "2", "theirs": "a person was here"}
    assert await bench.head() == events, "nothing is done unless all of it can be done"
    await bench.rewind(place, force=True)
    assert bench.read_files() == {"mine": "1", "theirs": "1"}
    await bench.rewind(events)
    assert bench.read_files() == {"mine": "2", "theirs": "a person was here"}


async def test_a_file_removed_outside_is_restored_and_one_restored_already_is_skipped(bench: RewindBench) -> None:
    await bench.call("Write", file_path="gone", content="1")
    await bench.call("Write", file_path="back", content="1")
    place = await bench.head()
    await bench.call("Write", file_path="gone", content="2")
    await bench.call("Write", file_path="back", content="2")
    (bench.root / "gone").unlink()
    bench.write("back", "1")
    looked = await bench.preview(place)
    assert looked == FileRewind(restored=("gone",), changed=("gone",))
    await bench.rewind(place, force=True)
    assert bench.read_files() == {"back": "1", "gone": "1"}


async def test_the_copy_is_in_the_log_before_the_file_changes(bench: RewindBench) -> None:
    bench.write("a", "old")
    await bench.call("Read", file_path="a")
    place = await bench.head()
    await bench.call("Write", file_path="a", content="new")
    log = await read_log(bench.store, "s")
    [change] = [event for event in log if isinstance(event.data, StateChanged) and event.data.key == CHANGED_FILE_KEY]
    started = max(event.seq for event in log if isinstance(event.data, ToolStarted))
    assert change.seq == started + 1
    # The process died after the file was written and before the result of the call was.
    died = MemoryStore()
    for digest in blobs_of(change):
        assert await died.blobs.put(await bench.store.blobs.get(digest)) == digest
    await log_writer(died, "s", log[: change.seq])()
    bench.store = died
    await bench.rewind(place)
    assert bench.read_files() == {"a": "old"}
    check_log(await read_log(died, "s"))


async def test_a_change_without_a_copy_in_the_log_is_reported(bench: RewindBench) -> None:
    bench.write("a", "old")
    await bench.call("Read", file_path="a")
    place = await bench.head()
    await bench.call("Edit", file_path="a", old_string="old", new_string="new")
    again = await bench.rerun_after_crash(2)
    assert not again.failed, "the change is there already"
    assert (await bench.preview(place)).lost == ("a",)


async def test_without_snapshots_files_are_unchanged_and_reported(tmp_path: Path) -> None:
    bench = RewindBench(tmp_path, copies=False)
    await bench.call("Write", file_path="a", content="1")
    assert CHANGED_FILE_KEY not in str(await read_log(bench.store, "s"))
    assert await bench.preview("1") == FileRewind(lost=("a",))
    await bench.rewind("1")
    assert bench.read_files() == {"a": "1"}


def make_note_tool(folder: Path) -> Tool:
    @vaka.tool(traits=ToolTraits(writes=True, paths=("name",), content="text"))
    def save_note(name: str = "notes", text: str = "") -> str:
        """Save a note."""
        (folder / name).write_text(text)
        if text == "half":
            raise ValueError("the disk is full")
        return "saved"

    return save_note


async def test_a_rewind_restores_what_a_tool_writes_that_declares_its_paths(tmp_path: Path) -> None:
    bench = RewindBench(tmp_path, tools=[make_note_tool(tmp_path)])
    bench.write("a", "old")
    await bench.call("save_note", name="a", text="new")
    await bench.call("save_note", name="b", text="half")
    assert bench.read_files() == {"a": "new", "b": "half"}
    assert await bench.preview("1") == FileRewind(restored=("a",), removed=("b",))
    await bench.rewind("1")
    assert bench.read_files() == {"a": "old"}


async def test_a_rewind_restores_the_file_that_a_tool_writes_by_default(tmp_path: Path) -> None:
    bench = RewindBench(tmp_path, tools=[make_note_tool(tmp_path)])
    bench.write("notes", "old")
    await bench.call("save_note", text="new")
    await bench.rewind("1")
    assert bench.read_files() == {"notes": "old"}


async def test_a_rewind_keeps_what_another_program_wrote_after_a_tool_that_declares_its_paths(tmp_path: Path) -> None:
    bench = RewindBench(tmp_path, tools=[make_note_tool(tmp_path)])
    await bench.call("save_note", name="a", text="new")
    bench.write("a", "a person was here")
    with pytest.raises(FileChanged, match="not overwritten: 'a'"):
        await bench.rewind("1")
    assert bench.read_files() == {"a": "a person was here"}


async def test_a_tool_may_write_files_outside_the_folder_which_are_not_copied(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "a"
    bench = RewindBench(tmp_path, tools=[make_note_tool(tmp_path)])
    assert not (await bench.call("save_note", name=str(other), text="new")).failed
    assert other.read_text() == "new"
    assert await bench.preview("1") == FileRewind()


async def test_without_snapshots_a_tool_that_declares_its_paths_runs_as_it_is(tmp_path: Path) -> None:
    bench = RewindBench(tmp_path, copies=False, tools=[make_note_tool(tmp_path)])
    assert not (await bench.call("save_note", name="a", text="new")).failed
    assert CHANGED_FILE_KEY not in str(await read_log(bench.store, "s"))


async def test_a_failed_edit_is_not_restored(bench: RewindBench) -> None:
    await bench.call("Write", file_path="a", content="1")
    place = await bench.head()
    assert (await bench.call("Edit", file_path="a", old_string="none", new_string="2")).failed
    assert await bench.preview(place) == FileRewind()


@pytest.mark.parametrize("path", ["link", "folder/a", "dangling"])
async def test_an_edit_that_is_refused_because_of_a_link_does_not_keep_files_from_being_restored(
    bench: RewindBench, path: str
) -> None:
    bench.write("a", "old")
    for name, target in {"link": "a", "folder": ".", "dangling": "nothing"}.items():
        (bench.root / name).symlink_to(target)
    results = await bench.run_calls(
        ("Read", {"file_path": path}),
        ("Write", {"file_path": path, "content": "new"}),
        ("Write", {"file_path": "b", "content": "new"}),
    )
    assert [result.reason for result in results] == (["error"] if path == "dangling" else [""]) + ["error", ""]
    assert await bench.preview("1") == FileRewind(removed=("b",))
    await bench.rewind("1")
    assert (bench.root / "a").read_text() == "old"
    assert not (bench.root / "b").exists()


@pytest.mark.parametrize("name", ["link", "folder/a"])
async def test_a_rewind_restores_the_file_that_a_tool_has_written_through_a_link(tmp_path: Path, name: str) -> None:
    bench = RewindBench(tmp_path, tools=[make_note_tool(tmp_path)])
    bench.write("a", "old")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").symlink_to(tmp_path)
    await bench.call("save_note", name=name, text="new")
    assert await bench.preview("1") == FileRewind(restored=("a",))
    await bench.rewind("1")
    assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "link").is_symlink()


async def test_files_of_another_folder_are_not_restored(
    bench: RewindBench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await bench.call("Write", file_path="a", content="1")
    other = tmp_path_factory.mktemp("other")
    (other / "a").write_text("1")
    bench.files = WorkspaceFiles(other)
    with pytest.raises(InvalidInput, match="work in that folder"):
        await bench.rewind("1")
    assert (other / "a").read_text() == "1"


async def test_copies_are_kept_as_long_as_the_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db")
    folder = tmp_path / "work"
    folder.mkdir()
    bench = RewindBench(folder, store=store)
    bench.write("a", "old")
    await bench.run_calls(("Read", {"file_path": "a"}), ("Write", {"file_path": "a", "content": "new"}))
    removed = await store.gc(Retention(blobs_before="9999"))
    assert removed.blobs == 0
    await bench.rewind("1")
    assert bench.read_files() == {"a": "old"}
    await store.close()


async def test_an_erased_copy_aborts_the_rewind(bench: RewindBench) -> None:
    bench.write("a", "old")
    await bench.run_calls(("Read", {"file_path": "a"}), ("Write", {"file_path": "a", "content": "new"}))
    log, empty = await read_log(bench.store, "s"), MemoryStore()
    await log_writer(empty, "s", log)()
    bench.store = empty
    with pytest.raises(NotFound):
        await bench.rewind("1")
    assert bench.read_files() == {"a": "new"}
    assert event_types(await read_log(empty, "s")) == event_types(log)


class FailingWorkspace(WorkspaceFiles):
    """A folder whose disk fails at one file."""

    broken = "b"

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Write, unless it is that file."""
        if path == self.broken:
            raise FileError("the disk is full")
        return await super().write(path, data, known=known, new=new)


async def test_repeating_an_interrupted_rewind_finishes_it(bench: RewindBench) -> None:
    for path in ("a", "b", "c"):
        await bench.call("Write", file_path=path, content="1")
    place = await bench.head()
    for path in ("a", "b", "c"):
        await bench.call("Write", file_path=path, content="2")
    sound, bench.files = bench.files, FailingWorkspace(bench.root)
    with pytest.raises(FileError, match=f"the disk is full; another rewind with files to {place} restores the rest"):
        await bench.rewind(place)
    assert bench.read_files() == {"a": "1", "b": "2", "c": "1"}
    bench.files = sound
    await bench.rewind(place)
    assert bench.read_files() == {"a": "1", "b": "1", "c": "1"}


async def test_a_busy_session_is_not_rewound(bench: RewindBench) -> None:
    await bench.call("Write", file_path="a", content="1")
    async with bench.runtime() as rt:
        await bench.store.events.claim(SessionId("s"))
        with pytest.raises(Busy):
            await rt.rewind("s", "1", files=True)
    assert bench.read_files() == {"a": "1"}


async def test_rewinding_files_without_a_workspace_or_session_is_an_error(bench: RewindBench) -> None:
    await bench.call("Write", file_path="a", content="1")
    async with runtime(bench.store) as rt:
        rt.env.world = World()
        with pytest.raises(InvalidInput, match="no files to restore"):
            await rt.rewind("s", "1", files=True)
    with pytest.raises(NotFound, match="missing"):
        async with bench.runtime() as rt:
            await rt.preview_rewind("missing", "1")
    assert bench.read_files() == {"a": "1"}
