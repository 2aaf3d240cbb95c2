"""Measure vaka: ``python -m bench.run [--only NAME …] [--quick] [--json FILE]``.

Each part runs in its own process, so that none inherits the heap of another.
"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench import machine
from bench.row import Row, failed_row, format_markdown, format_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"

PARTS = {
    "import": "bench.startup:measure_imports",
    "commands": "bench.startup:measure_commands",
    "construct": "bench.startup:measure_construction",
    "project": "bench.startup:measure_project",
    "run": "bench.agent_run:measure_run",
    "commits": "bench.agent_run:measure_commits",
    "append": "bench.event_append:measure_append",
    "crowd-memory": "bench.concurrent_sessions:measure_in_memory",
    "crowd-sqlite": "bench.concurrent_sessions:measure_in_sqlite",
    "growth": "bench.growth:measure_growth",
    "compaction": "bench.compaction:measure_compaction",
    "memory": "bench.compaction:measure_memory",
    "message-index": "bench.messages:measure_upkeep",
    "threads": "bench.messages:measure_threads",
    "long-thread": "bench.messages:measure_long_thread",
    "thread-operations": "bench.threads:measure_operations",
    "reopen": "bench.session_reopen:measure_reopen",
    "delta": "bench.delta_cost:measure_delta_stream",
    "requests": "bench.requests:measure_requests",
    "deltas": "bench.http_deltas:measure_deltas",
    "deltas-crowd": "bench.http_deltas:measure_concurrent_streams",
    "deltas-import": "bench.http_deltas:measure_imports",
    "following": "bench.follow_lag:measure_follow_lag",
    "serving-sse": "bench.serving:measure_sse_streams",
    "serving-ws": "bench.serving:measure_socket_streams",
    "serving-event": "bench.serving:measure_event_cost",
    "console": "bench.console:measure_console",
    "searching": "bench.file_search:measure_search",
    "command-records": "bench.command_records:measure_records",
    "policy": "bench.policy:measure_policy",
    "recall": "bench.recall:measure_recall",
    "redaction": "bench.redaction:measure_redaction",
    "sandbox": "bench.sandbox:measure_sandbox",
    "hooks": "bench.hooks:measure_hooks",
    "mcp": "bench.mcp_calls:measure_calls",
    "luau": "bench.luau_scripts:measure_scripts",
    "luau-pooled": "bench.luau_scripts:measure_pooled",
    "luau-own": "bench.luau_scripts:measure_own_vms",
    "chat": "bench.chat:measure_chat",
    "match": "bench.offline_match:measure_matching",
    "definitions": "bench.definitions:measure_definitions",
    "routing": "bench.routing:measure_routing",
    "fact-extraction": "bench.fact_extraction:measure_extraction",
}


class Result(msgspec.Struct):
    machine: dict[str, str]
    rows: list[Row]


def measure_part(part: str, *, quick: bool) -> list[Row]:
    """Measure one part in this process."""
    module, _, name = PARTS[part].partition(":")
    function: Callable[[bool], list[Row]] = getattr(importlib.import_module(module), name)
    return function(quick)


def measure_part_in_process(part: str, *, quick: bool) -> list[Row]:
    """Measure one part in another process; a failure is a row."""
    command = [sys.executable, "-m", "bench.run", "--part", part, *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return [failed_row(part, (done.stderr.strip().splitlines() or ["no output"])[-1])]
    return msgspec.json.decode(done.stdout, type=list[Row])


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.run", description="Measure vaka.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller loads")
    parser.add_argument("--markdown", action="store_true", help="print the table as README.md has it")
    parser.add_argument("--json", type=Path, default=RESULTS / "vaka.json", help="where to write the result")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the result; 1 when a part failed."""
    given = parse_options(arguments)
    if given.part:
        sys.stdout.buffer.write(msgspec.json.encode(measure_part(given.part, quick=given.quick)))
        return 0
    found = Result(machine.describe_machine(), [])
    for part in given.only:
        print(f"… {part}", file=sys.stderr, flush=True)
        found.rows += measure_part_in_process(part, quick=given.quick)
    found.machine["load after"] = machine.load_average()
    for name, value in found.machine.items():
        print(f"{name:12} {value}")
    print(f"\n{(format_markdown if given.markdown else format_table)(found.rows)}")
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return 1 if any(row.note.startswith("failed") for row in found.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
