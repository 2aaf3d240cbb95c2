"""``kvs_get``, ``kvs_set`` and ``kvs_del``: values by name that outlive the script."""

from vaka.core.types.errors import ScriptError, VakaError
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import text
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction
from vaka.luau.values import pack, unpack


def kvs_functions(parts: Parts) -> Functions:
    """``kvs.get``, ``kvs.set`` and ``kvs.del``."""
    values, prefix = parts.values, parts.prefix
    if values is None:
        names = ("get", "set", "del")
        return {f"kvs.{name}": missing(f"kvs_{name}", "this script has nowhere to keep values") for name in names}

    async def get(key: JSON) -> JSON:
        return unpack(await values.get(prefix + text(key, "key")))

    async def put(key: JSON, value: JSON = None) -> None:
        try:
            await values.put(prefix + text(key, "key"), pack(value))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    async def remove(key: JSON) -> None:
        await values.put(prefix + text(key, "key"), None)

    return {
        "kvs.get": HostFunction(get),
        "kvs.set": HostFunction(put, lasting=True),
        "kvs.del": HostFunction(remove, lasting=True),
    }
