"""Run one turn in a runtime of its own."""

import asyncio
from typing import Any

from vaka.agents.react import Agent
from vaka.core.types.errors import InvalidInput
from vaka.runtime.options import Response, UserInput
from vaka.runtime.runtime import Runtime


async def run(agent: Agent, prompt: UserInput, **options: Any) -> Response:
    """Run one turn in a runtime of its own, in memory unless ``options`` (those of ``Runtime``) say otherwise.

    Nobody can be asked here, so what needs a person is denied.
    """
    settings: dict[str, Any] = {"ask": "deny", **options}
    async with Runtime(**settings) as runtime:
        session = await runtime.open(agent)
        return await session.run(prompt)


def run_sync(agent: Agent, prompt: UserInput, **options: Any) -> Response:
    """Do what ``run`` does, for callers without an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(agent, prompt, **options))
    raise InvalidInput("run_sync was called inside an event loop; there it is: await vaka.run(...)")
