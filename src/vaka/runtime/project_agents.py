"""Agents of ``.claude/agents`` that run on their own, and not as children of another agent."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.ports.turn_protocols import Method
from vaka.core.types.limits import Limits
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Deny, ToolSpec
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.task_tool import NarrowedMode, is_of_servers, matches_tool, name_file_model
from vaka.tools.builtin import select_tools

if TYPE_CHECKING:
    from vaka.project.components import AgentFile, Components


class FileAgent(Agent):
    """An agent of a Markdown file; it has the built-in tools that its file allows.

    The file is the first part of its system prompt, and ``instructions`` follow it.
    """

    __slots__ = ("components", "file")

    def __init__(self, file: "AgentFile", components: "Components", models: ModelRegistry) -> None:
        self.file, self.components = file, components
        model, tier = name_file_model(models, file.model)
        names = [name for name in select_tools(None) if self._allows(ToolSpec(name=name))]
        super().__init__(
            file.name,
            description=file.description,
            tools=names,
            model=model or (tier if tier in models.config.tiers else None),
            limits=Limits(max_steps=file.max_turns) if file.max_turns else None,
            options={"reasoning": file.effort} if file.effort else {},
            middleware=[NarrowedMode(file.permission_mode)] if file.permission_mode else [],
        )

    def read_prompt(self) -> str:
        """Return the text of the file as it is now, and of the skills that it names. Raises ``ConfigError``."""
        from vaka.project.project_tools import read_agent_prompt

        return read_agent_prompt(self.file, self.components)

    def limit_tools(self, added: Iterable[ToolLike]) -> None:
        """Offer only tools that the file allows, wherever they come from, and ``added`` tools."""
        if self.file.tools is not None or self.file.disallowed_tools or self.file.mcp_servers is not None:
            names = {tool_name_of(tool) for tool in added}
            self.use(ToolFilter(lambda spec: spec.name in names or self._allows(spec)))

    def _allows(self, spec: ToolSpec) -> bool:
        file = self.file
        return (
            (file.tools is None or matches_tool(spec.name, file.tools))
            and is_of_servers(spec, file.mcp_servers)
            and not matches_tool(spec.name, file.disallowed_tools, exact=False)
        )


class ToolFilter(Middleware):
    """Offers only some tools to an agent, and refuses calls of others to it and its children."""

    inherited: tuple[Method, ...] = ("before_tool",)

    def __init__(self, allows: Callable[[ToolSpec], bool]) -> None:
        self._allows = allows
        self._last: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] = ((), ())
        """The tools of the last prompt: all of them, and the tools that were offered."""

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        given, offered = self._last
        if given is not prompt.tools:
            given, offered = prompt.tools, tuple(spec for spec in prompt.tools if self._allows(spec))
            self._last = (given, offered)
        return prompt if len(offered) == len(given) else msgspec.structs.replace(prompt, tools=offered)

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Deny:
        called = turn.tools.get(call.name)
        if called is None or self._allows(called.spec):
            return call
        return Deny(f"this agent does not have the tool {call.name}")
