"""Child agents as data, and the middleware that gives an agent the tool ``Task`` to run them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.agents.react import Agent, InstructionsLike, ToolLike, require_child
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.errors import InvalidInput

GENERAL_AGENT = "general-purpose"
"""The child agent that has the tools of the calling agent and no instructions of its own."""


class SubAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A child agent for ``SubAgents``: what the calling agent does not define for it."""

    name: str
    description: str = ""
    """Its purpose; the model of the calling agent reads it."""
    instructions: InstructionsLike = ""
    """The system prompt."""
    tools: Sequence[ToolLike] | None = None
    """Its own tools; ``None``: the tools of the calling agent."""
    allowed_tools: Sequence[str] | None = None
    """The names of the calling agent's tools that it may use; ``None`` for all."""
    disallowed_tools: Sequence[str] = ()
    """The names of tools that it may not use."""
    model: "Model | str | None" = None
    """A model, the name of one, or a tier; default: the tier of its name in the options, else the caller's model."""
    permission_mode: str = ""
    """``plan`` lets it only read, ``dontAsk`` refuses calls that need an approval; others change nothing."""
    max_steps: int | None = None
    """The most model calls of one task; never more than the calling agent may make."""
    mcp_servers: Sequence[str] | None = None
    """The names of the MCP servers whose tools it may use; ``None`` for all."""
    options: Mapping[str, Any] = {}
    """Options of the model, such as ``reasoning``."""
    middleware: Sequence[Middleware] = ()
    """Its own middleware, after what it inherits."""


ChildAgent: TypeAlias = "SubAgent | Agent[Any, Any]"


class SubAgents(Middleware, ToolSource):
    """Gives an agent the tool ``Task``, which hands tasks to child agents and continues earlier ones.

    ``agents`` are the child agents; an ``Agent`` runs with its own tools. ``general_purpose`` adds one more that has
    the tools and the model of the calling agent. With a project, the agents of its files are offered too; one given
    here replaces a file of the same name.
    """

    def __init__(self, *agents: ChildAgent, general_purpose: bool = True) -> None:
        names = [agent.name for agent in agents]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidInput(f"two child agents are named {twice!r}")
        if not agents and not general_purpose:
            raise InvalidInput("SubAgents needs at least one agent, or general_purpose=True")
        for agent in agents:
            if isinstance(agent, Agent):
                require_child(agent, agent.model)
        self.agents: tuple[ChildAgent, ...] = agents
        self.general_purpose = general_purpose
        self._find_tool: Callable[[], Tool] | None = None

    def bind_task_tool(self, find_tool: "Callable[[SubAgents], Callable[[], Tool]]") -> "SubAgents":
        """Return a copy for one runtime; the function it gives returns the tool for the next model call."""
        bound = copy.copy(self)
        bound._find_tool = find_tool(self)  # noqa: SLF001  # of the same class
        return bound

    async def tools_for_step(self, turn: Turn) -> Sequence[Tool]:
        return () if self._find_tool is None else (self._find_tool(),)
