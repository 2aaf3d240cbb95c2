"""Run or resume the router: ``python -m tests.faults.programs.run_router PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_router import run_router
from tests.faults.crash_run import Plan
from tests.faults.line_protocol import print_event, print_line
from vaka.testing.crashes import enable_failpoints


async def main(plan: Plan) -> None:
    enable_failpoints()
    how, events = await run_router(plan)
    for event in events:
        print_event(event)
    print_line(how or "nothing")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
