"""Build recipes from agents: look up models and tools by name, wrap functions and child agents as tools."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

import vaka.tools
from vaka.agents.react import Agent, AgentTool, ToolLike, require_child
from vaka.core.loop.context import ModelSettings, Recipe, Turn
from vaka.core.loop.middleware import Middleware, has_method
from vaka.core.ports.agent import AgentKind, AgentServices, BindableTool, NeedsServices, RunnableAgent
from vaka.core.ports.model import Model, context_window_of
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ContextPolicy, ToolSource
from vaka.core.types.context import Compaction
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput, ModelRefused, NotFound, VakaError
from vaka.core.types.ids import JSON
from vaka.core.types.keywords import find_near_names
from vaka.core.types.limits import MIN_RESULT_TOKENS, Limits
from vaka.core.types.message import Content
from vaka.core.types.progress import GIVEN_CALLS
from vaka.core.types.tool import InvalidArguments, ToolSpec
from vaka.middleware.compaction import ContextCompaction
from vaka.middleware.long_results import LongResults
from vaka.middleware.tool_calls import InvalidCallLimit
from vaka.models.cache_bust import CacheBustReport
from vaka.runtime.model_registry import SCRIPTED_PREFIX, ModelConfig, ModelRegistry, UnavailableModel

if TYPE_CHECKING:
    from vaka.agents.subagents import ChildAgent, SubAgents
    from vaka.middleware.compactor import Compactor
    from vaka.middleware.eviction import Eviction
    from vaka.runtime.agent_services import ServiceHost
    from vaka.runtime.structured_output import OutputSchema

TOOL_WHITELIST = "tool_whitelist"
"""The input option with the names of the tools its turn may use; it is not sent to the model."""

DMAIL_TOOL = "DMail"
"""The tool that sends a D-Mail; the prompt of an agent that has it names the checkpoints."""

MAX_RECIPES = 512
"""The number of recipes that are cached."""


class AgentBuilder:
    """Builds the recipes of agents and caches them."""

    def __init__(
        self,
        default: "Model | str | None" = None,
        services: "Callable[[], ServiceHost] | None" = None,
        models: ModelRegistry | None = None,
        *,
        cache: bool | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        """Create a builder with a default model or a registry; ``cache`` is the default of that model option."""
        self._models, self._services = models or ModelRegistry(ModelConfig(default=default)), services
        self._default_options: dict[str, Any] = {} if cache is None else {"cache": cache}
        self._compaction = compaction or Compaction()
        self._recipes: dict[Agent, tuple[Any, Recipe]] = {}
        self.governing: tuple[Middleware, ...] = ()
        """Middleware of every agent, before its own."""
        self.before_turn: Callable[[], None] | None = None
        """Called before the recipe of a turn is looked up; it may replace the governing middleware."""
        self.model_of_prompt: Callable[[Content], Model | None] | None = None
        """Returns the model of the command that a prompt calls, if it names one."""
        self.project_agents: Callable[[], Sequence[ChildAgent]] = tuple
        """Returns the child agents of files, which ``SubAgents`` offer too; the same ones if none changed."""

    def recipe_for_input(self, agent: Agent, input_added: InputAdded | None) -> Recipe:
        """Return the recipe of ``agent`` with the model and options of one input.

        An unknown or unavailable model fails the turn, not this call.
        """
        if self.before_turn is not None:
            self.before_turn()
        if agent.origin is not None:
            agent = agent.origin.current_agent(agent)
        if input_added is None or not (input_added.model or input_added.options or self.model_of_prompt):
            return self.build_recipe(agent)
        model = self._model_of_input(input_added)
        if model is None and not input_added.options:
            return self.build_recipe(agent)
        agent, options = copy.copy(agent), dict(input_added.options)
        allowed = options.pop(TOOL_WHITELIST, None)
        agent.options = {**agent.options, **options}
        agent.model = model or agent.model
        names = frozenset(cast("list[str]", allowed)) if isinstance(allowed, list) else None
        return self._make_recipe(agent, None, names)

    def _model_of_input(self, input_added: InputAdded) -> Model | None:
        """Return the model that an input names, else the model of the command it calls; ``None``: the agent's model."""
        if not input_added.model:
            return self.model_of_prompt(input_added.content) if self.model_of_prompt is not None else None
        try:
            return self._models.find_requested(input_added.model)
        except VakaError as error:
            return UnavailableModel(input_added.model, error)

    def govern(self, middleware: Sequence[Middleware]) -> None:
        """Replace the middleware of every agent, from the next turn on."""
        self.governing = tuple(middleware)
        self._recipes.clear()

    def build_recipe(self, agent: Agent, model: Model | None = None) -> Recipe:
        """Return the recipe of ``agent``; ``model`` is the model of the parent, for a subagent that sets none."""
        state = (
            agent.name,
            agent.model,
            agent.instructions,
            agent.tools,
            agent.middleware,
            agent.limits,
            agent.tool_choice,
            agent.options,
            agent.output,
            agent.compaction,
            model,
        )
        cached = self._recipes.get(agent)
        if cached is not None and cached[0] == state:
            return cached[1]
        recipe = self._make_recipe(agent, model)
        if len(self._recipes) >= MAX_RECIPES:
            self._recipes.clear()
        self._recipes[agent] = (state, recipe)
        return recipe

    def _make_recipe(self, agent: Agent, parent: Model | None, allowed: frozenset[str] | None = None) -> Recipe:
        """Make a recipe; ``allowed`` are the tools that the agent and its children may use, ``None`` for all."""
        kind: AgentKind[Turn] | None = agent if isinstance(agent, AgentKind) else None
        model = self._choose_model(agent, parent)
        if model is None and kind is not None and not kind.needs_model:
            refusal = f"agent {agent.name!r} has no model; set one for the agent, or name one in the call"
            model = UnavailableModel("", ModelRefused(refusal))
        if model is None:
            raise ConfigError(f"agent {agent.name!r} has no model; set one for the agent or for the runtime")
        schema = output_schema_of(agent)
        options = {
            **self._default_options,
            **getattr(model, "options", {}),
            **(schema.options if schema else {}),
            **agent.options,
        }
        tools = [self._build_tool(tool_like, agent, model, allowed) for tool_like in agent.tools]
        middleware = self._order_middleware(agent, model, allowed)
        recent = _recent_messages(agent) if agent.middleware else None
        recipe = Recipe(
            agent.name,
            model,
            instructions=agent.instructions,
            limits=_limits_for(agent, model, middleware),
            tools=tools,
            middleware=(*middleware, *_default_middleware(tools), *self._compaction_for(agent, model)),
            settings=ModelSettings(tool_choice=agent.tool_choice, options=options, recent=recent),
        )
        recipe.result_limit, recipe.answer_observer = _LONG_RESULTS, _CACHE_BUST_REPORT
        if middleware:
            _add_opening_texts(recipe, middleware)
        recipe.check_output = schema.describe_errors if schema is not None else None
        recipe.run_override = kind.bind(self._make_services(agent, model, allowed)) if kind is not None else None
        _check_tool_choice(agent, recipe)
        if allowed is not None:
            recipe.allowed = allowed
            recipe.tools = {name: tool for name, tool in recipe.tools.items() if name in allowed}
        return recipe

    def _compaction_for(self, agent: Agent, model: Model) -> tuple[Middleware, ...]:
        """Return the middleware that compacts the context of an agent, unless it has one of its own or is a script."""
        settings = agent.compaction or self._compaction
        is_own = bool(agent.middleware) and any(has_method(m, ContextPolicy.shorten_context) for m in agent.middleware)
        if not settings.enabled or is_own or isinstance(agent, AgentKind) or model.name == GIVEN_CALLS:
            return ()
        return (ContextCompaction(settings, partial(self.make_compactor, agent, model)),)

    def make_compactor(self, agent: Agent, model: Model) -> "Compactor":
        """Return what compacts the context of an agent that has a model."""
        middleware = next((m for m in agent.middleware if isinstance(m, ContextCompaction)), None)
        if middleware is not None and not middleware.asks_models:
            from vaka.middleware.compactor import Compactor

            return Compactor(middleware.settings, ())
        settings, find = agent.compaction or self._compaction, self._models.find
        own: Callable[[], Model] = lambda: model  # noqa: E731  # one of several sources of a model
        first = partial(find, settings.summary_model) if settings.summary_model else own
        if not settings.summary_model and "low" in self._models.config.tiers:
            first = partial(find, "low")
        others = partial(find, settings.fallback_model) if settings.fallback_model else own
        from vaka.middleware.compactor import Compactor

        return Compactor(settings, [first, *[others] * settings.max_retries])

    def _order_middleware(self, agent: Agent, model: Model, allowed: frozenset[str] | None) -> list[Middleware]:
        """Return the middleware of an agent; ``SubAgents`` first, so that its ``Task`` replaces the project's."""
        own: Sequence[Middleware] = agent.middleware
        if not own:
            return [*self.governing]
        if any(isinstance(m, NeedsServices) for m in own):
            services = self._make_services(agent, model, allowed)
            own = [cast("Middleware", m.with_services(services)) if isinstance(m, NeedsServices) else m for m in own]
        if not any(hasattr(m, "bind_task_tool") for m in own):
            return [*self.governing, *own]
        offering = [cast("SubAgents", m) for m in own if hasattr(m, "bind_task_tool")]
        bound = [m.bind_task_tool(self._task_tool_source) for m in offering]
        return [*bound, *self.governing, *(m for m in own if m not in offering)]

    def _task_tool_source(self, subagents: "SubAgents") -> Callable[[], Tool]:
        files: Sequence[ChildAgent] | None = None
        task: Tool | None = None

        def find_tool() -> Tool:
            nonlocal files, task
            found = self.project_agents()
            if task is None or found is not files:
                from vaka.runtime.task_tool import TaskTool

                files, general = found, subagents.general_purpose
                agents = [*subagents.agents, *files]
                task = TaskTool(agents, self.build_recipe, self._models, general_purpose=general)
            return task

        return find_tool

    def _choose_model(self, agent: Agent, parent: Model | None) -> Model | None:
        """Return the model of the agent, else of its tier (for a subagent), else the default, else the parent's."""
        if agent.model:
            return self._models.resolve(agent.model)
        if parent is not None and self._models.has_tier_for(agent.name):
            return self._models.choose(subagent=agent.name, fallback=self._models.default or parent)
        return self._models.default or parent

    def _make_services(self, agent: Agent, model: Model, allowed: frozenset[str] | None) -> AgentServices:
        if self._services is None:
            raise ConfigError(f"agent {agent.name!r} needs the services of a runtime, and this builder has none")
        known: dict[str, Agent | AgentTool] = {
            tool_like.name: tool_like for tool_like in agent.tools if isinstance(tool_like, Agent | AgentTool)
        }
        built: dict[str, RunnableAgent] = {}
        built_tools: dict[int, tuple[ToolLike, Tool]] = {}
        """By the id of the tool, which is kept here so that no other one gets that id."""

        def find_agent(name: str, config: JSON) -> RunnableAgent | None:
            key = msgspec.json.encode([name, config]).decode()
            if key not in built:
                child = _agent_from_config(name, config) if config else known.get(name)
                if child is None and agent.origin is not None and not config:
                    child = agent.origin.find_agent(name)
                if child is None:
                    return None
                if len(built) >= MAX_RECIPES:
                    built.clear()
                as_tool = child.as_tool() if isinstance(child, Agent) else child
                built[key] = self._build_agent_tool(as_tool, model, allowed)
            return built[key]

        def find_model(name: str) -> Model:
            return model if name in ("default", model.name) else self._models.find(name)

        def build_tool(tool_like: ToolLike) -> Tool:
            """Build a tool once, however many tools have it as a step."""
            found = built_tools.get(id(tool_like))
            if found is None:
                found = tool_like, self._build_tool(tool_like, agent, model, allowed, services)
                built_tools[id(tool_like)] = found
            return found[1]

        services = self._services().make_services(find_model, find_agent, build_tool, self._models.embedder)
        return services

    def _build_tool(
        self,
        tool_like: ToolLike,
        agent: Agent,
        model: Model,
        allowed: frozenset[str] | None,
        services: AgentServices | None = None,
    ) -> Tool:
        if isinstance(tool_like, str):
            return _find_builtin(tool_like)
        if isinstance(tool_like, Agent):
            tool_like = tool_like.as_tool()
        if isinstance(tool_like, AgentTool):
            return self._build_agent_tool(tool_like, model, allowed)
        if not hasattr(tool_like, "bind"):
            function: Any = tool_like
            return vaka.tools.as_tool(function)
        bindable = cast("BindableTool", tool_like)
        if self._services is None:
            return _SpecOnlyTool(bindable.spec)
        return bindable.bind(services or self._make_services(agent, model, allowed))

    def _build_agent_tool(self, agent_tool: AgentTool, model: Model, allowed: frozenset[str] | None) -> RunnableAgent:
        child = agent_tool.agent
        if isinstance(child.model, str) and child.model.startswith(SCRIPTED_PREFIX):
            require_child(child, self._models.resolve(child.model))

        def build_recipe() -> Recipe:
            if allowed is None:
                return self.build_recipe(agent_tool.agent, model)
            return self._make_recipe(agent_tool.agent, model, allowed)

        from vaka.runtime.child_tool import ChildTool

        return ChildTool(agent_tool, build_recipe)


