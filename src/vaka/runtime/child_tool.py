"""An agent as a tool of another one. Imported on first use."""

from collections.abc import Callable
from typing import Annotated, Any

import vaka.tools
from vaka.agents.react import AgentTool
from vaka.core.loop.context import Recipe
from vaka.core.loop.subagent import child_result, run_subagent
from vaka.core.ports.tool import ToolContext
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Content, ToolResult, as_content
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.tools.function import ToolReturn


class ChildTool:
    """An agent as a tool of another one; implements ``RunnableAgent``."""

    def __init__(self, agent_tool: AgentTool, build_recipe: Callable[[], Recipe]) -> None:
        self._name, self._build_recipe = agent_tool.name, build_recipe
        description = (
            agent_tool.description or agent_tool.agent.description or f"Hand a task to the agent {self._name}."
        )
        self._function = vaka.tools.tool(self._answer, name=self._name, description=description, effect="resume")

    @property
    def spec(self) -> ToolSpec:
        return self._function.spec

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._function.parse(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        return await self._function.call(context, arguments)

    async def run(self, context: ToolContext, content: Content) -> Ending:
        return await run_subagent(context, self._build_recipe(), content)

    async def _answer(
        self, context: ToolContext, prompt: Annotated[str, "What the agent should do, in full."]
    ) -> ToolResult:
        if not prompt.strip():
            raise InvalidInput(f"the prompt of the agent {self._name} is empty")
        return child_result(context.call, self._name, await self.run(context, as_content(prompt)))
