"""Editors and type checkers know every public constructor, and the types of agents, tools and responses.

Wrong names and types are errors at exactly the lines that the programs mark.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
PROGRAMS = ("wrong_arguments", "typed_agents")


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.py"
    path.write_text(Path(__file__).with_name(f"{request.param}.py.txt").read_text())
    return path


def expected_lines(program: Path) -> list[int]:
    return [number for number, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# wrong")]


def test_mypy_reports_errors_at_exactly_the_marked_lines(program: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=without_coverage())
    # A cached result of the same text names the folder of the run that made it.
    found = re.findall(rf"^\S*{re.escape(program.name)}:(\d+): error", done.stdout, re.MULTILINE)
    assert sorted({int(line) for line in found}) == expected_lines(program), done.stdout


def test_pyright_reports_errors_at_exactly_the_marked_lines(program: Path) -> None:
    settings = {"include": [str(program)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    project = program.with_name("pyrightconfig.json")
    project.write_text(json.dumps(settings | {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(project)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=without_coverage())
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert sorted({each["range"]["start"]["line"] + 1 for each in found}) == expected_lines(program), found