def _add_opening_texts(recipe: Recipe, middleware: Sequence[Middleware]) -> None:
    """Put the texts of middleware before the instructions of a recipe."""
    writers = [cast("ToolSource", m) for m in middleware if has_method(m, ToolSource.opening_text)]
    if not writers:
        return
    plain = copy.copy(recipe)

    async def make_instructions(turn: Turn) -> str:
        instructions = (await plain.system_text_for(turn)).text
        texts = [await _load_opening_text(turn, instructions)]
        if not texts[0]:
            texts = [await writer.opening_text(turn) for writer in writers]
        return "\n\n".join(text for text in (*texts, instructions) if text)

    recipe.make_instructions = make_instructions


async def _load_opening_text(turn: Turn, instructions: str) -> str:
    """Return what preceded the instructions before the turn was interrupted: what they are read from may have changed.

    ``""`` for a turn that begins now, or was begun with other instructions.
    """
    started = turn.agent_progress.planned_system
    if started is None or not (instructions or not turn.middleware.has_sources):
        return ""
    with suppress(Corrupt, NotFound):
        text = (await turn.log.store.blobs.get(started)).decode()
        return text.rpartition(f"\n\n{instructions}")[0] if instructions else text
    return ""


def _default_middleware(tools: Sequence[Tool]) -> tuple[Middleware, ...]:
    """Return the middleware that every agent gets, and that which its tools require."""
    if any(tool.spec.name == DMAIL_TOOL for tool in tools):
        from vaka.tools.dmail import DELIVERY

        return (_INVALID_CALL_LIMIT, DELIVERY)
    return (_INVALID_CALL_LIMIT,)


