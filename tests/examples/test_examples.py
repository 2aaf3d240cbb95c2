"""Every example runs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for path in (ROOT / "examples").glob("[0-9]*/*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_runs_from_anywhere(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_demonstration_is_killed_and_goes_on_without_signing_twice(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert len((tmp_path / "vaka-demo" / "guests.txt").read_text("utf-8").splitlines()) == 1
    assert "Key of this report: demo/call_3" in (tmp_path / "vaka-demo" / "report.md").read_text("utf-8")
