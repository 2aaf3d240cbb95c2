"""The stop reason of a turn, with or without an answer."""

from collections.abc import Awaitable

import vaka
from vaka.core.types.errors import TurnError


async def stop_reason_of(work: Awaitable[vaka.Response]) -> str:
    try:
        return (await work).stop
    except TurnError as error:
        return str(getattr(error.result, "stop", "no turn"))
