"""Three tasks in a row: each is blocked until the one before it is done."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import vaka
from vaka.content import ToolMessage
from vaka.models import Chunk, Prompt, Scripted

BOARD = ("TaskCreate", "TaskGet", "TaskList", "TaskUpdate")
PLAN = ("Write the code", "Run the tests", "Ship it")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a model's answer that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


class Planner:
    """A stand-in for a model: it creates three tasks, orders them by their ids, and completes them."""

    name = "planner"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Choose the next call by the results so far."""
        results = [
            result for message in prompt.messages if isinstance(message, ToolMessage) for result in message.results
        ]
        ids = [
            result.value["taskId"] for result in results if isinstance(result.value, dict) and "taskId" in result.value
        ]
        steps = [call("TaskCreate", subject=one, activeForm=f"{one} …") for one in PLAN]
        if len(ids) == len(PLAN):
            code, test, ship = ids
            steps += [
                call("TaskUpdate", taskId=test, addBlockedBy=[code]),
                call("TaskUpdate", taskId=ship, addBlockedBy=[test]),
                call("TaskUpdate", taskId=ship, status="in_progress"),  # too early: refused, with the reason
                call("TaskList"),
                *(call("TaskUpdate", taskId=id, status="completed") for id in ids),
                call("TaskList"),
            ]
        step = steps[len(results)] if len(results) < len(steps) else {"text": "All is done."}
        async for chunk in Scripted([{**step, "repeat": True}]).stream(prompt):
            yield chunk


async def main(store: str) -> None:
    """Run the agent, and print the results of its tools."""
    agent = vaka.Agent("planner", model=Planner(), tools=BOARD)
    async with vaka.Runtime(store=store, permissions=vaka.Permissions(allow=BOARD)) as runtime:
        session = await runtime.open(agent, id="release")
        async for event in session.stream("Plan the release and do it."):
            body: Any = event.data
            if event.type in ("tool.completed", "tool.failed"):
                print(body.result.text, end="\n\n")
        last: Any = (await session.messages())[-1]
        print(last.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
