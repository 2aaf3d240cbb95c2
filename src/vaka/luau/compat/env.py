"""``env``: the variables a script may see, and no others."""

from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import text
from vaka.luau.host.parts import Parts
from vaka.luau.script import Functions, HostFunction


def env_functions(parts: Parts) -> Functions:
    """``env``: the value of a variable that is on the list; nothing for one that is not, or is empty."""

    async def env(key: JSON) -> JSON:
        return parts.env.get(text(key, "key")) or None

    return {"env": HostFunction(env, local=True)}
