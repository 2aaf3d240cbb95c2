"""One turn in a runtime of its own."""

import asyncio
from typing import Unpack

from vaka.agents.react import Agent, Deps
from vaka.core.types.errors import InvalidInput
from vaka.runtime.options import Response, RuntimeOptions, UserInput
from vaka.runtime.runtime import Runtime


async def run(
    agent: Agent[Deps], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response:
    """Run one turn in a new session of a runtime of its own, in memory unless ``store`` is set.

    Args:
        agent: The agent that answers.
        prompt: A text, or parts such as ``Image``.
        deps: Dependencies of tools and instructions.
        options: The keyword arguments of ``Runtime``; ``ask`` is ``deny`` by default, since no person can
            decide an approval; a ``permission_request_handler`` changes that default.

    Raises:
        TurnError: The turn ended without an answer.
        TypeError: An option is unknown or of the wrong kind.
    """
    if "permission_request_handler" not in options:
        options.setdefault("ask", "deny")
    async with Runtime(**options) as runtime:
        session = await runtime.open(agent, deps=deps)
        return await session.run(prompt)


def run_sync(
    agent: Agent[Deps], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response:
    """Run one turn as ``run`` does, without an event loop. Raises ``InvalidInput`` inside a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(agent, prompt, deps=deps, **options))
    raise InvalidInput("run_sync was called inside an event loop; use: await vaka.run(...)")
