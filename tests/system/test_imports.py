"""The floors import only the standard library and each other, so that the warden can load them."""

import subprocess
import sys
from pathlib import Path

import pytest

import vaka.matching
import vaka.system
import vaka.text

PROGRAM = """
import importlib, sys, types
sys.modules["vaka"] = types.ModuleType("vaka")
sys.modules["vaka"].__path__ = [sys.argv[1]]
importlib.import_module(sys.argv[2])
allowed = {*sys.stdlib_module_names, *sys.builtin_module_names, "__main__"}
floors = ("vaka.system", "vaka.matching", "vaka.text")
foreign = [name for name in sys.modules if name.partition(".")[0] not in allowed and name != "vaka"]
print([name for name in foreign if not name.startswith(floors)])
"""
MODULES = [
    f"{package.__name__}.{path.stem}"
    for package in (vaka.matching, vaka.system, vaka.text)
    for path in Path(package.__path__[0]).glob("[a-z]*.py")
]


@pytest.mark.parametrize("module", MODULES)
def test_a_floor_imports_only_the_standard_library(module: str) -> None:
    root = str(Path(vaka.system.__path__[0]).parent)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, root, module]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
