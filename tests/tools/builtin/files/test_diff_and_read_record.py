"""The diff of a change, and the session's records of files it has read."""

import os
import time
from pathlib import Path

import pytest

from tests.tools.builtin.harness import ToolHarness
from tests.tools.context import Values
from vaka.core.ports.files import FileInfo
from vaka.tools.builtin.files import file_content
from vaka.tools.builtin.files.edit import MAX_DIFF_LINES, make_diff


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("", "", ""),
        ("a\n", "a\n", ""),
        ("", "a\n", "@@ -1,0 +1,1 @@\n+a"),
        ("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\nE\nf\n", "@@ -2,5 +2,5 @@\n b\n c\n d\n-e\n+E\n f"),
        ("a\r\n", "a\n", "(only how lines end, or blanks at the end of the file)"),
        ("x" * 300, "y", f"@@ -1,1 +1,1 @@\n-{'x' * 200}…\n+y"),
    ],
)
def test_changed_lines_are_shown_with_context_lines(old: str, new: str, shown: str) -> None:
    assert make_diff(old, new) == shown


def test_distant_changes_are_separate_hunks() -> None:
    lines = [str(number) for number in range(40)]
    changed = ["first", *lines[1:39], "last"]
    assert make_diff("\n".join(lines), "\n".join(changed)) == (
        "@@ -1,4 +1,4 @@\n-0\n+first\n 1\n 2\n 3\n@@ -37,4 +37,4 @@\n 36\n 37\n 38\n-39\n+last"
    )


def test_the_diff_of_a_large_change_is_cut_and_fast() -> None:
    old, new = "\n".join(["same"] * 50_000), "\n".join(["other"] * 60_000)
    shown = make_diff(old, new).split("\n")
    assert shown[0] == "@@ -1,50000 +1,60000 @@"
    assert shown[1:] == ["-same"] * (MAX_DIFF_LINES - 1) + ["… 60001 more lines of changes"]


class StateContext:
    """A context with only the state of a session."""

    def __init__(self) -> None:
        self.state = Values()


def test_read_records_handle_names_that_are_not_utf8_and_foreign_state() -> None:
    context = StateContext()
    name = os.fsdecode(b"caf\xe9")
    file_content.save_record(context, FileInfo(path=name, kind="file", size=3, modified=time.time_ns()), None)  # type: ignore[arg-type]  # all it needs
    note = file_content.find_record(context, name)  # type: ignore[arg-type]  # all it needs
    assert note is not None
    assert note.size == 3
    (key,) = context.state
    context.state[key] = {"something": "else"}
    assert file_content.find_record(context, name) is None  # type: ignore[arg-type]  # all it needs


async def test_the_oldest_read_records_are_dropped_when_there_are_too_many(tmp_path: Path) -> None:
    context = StateContext()
    paths = [f"file{number}" for number in range(file_content.BUCKETS * file_content.RECORDS_PER_BUCKET * 2)]
    for path in paths:
        file_content.save_record(context, FileInfo(path=path, kind="file"), None)  # type: ignore[arg-type]  # all it needs
    known = [path for path in paths if file_content.find_record(context, path)]  # type: ignore[arg-type]  # all it needs
    assert len(known) <= file_content.BUCKETS * file_content.RECORDS_PER_BUCKET
    assert paths[-1] in known
    bench = ToolHarness(tmp_path)
    bench.write("a.txt", "one")
    assert "has not been read" in (await bench.call("Write", file_path="a.txt", content="two")).text
