"""Measure vaka: ``python -m bench.run [--only NAME …] [--quick] [--json FILE]``.

Each part runs in a process of its own, so that none inherits another's heap.
"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench import machine
from bench.row import Row, failed, markdown, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"

PARTS = {
    "import": "bench.starting:imports",
    "construct": "bench.starting:construct",
    "run": "bench.running:run",
    "commits": "bench.running:commits",
    "append": "bench.appending:append",
    "crowd-memory": "bench.crowd:in_memory",
    "crowd-sqlite": "bench.crowd:in_sqlite",
    "reopen": "bench.reopening:rows",
    "delta": "bench.streaming:rows",
    "deltas": "bench.deltas:rows",
    "deltas-crowd": "bench.deltas:crowd",
    "deltas-import": "bench.deltas:imports",
    "following": "bench.following:rows",
    "searching": "bench.searching:rows",
    "policy": "bench.policy:rows",
    "redaction": "bench.redacting:rows",
    "sandbox": "bench.sandboxing:rows",
    "luau": "bench.scripting:rows",
    "luau-pooled": "bench.scripting:pooled",
    "luau-own": "bench.scripting:own",
}


class Result(msgspec.Struct):
    """Everything one run of this program found out."""

    machine: dict[str, str]
    rows: list[Row]


def measure(part: str, *, quick: bool) -> list[Row]:
    """Measure one part, here."""
    module, _, name = PARTS[part].partition(":")
    function: Callable[[bool], list[Row]] = getattr(importlib.import_module(module), name)
    return function(quick)


def measure_apart(part: str, *, quick: bool) -> list[Row]:
    """Measure one part in a process of its own; what it cannot say is said in a row."""
    command = [sys.executable, "-m", "bench.run", "--part", part, *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return [failed(part, (done.stderr.strip().splitlines() or ["no word"])[-1])]
    return msgspec.json.decode(done.stdout, type=list[Row])


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench.run", description="Measure vaka.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller loads")
    parser.add_argument("--markdown", action="store_true", help="print the table as README.md has it")
    parser.add_argument("--json", type=Path, default=RESULTS / "vaka.json", help="where to write the result")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the result; 1 when a part failed."""
    given = options(arguments)
    if given.part:
        sys.stdout.buffer.write(msgspec.json.encode(measure(given.part, quick=given.quick)))
        return 0
    found = Result(machine.describe(), [])
    for part in given.only:
        print(f"… {part}", file=sys.stderr, flush=True)
        found.rows += measure_apart(part, quick=given.quick)
    found.machine["load after"] = machine.load()
    for name, value in found.machine.items():
        print(f"{name:12} {value}")
    print(f"\n{(markdown if given.markdown else table)(found.rows)}")
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return 1 if any(row.note.startswith("failed") for row in found.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
