"""Agents become recipes: names looked up, functions made into tools, child agents put behind tools."""

from typing import Annotated, Any

from vaka.agents.react import Agent, AgentTool, ToolLike
from vaka.core.loop.child import run_child
from vaka.core.loop.scope import Recipe, Settings
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.content import as_content
from vaka.core.types.errors import ConfigError, TurnError
from vaka.runtime import registry
from vaka.tools.function import as_tool, tool

RECIPES = 512
"""Recipes kept at hand."""


class Builder:
    """Makes recipes; what is costly is made once."""

    def __init__(self, default: "Model | str | None" = None) -> None:
        self._default = default
        self._models: dict[str, Model] = {}
        self._recipes: dict[Agent, tuple[Any, Recipe]] = {}

    def recipe(self, agent: Agent, model: Model | None = None) -> Recipe:
        """Return what the loop needs to run ``agent``; ``model`` serves a child that names none."""
        now = (
            agent.name, agent.model, agent.instructions, agent.tools, agent.middleware, agent.limits,
            agent.tool_choice, agent.options, model,
        )  # fmt: skip
        cached = self._recipes.get(agent)
        if cached is not None and cached[0] == now:
            return cached[1]
        recipe = self._make(agent, model)
        if len(self._recipes) >= RECIPES:
            self._recipes.clear()
        self._recipes[agent] = (now, recipe)
        return recipe

    def _make(self, agent: Agent, parent: Model | None) -> Recipe:
        made = agent.model or self._default or parent
        if made is None:
            raise ConfigError(f"agent {agent.name!r} has no model; give it one, or give the runtime one")
        model = self._model(made)
        return Recipe(
            agent.name, model, instructions=agent.instructions, middleware=agent.middleware, limits=agent.limits,
            tools=[self._tool(given, model) for given in agent.tools],
            settings=Settings(tool_choice=agent.tool_choice, options=agent.options),
        )  # fmt: skip

    def _model(self, given: "Model | str") -> Model:
        if not isinstance(given, str):
            return given
        if given not in self._models:
            self._models[given] = registry.model(given)
        return self._models[given]

    def _tool(self, given: ToolLike, model: Model) -> Tool:
        if isinstance(given, Agent):
            given = given.as_tool()
        if isinstance(given, AgentTool):
            return self._agent_tool(given, model)
        return as_tool(given)

    def _agent_tool(self, given: AgentTool, model: Model) -> Tool:
        async def run(context: ToolContext, prompt: Annotated[str, "What the agent should do, in full."]) -> str:
            ending = await run_child(context, self.recipe(given.agent, model), as_content(prompt))
            if ending.kind != "completed":
                raise TurnError(ending.message or f"the agent {given.name} was {ending.kind}")
            return ending.text

        description = given.description or given.agent.description or f"Hand a task to the agent {given.name}."
        return tool(run, name=given.name, description=description, effect="resume")
