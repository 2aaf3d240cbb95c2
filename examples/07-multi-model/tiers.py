"""Models by tier: for a request, for child agents by name, by definition, and by the call that starts them."""

import asyncio
from typing import Any

import vaka
from vaka.models import Scripted


def task(agent: str, **more: str) -> dict[str, Any]:
    """Return a call that starts a child agent."""
    return {"name": "Task", "arguments": {"prompt": "Look at the charts.", "subagent_type": agent, **more}}


LOW = Scripted(
    [
        {"agent": "explore", "text": "Three charts.", "usage": {"input": 50, "output": 3}},
        {"agent": "review", "text": "They agree.", "usage": {"input": 60, "output": 4}},
        {"text": "Good morning.", "usage": {"input": 5, "output": 2}},
    ],
    name="small-model",
)
MID = Scripted(
    [
        {"tool_calls": [task("explore"), task("plan"), task("review", model="haiku")]},
        {"text": "We sail north of the reef.", "usage": {"input": 400, "output": 20}},
    ],
    name="middle-model",
)
HIGH = Scripted(
    [{"agent": "plan", "text": "North of the reef.", "usage": {"input": 70, "output": 9}}], name="big-model"
)

CHILDREN = vaka.SubAgents(
    vaka.SubAgent(name="explore", description="Searches.", instructions="You search."),
    vaka.SubAgent(name="plan", description="Plans.", instructions="You plan.", model="high"),
    vaka.SubAgent(name="review", description="Reviews.", instructions="You review."),
    general_purpose=False,
)


async def main() -> None:
    """Run a turn with child agents on three tiers, then one whose request asks for the low tier."""
    captain = vaka.Agent("captain", middleware=[CHILDREN])
    async with vaka.Runtime(
        model=MID,
        models=vaka.Models(tiers={"low": LOW, "mid": MID, "high": HIGH}, subagents={"explore": "low"}),
        permissions=vaka.Permissions(allow=["Task"]),
    ) as runtime:
        session = await runtime.open(captain)
        async with session.stream("Which way?") as turn:
            async for event in turn:
                show(event)
        stats = await runtime.stats(session.id)
        greeting = await (await runtime.open(captain)).run("Good morning!", model="low")
    print("by model:", {name: used.usage.total for name, used in sorted(stats.by_model.items())})
    print("by agent:", {name: used.usage.total for name, used in sorted(stats.by_agent.items())})
    print("a request for the low tier:", greeting.text)


def show(event: vaka.Event) -> None:
    """Print which model was chosen and why, and the answer."""
    body: Any = event.data
    if event.type == "model.selected":
        print(f"{body.tier:>4} {body.model}: {body.reason}")
    elif event.type == "turn.completed":
        print("answer:", body.text, f"({body.usage.total} tokens)")


if __name__ == "__main__":
    asyncio.run(main())
