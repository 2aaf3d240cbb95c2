"""The rules of naming that the gates and the commit hook check."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.commit_message import find_problems
from scripts.gates import names
from scripts.gates.tree import File


def source(tmp_path: Path, text: str, path: str = "src/vaka/x.py") -> File:
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return File(tmp_path, path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("told", True),
        ("_shown", True),
        ("plain", True),
        ("settled", True),
        ("waiting", True),
        ("read_settings", False),
        ("embed", False),
        ("closed_sessions", False),
        ("string", False),
        ("is_closed", False),
    ],
)
def test_a_function_name_of_one_participle_or_adjective_is_a_problem(name: str, expected: bool) -> None:
    assert names.is_participle(name) is expected


def test_a_property_may_be_an_adjective(tmp_path: Path) -> None:
    text = "class A:\n    @property\n    def closed(self): ...\n    def opened(self): ...\n"
    assert [problem.line for problem in names.function_names(source(tmp_path, text))] == [4]


def test_banned_words_are_found_in_comments_and_strings_and_not_in_names(tmp_path: Path) -> None:
    banned = "no" + "body"
    text = f'"""{banned.title()} waits."""\n{banned} = 1  # {banned} else\nmessage = "for {banned}"\n'
    assert [problem.line for problem in names.banned_words(source(tmp_path, text))] == [1, 2, 3]


def test_a_public_class_name_exists_once(tmp_path: Path) -> None:
    files = [source(tmp_path, "class Lease: ...\nclass _Row: ...\n", f"src/vaka/{name}.py") for name in ("a", "b")]
    assert [problem.path for problem in names.check_all(files)] == ["src/vaka/a.py", "src/vaka/b.py"]


@pytest.mark.parametrize(
    ("message", "problems"),
    [
        ("fix(stores): renew leases earlier\n\nThe clock of the server counts.\n", 0),
        ("Merge branch 'main'\n", 0),
        ("renew leases earlier\n", 1),
        ("fix(stores): " + "renew leases " * 8 + "\n", 1),
        ("fix: a turn " + "no" + "body waits for\n", 1),
        ("fix: renew leases\nwithout an empty line\n", 1),
    ],
)
def test_a_commit_message_follows_the_rules(message: str, problems: int) -> None:
    assert len(list(find_problems(message))) == problems


def test_git_runs_the_rules_as_its_commit_hook(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    message = tmp_path / "message"
    message.write_text("no type here\n")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.commit_message", str(message)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is not a conventional commit" in done.stderr
