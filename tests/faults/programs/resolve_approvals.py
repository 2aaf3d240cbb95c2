"""Make the decision ``decide`` on all approvals: ``python -m tests.faults.programs.resolve_approvals PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_run import Plan, make_runtime, open_store
from tests.faults.line_protocol import InputLines, print_event, print_line
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.errors import NotFound


async def main(plan: Plan) -> None:
    store = open_store(plan)
    try:
        async with make_runtime(plan, store) as person:
            waiting = await person.decisions(plan.session)
            await InputLines().wait_at_gate("start")
            for pending in waiting:
                try:
                    yes = plan.decide == "approve"
                    event = await person.resolve(
                        pending.id, "approve" if yes else "reject", message="" if yes else "not today"
                    )
                except NotFound:
                    print_line("late")
                    continue
                print_event(event)
                assert isinstance(event.data, ApprovalResolved)
                print_line(event.data.decision)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
