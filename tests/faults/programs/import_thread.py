"""Import a thread, end it, and delete a message of it: ``python -m tests.faults.programs.import_thread PLAN``."""

import asyncio
import sys

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_line
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints

MESSAGES = 450
DELETED = "m7"


def make_lines(session: str) -> list[bytes]:
    """Return the lines of an export: enough messages for three batches."""
    lines = [{"type": "thread", "id": session, "title": "Imported", "resource_id": "kim", "state": "ended"}]
    for number in range(MESSAGES):
        content = [{"type": "text", "text": f"message {number}"}]
        lines.append({"type": "message", "role": "user", "id": f"m{number}", "content": content})  # type: ignore[dict-item]  # a list
    return [msgspec.json.encode(line) for line in lines]


async def import_thread(runtime: Runtime, session: str) -> None:
    await runtime.threads.import_lines(make_lines(session))
    await runtime.threads.delete_messages(session, [DELETED])


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    async with Runtime(store=store) as runtime:
        await import_thread(runtime, plan.session)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
