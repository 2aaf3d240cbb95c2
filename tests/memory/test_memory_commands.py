"""The commands of the tool ``memory``: the texts are those of Anthropic's memory tool."""

from typing import Any

import pytest

from tests.memory.test_text_memory import ESCAPES, open_memory, run
from vaka.core.ports.files import FileInfo
from vaka.core.types.ids import Digest
from vaka.files.memory import MemoryFiles
from vaka.memory import TextMemory
from vaka.memory.text_commands import MAX_LINES
from vaka.stores.memory import MemoryStore
from vaka.testing.models import call

LISTING = "Here're the files and directories up to 2 levels deep in {}, excluding hidden items and node_modules:"
BAD_RANGE = (
    "Error: Invalid `view_range` parameter: {}. It should be the first and the last line, such as [1, 20], or [20, -1] "
    "for the rest of the file"
)
BAD_LINE = "Error: Invalid `insert_line` parameter: {}. It should be within the range of lines of the file: [0, 2]"
NOTES = "/memories/notes.md"


async def run_commands(*commands: dict[str, Any], files: MemoryFiles | None = None) -> list[tuple[bool, str]]:
    """Run commands one after the other; return for each whether it succeeded, and its text."""
    memory = TextMemory(files or MemoryFiles())
    results, _ = await run(*(call("memory", **given) for given in commands), store=MemoryStore(), memory=memory)
    return [(not result.failed, result.text) for result in results]


def command(name: str, path: str = NOTES, **more: Any) -> dict[str, Any]:
    return {"command": name, "path": path, **more}


async def test_a_file_is_created_viewed_and_listed() -> None:
    results = await run_commands(
        command("view", "/memories"),
        command("create", file_text="Hello World\nline two\n"),
        command("view"),
        command("view", view_range=[2, 2]),
        command("view", view_range=[2, -1]),
        command("view", view_range=[9, 12]),
        command("create", "/memories/a/b/deep.md", file_text="x" * 5632),
        command("create", "/memories/.hidden", file_text="x"),
        command("create", "/memories/node_modules/m", file_text="x"),
        command("create", "/memories/empty", file_text=""),
        command("view", "/memories/"),
        command("view", "/memories/a"),
        command("view", "/memories/empty"),
        command("create", file_text="again"),
        command("create", "/memories/a", file_text="a folder"),
        command("view", "/memories/missing"),
        command("view", view_range=[0, 1]),
        command("view", view_range=[1]),
    )
    listed = ["5.5K\t/memories", "5.5K\t/memories/a", "5.5K\t/memories/a/b", "0B\t/memories/empty", f"21B\t{NOTES}"]
    content = f"Here's the content of {NOTES} with line numbers:"
    assert results == [
        (True, f"{LISTING.format('/memories')}\n0B\t/memories"),
        (True, f"File created successfully at: {NOTES}"),
        (True, f"{content}\n     1\tHello World\n     2\tline two"),
        (True, f"{content}\n     2\tline two"),
        (True, f"{content}\n     2\tline two"),
        (True, f"{content}\n"),
        (True, "File created successfully at: /memories/a/b/deep.md"),
        (True, "File created successfully at: /memories/.hidden"),
        (True, "File created successfully at: /memories/node_modules/m"),
        (True, "File created successfully at: /memories/empty"),
        (True, "\n".join([LISTING.format("/memories/"), *listed])),
        (True, f"{LISTING.format('/memories/a')}\n5.5K\t/memories/a\n5.5K\t/memories/a/b\n5.5K\t/memories/a/b/deep.md"),
        (True, "Here's the content of /memories/empty with line numbers:\n"),
        (False, f"Error: File {NOTES} already exists"),
        (False, "Error: File /memories/a already exists"),
        (False, "The path /memories/missing does not exist. Please provide a valid path."),
        (False, BAD_RANGE.format("[0, 1]")),
        (False, BAD_RANGE.format("[1]")),
    ]


