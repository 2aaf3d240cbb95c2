"""Run or resume the script: ``python -m tests.faults.programs.draw PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.chart import draw
from tests.faults.lines import acknowledge, say
from tests.faults.voyage import Plan
from vaka.testing import failpoints


async def main(plan: Plan) -> None:
    failpoints.arm()
    how, events = await draw(plan)
    for event in events:
        acknowledge(event)
    say(how or "nothing")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
