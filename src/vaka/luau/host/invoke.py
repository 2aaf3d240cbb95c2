"""``ctx.invoke``: a tool, called as a model would call it."""

from vaka.core.loop.nest import Request
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import table, text
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction


def invoke_functions(parts: Parts) -> Functions:
    """``invoke``: the name of a tool and its arguments as a table."""
    nest, direct = parts.nest, parts.invoke
    if nest is None and direct is None:
        return {"invoke": missing("invoke", "this script has no tools")}

    async def invoke(request: Request, tool: JSON, arguments: JSON = None) -> JSON:
        name = text(tool, "invoke: tool")
        given = table(arguments, "invoke: args")
        if nest is not None:
            return await nest.invoke(request, name, given)
        assert direct is not None  # noqa: S101  # one of them is there
        return await direct(request, name, given)

    return {"invoke": HostFunction(invoke, asks=True)}
