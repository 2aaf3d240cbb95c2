"""Run or resume the crash-test agent: ``python -m tests.faults.programs.run_agent PLAN``.

Each durable event that this process receives is acknowledged by a line with its cursor and the hash of its bytes.
"""

import asyncio
import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec

from tests.faults.crash_run import GatedModel, Plan
from tests.faults.line_protocol import InputLines, print_event, print_line
from tests.faults.run_plan import run_plan
from vaka.stores import common
from vaka.testing.crashes import enable_failpoints


def pause_at(plan: str) -> None:
    """Stop at a failpoint until the test sends SIGCONT."""
    place, _, number = plan.partition(":")
    passes: Counter[str] = Counter()

    def hit(name: str) -> None:
        passes[name] += 1
        if (name, passes[name]) == (place, int(number)):
            print_line("paused")
            os.kill(os.getpid(), signal.SIGSTOP)

    common.on_failpoint = hit


def fill_disk_at(plan: Plan) -> None:
    """Limit the file size from one write on, so that the write-ahead log cannot grow."""
    wal = Path(f"{plan.store.removeprefix('sqlite:///')}-wal")
    passes: Counter[str] = Counter()

    def hit(name: str) -> None:
        passes[name] += 1
        if (name, passes[name]) == ("append.before_begin", plan.full):
            resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, resource.RLIM_INFINITY))

    common.on_failpoint = hit


async def main(plan: Plan) -> None:
    enable_failpoints()
    if plan.pause:
        pause_at(plan.pause)
    if plan.full:
        fill_disk_at(plan)
    lines = InputLines()
    if plan.wait:
        await lines.wait_at_gate("start")
    model = GatedModel(lines.wait_at_gate, plan.gates) if plan.gates else None
    print_line(await run_plan(plan, print_event, model))


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
