"""Markdown in pieces: which blocks are finished, and that no text is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.cli.display.markdown import MAX_CODE_LINES, MarkdownStream


def blocks_of(*pieces: str) -> list[str]:
    stream = MarkdownStream()
    blocks = [block for piece in pieces for block in stream.feed(piece)]
    return blocks + stream.finish()


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("One\nline.\n\nTwo.", ["One\nline.", "Two."]),
        ("# Title\nText", ["# Title", "Text"]),
        ("Text\n```py\na = 1\n\nb = 2\n```\nafter", ["Text", "```py\na = 1\n\nb = 2\n```", "after"]),
        ("~~~\n```\n~~~\n", ["~~~\n```\n~~~"]),
        ("````\n```\n````\n", ["````\n```\n````"]),
        ("- a\n- b\n\n\n\n- c", ["- a\n- b", "- c"]),
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
    assert stream.feed("\n\n") == ["A paragraph\ngoes on"]
    assert stream.open_block == ""


def test_a_long_code_block_is_returned_in_parts_that_are_code_too() -> None:
    code = [f"line {number}" for number in range(3 * MAX_CODE_LINES)]
    blocks = blocks_of("\n".join(["```py", *code, "```"]))
    assert len(blocks) == 4
    assert all(block.startswith("```py\n") and block.endswith("\n```") for block in blocks)
    assert [line for block in blocks for line in block.split("\n")[1:-1]] == code


def test_a_line_without_an_end_is_returned_in_parts() -> None:
    stream = MarkdownStream()
    parts = [block for _ in range(200) for block in stream.feed("word " * 100)]
    assert len(stream.open_block) <= 5000
    assert "".join(parts + stream.finish()).replace("\n", "") == "word " * 20_000


@given(st.lists(st.text("ab \n`~#-|", max_size=12)))
def test_no_text_is_lost_and_pieces_make_no_difference(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert blocks_of(*pieces) == blocks_of(whole)
    assert "".join("".join(blocks_of(whole)).split()) == "".join(whole.split())
