"""The Python blocks of each documentation page run in order, as one program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text("utf-8"))], ids=page_name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(BLOCK.findall(page.read_text("utf-8"))), "utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, env=without_coverage()
    )
    assert done.returncode == 0, done.stderr


def test_every_link_of_a_page_has_a_target() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(page.read_text("utf-8"))]
    assert [f"{page_name(page)}: {target}" for page, target in links if not (page.parent / target).exists()] == []
