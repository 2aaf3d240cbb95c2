"""A runtime whose files are several trees: file tools access all of them, commands only the folders on disk."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import merge_options, read_log, results_by_call
from tests.tools.builtin.harness import value_of
from vaka.config.options import Commands, Workspace
from vaka.core.ports.files import FileBytes
from vaka.core.types.errors import FileError
from vaka.core.types.message import ToolResult
from vaka.files.composite import CompositeFiles
from vaka.files.disk import DiskFiles
from vaka.files.kv import KeyValueFiles
from vaka.files.memory import MemoryFiles
from vaka.files.workspace import WorkspaceFiles
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, ScriptLine, call, say


async def run_tools(*made: ScriptLine, **options: Any) -> list[ToolResult]:
    """Let a runtime's own agent make calls, and return their results."""
    store, model = MemoryStore(), ScriptedModel(*made, say("done"))
    permissions = vaka.Permissions(mode="bypassPermissions", ask="deny")
    settings = merge_options({"permissions": permissions}, options)
    async with vaka.Runtime(store=store, model=model, **settings) as runtime:
        await (await runtime.open(id="s")).run("Go.")
    return list(results_by_call(await read_log(store, "s")).values())


@pytest.fixture
def files(tmp_path: Path) -> CompositeFiles:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "a.py").write_text("import os\n")
    notes = MemoryFiles({"n.md": b"about os\n", "deep/m.md": b"nothing\n"})
    return CompositeFiles(WorkspaceFiles(work), {"memories": notes, "kept/here": KeyValueFiles(MemoryStore().values)})


async def test_a_search_from_the_root_covers_all_trees(files: CompositeFiles, tmp_path: Path) -> None:
    made = [
        call("Write", file_path="kept/here/k.txt", content="kept os\n"),
        call("Grep", pattern="os", output_mode="content"),
        call("Grep", pattern="os", path="memories", output_mode="content"),
        call("Grep", pattern="os", path="kept", output_mode="count"),
        call("Grep", pattern="os", path="src", output_mode="content"),
        call("Grep", pattern="os", path="memories/n.md", output_mode="content"),
        call("Glob", pattern="**/*.md"),
    ]
    texts = [
        result.text for result in await run_tools(*made, workspace=Workspace(files=files, cwd=str(tmp_path / "work")))
    ]
    assert texts[1:] == [
        "kept/here/k.txt:1: kept os\nmemories/n.md:1: about os\nsrc/a.py:1: import os",
        "memories/n.md:1: about os",
        "kept/here/k.txt: 1",
        "src/a.py:1: import os",
        "memories/n.md:1: about os",
        "memories/deep/m.md\nmemories/n.md",
    ]


async def test_is_local_distinguishes_folders_on_disk_from_other_trees(files: CompositeFiles, tmp_path: Path) -> None:
    assert files.roots == (str(tmp_path / "work"),)
    assert CompositeFiles(MemoryFiles(), {"x": MemoryFiles()}).roots == ()
    assert CompositeFiles(files, {"x": MemoryFiles()}).roots == files.roots
    places = ("", "src", "src/a.py", "memories", "memories/n.md", "kept", "kept/here", "kept/other", "memoriesX")
    assert [files.is_local(path) for path in places] == [False, True, True, False, False, False, False, True, True]
    both = CompositeFiles(files, {"x": MemoryFiles()})
    assert [both.is_local(path) for path in ("src", "memories", "x")] == [True, False, False]


async def test_commands_start_in_the_folder_of_the_default_tree_and_write_to_no_other(
    files: CompositeFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for lent in (files, WorkspaceFiles(tmp_path / "work"), DiskFiles(tmp_path / "work")):
        where, outside, guarded = await run_tools(
            call("Bash", command="pwd"),
            call("Bash", command=f"touch {elsewhere}/x"),
            call("Bash", command="d=.gi; mkdir -p ${d}t/hooks"),
            workspace=Workspace(files=lent),
            commands=Commands(sandbox="on"),
            permissions=vaka.Permissions(allow=("Bash",)),
        )
        assert where.text == f"{tmp_path / 'work'}\n[exit code 0]"
        assert outside.failed
        assert guarded.failed
        assert list(elsewhere.iterdir()) == []
        assert not (tmp_path / "work" / ".git").exists()


class WatchedFiles(MemoryFiles):
    """Files that record which folders are listed and which files are read; ``failing`` ones cannot be used."""

    def __init__(self, files: dict[str, bytes], *, failing: bool = False) -> None:
        super().__init__(files)
        self.used, self.failing = list[str](), failing

    async def scan(self, folders: Any, *, details: bool, links: bool) -> Any:
        self._record(*folders)
        return await super().scan(folders, details=details, links=links)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        self._record(path)
        return await super().read(path, start=start, size=size)

    def _record(self, *paths: str) -> None:
        if self.failing:
            raise FileError("the disk failed")
        self.used += paths


async def test_a_search_inside_of_a_prefix_uses_only_its_tree() -> None:
    trees = {name: WatchedFiles({"n.md": b"about os\n"}) for name in ("default", "memories", "memoriesX")}
    files = CompositeFiles(trees.pop("default"), trees)
    made = [
        call("Grep", pattern="os", path="memories"),
        call("Glob", pattern="*.md", path="/memories"),
        call("Glob", pattern="/memories/**/*.md"),
        call("Read", file_path="/memories/n.md"),
    ]
    results = await run_tools(*made, workspace=Workspace(files=files))
    assert [result.failed for result in results] == [False] * 4
    assert all("memories/n.md" in result.text for result in results[:3])
    assert "about os" in results[3].text
    assert trees["memories"].used
    assert trees["memoriesX"].used == []


async def test_the_limit_of_a_search_counts_the_matches_of_all_trees() -> None:
    def tree() -> MemoryFiles:
        return MemoryFiles({"n.md": b"os\nos\n"})

    shared = tree()
    files = CompositeFiles(tree(), {"a": shared, "b/c": shared})
    grep, limited, glob = await run_tools(
        call("Grep", pattern="os", output_mode="count"),
        call("Grep", pattern="os", output_mode="content", head_limit=3),
        call("Glob", pattern="**/*.md"),
        workspace=Workspace(files=files),
    )
    assert grep.text == "a/n.md: 2\nb/c/n.md: 2\nn.md: 2"  # the same tree under two prefixes
    assert limited.text.splitlines()[:3] == ["a/n.md:1: os", "a/n.md:2: os", "b/c/n.md:1: os"]
    assert value_of(limited)["truncated"] is True
    assert sorted(glob.text.splitlines()) == ["a/n.md", "b/c/n.md", "n.md"]


async def test_an_error_of_one_tree_is_part_of_the_result_of_a_search() -> None:
    files = CompositeFiles(
        MemoryFiles({"n.md": b"os\n"}),
        {"broken": WatchedFiles({"x.md": b"os\n"}, failing=True), "whole": MemoryFiles()},
    )
    for result in await run_tools(
        call("Grep", pattern="os"), call("Glob", pattern="**/*.md"), workspace=Workspace(files=files)
    ):
        assert "the disk failed" in result.text
