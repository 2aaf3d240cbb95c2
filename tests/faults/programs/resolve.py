"""Decide on everything a session asks: ``python -m tests.faults.programs.resolve PLAN``; ``decide`` is the decision."""

import asyncio
import sys

import msgspec

from tests.faults.lines import Ears, acknowledge, say
from tests.faults.voyage import Plan, open_store, options
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.errors import NotFound
from vaka.runtime.runtime import Runtime


async def main(plan: Plan) -> None:
    store = open_store(plan)
    try:
        async with Runtime(options(plan, store)) as person:
            waiting = await person.decisions(plan.session)
            await Ears().gate("start")
            for pending in waiting:
                try:
                    yes = plan.decide == "approve"
                    event = await person.resolve(
                        pending.id, "approve" if yes else "reject", message="" if yes else "not today"
                    )
                except NotFound:
                    say("late")
                    continue
                acknowledge(event)
                assert isinstance(event.data, ApprovalResolved)
                say(event.data.decision)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