async def test_a_text_is_replaced_if_it_occurs_once() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 13))
    results = await run_commands(
        command("create", file_text=text),
        command("str_replace", old_str="line 6", new_str="LINE 6\nmore"),
        command("str_replace", old_str="line 99", new_str="x"),
        command("str_replace", old_str="line 1", new_str="x"),
        command("str_replace", old_str="", new_str="x"),
        command("str_replace", old_str="line 12\n"),
        command("str_replace", "/memories/none", old_str="a", new_str="b"),
        command("create", "/memories/d/f", file_text="x"),
        command("str_replace", "/memories/d", old_str="a", new_str="b"),
        command("view", view_range=[12, -1]),
    )
    edited = "\n".join(
        f"{number:6}\t{line}"
        for number, line in enumerate(
            ["line 2", "line 3", "line 4", "line 5", "LINE 6", "more", "line 7", "line 8", "line 9", "line 10"], 2
        )
    )
    repeated = "No replacement was performed. Multiple occurrences of old_str `line 1` in lines: 1, 11, 12, 13. "
    repeated += "Please ensure it is unique"
    missing = "No replacement was performed, old_str `{}` did not appear verbatim in /memories/notes.md."
    assert results[1:] == [
        (True, f"The memory file has been edited.\n{edited}"),
        (False, missing.format("line 99")),
        (False, repeated),
        (False, missing.format("")),
        (
            True,
            "The memory file has been edited.\n"
            + "\n".join(f"{number:6}\tline {number - 1}" for number in range(9, 13)),
        ),
        (False, "Error: The path /memories/none does not exist. Please provide a valid path."),
        (True, "File created successfully at: /memories/d/f"),
        (False, "Error: The path /memories/d does not exist. Please provide a valid path."),
        (True, f"Here's the content of {NOTES} with line numbers:\n    12\tline 11"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "inserted", "expected"),
    [
        ("a\nb\n", 0, "x\n", "x\na\nb\n"),
        ("a\nb\n", 1, "x", "a\nx\nb\n"),
        ("a\nb\n", 2, "x\ny\n", "a\nb\nx\ny\n"),
        ("a\nb", 2, "x", "a\nb\nx"),
        ("a\nb", 2, "x\n", "a\nb\nx\n"),
        ("", 0, "x", "x\n"),
        ("a", 1, "", "a\n"),
    ],
)
async def test_a_text_is_inserted_after_a_line(text: str, line: int, inserted: str, expected: str) -> None:
    files = MemoryFiles()
    _, result = await run_commands(
        command("create", file_text=text), command("insert", insert_line=line, insert_text=inserted), files=files
    )
    assert result == (True, f"The file {NOTES} has been edited.")
    assert await open_memory(files).read_file("notes.md") == expected


async def test_a_line_outside_of_the_file_and_a_missing_file_are_errors() -> None:
    results = await run_commands(
        command("create", file_text="a\nb\n"),
        command("insert", insert_line=3, insert_text="x"),
        command("insert", insert_line=-1, insert_text="x"),
        command("insert", "/memories/no", insert_line=0, insert_text="x"),
        command("insert", "/memories", insert_line=0, insert_text="x"),
        command("view"),
    )
    assert results[1:] == [
        (False, BAD_LINE.format(3)),
        (False, BAD_LINE.format(-1)),
        (False, "Error: The path /memories/no does not exist"),
        (False, "Error: The path /memories does not exist"),
        (True, f"Here's the content of {NOTES} with line numbers:\n     1\ta\n     2\tb"),
    ]


