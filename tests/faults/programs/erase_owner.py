"""Erase everything of an owner: ``python -m tests.faults.programs.erase_owner PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_line
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    async with Runtime(store=store) as runtime:
        report = await runtime.erase(owner=plan.session)
    await store.close()
    print_line("ended", len(report.sessions))


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
