"""``ctx.invoke`` and ``ctx.create_agent``: call tools and other agents."""

from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import as_list, as_string, as_table
from vaka.luau.host.host_services import HostServices, unavailable_function
from vaka.luau.protocol import HostFunction, HostFunctions


def invoke_functions(services: HostServices) -> HostFunctions:
    """``invoke``: the name of a tool and its arguments as a table."""
    nest, direct = services.nest, services.invoke
    if nest is None and direct is None:
        return {"invoke": unavailable_function("invoke", "this script has no tools")}

    async def invoke(request: ScriptRequest, tool: JSON, arguments: JSON = None) -> JSON:
        name = as_string(tool, "invoke: tool")
        given = as_table(arguments, "invoke: args")
        if nest is not None:
            return await nest.call_tool(request, name, given)
        assert direct is not None  # noqa: S101  # one of them is there
        return await direct(request, name, given)

    return {"invoke": HostFunction(invoke, wants_request=True)}


def agent_functions(services: HostServices) -> HostFunctions:
    """``agent.send``: name, configuration, the conversation so far and what is said; returns the answer."""
    chat = services.agents
    if chat is None:
        return {"agent.send": unavailable_function("create_agent", "this script has no other agents to talk to")}

    async def send(request: ScriptRequest, name: JSON, config: JSON, history: JSON, said: JSON) -> JSON:
        so_far, words = as_list(history, "agent.send: the conversation"), as_string(said, "agent.send: what is sent")
        return await chat(request, as_string(name, "create_agent: name"), config, so_far, words)

    return {"agent.send": HostFunction(send, wants_request=True)}
