"""``ctx.input``, ``output``, ``recv`` and ``emit``: what a script hears and says."""

from vaka.core.types.ids import JSON
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction


def talk_functions(parts: Parts) -> Functions:
    """``input`` and ``output`` of tools, ``recv`` and ``emit`` of agents."""
    functions: dict[str, HostFunction] = {
        "input": missing("input", "nobody here says more than the arguments"),
        "recv": missing("recv", "this script is not an agent"),
        "emit": missing("emit", "this script is not an agent"),
    }
    if parts.input is not None:
        functions["input"] = HostFunction(parts.input, asks=True)
    if parts.recv is not None:
        functions["recv"] = HostFunction(parts.recv, asks=True)
    emit, output = parts.emit, parts.output
    if emit is not None:

        async def say(chunk: JSON) -> None:
            await emit(chunk)

        functions["emit"] = HostFunction(say, local=True)

    async def be(style: JSON) -> None:
        if parts.style is not None:
            parts.style(str(style))

    functions["agent.style"] = HostFunction(be, local=True)

    async def put(value: JSON = None, error: JSON = None) -> None:
        if output is not None:
            await output(value, error)

    functions["output"] = HostFunction(put, local=True)
    return functions
