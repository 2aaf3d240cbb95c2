"""``ctx.create_agent``: other agents, who answer one thing said after the other."""

from vaka.core.loop.nest import Request
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import items, text
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction


def agent_functions(parts: Parts) -> Functions:
    """``agent.send``: name, configuration, the conversation so far and what is said; returns the answer."""
    chat = parts.agents
    if chat is None:
        return {"agent.send": missing("create_agent", "this script has no other agents to talk to")}

    async def send(request: Request, name: JSON, config: JSON, history: JSON, said: JSON) -> JSON:
        so_far, words = items(history, "agent.send: the conversation"), text(said, "agent.send: what is sent")
        return await chat(request, text(name, "create_agent: name"), config, so_far, words)

    return {"agent.send": HostFunction(send, asks=True)}
