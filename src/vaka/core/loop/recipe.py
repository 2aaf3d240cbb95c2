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
    """The tool choice and the provider options of every prompt."""

    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}


class DigestedText:
    """A text that is part of many prompts, with its digest, which is computed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = Digest(hashlib.sha256(text.encode()).hexdigest()) if text else None


class ToolMenu:
    """The tools that a prompt offers to the model, and the digested text of that list."""

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs
        self.digested_text = DigestedText(msgspec.json.encode(specs).decode())


class Recipe:
    """The definition of an agent: everything a turn needs that is not in the log. Built once, used by many turns."""

    def __init__(
        self, name: str, model: Model, *, instructions: Instructions = "", tools: Sequence[Tool] = (),
        middleware: Sequence[Middleware] = (), limits: Limits | None = None, settings: ModelSettings | None = None,
    ) -> None:  # fmt: skip
        self.name, self.model = name, model
        self.limits, self.settings = limits or Limits(), settings or ModelSettings()
        self.run_override: Callable[[Turn], Awaitable[Ending]] | None = None
        """Replaces the loop of model calls and tool calls, for an agent that runs something else, such as a script."""
        self.middleware = MiddlewareChain(middleware, self.limits.middleware_timeout)
        self.make_instructions = None if isinstance(instructions, str) else instructions
        self.system_text = DigestedText(instructions if isinstance(instructions, str) else "")
        self.tools = _tools_by_name(name, [*tools, *(tool for m in middleware for tool in m.tools())])
        self._tool_menu: tuple[Policy, ToolMenu] | None = None

    async def system_text_for(self, turn: "Turn") -> DigestedText:
        """Return the system prompt of a turn. Raises ``InvalidInput`` when ``make_instructions`` returns no str."""
        if self.make_instructions is None:
            return self.system_text
        text = self.make_instructions(turn)
        return DigestedText(_require_text(self.name, await text if inspect.isawaitable(text) else text))

    def tool_menu(self, policy: Policy) -> ToolMenu:
        """Return the tools that are visible under ``policy``; computed once per policy."""
        if self._tool_menu is None or self._tool_menu[0] is not policy:
            specs = tuple(tool.spec for tool in self.tools.values() if policy.visible(tool.spec))
            self._tool_menu = (policy, ToolMenu(specs))
        return self._tool_menu[1]


def _require_text(agent: str, instructions: object) -> str:
    if not isinstance(instructions, str):
        raise InvalidInput(f"the instructions of agent {agent!r} must be a str, not {type(instructions).__name__}")
    return instructions


def _tools_by_name(agent: str, given: Sequence[Tool]) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for tool in given:
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {agent!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools
