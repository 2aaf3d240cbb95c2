"""Write, Edit and MultiEdit: only files that were read are changed, atomically, with mode and encoding preserved."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import read_log
from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.types.control import StateChanged
from vaka.tools.builtin.files import file_content
from vaka.tools.builtin.files.file_content import MAX_WHOLE_BYTES


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


async def test_a_passage_is_replaced_and_the_diff_shown(bench: ToolHarness) -> None:
    target = bench.write("a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    _, edited = await bench.run_calls(
        ("Read", {"file_path": "a.py"}),
        ("Edit", {"file_path": "a.py", "old_string": "    return 2", "new_string": "    return 3\n"}),
    )
    assert target.read_text() == "def f():\n    return 1\n\n\ndef g():\n    return 3\n\n"
    assert edited.text == ("1 replacement in a.py\n@@ -3,4 +3,5 @@\n \n \n def g():\n-    return 2\n+    return 3\n+")
    data = value_of(edited)
    assert (data["matches"], data["replaced"], data["replace_all"], data["path"]) == (1, 1, False, "a.py")


async def test_a_file_must_have_been_read_and_be_unchanged(bench: ToolHarness) -> None:
    target = bench.write("a.txt", "one two")
    change: dict[str, Any] = {"file_path": "a.txt", "old_string": "one", "new_string": "1"}
    (unread,) = await bench.run_calls(("Edit", change))
    (overwritten,) = await bench.run_calls(("Write", {"file_path": "a.txt", "content": "new"}))
    assert unread.text == ("FileChanged: 'a.txt' has not been read in this session; Read it first, then change it")
    assert overwritten.text == unread.text
    await bench.call("Read", file_path="a.txt")
    target.write_text("one two three")
    (stale,) = await bench.run_calls(("Edit", change))
    assert stale.text == "FileChanged: 'a.txt' has changed since it was read; Read it again, then change it"
    await bench.call("Read", file_path="a.txt")
    os.utime(target, ns=(1, 1))  # only the time changes, not the content
    assert not (await bench.call("Edit", **change)).failed
    assert target.read_text() == "1 two three"


async def test_one_change_may_follow_another_without_reading_again(bench: ToolHarness) -> None:
    result, edited, twice = await bench.run_calls(
        ("Write", {"file_path": "new/deep/a.txt", "content": "one\n"}),
        ("Edit", {"file_path": "new/deep/a.txt", "old_string": "one", "new_string": "two"}),
        ("Write", {"file_path": str(bench.root / "new/deep/a.txt"), "content": "three\n"}),
    )
    assert result.text == "wrote 4 bytes to new/deep/a.txt (created)"
    assert not edited.failed
    assert twice.text == "wrote 6 bytes to new/deep/a.txt (replaced)\n@@ -1,1 +1,1 @@\n-two\n+three"
    assert (bench.root / "new/deep/a.txt").read_text() == "three\n"


async def test_a_rewind_restores_the_read_records(bench: ToolHarness) -> None:
    bench.write("a.txt", "one")
    await bench.call("Read", file_path="a.txt")
    async with bench.runtime() as rt:
        await rt.rewind("s", "1")
    bench.script.clear()
    lost = await bench.call("Edit", file_path="a.txt", old_string="one", new_string="two")
    assert "has not been read in this session" in lost.text


async def test_a_passage_must_exist_and_be_unique(bench: ToolHarness) -> None:
    target = bench.write("a.txt", "aaa\n  if x:\n    y\nb b b\n")

    async def edit(old: str, new: str = "z", every: bool = False) -> str:
        arguments = {"file_path": "a.txt", "old_string": old, "new_string": new, "replace_all": every}
        return (await bench.run_calls(("Read", {"file_path": "a.txt"}), ("Edit", arguments)))[1].text

    assert "there 3 times (lines 4, 4, 4) and must be unique" in await edit("b")
    assert "there 2 times (lines 1, 1)" in await edit("aa")  # overlapping occurrences count
    assert "not in the file" in await edit("c")
    assert "not in the file" in await edit("c", every=True)
    assert "lines from 2 on differ from it only in blanks" in await edit("if x:\n\ty")
    assert "begins with line numbers" in await edit("     2\t  if x:\n     3\t    y")
    assert "old_string is empty" in await edit("")
    assert "are the same" in await edit("b", "b")
    assert target.read_text() == "aaa\n  if x:\n    y\nb b b\n"
    assert (await edit("b", "c", every=True)).startswith("3 replacements in a.txt")
    assert target.read_text() == "aaa\n  if x:\n    y\nc c c\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\nthree\r\n", b"one\r\n2\r\nII\r\nthree\r\n"),
        (b"one\ntwo\r\nthree\n", b"one\n2\nII\r\nthree\n"),  # mixed line ends: untouched lines stay
        (b"one\rtwo\rthree\r", b"one\r2\rII\rthree\r"),
        (b"\xef\xbb\xbfone\ntwo\nthree", b"\xef\xbb\xbfone\n2\nII\nthree"),
        ("one\r\ntwo\r\nthree".encode("utf-16"), "one\r\n2\r\nII\r\nthree".encode("utf-16")),
        (b"\xe9one\ntwo\nthree", b"\xe9one\n2\nII\nthree"),
        (b"one\ntwo", b"one\n2\nII"),
    ],
)
async def test_line_ends_byte_order_marks_and_encodings_are_preserved(
    bench: ToolHarness, before: bytes, after: bytes
) -> None:
    target = bench.write("a.txt", before)
    _, edited = await bench.run_calls(
        ("Read", {"file_path": "a.txt"}),
        ("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2\nII"}),
    )
    assert not edited.failed, edited.text
    assert target.read_bytes() == after


async def test_a_passage_of_several_lines_matches_any_line_ends(bench: ToolHarness) -> None:
    target = bench.write("a.txt", b"one\r\ntwo\r\nthree\r\n")
    await bench.run_calls(
        ("Read", {"file_path": "a.txt"}),
        ("Edit", {"file_path": "a.txt", "old_string": "one\ntwo\n", "new_string": "1\n"}),
    )
    assert target.read_bytes() == b"1\r\nthree\r\n"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n"),
        (b"a\r\nb\r\n", "c\r\nd\n", b"c\r\nd\n"),  # the content has line ends of its own
        (b"\xef\xbb\xbfa", "b", b"\xef\xbb\xbfb"),
        (b"\xef\xbb\xbfa", "\ufeffb", b"\xef\xbb\xbfb"),
        ("ä".encode("utf-16"), "ö", "ö".encode("utf-16")),
        (b"\xe9", "\u2192", "\u2192".encode()),
        (b"a\n", "b\n", b"b\n"),
    ],
)
async def test_write_preserves_encoding_and_line_ends(
    bench: ToolHarness, before: bytes, content: str, after: bytes
) -> None:
    target = bench.write("a.txt", before)
    await bench.run_calls(("Read", {"file_path": "a.txt"}), ("Write", {"file_path": "a.txt", "content": content}))
    assert target.read_bytes() == after


async def test_a_character_that_the_encoding_lacks_is_an_error(bench: ToolHarness) -> None:
    target = bench.write("a.txt", b"caf\xe9 one")
    _, edited = await bench.run_calls(
        ("Read", {"file_path": "a.txt"}),
        ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "→"}),
    )
    assert edited.text == "FileError: '→' cannot be written in cp1252, which the file is in"
    assert target.read_bytes() == b"caf\xe9 one"


async def test_the_mode_is_preserved_and_no_temporary_file_remains(bench: ToolHarness) -> None:
    target = bench.write("run.sh", "echo one\n")
    target.chmod(0o750)
    await bench.run_calls(
        ("Read", {"file_path": "run.sh"}),
        ("Edit", {"file_path": "run.sh", "old_string": "one", "new_string": "two"}),
    )
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert [path.name for path in bench.root.iterdir()] == ["run.sh"]


async def test_multi_edit_applies_all_edits_or_none(bench: ToolHarness) -> None:
    target = bench.write("a.txt", "one two three two")
    good = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "1 two", "new_string": "x"},
        {"old_string": "two", "new_string": "2", "replace_all": True},
    ]
    _, failed, empty, result = await bench.run_calls(
        ("Read", {"file_path": "a.txt"}),
        ("MultiEdit", {"file_path": "a.txt", "edits": [*good, {"old_string": "one", "new_string": "y"}]}),
        ("MultiEdit", {"file_path": "a.txt", "edits": []}),
        ("MultiEdit", {"file_path": "a.txt", "edits": good}),
    )
    assert failed.text.startswith("InvalidInput: edit 4 of 4: old_string is not in the file")
    assert failed.text.endswith("; nothing was changed")
    assert empty.reason == "invalid_arguments"
    assert value_of(result)["edits"] == [1, 1, 1]
    assert target.read_text() == "x three 2"


async def test_a_file_that_cannot_be_edited_is_a_clear_error(bench: ToolHarness) -> None:
    bench.write("a.bin", b"\0")
    os.truncate(bench.write("huge.txt", b"text\n"), MAX_WHOLE_BYTES + 1)
    bench.write("folder/a.txt", "x")
    arguments = {"old_string": "a", "new_string": "b"}
    binary, huge, folder, missing, outside = await bench.run_calls(
        ("Edit", {"file_path": "a.bin", **arguments}),
        ("Edit", {"file_path": "huge.txt", **arguments}),
        ("Edit", {"file_path": "folder", **arguments}),
        ("Edit", {"file_path": "folder/b.txt", **arguments}),
        ("Write", {"file_path": "../out.txt", "content": "x"}),
    )
    assert "is binary" in binary.text
    assert f"files up to {MAX_WHOLE_BYTES} bytes can be edited" in huge.text
    assert "folder" in folder.text
    assert "did you mean 'folder/a.txt'" in missing.text
    assert outside.text.startswith("FileRefused")
    assert not (bench.root.parent / "out.txt").exists()


async def test_a_binary_file_is_not_replaced_and_the_error_does_not_suggest_reading_it(bench: ToolHarness) -> None:
    bench.write("a.bin", b"\0\1")
    bench.write("b.gif", b"GIF89a\1\0\1\0\0\0\0;")
    binary, picture = await bench.run_calls(
        ("Write", {"file_path": "a.bin", "content": "x"}), ("Write", {"file_path": "b.gif", "content": "x"})
    )
    assert binary.text == "FileError: 'a.bin' is binary: Read does not show it, so it is not replaced; remove it first"
    assert "Read it first" in picture.text
    assert (bench.root / "a.bin").read_bytes() == b"\0\1"


async def test_a_link_is_read_through_and_not_written_through(bench: ToolHarness) -> None:
    target = bench.write("real.txt", "one")
    (bench.root / "link.txt").symlink_to("real.txt")
    read, written = await bench.run_calls(
        ("Read", {"file_path": "link.txt"}), ("Write", {"file_path": "link.txt", "content": "two"})
    )
    assert read.text == "     1\tone"
    assert written.text.startswith("FileRefused")
    assert target.read_text() == "one"


async def test_a_huge_file_that_was_read_may_be_replaced(bench: ToolHarness) -> None:
    target = bench.write("huge.log", b"line\n" * MAX_WHOLE_BYTES)
    assert (await bench.call("Write", file_path="huge.log", content="")).failed
    await bench.call("Read", file_path="huge.log", limit=1)
    with target.open("ab") as end:
        end.write(b"more\n")
    assert "has changed since" in (await bench.call("Write", file_path="huge.log", content="x")).text
    await bench.call("Read", file_path="huge.log", limit=1)
    assert not (await bench.call("Write", file_path="huge.log", content="")).failed
    assert target.read_bytes() == b""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"old_string": "two", "new_string": "2"}),
        ("Edit", {"old_string": " two", "new_string": ""}),
        ("Edit", {"old_string": "o", "new_string": "0", "replace_all": True}),
        (
            "MultiEdit",
            {"edits": [{"old_string": "one", "new_string": "1"}, {"old_string": "1 two", "new_string": "x"}]},
        ),
    ],
)
async def test_a_repeated_edit_after_a_crash_reports_that_it_is_applied(
    bench: ToolHarness, tool: str, arguments: dict[str, Any]
) -> None:
    target = bench.write("a.txt", "one two three\r\n")
    await bench.run_calls(("Read", {"file_path": "a.txt"}), (tool, {"file_path": "a.txt", **arguments}))
    after = target.read_bytes()
    again = await bench.rerun_after_crash(2)
    assert again.text == "a.txt already has this change: it was made before vaka was stopped"
    assert (again.failed, target.read_bytes()) == (False, after)


async def test_an_edit_not_applied_before_a_crash_is_applied_after_it(bench: ToolHarness) -> None:
    target = bench.write("a.txt", "one two")
    await bench.run_calls(
        ("Read", {"file_path": "a.txt"}), ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "1"})
    )
    target.write_text("one two")
    again = await bench.rerun_after_crash(2)
    assert (again.failed, target.read_text()) == (False, "1 two")


async def test_after_a_crash_a_file_changed_by_another_program_is_not_edited(bench: ToolHarness) -> None:
    target = bench.write("a.txt", "one two")
    await bench.run_calls(
        ("Read", {"file_path": "a.txt"}), ("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "1"})
    )
    target.write_text("1 two, and more")
    again = await bench.rerun_after_crash(2)
    assert again.text.endswith("The change of this very call may be in it, from before vaka was stopped")
    assert (again.failed, target.read_text()) == (True, "1 two, and more")


async def test_a_repeated_write_after_a_crash_reports_its_state(bench: ToolHarness) -> None:
    target = bench.write("a.txt", b"old\r\n")
    await bench.run_calls(
        ("Read", {"file_path": "a.txt"}),
        ("Write", {"file_path": "a.txt", "content": "new\n"}),
        ("Write", {"file_path": "b.txt", "content": "b"}),
    )
    assert (await bench.rerun_after_crash(3)).text == "b.txt already has exactly this content (1 bytes)"
    assert (await bench.rerun_after_crash(2)).text == "a.txt already has exactly this content (5 bytes)"
    assert target.read_bytes() == b"new\r\n"
    target.write_text("other")
    assert "may be in it" in (await bench.rerun_after_crash(2)).text
    assert target.read_text() == "other"


async def test_read_records_stay_bounded_for_any_number_of_files(bench: ToolHarness) -> None:
    for number in range(400):
        bench.write(f"f{number}.txt", str(number))
    await bench.run_calls(*[("Read", {"file_path": f"f{number}.txt"}) for number in range(400)], at_once=True)
    edits = [("Edit", {"file_path": f"f{n}.txt", "old_string": str(n), "new_string": "x"}) for n in range(400)]
    results = await bench.run_calls(*edits, at_once=True)
    assert sum(result.failed for result in results) == 0
    notes = [event.data for event in await read_log(bench.store, "s") if isinstance(event.data, StateChanged)]
    assert len(notes) == 800
    assert len({note.key for note in notes}) <= file_content.BUCKETS
    assert max(len(note.value) for note in notes) <= file_content.RECORDS_PER_BUCKET


async def test_reading_an_unchanged_file_again_records_nothing(bench: ToolHarness) -> None:
    bench.write("a.txt", "one")
    await bench.run_calls(*[("Read", {"file_path": "a.txt", "limit": limit}) for limit in (1, 2, 3)])
    assert len([event for event in await read_log(bench.store, "s") if isinstance(event.data, StateChanged)]) == 1


async def test_concurrent_edits_of_one_step_are_serialized(bench: ToolHarness) -> None:
    file = bench.write("a.txt", "one\ntwo\nthree\n")
    await bench.call("Read", file_path="a.txt")
    wanted = [("Edit", {"file_path": "a.txt", "old_string": old, "new_string": old.upper()}) for old in ("one", "two")]
    several = ("MultiEdit", {"file_path": "a.txt", "edits": [{"old_string": "three", "new_string": "THREE"}]})
    results = await bench.run_calls(*wanted, several, at_once=True)
    assert [result.failed for result in results] == [False, False, False]
    assert file.read_text() == "ONE\nTWO\nTHREE\n"


async def test_a_large_file_is_edited_in_a_thread(bench: ToolHarness) -> None:
    file = bench.write("a.txt", "a" * 300_000 + "b")
    await bench.call("Read", file_path="a.txt")
    refused = await bench.call("Edit", file_path="a.txt", old_string="aaa", new_string="b")
    assert refused.text.startswith("InvalidInput: old_string is there 299998 times")
    edits = [{"old_string": "ab", "new_string": "c"}, {"old_string": "d", "new_string": "e"}]
    assert "edit 2 of 2" in (await bench.call("MultiEdit", file_path="a.txt", edits=edits)).text
    assert not (await bench.call("MultiEdit", file_path="a.txt", edits=edits[:1])).failed
    assert file.read_text() == "a" * 299_999 + "c"
