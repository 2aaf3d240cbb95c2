"""Import and construction."""

import json
import subprocess
import sys

from bench.agents import agent
from bench.measure import construction, environment, size, start
from bench.row import Row

FORBIDDEN = ("httpx2", "jsonschema_rs", "click", "yaml", "sqlite3")
"""What a first import must not load."""
IMPORT = "import vaka"
USE = "from vaka import Agent, Runtime, tool"
"""Names of ``vaka`` are loaded when they are first used: this is what a program that does something pays."""


def modules(statement: str) -> list[str]:
    """Return the modules that a statement loads, beyond those of a Python that does nothing."""
    code = f"import sys, json; old = set(sys.modules); {statement}; print(json.dumps(sorted(set(sys.modules) - old)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment(), capture_output=True, text=True)
    found: list[str] = json.loads(done.stdout)
    return found


def forbidden(found: list[str]) -> list[str]:
    """Return those of the modules that must not be loaded."""
    return [name for name in found if name.partition(".")[0] in FORBIDDEN]


def imports(quick: bool) -> list[Row]:
    """Wall time of a whole process; what it loads."""
    times = 3 if quick else 9
    nothing = start("pass", times) * 1e3
    rows: list[Row] = []
    for statement, name, target in ((IMPORT, "import vaka", 150.0), (USE, "import Agent, Runtime, tool", None)):
        found, taken = modules(statement), start(statement, times) * 1e3
        bad = forbidden(found)
        rows += [
            Row(name=name, value=taken, unit="ms", target=target, raw=nothing, ratio=taken / nothing,
                note=f"whole process, best of {times}; raw: a Python that does nothing"),
            Row(name=f"{name}: forbidden modules", value=len(bad), unit="", target=0.0, note=", ".join(bad)),
            Row(name=f"{name}: modules", value=len(found), unit=""),
        ]  # fmt: skip
    return rows


def construct(quick: bool) -> list[Row]:
    """An agent with one tool, not run."""
    count = 500 if quick else 3000
    return [
        Row(name="construct an agent", value=construction(agent, count) * 1e6, unit="µs", target=10.0),
        Row(name="idle agent", value=size(agent) / 1024, unit="KiB", target=4.0, note="tracemalloc"),
    ]
