"""The examples of the testing guide and of the scripted model's page are run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage
from vaka.models.scripted import Scripted

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "guides" / "testing.md"
PAGE = DOCS / "reference" / "scripted-model.md"


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_testing_guide_is_a_test_file_that_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_guide.py"
    file.write_text("\n\n".join(code_blocks(GUIDE, "python")), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=without_coverage())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", code_blocks(PAGE, "jsonl"))
def test_every_line_of_the_page_is_well_formed(tmp_path: Path, block: str) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text(block, encoding="utf-8")
    Scripted(file)


def test_the_page_names_every_key() -> None:
    keys = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert keys == {
        "stall",
        "reasoning",
        "text",
        "chunks",
        "tool_calls",
        "error",
        "cut_after",
        "delay",
        "usage",
        "stop",
        "expect",
        "agent",
        "repeat",
        "last_user_contains",
        "tools_include",
        "messages_at_least",
        "context_window",
    }
