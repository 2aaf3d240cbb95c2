"""Agents become recipes: names looked up, functions made into tools, child agents put behind tools."""

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from vaka.agents.react import Agent, AgentTool, ToolLike
from vaka.core.loop.child import run_child
from vaka.core.loop.ending import Ending
from vaka.core.loop.scope import Recipe, Settings, Turn
from vaka.core.ports.model import Chunk, Model, Prompt, StopChunk
from vaka.core.ports.tool import Lendable, Tool, ToolContext
from vaka.core.types.content import as_content
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import ConfigError, InvalidInput, ModelRefused, TurnError, VakaError
from vaka.core.types.ids import JSON
from vaka.core.types.tool import Problem, ToolSpec
from vaka.runtime import registry
from vaka.runtime.models import Book, Models, Refusing
from vaka.tools.function import as_tool, tool

if TYPE_CHECKING:
    from vaka.luau.lent import Lent
    from vaka.runtime.scripts import Scripts
    from vaka.runtime.shape import Shape

RECIPES = 512
"""Recipes kept at hand."""


class Builder:
    """Makes recipes; what is costly is made once."""

    def __init__(
        self, default: "Model | str | None" = None, scripts: "Callable[[], Scripts] | None" = None,
        models: Models | None = None, *, cache: bool | None = None,
    ) -> None:  # fmt: skip
        """Take the default model or the book that has it, a place for scripts, and whether prompts are cached."""
        self._models, self._scripts = models or Models(Book(default=default)), scripts
        self._options: dict[str, Any] = {} if cache is None else {"cache": cache}
        self._recipes: dict[Agent, tuple[Any, Recipe]] = {}

    def wished(self, agent: Agent, wish: InputAdded | None) -> Recipe:
        """Return what the loop needs to run ``agent`` as one input wants it; a model it cannot have fails its turn."""
        if wish is None or not (wish.model or wish.options):
            return self.recipe(agent)
        agent = copy.copy(agent)
        agent.options = {**agent.options, **wish.options}
        try:
            agent.model = self._models.asked(wish.model) if wish.model else agent.model
        except VakaError as error:
            agent.model = Refusing(wish.model, error)
        return self._make(agent, None)

    def recipe(self, agent: Agent, model: Model | None = None) -> Recipe:
        """Return what the loop needs to run ``agent``; ``model`` serves a child that names none."""
        now = (
            agent.name, agent.model, agent.instructions, agent.tools, agent.middleware, agent.limits,
            agent.tool_choice, agent.options, agent.output, model,
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
        bind: Callable[[Lent], Callable[[Turn], Awaitable[Ending]]] | None = getattr(agent, "bind", None)
        model = self._choose(agent, parent)
        if model is None and bind is not None:
            model = NoModel(agent.name)
        if model is None:
            raise ConfigError(f"agent {agent.name!r} has no model; give it one, or give the runtime one")
        options = {**self._options, **getattr(model, "options", {}), **_shaped(agent), **agent.options}
        recipe = Recipe(
            agent.name, model, instructions=agent.instructions, middleware=agent.middleware, limits=agent.limits,
            tools=[self._tool(given, agent, model) for given in agent.tools],
            settings=Settings(tool_choice=agent.tool_choice, options=options),
        )  # fmt: skip
        recipe.body = bind(self._lend(agent, model)) if bind is not None else None
        _check_choice(agent, recipe)
        return recipe

    def _choose(self, agent: Agent, parent: Model | None) -> Model | None:
        """Return who answers: its own model, that of its tier if another agent starts it, the default, its parent's."""
        if agent.model:
            return self._models.given(agent.model)
        if parent is not None and self._models.has_tier_for(agent.name):
            return self._models.choose(subagent=agent.name, instead=self._models.default or parent)
        return self._models.default or parent

    def _lend(self, agent: Agent, model: Model) -> "Lent":
        if self._scripts is None:
            raise ConfigError(f"agent {agent.name!r} uses scripts, which this runtime has no place for")
        known = {given.name: given for given in agent.tools if isinstance(given, Agent | AgentTool)}
        made: dict[str, Tool] = {}

        def find_agent(name: str, config: JSON) -> Tool | None:
            key = msgspec.json.encode([name, config]).decode()
            if key not in made:
                given = known.get(name) if not config else _configured(name, config)
                if given is None:
                    return None
                if len(made) >= RECIPES:
                    made.clear()
                made[key] = self._tool(given, agent, model)
            return made[key]

        def find_model(name: str) -> Model:
            return model if name in ("default", model.name) else self._models.find(name)

        return self._scripts().lend(find_model, find_agent)

    def _tool(self, given: ToolLike, agent: Agent, model: Model) -> Tool:
        if isinstance(given, str):
            found: Tool = registry.load(registry.BUILTIN)(given)
            return found
        if isinstance(given, Agent):
            given = given.as_tool()
        if isinstance(given, AgentTool):
            return self._agent_tool(given, model)
        if not hasattr(given, "bind"):
            plain: Any = given
            return as_tool(plain)
        script = cast("Lendable", given)
        return _Shown(script.spec) if self._scripts is None else script.bind(self._lend(agent, model))

    def _agent_tool(self, given: AgentTool, model: Model) -> Tool:
        async def run(context: ToolContext, prompt: Annotated[str, "What the agent should do, in full."]) -> str:
            ending = await run_child(context, self.recipe(given.agent, model), as_content(prompt))
            if ending.kind != "completed":
                raise TurnError(ending.message or f"the agent {given.name} was {ending.kind}")
            return ending.text

        description = given.description or given.agent.description or f"Hand a task to the agent {given.name}."
        return tool(run, name=given.name, description=description, effect="resume")


def shape_of(agent: Agent) -> "Shape | None":
    """Return what an agent's answers are to be, if it says so. Raises ``InvalidInput`` when JSON cannot express it."""
    if agent.output is None:
        return None
    shape: Shape = registry.load(registry.SHAPE)(agent.output)
    return shape


def _shaped(agent: Agent) -> dict[str, Any]:
    shape = shape_of(agent)
    return {} if shape is None else shape.options


def _check_choice(agent: Agent, recipe: Recipe) -> None:
    """Refuse a tool to be called that is not there: a provider would, in words of its own."""
    choice = agent.tool_choice
    if choice not in ("auto", "none", "required") and choice not in recipe.tools:
        near = get_close_matches(choice, recipe.tools, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(recipe.tools) or 'none'}"
        raise ConfigError(f"agent {agent.name!r} has no tool {choice!r} to be called; {hint}")


class _Shown:
    """A script's tool where there is no place for scripts: it can be looked at."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def parse(self, raw: "str | dict[str, Any]") -> Problem:
        """Say that it cannot be called."""
        return Problem(f"{self.spec.name} can only be called in a runtime")

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> JSON:
        """Say that it cannot be called."""
        raise ConfigError(f"{self.spec.name} can only be called in a runtime")


class NoModel:
    """Stands where an agent that is a script has no model."""

    def __init__(self, agent: str) -> None:
        self.name, self._agent = "", agent

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Raise ``ModelRefused``."""
        for _ in prompt.messages:
            raise ModelRefused(f"agent {self._agent!r} has no model; give it one, or name one where you ask")
        yield StopChunk()


def _configured(name: str, config: JSON) -> Agent:
    """Return the agent a script describes itself."""
    try:
        given = msgspec.convert(config, _Config)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"create_agent: config of {name!r} has model and instructions: {error}") from error
    model = None if given.model == "default" else given.model
    return Agent(name, model=model, instructions=given.instructions or given.prompt)


class _Config(msgspec.Struct, forbid_unknown_fields=True):
    """What a script may say of an agent it makes."""

    model: str | None = None
    instructions: str = ""
    prompt: str = ""
