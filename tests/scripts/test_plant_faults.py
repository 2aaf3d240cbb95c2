"""Which faults the script plants, which tests it runs, and what counts as caught."""

import subprocess
from pathlib import Path

import pytest

from scripts.plant_faults import ROOT, TIMEOUT, Fault, Trial, list_faults, list_runs

MODULE = "src/vaka/core/gate.py"
CODE = "def is_open(count):\n    return count > 3\n"
WAITS = "import time\n\ndef test_gate():\n    if not is_open(4):\n        time.sleep(600)\n"
IMPORT = "from vaka.core.gate import is_open\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with one module and without tests."""
    (tmp_path / "tests/core").mkdir(parents=True)
    (tmp_path / "tests/runtime").mkdir()
    (tmp_path / "src/vaka/core").mkdir(parents=True)
    (tmp_path / "src/vaka/__init__.py").touch()
    (tmp_path / "src/vaka/core/__init__.py").touch()
    (tmp_path / MODULE).write_text(CODE)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["exhaustive"]\n')
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def plant(tree: Path, new: str = "    return count > 4", *, seconds: float = 120.0, hang: float = 60.0) -> list[str]:
    return Trial(tree, seconds, hang).try_fault(Fault(MODULE, 2, "off by one", "    return count > 3", new))


def test_faults_change_conditions_and_small_numbers_but_no_round_ones() -> None:
    faults = {(fault.kind, fault.new.strip()) for fault in list_faults(MODULE, f"{CODE}SIZES = 404, 4096, 60\n")}
    assert faults == {
        ("comparison", "return count >= 3"),
        ("off by one", "return count > 4"),
        ("off by one", "SIZES = 405, 4096, 60"),
        ("removed return value", "return None"),
    }


def test_only_names_are_swapped() -> None:
    swapped = [fault.new for fault in list_faults(MODULE, 'f(a, b)\nf(a, "")\nf(a, [b])\n') if "swapped" in fault.kind]
    assert swapped == ["f(b, a)"]


def test_tests_of_the_runtime_follow_the_near_ones() -> None:
    runs = list_runs(ROOT, "src/vaka/core/loop/budget.py")
    assert runs[0][0] == "tests/core/loop/test_budget.py"
    assert runs[1:3] == [["tests/core/loop"], ["tests/core"]]
    assert all(not test.startswith("tests/core/") for test in runs[3])
    assert runs[-1] == ["tests/runtime"]


def test_a_test_of_a_distant_folder_catches_a_fault(tree: Path) -> None:
    (tree / "tests/core/test_gate.py").write_text("def test_gate():\n    pass\n")
    (tree / "tests/runtime/test_run.py").write_text(f"{IMPORT}\ndef test_run():\n    assert is_open(4)\n")
    assert plant(tree) == ["tests/runtime/test_run.py::test_run"]
    assert plant(tree, "    return count > 2 + 1") == []
    assert (tree / MODULE).read_text() == CODE


def test_a_test_that_hangs_with_a_fault_catches_it(tree: Path) -> None:
    (tree / "tests/core/test_gate.py").write_text(IMPORT + WAITS)
    assert plant(tree, hang=1.0) == ["tests/core/test_gate.py::test_gate"]


def test_tests_that_do_not_end_without_a_fault_either_decide_nothing(tree: Path) -> None:
    (tree / "tests/core/test_gate.py").write_text(IMPORT + WAITS.replace("not ", ""))
    assert plant(tree, seconds=1.0) == TIMEOUT