def _find_builtin(name: str) -> Tool:
    from vaka.tools.builtin import find_builtin

    return find_builtin(name)


def _load_read_output() -> Tool:
    from vaka.tools.builtin.files.read_output import read_output

    return read_output


_INVALID_CALL_LIMIT = InvalidCallLimit()
_LONG_RESULTS = LongResults(_load_read_output)
_CACHE_BUST_REPORT = CacheBustReport()


def _limits_for(agent: Agent, model: Model, middleware: Sequence[Middleware]) -> Limits:
    """Return the limits of an agent with the length of results that its ``Eviction`` sets: at most a quarter window.

    The results of given calls are not for a model, so their length is not limited.
    """
    tokens = agent.limits.max_result_tokens
    for one in middleware:
        if hasattr(one, "result_tokens"):
            tokens = cast("Eviction", one).result_tokens
            break
    if tokens is None or model.name == GIVEN_CALLS:
        tokens = None
    else:
        tokens = min(tokens, max(context_window_of(model) // 4, MIN_RESULT_TOKENS))
    if tokens == agent.limits.max_result_tokens:
        return agent.limits
    return msgspec.structs.replace(agent.limits, max_result_tokens=tokens)


def _recent_messages(agent: Agent) -> int | None:
    """Return the most messages of the conversation that the model of an agent sees, ``None`` for all."""
    counts: list[int | None] = [getattr(one, "recent_messages", None) for one in agent.middleware]
    return next((count for count in counts if count is not None), None)


def output_schema_of(agent: Agent[Any, Any]) -> "OutputSchema | None":
    """Return the schema of an agent's ``output``, if it has one. Raises ``InvalidInput`` for an unsupported type."""
    if agent.output is None:
        return None
    from vaka.runtime.structured_output import schema_for

    return schema_for(agent.output)


def _check_tool_choice(agent: Agent, recipe: Recipe) -> None:
    """Raise ``ConfigError`` for a ``tool_choice`` that the agent does not have, before the provider rejects it."""
    choice = agent.tool_choice
    if choice not in ("auto", "none", "required") and choice not in recipe.tools:
        near = find_near_names(choice, recipe.tools, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(recipe.tools) or 'none'}"
        raise ConfigError(f"agent {agent.name!r} has no tool {choice!r} for tool_choice; {hint}")


class _SpecOnlyTool:
    """A bindable tool in a builder without services: it has a spec but cannot be called."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def parse(self, raw: "str | dict[str, Any]") -> InvalidArguments:
        return InvalidArguments(f"{self.spec.name} can only be called in a runtime")

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> JSON:
        raise ConfigError(f"{self.spec.name} can only be called in a runtime")


def _agent_from_config(name: str, config: JSON) -> Agent:
    """Return the agent that a script defines with ``create_agent``."""
    try:
        fields = msgspec.convert(config, _AgentConfig)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"create_agent: the config of {name!r} may have model, instructions and prompt: {error}"
        ) from error
    model = None if fields.model == "default" else fields.model
    return Agent(name, model=model, instructions=fields.instructions or fields.prompt)


class _AgentConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The config table of ``create_agent``."""

    model: str | None = None
    instructions: str = ""
    prompt: str = ""
