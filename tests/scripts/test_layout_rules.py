"""The gates on the layout of Python files."""

from pathlib import Path

import pytest

from scripts.gates.source import check_file
from scripts.gates.tree import File, Problem


def check(root: Path, text: str) -> list[Problem]:
    (root / "a.py").write_text(text)
    return list(check_file(File(root, "a.py")))


@pytest.mark.parametrize("comment", ["# fmt: skip", "# fmt: off", "#fmt:skip"])
def test_no_comment_keeps_the_formatter_from_a_statement(tmp_path: Path, comment: str) -> None:
    (problem,) = check(tmp_path, f"a = 1\nb = 2  {comment}\n")
    assert (problem.line, problem.text.partition(": ruff")[0]) == (2, comment)
    assert check(tmp_path, f'TEXT = "b = 2  {comment}"\n') == []


def test_an_assignment_of_values_has_at_most_two_names(tmp_path: Path) -> None:
    (problem,) = check(tmp_path, "a, b = 1, 2\nc, d, e = 1, 2, 3\n")
    assert (problem.line, problem.text) == (2, "assign at most 2 names in one statement")


def test_unpacking_one_value_is_no_packed_assignment(tmp_path: Path) -> None:
    assert check(tmp_path, "a, b, c = find()\nfor d, e, f in rows: ...\n") == []
