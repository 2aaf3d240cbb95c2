"""The Luau script that crash tests kill: an agent that makes three parallel calls, twice."""

from contextlib import aclosing

from tests.faults.crash_run import REQUEST, EffectLedger, Plan, make_agent, make_runtime, open_store
from tests.faults.run_plan import stream_or_resume
from vaka.core.types.event import Event
from vaka.runtime.scripts import LuauAgent

SCRIPT = """
local function try(ctx, tool, arguments)
	return function()
		local ok, value = pcall(ctx.invoke, tool, arguments)
		return if ok then value else "unknown"
	end
end

function run(ctx)
	local heard = ctx.recv()
	for round = 1, 2 do
		local seen, stamped, charged = ctx.parallel(
			try(ctx, "look", { where = `north {round}` }),
			try(ctx, "stamp", { what = `log {round}` }),
			try(ctx, "charge", { what = `fare {round}` })
		)
		ctx.agent.state.rounds = round
		ctx.emit({ text = `{heard.text} {seen}, {stamped}, {charged}. ` })
	end
	ctx.emit({ text = "Drawn.", eof = true })
	ctx.recv()
end
"""
CHANGED_SCRIPT = SCRIPT.replace("Drawn.", "Redrawn.")
SCRIPT_ANSWER = (
    "".join(f"{REQUEST} open sea in the north {n}, log {n} is stamped, charge: fare {n}. " for n in (1, 2)) + "Drawn."
)


async def run_script(plan: Plan, source: str = SCRIPT) -> tuple[str, list[Event]]:
    """Send the request or resume, to the end of the turn; return the type of its last event, and all events."""
    store = open_store(plan)
    tools = make_agent(EffectLedger(plan.ledger, plan.die), plan.timeout).tools[:3]
    try:
        async with make_runtime(plan, store) as runtime:
            session = await runtime.open(LuauAgent("navigator", source, tools=tools), id=plan.session)
            async with aclosing(stream_or_resume(session, plan)) as events:
                shown = [event async for event in events]
    finally:
        await store.close()
    return shown[-1].type if shown else "", shown
