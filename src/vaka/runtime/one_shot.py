"""One turn in a runtime of its own."""

import asyncio
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec

from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.types.ending import Response
from vaka.core.types.errors import InvalidInput
from vaka.core.types.type_parameters import Deps, Out
from vaka.runtime.options import UserInput
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vaka.agents.react import ToolLike
    from vaka.config.options import Commands, Models, NetworkAccess, Scripts, Storage, Workspace
    from vaka.core.loop.middleware import Middleware
    from vaka.core.ports.model import Model
    from vaka.core.ports.store import Store
    from vaka.core.types.limits import Limits
    from vaka.runtime.options import Environment, Project, ToolSelection


class RuntimeOptions(TypedDict, total=False):
    """The arguments of ``Runtime`` except ``agent``, as keyword arguments of ``run``; a test compares both lists."""

    store: "Store | str"
    model: "Model | str | None"
    instructions: str
    tools: "Sequence[ToolLike] | ToolSelection"
    middleware: "Sequence[Middleware]"
    limits: "Limits"
    permissions: "Permissions"
    models: "Models"
    workspace: "Workspace"
    commands: "Commands"
    network: "NetworkAccess"
    scripts: "Scripts"
    project: "Project"
    storage: "Storage"
    environment: "Environment"


async def run(
    agent: Agent[Deps, Out], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response[Out]:
    """Run one turn in a new session of a runtime of its own, in memory unless ``store`` is set.

    Args:
        agent: The agent that answers.
        prompt: A text, or parts such as ``Image``.
        deps: Dependencies of tools and instructions.
        options: The keyword arguments of ``Runtime``. ``Permissions.ask`` is ``deny`` by default, since no person can
            decide an approval; a ``Permissions.handler`` changes that default.

    Raises:
        TurnError: The turn ended without an answer.
        TypeError: An option is unknown or of the wrong kind.
    """
    permissions = options.get("permissions", Permissions())
    if permissions.ask is None and permissions.handler is None:
        options["permissions"] = msgspec.structs.replace(permissions, ask="deny")
    async with Runtime(**options) as runtime:
        session = await runtime.open(agent, deps=deps)
        return await session.run(prompt)


def run_sync(
    agent: Agent[Deps, Out], prompt: UserInput, *, deps: Deps | None = None, **options: Unpack[RuntimeOptions]
) -> Response[Out]:
    """Run one turn as ``run`` does, without an event loop. Raises ``InvalidInput`` inside a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(agent, prompt, deps=deps, **options))
    raise InvalidInput("run_sync was called inside an event loop; use: await vaka.run(...)")
