"""Follow a session to the end of its turn: ``python -m tests.faults.programs.follow_session PLAN``.

Prints each durable event, and the text of the open message whenever it has grown.
"""

import asyncio
import sys
from contextlib import aclosing

import msgspec

from tests.faults.crash_run import Plan, make_runtime, open_store
from tests.faults.line_protocol import print_event, print_line
from tests.faults.transcript import Transcript


async def main(plan: Plan) -> None:
    store, transcript = open_store(plan), Transcript()
    async with make_runtime(plan, store) as runtime, aclosing(runtime.follow(plan.session)) as events:
        async for event in events:
            shown = transcript.open_text
            transcript.add_event(event)
            print_event(event)
            if transcript.open_text != shown:
                print_line("text", repr(transcript.open_text))
            if transcript.ended:
                break
    print_line("text", repr("".join(transcript.messages)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
