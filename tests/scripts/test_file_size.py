"""The gate on the length of files."""

from pathlib import Path

from scripts.gates.sizes import check_file, count_code_lines
from scripts.gates.tree import File

PYTHON = '''"""A module
of two lines."""

# A comment.
NAME = """
text
"""
"""What the name means."""


def double(value: int) -> int:
    """Return twice the value."""
    return value * 2  # a comment beside code
'''


def write(root: Path, path: str, text: str) -> File:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return File(root, path)


def test_blank_lines_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    assert count_code_lines(write(tmp_path, "src/vaka/a.py", PYTHON)) == 5


def test_comment_lines_of_other_languages_do_not_count(tmp_path: Path) -> None:
    assert count_code_lines(write(tmp_path, "ts/a.ts", "// why\n\nconst a = 1;\n")) == 1


def test_a_file_has_at_most_500_lines_of_code(tmp_path: Path) -> None:
    assert list(check_file(write(tmp_path, "src/vaka/a.py", "x = 1\n" * 500))) == []
    (problem,) = check_file(write(tmp_path, "src/vaka/b.py", "x = 1\n" * 501))
    assert problem.text == "501 lines of code; at most 500"


def test_a_file_of_the_core_has_at_most_350_lines_of_code(tmp_path: Path) -> None:
    assert list(check_file(write(tmp_path, "src/vaka/core/a.py", "x = 1\n" * 350))) == []
    (problem,) = check_file(write(tmp_path, "src/vaka/core/b.py", "x = 1\n" * 351))
    assert problem.text == "351 lines of code; at most 350"
