"""Run or resume the script: ``python -m tests.faults.programs.run_script PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_run import Plan
from tests.faults.crash_script import run_script
from tests.faults.line_protocol import print_event, print_line
from vaka.testing.crashes import enable_failpoints


async def main(plan: Plan) -> None:
    enable_failpoints()
    how, events = await run_script(plan)
    for event in events:
        print_event(event)
    print_line(how or "nothing")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
