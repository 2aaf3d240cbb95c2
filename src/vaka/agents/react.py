"""The agent people write: a model, tools and a goal. Plain data; it runs only inside a runtime."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.budget.limits import Limits
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Model
from vaka.core.ports.tool import BindableTool, Tool
from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import ToolChoice

ToolLike: TypeAlias = "Tool | BindableTool | Agent | AgentTool | Callable[..., Any] | str"
"""What can be handed over as a tool: a tool, a script, a typed function with a docstring, another agent, or the name of
a tool that vaka brings along, such as ``"Read"``."""

_DEFAULT_LIMITS = Limits()


class Agent:
    """What makes an agent. Cheap to make, safe to share between sessions."""

    __slots__ = (
        "description",
        "instructions",
        "limits",
        "middleware",
        "model",
        "name",
        "options",
        "output",
        "tool_choice",
        "tools",
    )

    def __init__(
        self,
        name: str,
        *,
        model: "Model | str | None" = None,
        instructions: str = "",
        tools: Sequence[ToolLike] = (),
        **more: Any,
    ) -> None:
        """Make an agent.

        Also takes ``middleware``, ``limits``, ``description``, ``tool_choice``, ``options`` and ``output``: what its
        answers are to be, a type or a JSON Schema; the value is then ``Response.data``.
        """
        self.name, self.model, self.instructions = name, model, instructions
        self.tools: tuple[ToolLike, ...] = tuple(tools)
        self.middleware: tuple[Middleware, ...] = tuple(more.pop("middleware", ()))
        self.limits: Limits = more.pop("limits", None) or _DEFAULT_LIMITS
        self.description: str = more.pop("description", "")
        self.tool_choice: ToolChoice = more.pop("tool_choice", "auto")
        self.options: Mapping[str, Any] = more.pop("options", None) or {}
        self.output: Any = more.pop("output", None)
        if more:
            raise InvalidInput(f"agent {name!r} has no setting {next(iter(more))!r}")

    def use(self, *middleware: Middleware) -> None:
        """Add middleware. Turns that have begun keep what they had."""
        self.middleware = (*self.middleware, *middleware)

    def as_tool(self, *, name: str = "", description: str = "") -> "AgentTool":
        """Return this agent as a tool for another one."""
        return AgentTool(self, name or self.name, description or self.description)

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"


class AgentTool(msgspec.Struct, frozen=True):
    """An agent under the name and description another agent knows it by."""

    agent: Agent
    name: str
    description: str


def tool_name_of(tool: ToolLike) -> str:
    """Return what a tool is called, without making it."""
    if isinstance(tool, str):
        return tool
    spec = getattr(tool, "spec", None)
    name: object = spec.name if spec is not None else getattr(tool, "name", "") or getattr(tool, "__name__", "")
    return str(name)
