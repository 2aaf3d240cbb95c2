"""A walk yields the same paths in the same order in every kind of tree."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from vaka.core.ports.files import Files, WalkableFiles
from vaka.core.types.errors import FileError, FileMissing
from vaka.files.composite import CompositeFiles
from vaka.files.disk import DiskFiles
from vaka.files.kv import KeyValueFiles
from vaka.files.memory import MemoryFiles
from vaka.files.workspace import WorkspaceFiles
from vaka.stores.memory import MemoryStore

NAMES = ("a", "b", "B", ".c", "d.log", "é", "build", ".git")
RULES = ("*.log\n", "/a/\n", "build\n", "!d.log\n", "a/*\n!a/b\n", "# nothing\n", "**/b\n", "b/\n", "\\.c\n", "é\n")

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
rules = st.lists(st.sampled_from(RULES), max_size=3).map("".join)
trees = st.dictionaries(
    st.one_of(paths, st.lists(st.sampled_from(NAMES), max_size=2).map(lambda names: "/".join([*names, ".gitignore"]))),
    rules,
    max_size=12,
)


def drop_conflicts(tree: dict[str, str]) -> dict[str, str]:
    """Leave out files whose path is a folder of another file."""
    return {path: text for path, text in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}


def make_trees(folder: Path) -> dict[str, Files]:
    """Return an empty tree of each kind."""
    (folder / "disk").mkdir()
    (folder / "work").mkdir()
    return {
        "memory": MemoryFiles(),
        "disk": DiskFiles(folder / "disk"),
        "workspace": WorkspaceFiles(folder / "work"),
        "kv": KeyValueFiles(MemoryStore().values),
        "composite": CompositeFiles(MemoryFiles(), {"a": MemoryFiles()}),
    }


async def collect_walk(files: Files, start: str, *, ignore: bool, hidden: bool) -> Sequence[tuple[str, str, int]] | str:
    assert isinstance(files, WalkableFiles)
    try:
        found = [info async for info in files.walk(start, ignore=ignore, hidden=hidden, details=True)]
    except FileMissing:
        return "missing"
    except FileError as error:
        return type(error).__name__
    return [(info.path, info.kind, info.size if info.kind == "file" else 0) for info in found]


@given(trees, st.sampled_from(("", "a", "a/b", "build", "nowhere")), st.booleans(), st.booleans())
@settings(max_examples=20)
async def test_every_kind_of_tree_yields_the_same_walk(
    tree: dict[str, str], start: str, ignore: bool, hidden: bool
) -> None:
    tree = {path: text for path, text in drop_conflicts(tree).items() if path != "a"}
    with tempfile.TemporaryDirectory() as folder:
        entries_by_tree: dict[str, Sequence[tuple[str, str, int]] | str] = {}
        for name, files in make_trees(Path(folder)).items():
            await files.write("a/always", b"here")  # a folder in which a tree is mounted always exists
            for path, text in tree.items():
                await files.write(path, text.encode())
            entries_by_tree[name] = await collect_walk(files, start, ignore=ignore, hidden=hidden)
        assert len({str(found) for found in entries_by_tree.values()}) == 1, entries_by_tree
