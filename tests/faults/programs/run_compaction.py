"""Run or resume turns that are compacted: ``python -m tests.faults.programs.run_compaction PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_event, print_line
from vaka.agents.react import Agent
from vaka.core.ports.store import Store
from vaka.core.types.context import Compaction, ContextCompacted
from vaka.core.types.ids import SessionId
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools import tool

TURNS = 6
WORDS = "The quick brown fox jumps over the lazy dog. "
SUMMARY = "<summary>The fox jumps.</summary>"


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"{what[:4]} " + "seen " * 500


def make_agent() -> Agent:
    lines = [line for n in range(TURNS) for line in (call("look", what=f"no{n} " + "x" * 2_500), say(WORDS * 10))]
    model = ScriptedModel(*lines, agents={"summary": [say(SUMMARY, repeat=True)]}, context_window=5_000)
    return Agent("observer", model=model, tools=[look], compaction=Compaction(keep_tokens=400))


async def was_compacted_by_hand(store: Store, session: SessionId) -> bool:
    bodies = [event.data async for event in store.events.read(session)]
    return any(isinstance(body, ContextCompacted) and body.trigger == "manual" for body in bodies)


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    async with Runtime(store=store) as runtime:
        session = await runtime.open(make_agent(), id=plan.session)
        for number in range(TURNS):
            async with session.stream(f"question {number}", key=f"q{number}") as events:
                async for event in events:
                    print_event(event)
        if not await was_compacted_by_hand(store, session.id):
            result = await session.compact("the fox")
            if result.event is not None:
                print_event(result.event)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
