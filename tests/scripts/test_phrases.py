"""The gate on clauses without a noun."""

from pathlib import Path

from scripts.gates.phrases import check_all
from scripts.gates.tree import File

TEXT = '''"""Return the name of the new file, and that of the old file."""
NAMES = ["a name", "those\\tof"]  # the last one which counts
TEXT = """The first line, then one
that goes on."""
that_of = those = 1
'''


def write_source(root: Path, text: str, path: str = "src/vaka/names.py") -> list[File]:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return [File(root, path)]


def test_more_clauses_than_the_limit_are_each_a_problem(tmp_path: Path) -> None:
    found = [(problem.line, problem.text.partition(":")[0]) for problem in check_all(write_source(tmp_path, TEXT), 2)]
    assert found == [(1, "'that of'"), (2, "'one which'"), (3, "'one that'")]


def test_as_many_clauses_as_the_limit_are_no_problem(tmp_path: Path) -> None:
    assert list(check_all(write_source(tmp_path, TEXT), 3)) == []


def test_fewer_clauses_than_the_limit_must_lower_it(tmp_path: Path) -> None:
    (problem,) = check_all(write_source(tmp_path, TEXT), 4)
    assert (problem.path, problem.text) == (
        "scripts/gates/phrases.py",
        "src has only 3 clauses without a noun; lower LIMIT from 4",
    )


def test_files_outside_of_the_source_do_not_count(tmp_path: Path) -> None:
    assert list(check_all(write_source(tmp_path, TEXT, "tests/test_names.py"), 0)) == []
