"""``ctx.sleep`` and ``ctx.uuid``; the time itself comes from the script's clock and needs no host."""

import asyncio
import uuid

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import kind
from vaka.luau.host.parts import Parts
from vaka.luau.script import Functions, HostFunction


def time_functions(parts: Parts) -> Functions:
    """``sleep`` and ``uuid``."""
    wait = asyncio.sleep if parts.clock is None else parts.clock.sleep

    async def sleep(seconds: JSON) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ScriptError(f"sleep: seconds must be a number, not {kind(seconds)}")
        await wait(max(float(seconds), 0.0))

    async def new() -> JSON:
        return parts.uuid() if parts.uuid is not None else str(uuid.uuid4())

    return {"sleep": HostFunction(sleep), "uuid": HostFunction(new)}