async def test_files_and_folders_are_deleted_and_renamed() -> None:
    def rename(old: str, new: str) -> dict[str, Any]:
        return {"command": "rename", "old_path": old, "new_path": new}

    results = await run_commands(
        command("create", "/memories/a/x", file_text="1"),
        command("create", "/memories/a/b/y", file_text="2"),
        command("create", file_text="3"),
        rename("/memories/a", "/memories/c/d"),
        rename(NOTES, "/memories/c/d/x"),
        rename("/memories/no", "/memories/new"),
        rename("/memories/c", "/memories/c/e"),
        rename("/memories", "/memories/e"),
        rename(NOTES, "/memories/n"),
        command("delete", "/memories/c/d/b"),
        command("delete", "/memories/no"),
        command("delete", "/memories"),
        command("view", "/memories"),
        command("delete", "/memories/n"),
    )
    assert results[3:] == [
        (True, "Successfully renamed /memories/a to /memories/c/d"),
        (False, "Error: The destination /memories/c/d/x already exists"),
        (False, "Error: The path /memories/no does not exist"),
        (False, "Error: /memories/c cannot be moved to /memories/c/e, which is in it"),
        (False, "Error: /memories cannot be moved to /memories/e, which is in it"),
        (True, f"Successfully renamed {NOTES} to /memories/n"),
        (True, "Successfully deleted /memories/c/d/b"),
        (False, "Error: The path /memories/no does not exist"),
        (False, "Error: /memories is the memory itself and cannot be deleted; delete what is in it"),
        (True, f"{LISTING.format('/memories')}\n2B\t/memories\n1B\t/memories/c\n1B\t/memories/c/d\n1B\t/memories/n"),
        (True, "Successfully deleted /memories/n"),
    ]


async def test_paths_outside_of_the_memory_are_refused_by_every_command() -> None:
    files = MemoryFiles({"users/lee/secret": b"of another user", "secret": b"outside"})
    commands = [
        given
        for path in (
            *(path for path in ESCAPES if "\ud800" not in path),
            "/memories/../users/lee/secret",
            "/memories/../../users/lee/secret",
        )
        for given in (
            command("view", path),
            command("create", path, file_text="x"),
            command("delete", path),
            command("insert", path, insert_line=0, insert_text="x"),
            command("str_replace", path, old_str="o", new_str="x"),
            {"command": "rename", "old_path": path, "new_path": "/memories/x"},
            {"command": "rename", "old_path": NOTES, "new_path": path},
        )
    ]
    for start in range(0, len(commands), 40):
        results = await run_commands(*commands[start : start + 40], files=files)
        assert [text for succeeded, text in results if succeeded] == []
    assert (await files.read("secret")).data == b"outside"
    assert (await files.read("users/lee/secret")).data == b"of another user"
    assert [info.path for info in await files.entries("users")] == ["users/lee"]


async def test_missing_arguments_and_files_with_too_many_lines_are_errors() -> None:
    files = MemoryFiles({"users/kim/long": b"\n" * (MAX_LINES + 1), "users/kim/picture": b"\xff\x00"})
    results = await run_commands(
        {"command": "create", "path": NOTES},
        {"command": "rename"},
        command("fly"),
        command("view", "/memories/long"),
        command("view", "/memories/picture"),
        files=files,
    )
    assert [succeeded for succeeded, _ in results] == [False] * 5
    texts = [text for _, text in results]
    assert texts[:2] == [
        "Error: The command create needs file_text.",
        "Error: The command rename needs old_path and new_path.",
    ]
    assert "fly" in texts[2]
    assert texts[3:] == [
        "File /memories/long exceeds maximum line limit of 999,999 lines.",
        "Error: /memories/picture is not a text in UTF-8",
    ]


class BusyFiles(MemoryFiles):
    """Files that another writer changes while a folder is copied."""

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        info = await super().write(path, data, known=known, new=new)
        if path == "users/kim/b/note.md" and new:
            await super().write("users/kim/a/note.md", b"changed")
            await super().write("users/kim/a/later.md", b"later")
        return info


async def test_a_rename_loses_nothing_that_another_writer_writes_meanwhile() -> None:
    files = BusyFiles()
    await files.write("users/kim/a/note.md", b"first")
    ((done, _),) = await run_commands(
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"}, files=files
    )
    assert done
    assert (await files.read("users/kim/b/note.md")).data == b"changed"
    assert [info.path for info in await files.entries("users/kim/a")] == ["users/kim/a/later.md"]
