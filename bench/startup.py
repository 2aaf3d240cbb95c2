"""Import and construction."""

import json
import subprocess
import sys

from bench.agents import make_agent
from bench.measure import measure_object_size, subprocess_environment, time_construction, time_process
from bench.row import Row

FORBIDDEN_MODULES = ("httpx2", "jsonschema_rs", "click", "yaml", "sqlite3")
"""Modules that the first import must not load."""
IMPORT_STATEMENT = "import vaka"
USE_STATEMENT = "from vaka import Agent, Runtime, tool"
"""Names of ``vaka`` are loaded on first use: this is the import of a program that uses some."""


def list_loaded_modules(statement: str) -> list[str]:
    """Return the modules that a statement loads, beyond those of an empty program."""
    code = f"import sys, json; old = set(sys.modules); {statement}; print(json.dumps(sorted(set(sys.modules) - old)))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=subprocess_environment(), capture_output=True, text=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


def list_forbidden(found: list[str]) -> list[str]:
    """Return the modules that must not be loaded."""
    return [name for name in found if name.partition(".")[0] in FORBIDDEN_MODULES]


def measure_imports(quick: bool) -> list[Row]:
    """Measure the wall time of a whole process and the modules it loads."""
    times = 3 if quick else 9
    nothing = time_process("pass", times) * 1e3
    rows: list[Row] = []
    for statement, name, target in (
        (IMPORT_STATEMENT, "import vaka", 150.0),
        (USE_STATEMENT, "import Agent, Runtime, tool", None),
    ):
        found, taken = list_loaded_modules(statement), time_process(statement, times) * 1e3
        bad = list_forbidden(found)
        rows += [
            Row(name=name, value=taken, unit="ms", target=target, raw=nothing, ratio=taken / nothing,
                note=f"whole process, best of {times}; raw: a Python that does nothing"),
            Row(name=f"{name}: forbidden modules", value=len(bad), unit="", target=0.0, note=", ".join(bad)),
            Row(name=f"{name}: modules", value=len(found), unit=""),
        ]  # fmt: skip
    return rows


def measure_construction(quick: bool) -> list[Row]:
    """Measure the construction of an agent with one tool."""
    count = 500 if quick else 3000
    return [
        Row(name="construct an agent", value=time_construction(make_agent, count) * 1e6, unit="µs", target=10.0),
        Row(
            name="idle agent", value=measure_object_size(make_agent) / 1024, unit="KiB", target=4.0, note="tracemalloc"
        ),
    ]
