"""What the pages for contributors name exists: files, modules of scripts, targets of make, and names in files."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("AGENTS.md", "docs/design.md", "docs/contributing.md")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?\Z")
FILE = re.compile(r"\w\.(?:py|md|toml|json|ts|tsx|sh|sql|txt)\Z")
PLACE = re.compile(r"`(\w+)(?:\([^`]*\))?` in `([\w./-]+\.\w+)`")
MADE = frozenset({".venv", ".venv/installed", "coverage/"})
"""What make makes."""


@cache
def list_files() -> frozenset[str]:
    """Return the files of the repository and their folders, with a slash before each."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    folders = {str(parent) for file in files for parent in Path(file).parents}
    return frozenset(f"/{name}" for name in [*files, *folders])


def is_path(text: str) -> bool:
    """Return whether a text in backticks is meant as a path of the repository."""
    return bool(PATH.match(text)) and ("/" in text or bool(FILE.search(text))) and "NAME" not in text


def exists(path: str) -> bool:
    """Return whether a file or folder ends in a path; ``*`` stands for a name."""
    expression = re.compile("/" + re.escape(path.strip("/")).replace(r"\*", "[^/]*") + r"\Z")
    return any(expression.search(name) for name in list_files())


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_page_exists(page: str) -> None:
    paths = {text for text in CODE.findall((ROOT / page).read_text("utf-8")) if is_path(text)}
    assert len(paths) > 10
    assert sorted(path for path in paths - MADE if not exists(path)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_that_a_page_finds_in_a_file_is_there(page: str) -> None:
    for name, path in PLACE.findall((ROOT / page).read_text("utf-8")):
        files = [ROOT / file[1:] for file in list_files() if file.endswith(f"/{path}")]
        assert any(re.search(rf"\b{name}\b", file.read_text("utf-8")) for file in files), f"{page}: {name} in {path}"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", text))
    assert sorted(target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)) == []
    modules = set(re.findall(r"python -m scripts\.(\w+)", text))
    assert sorted(module for module in modules if not exists(f"scripts/{module}.py")) == []
