"""The router that crash tests kill: it runs a router with an agent, and then a script."""

from contextlib import aclosing
from typing import Any

from tests.faults.crash_run import EffectLedger, Plan, make_agent, make_runtime, open_store
from tests.faults.run_plan import stream_or_resume
from vaka.agents.react import Agent
from vaka.core.types.event import Event
from vaka.genx.match.router import MatchAgent, Route
from vaka.genx.quit_tools import QuitTools
from vaka.runtime.scripts import LuauAgent
from vaka.testing.models import ScriptedModel, call, calls, say

RULES: list[dict[str, Any]] = [
    {"name": "papers", "vars": {"kind": {"label": "kind"}}, "patterns": ["stamp the [kind]"]},
    {"name": "song", "patterns": ["sing"]},
]
SINGS = """ function on_input(ctx, input)
    ctx.emit({ text = `La la, {ctx.invoke("stamp", { what = "song" })}.`, eof = true })
end"""
ANSWERS = {
    "front": [say("papers: kind=log\nsong")],
    "clerk": [calls(call("look", where="north"), call("stamp", what="log"), call("charge", what="fare")), say("Done.")],
}
ROUTER_ANSWER = "Done.\n\nLa la, song is stamped."


def make_router(ledger: EffectLedger, timeout: float) -> MatchAgent:
    model = ScriptedModel(agents=ANSWERS)
    tools = make_agent(ledger, timeout).tools[:3]
    clerk = Agent("clerk", model=model, tools=tools, middleware=[QuitTools("stamp")])
    office = MatchAgent("office", rules=RULES, routes=[Route(["papers"], clerk)], default=clerk, matcher="offline")
    routes = [Route(["papers"], office), Route(["song"], LuauAgent("singer", SINGS, tools=tools))]
    return MatchAgent("front", rules=RULES, routes=routes, model=model)


async def run_router(plan: Plan) -> tuple[str, list[Event]]:
    """Send the request or resume, to the end of the turn; return the type of its last event, and all events."""
    store = open_store(plan)
    try:
        async with make_runtime(plan, store) as runtime:
            agent = make_router(EffectLedger(plan.ledger, plan.die), plan.timeout)
            session = await runtime.open(agent, id=plan.session)
            async with aclosing(stream_or_resume(session, plan)) as events:
                shown = [event async for event in events]
    finally:
        await store.close()
    return shown[-1].type if shown else "", shown
