"""Read: numbered lines by range, pictures, documents and notebooks."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.types.message import Document, Image, Text, ToolMessage
from vaka.tools.builtin.files.file_content import MAX_IMAGE_BYTES, MAX_WHOLE_BYTES

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


async def test_lines_are_numbered_and_the_range_is_in_the_data(bench: ToolHarness) -> None:
    bench.write("a.txt", "one\ntwo\nthree\nfour\n")
    read = await bench.call("Read", file_path="a.txt", offset=2, limit=2)
    assert read.text == "     2\ttwo\n     3\tthree\n[lines 2 to 3 of 4; go on with offset=4]"
    assert value_of(read) == {
        "path": "a.txt",
        "offset": 2,
        "limit": 2,
        "total_lines": 4,
        "returned_lines": 2,
        "line_truncations": 0,
        "truncated": True,
    }
    assert (await bench.call("Read", file_path=str(bench.root / "a.txt"))).text.endswith("     4\tfour")


@pytest.mark.parametrize(
    ("content", "text", "total"),
    [("", "[a.txt is empty]", 0), ("one\ntwo", "[line 9 is past the end: a.txt has 2 lines]", 2)],
)
async def test_a_range_past_the_end_is_a_success_with_a_note(
    bench: ToolHarness, content: str, text: str, total: int
) -> None:
    bench.write("a.txt", content)
    read = await bench.call("Read", file_path="a.txt", offset=9)
    assert (read.text, value_of(read)["total_lines"], value_of(read)["range_out_of_file"]) == (text, total, True)


async def test_long_lines_are_cut_between_characters_and_long_files_at_the_limits(bench: ToolHarness) -> None:
    bench.write("wide.txt", "ä🙂" * 3000 + "\nshort\n")
    wide = await bench.call("Read", file_path="wide.txt")
    assert wide.text == f"     1\t{'ä🙂' * 1000}… [4000 more characters in this line]\n     2\tshort"
    assert value_of(wide)["line_truncations"] == 1
    bench.write("long.txt", "x\n" * 5000)
    long = await bench.call("Read", file_path="long.txt")
    assert long.text.endswith("\n  2000\tx\n[lines 1 to 2000 of 5000; go on with offset=2001]")
    bench.write("much.txt", ("y" * 1000 + "\n") * 1000)
    much = value_of(await bench.call("Read", file_path="much.txt"))
    assert much["truncated"]
    assert much["returned_lines"] == 100


async def test_only_the_needed_pieces_of_a_huge_file_are_read(bench: ToolHarness) -> None:
    line = b"a line of sixty-three characters and its end, again and again\n"
    target = bench.write("huge.log", line * (MAX_WHOLE_BYTES // len(line) + 1000))
    with target.open("ab") as end:
        end.truncate(MAX_WHOLE_BYTES * 4096)  # sparse: the rest is never read
    first = await bench.call("Read", file_path="huge.log", limit=3)
    assert first.text.splitlines()[0] == "     1\t" + line.decode().rstrip()
    assert first.text.endswith("[lines 1 to 3; go on with offset=4]")
    assert value_of(first)["total_lines"] is None
    later = await bench.call("Read", file_path="huge.log", offset=200_001, limit=1)
    assert later.text.startswith("200001\ta line of")


async def test_the_last_lines_of_a_huge_file_are_read(bench: ToolHarness) -> None:
    bench.write("huge.log", b"x" * (MAX_WHOLE_BYTES + 5) + "\r\nzwölf\r\n".encode() + b"last")
    first = await bench.call("Read", file_path="huge.log", limit=1)
    assert "x… [over 63536 more characters in this line]" in first.text
    read = await bench.call("Read", file_path="huge.log", offset=2)
    assert read.text == "     2\tzwölf\n     3\tlast"
    assert (await bench.call("Read", file_path="huge.log", offset=4)).text == (
        "[line 4 is past the end: huge.log has fewer lines]"
    )
    first = await bench.call("Read", file_path="huge.log", limit=1)
    assert first.text.startswith("     1\t" + "x" * 2000 + "…")
    bench.write("wide.log", "\ufeff".encode("utf-16-le") + "é\n".encode("utf-16-le") * MAX_WHOLE_BYTES)
    wide = await bench.call("Read", file_path="wide.log", offset=5, limit=1)
    assert wide.text == "     5\té\n[lines 5 to 5; go on with offset=6]"


@pytest.mark.parametrize("size", [100, MAX_WHOLE_BYTES + 100])
async def test_binary_and_sparse_files_are_a_clear_error(bench: ToolHarness, size: int) -> None:
    target = bench.write("a.bin", b"")
    os.truncate(target, size)
    read = await bench.call("Read", file_path="a.bin")
    assert read.failed
    assert read.text.startswith("FileError: 'a.bin' is binary, not text")


async def test_a_nul_far_inside_a_huge_file_is_an_error_when_reached(bench: ToolHarness) -> None:
    bench.write("huge.log", b"line\n" * (MAX_WHOLE_BYTES // 4) + b"\0")
    assert not (await bench.call("Read", file_path="huge.log")).failed
    assert "is binary" in (await bench.call("Read", file_path="huge.log", offset=MAX_WHOLE_BYTES)).text


async def test_folders_and_missing_files_are_different_errors_with_suggestions(bench: ToolHarness) -> None:
    bench.write("src/Main.py", "x")
    folder, missing, lost = await bench.run_calls(
        ("Read", {"file_path": "src"}), ("Read", {"file_path": "src/main.py"}), ("Read", {"file_path": "nowhere/x.py"})
    )
    assert (folder.failed, missing.failed, lost.failed) == (True, True, True)
    assert "folder" in folder.text
    assert missing.text.endswith("; did you mean 'src/Main.py'?")
    assert "did you mean" not in lost.text


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "~/../../etc/passwd"])
async def test_files_outside_the_workspace_are_not_read(bench: ToolHarness, path: str) -> None:
    (bench.root / "link").symlink_to("/etc/passwd")
    read = await bench.call("Read", file_path=path)
    assert read.failed
    assert "root:" not in read.text
    assert "FileRefused" in read.text


async def test_legacy_and_wide_encodings_are_decoded(bench: ToolHarness) -> None:
    bench.write("a.txt", "Grüße".encode("cp1252"))
    bench.write("b.txt", "Grüße\r\nzwei".encode("utf-16"))
    bench.write("c.txt", "\ufeffGrüße\n".encode())
    texts = [(await bench.call("Read", file_path=name)).text for name in ("a.txt", "b.txt", "c.txt")]
    assert texts == ["     1\tGrüße", "     1\tGrüße\n     2\tzwei", "     1\tGrüße"]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"GIF87a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
async def test_pictures_are_image_parts(bench: ToolHarness, start: bytes, kind: str) -> None:
    data = start + bytes(range(256)) * 300
    bench.write("a.dat", data)
    read = await bench.call("Read", file_path="a.dat")
    assert value_of(read) == {"path": "a.dat", "media_type": kind, "size": len(data)}
    result = [
        part
        for message in bench.last_messages
        if isinstance(message, ToolMessage)
        for part in message.results[0].content
    ]
    assert result == [
        Text(text=f"[a.dat: {kind}, {len(data)} bytes]"),
        Image(media_type=kind, data=base64.b64encode(data).decode()),
    ]


async def test_a_pdf_is_a_document_part_and_a_large_one_an_error(bench: ToolHarness) -> None:
    tiny = b"%PDF-1.7\n1 0 obj <<>> endobj\nstartxref\n0\n%%EOF\n"
    bench.write("docs/a.pdf", tiny)
    read = await bench.call("Read", file_path="docs/a.pdf")
    data = base64.b64encode(tiny).decode()
    assert read.content[1] == Document(media_type="application/pdf", data=data, name="a.pdf")
    os.truncate(bench.write("big.pdf", b"%PDF-1.7"), 21 * 1024**2)
    assert "is shown up to 20971520 bytes" in (await bench.call("Read", file_path="big.pdf")).text


async def test_a_picture_over_the_providers_limit_is_an_error(bench: ToolHarness) -> None:
    start = b"GIF89a" + bytes(7)
    bench.write("most.gif", start + bytes(MAX_IMAGE_BYTES - len(start)))
    bench.write("more.gif", start + bytes(MAX_IMAGE_BYTES - len(start) + 1))
    most, more = await bench.run_calls(("Read", {"file_path": "most.gif"}), ("Read", {"file_path": "more.gif"}))
    assert isinstance(most.content[1], Image)
    assert more.failed
    assert "image/gif is shown up to 3932160 bytes" in more.text


@pytest.mark.parametrize("words", ["GIF89a is how a picture begins", "%PDF-1.7 is how a document begins", "RIFF...."])
async def test_text_that_begins_like_a_media_signature_is_text(bench: ToolHarness, words: str) -> None:
    bench.write("notes.txt", f"{words}\n")
    read = await bench.call("Read", file_path="notes.txt")
    assert (read.text, len(read.content)) == (f"     1\t{words}", 1)


@pytest.mark.parametrize("start", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\x00", b"RIFF\x00\x00\x00\x00WEBP"])
async def test_a_truncated_picture_is_not_an_image_part(bench: ToolHarness, start: bytes) -> None:
    bench.write("cut.png", start)
    read = await bench.call("Read", file_path="cut.png")
    assert (read.failed, "is binary, not text" in read.text) == (True, True) if b"\0" in start else True
    assert not [part for part in read.content if isinstance(part, Image)]


async def test_an_invalid_picture_in_a_notebook_is_shown_as_its_text(bench: ToolHarness) -> None:
    shown = {"image/png": "bm90IGEgcGljdHVyZQ==", "text/plain": "<Figure>"}
    cell = {"cell_type": "code", "source": "", "outputs": [{"output_type": "display_data", "data": shown}]}
    bench.write("a.ipynb", notebook(cell, {**cell, "outputs": [{"data": {**shown, "image/png": "no base64!"}}]}))
    read = await bench.call("Read", file_path="a.ipynb")
    assert [type(part) for part in read.content] == [Text]
    assert read.text.count("[output]\n<Figure>") == 2


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)})


async def test_a_notebook_is_shown_cell_by_cell_with_its_outputs(bench: ToolHarness) -> None:
    picture = base64.b64encode(PNG).decode()
    outputs: list[Any] = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": picture + "\n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/plain": "42"}},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: v"]},
        {"output_type": "stream", "text": "x" * 20_000},
        {"output_type": "execute_result", "data": None},
        7,
    ]
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "intro", "source": "# Title"},
        {"cell_type": "code", "source": ["1 +\n", "1"], "outputs": outputs},
    ]
    bench.write("a.ipynb", notebook(*cells))
    read = await bench.call("Read", file_path="a.ipynb")
    first, image, rest = read.content
    assert first == Text(
        text="[cell 1: markdown, id intro]\n# Title\n[cell 2: code, id cell-1]\n1 +\n1\n[output]\none\ntwo"
    )
    assert image == Image(media_type="image/png", data=picture)
    assert isinstance(rest, Text)
    assert rest.text == (
        f"[output]\n42\n[output]\nE: v\n[output]\n{'x' * 10_000}… [10000 more characters in this output]"
    )
    result = {"path": "a.ipynb", "cells": 2, "offset": 1, "returned_cells": 2, "truncated": False}
    assert value_of(read) == result


async def test_a_long_notebook_is_shown_in_pages_of_cells(bench: ToolHarness) -> None:
    picture = base64.b64encode(b"GIF89a" + bytes(3_000_000)).decode()
    drawn = {"cell_type": "code", "source": "draw()", "outputs": [{"data": {"image/gif": picture}}]}
    cells = [{"cell_type": "code", "source": f"n = {number}"} for number in range(1, 6)]
    bench.write("a.ipynb", notebook(*cells))
    some = await bench.call("Read", file_path="a.ipynb", offset=2, limit=2)
    assert some.text == (
        "[cell 2: code, id cell-1]\nn = 2\n[cell 3: code, id cell-2]\nn = 3\n[cells 2 to 3 of 5; go on with offset=4]"
    )
    assert value_of(some)["truncated"]
    past = await bench.call("Read", file_path="a.ipynb", offset=9)
    assert past.text == "[cell 9 is past the end: there are 5]"
    assert value_of(past)["returned_cells"] == 0
    bench.write("b.ipynb", notebook(*[{"cell_type": "markdown", "source": "x" * 60_000}] * 5))
    assert value_of(await bench.call("Read", file_path="b.ipynb"))["returned_cells"] == 2
    bench.write("c.ipynb", notebook(*[drawn] * 3, *cells))
    assert value_of(await bench.call("Read", file_path="c.ipynb"))["returned_cells"] == 3
    bench.write("d.ipynb", notebook({"cell_type": "raw", "source": "y" * 100_001}, *cells))
    await bench.call("Read", file_path="d.ipynb")
    assert "y… [1 more characters in this cell]\n[cells 1 to 1 of 6;" in bench.last_messages[-1].results[0].text


@pytest.mark.parametrize("content", ["not json", '{"worksheets": []}', '{"cells": [1]}', "[" * 10_000])
async def test_an_invalid_notebook_is_read_as_text(bench: ToolHarness, content: str) -> None:
    bench.write("a.ipynb", content)
    read = await bench.call("Read", file_path="a.ipynb")
    assert not read.failed
    assert read.text.startswith(f"     1\t{content[:100]}")
    bench.write("b.ipynb", notebook())
    assert (await bench.call("Read", file_path="b.ipynb")).text == "[the notebook has no cells]"


async def test_invalid_ranges_are_errors_and_numbers_as_text_are_accepted(bench: ToolHarness) -> None:
    bench.write("a.txt", "one\ntwo\n")
    refused, taken = await bench.run_calls(
        ("Read", {"file_path": "a.txt", "offset": 0}), ("Read", {"file_path": "a.txt", "offset": "2"})
    )
    assert refused.reason == "invalid_arguments"
    assert taken.text == "     2\ttwo"
