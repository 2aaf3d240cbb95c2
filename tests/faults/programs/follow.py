"""Follow a session to the end of its turn: ``python -m tests.faults.programs.follow PLAN``.

Says each durable event, and the text of the message whenever it has grown.
"""

import asyncio
import sys
from contextlib import aclosing

import msgspec

from tests.faults.lines import acknowledge, say
from tests.faults.transcript import Transcript
from tests.faults.voyage import Plan, open_store, options
from vaka.runtime.runtime import Runtime


async def main(plan: Plan) -> None:
    store, transcript = open_store(plan), Transcript()
    async with Runtime(options(plan, store)) as runtime, aclosing(runtime.follow(plan.session)) as events:
        async for event in events:
            shown = transcript.open_text
            transcript.take(event)
            acknowledge(event)
            if transcript.open_text != shown:
                say("text", repr(transcript.open_text))
            if transcript.ended:
                break
    say("text", repr("".join(transcript.messages)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
