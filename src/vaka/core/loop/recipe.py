"""Recipe: everything that defines an agent and is not in the log."""

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.core.loop.budget.limits import Limits
from vaka.core.loop.middleware import Middleware, MiddlewareChain
from vaka.core.ports.model import Model
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import Digest
from vaka.core.types.tool import ToolChoice, ToolSpec

if TYPE_CHECKING:
    from vaka.core.loop.context import Turn
    from vaka.core.loop.finish import Ending


Instructions: TypeAlias = "str | Callable[[Turn], str | Awaitable[str]]"
"""A system prompt: a text, or a function that makes one at the start of each turn."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is to be asked."""

    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}


class DigestedText:
    """A text models see again and again, with its digest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = Digest(hashlib.sha256(text.encode()).hexdigest()) if text else None


class ToolMenu:
    """The tools a model is told of, and the text of that list."""

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs
        self.digested_text = DigestedText(msgspec.json.encode(specs).decode())


class Recipe:
    """What makes an agent: everything a turn needs that is not in the log. Made once, used by many turns."""

    def __init__(
        self, name: str, model: Model, *, instructions: Instructions = "", tools: Sequence[Tool] = (),
        middleware: Sequence[Middleware] = (), limits: Limits | None = None, settings: ModelSettings | None = None,
    ) -> None:  # fmt: skip
        self.name, self.model = name, model
        self.limits, self.settings = limits or Limits(), settings or ModelSettings()
        self.run_override: Callable[[Turn], Awaitable[Ending]] | None = None
        """What the agent does in a turn, when that is something else than asking its model and settling its calls."""
        self.middleware = MiddlewareChain(middleware, self.limits.middleware_timeout)
        self.make_instructions = None if isinstance(instructions, str) else instructions
        self.system_text = DigestedText(instructions if isinstance(instructions, str) else "")
        self.tools = _tools_by_name(name, [*tools, *(tool for m in middleware for tool in m.tools())])
        self._tool_menu: tuple[Policy, ToolMenu] | None = None

    async def system_text_for(self, turn: "Turn") -> DigestedText:
        """Return the system prompt of a turn; ``InvalidInput`` when the function of the agent returns no text."""
        if self.make_instructions is None:
            return self.system_text
        text: object = self.make_instructions(turn)
        if inspect.isawaitable(text):
            text = await text
        if not isinstance(text, str):
            raise InvalidInput(f"the instructions of agent {self.name!r} must be a str, not {type(text).__name__}")
        return DigestedText(text)

    def tool_menu(self, policy: Policy) -> ToolMenu:
        """Return the tools a model may be told of under ``policy``."""
        if self._tool_menu is None or self._tool_menu[0] is not policy:
            specs = tuple(tool.spec for tool in self.tools.values() if policy.visible(tool.spec))
            self._tool_menu = (policy, ToolMenu(specs))
        return self._tool_menu[1]


def _tools_by_name(agent: str, given: Sequence[Tool]) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for tool in given:
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {agent!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools
