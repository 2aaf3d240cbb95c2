"""Markdown in pieces: which blocks are finished, and that no text is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.cli.display.markdown import MAX_BLOCK_LINES, MAX_SHOWN_LENGTH, MarkdownStream
from vaka.cli.display.plain_renderer import MarkdownBlock


def parts_of(*pieces: str) -> list[MarkdownBlock]:
    stream = MarkdownStream()
    blocks = [block for piece in pieces for block in stream.feed(piece)]
    return blocks + stream.finish()


def blocks_of(*pieces: str) -> list[str]:
    return [block.source for block in parts_of(*pieces)]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("One\nline.\n\nTwo.", ["One\nline.", "Two."]),
        ("# Title\nText", ["# Title", "Text"]),
        ("Text\n```py\na = 1\n\nb = 2\n```\nafter", ["Text", "```py\na = 1\n\nb = 2\n```", "after"]),
        ("~~~\n```\n~~~\n", ["~~~\n```\n~~~"]),
        ("````\n```\n````\n", ["````\n```\n````"]),
        ("- a\n- b\n\n\n\n- c", ["- a", "- b", "- c"]),
        ("Two:\n- a\n  more\n\n  still a\n- b\nlazy", ["Two:", "- a\n  more\n\n  still a", "- b\nlazy"]),
        ("In\n1986. A year.\n1. a\n2. b", ["In\n1986. A year.", "1. a", "2. b"]),
        ("| a |\n|---|\n| 1 |\n", ["| a |\n|---|\n| 1 |"]),
        ("\n \n", []),
        ("```\nnever closed", ["```\nnever closed"]),
    ],
)
def test_text_is_split_into_blocks(text: str, blocks: list[str]) -> None:
    assert blocks_of(text) == blocks
    assert blocks_of(*text) == blocks


def test_a_block_is_finished_only_when_the_next_line_cannot_belong_to_it() -> None:
    stream = MarkdownStream()
    assert stream.feed("A paragraph\n") == []
    assert stream.open_block == "A paragraph"
    assert stream.feed("goes on") == []
    assert stream.open_block == "A paragraph\ngoes on"
    assert stream.feed("\n\n") == [MarkdownBlock("A paragraph\ngoes on")]
    assert stream.open_block == ""


def test_the_items_of_a_list_and_the_parts_of_a_block_belong_together() -> None:
    assert [block.continued for block in parts_of("Two:\n- a\n- b\n\n- c\n\nEnd.")] == [True, True, False, False, False]
    assert [block.continued for block in parts_of("a\n" * 100 + "\nb")] == [True, True, False, False]


def test_a_long_code_block_is_returned_in_parts_that_are_code_too() -> None:
    code = [f"line {number}" for number in range(3 * MAX_BLOCK_LINES)]
    parts = parts_of("\n".join(["```py", *code, "```"]))
    assert [part.continued for part in parts] == [True, True, True, False]
    assert all(part.source.startswith("```py\n") and part.source.endswith("\n```") for part in parts)
    assert [line for part in parts for line in part.source.split("\n")[1:-1]] == code


def test_a_long_table_is_returned_in_parts_with_its_head() -> None:
    rows = [f"| {number} |" for number in range(500)]
    blocks = blocks_of("\n".join(["| n |", "|---|", *rows]))
    assert all(block.startswith("| n |\n|---|\n") for block in blocks)
    assert [line for block in blocks for line in block.split("\n")[2:]] == rows


def test_a_line_without_an_end_is_returned_in_parts() -> None:
    stream = MarkdownStream()
    parts = [block for _ in range(80) for block in stream.feed("word " * 100)]
    assert len(stream.open_block) <= 4000
    assert "".join(part.source for part in parts + stream.finish()) == "word " * 8000


@pytest.mark.parametrize("piece", [5_000_000, 50_000])
@pytest.mark.parametrize("start", ["", "```\n"])
def test_of_a_huge_line_the_beginning_is_returned(piece: int, start: str) -> None:
    blocks = blocks_of(start, *["x" * piece] * (5_000_000 // piece), "\nafter")
    assert max(map(len, blocks)) < 5000
    assert sum(map(len, blocks)) < MAX_SHOWN_LENGTH + 500
    assert "4960000 more characters" in "".join(blocks)
    assert "after" in blocks[-1]


def test_the_tail_of_an_open_code_block_is_short_and_still_code() -> None:
    stream = MarkdownStream()
    stream.feed("```py\n" + "x = 1\n" * 2010)
    assert stream.open_block.startswith("```py\n")
    assert len(stream.open_block) < 200


@given(st.lists(st.text("ab \n`~#-|", max_size=12)))
def test_no_text_is_lost_and_pieces_make_no_difference(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert blocks_of(*pieces) == blocks_of(whole)
    assert "".join("".join(blocks_of(whole)).split()) == "".join(whole.split())
