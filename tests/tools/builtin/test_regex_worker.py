"""The worker process that searches: files in chunks of any size, and its answers."""

import io
import json
import sys
from typing import Any

import pytest

from vaka.tools.builtin.regex_worker import search_files


def run_worker(pieces: list[bytes], pattern: str, *, multiline: bool = False, need: int = 10) -> Any:
    """Run the worker in this process on one file in chunks."""
    order = {"python": pattern, "literal": "", "ignore_case": False, "multiline": multiline, "need": need}
    order["seconds"] = 60
    source = io.BytesIO()
    source.write(json.dumps(order).encode() + b"\n")
    for at, piece in enumerate(pieces, 1):
        source.write(json.dumps({"size": len(piece), "more": at < len(pieces)}).encode() + b"\n" + piece)
    source.seek(0)
    sink = io.BytesIO()
    before = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = io.TextIOWrapper(source), io.TextIOWrapper(sink)
    try:
        search_files()
        return json.loads(sink.getvalue())
    finally:
        sys.stdin.detach()
        sys.stdout.detach()
        sys.stdin, sys.stdout = before


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_file_may_arrive_in_chunks_of_any_size(size: int) -> None:
    data = "hit\nzwölf\r\n\nhit und hit\r\nlast hit".encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert run_worker(pieces, "hit") == {"count": 3, "hits": [[1, 1], [4, 4], [5, 5]]}
    assert run_worker(pieces, "hit", need=1) == {"count": 3, "hits": [[1, 1]]}
    assert run_worker(pieces, r"hit\s+zw", multiline=True) == {"count": 1, "hits": [[1, 2]]}
    assert run_worker([*pieces, b"\0"], "hit") == {"count": 0, "hits": []}
    wide = "hit\nno\nhit".encode("utf-16")
    assert run_worker([wide[at : at + 50] for at in range(0, len(wide), 50)], "hit")["count"] == 2


def test_matches_that_share_lines_are_merged() -> None:
    assert run_worker([b"a a\na\n"], "a", multiline=True) == {"count": 3, "hits": [[1, 1], [2, 2]]}
    assert run_worker([b"a\nb a\nb\n"], r"a\nb", multiline=True) == {"count": 2, "hits": [[1, 3]]}
    assert run_worker([b"x\n"], "$", multiline=True)["hits"] == [[1, 1]]
    assert run_worker([b""], "x*", multiline=True) == {"count": 0, "hits": []}
