"""The agent of one request: with tools that the client runs, and a text that follows the instructions."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.turn_protocols import ToolSource
from vaka.server.kit.problems import Problem
from vaka.tools.client_tool import ClientTool
from vaka.tools.validate import Validator


class RequestInstructions(Middleware, ToolSource):
    """Adds a text of a request to the system prompt."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def prompt_for_step(self, turn: Turn) -> str:
        return self._text


def extend_agent(agent: Agent, tools: Sequence[ToolLike], instructions: str = "") -> Agent:
    """Return an agent with tools and instructions of a request besides its own."""
    if not tools and not instructions:
        return agent
    changed = copy.copy(agent)
    changed.tools = (*agent.tools, *tools)
    if instructions:
        changed.use(RequestInstructions(instructions))
    return changed


ClientToolText: TypeAlias = tuple[str, str, dict[str, Any] | None]
"""Name, description and JSON Schema of a tool that the client runs."""


def make_client_tools(agent: Agent, tools: Iterable[ClientToolText]) -> list[ClientTool]:
    """Return tools that the client runs.

    Raises a ``Problem`` (400) for a name that the agent has or that no tool can have, and ``InvalidInput`` for a schema
    that is not valid: that is an error of the request, not of the turn.
    """
    made: dict[str, ClientTool] = {}
    own = {tool_name_of(tool) for tool in agent.tools}
    for name, description, parameters in tools:
        tool = ClientTool(name, description, parameters)
        if name in own or name in made or tool.spec.name != name:
            why = "a name has letters, digits, _ and -" if tool.spec.name != name else "there is a tool of that name"
            raise Problem(400, "invalid_tool", f"tool {name[:80]!r} cannot be added: {why}; rename it")
        Validator(tool.spec.parameters).compile()
        made[name] = tool
    return list(made.values())
