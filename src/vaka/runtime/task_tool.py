"""The tool ``Task``: it runs child agents and continues earlier ones."""

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, cast
from weakref import WeakKeyDictionary

import msgspec

from vaka.agents.react import Agent
from vaka.agents.subagents import GENERAL_AGENT, ChildAgent, SubAgent
from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Recipe, Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.subagent import PastChild, child_result, find_past_child, run_subagent
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import Approver
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import AuthenticationFailed, ConfigError, InvalidInput
from vaka.core.types.message import Text, ToolCall, ToolResult, as_content
from vaka.core.types.state import agent_key, child_name
from vaka.core.types.tool import Allow, Deny, InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.traits import ToolTraits
from vaka.matching.mcp_names import cut_name_of, tool_part
from vaka.policy.tool_targets import builtin_name_of
from vaka.runtime.builtin_agents import DeferredTask
from vaka.runtime.model_registry import SCRIPTED_PREFIX, ModelRegistry, tier_of
from vaka.tools.function import FunctionTool, ToolReturn, tool

if TYPE_CHECKING:
    from vaka.runtime.agent_builder import AgentBuilder

TASK_TOOL = "Task"
TASK_TRAITS = ToolTraits(
    summary=("subagent_type",),
    rule_arguments=("subagent_type", "model", "resume", "description", "prompt"),
)
"""A call itself does nothing: each call of the child agent is judged on its own."""
MENU_CHARACTERS = 15_000
"""Characters of the names and descriptions of skills, commands or agents in the description of a tool."""

_ABOUT = (
    "Hand a task to another agent, which works alone and answers once. Several calls in one answer run at the same "
    "time. The result names the id of the agent: with it as resume, the agent goes on with what it knows. "
    "The agents are:"
)

_CLAUDE_FAMILY = re.compile("haiku|sonnet|opus", re.IGNORECASE)

_ALONE = "The other agent sees nothing but your last answer."
GENERAL = SubAgent(
    name=GENERAL_AGENT,
    description="Has all tools.",
    instructions="You are an agent that does one task for another agent. Do all of it, use the tools you need, and "
    f"answer with everything the other agent has to know. {_ALONE}",
)
PROJECT_AGENTS = (
    GENERAL,
    SubAgent(
        name="explore",
        description="Searches files and reads them, and changes nothing.",
        model="haiku",
        allowed_tools=("Read", "Grep", "Glob"),
        instructions="You search a project for another agent. Find what it asks for with as few calls as you can, and "
        f"answer with the places, as path:line, and what is there. {_ALONE}",
    ),
    SubAgent(
        name="plan",
        description="Reads what a task needs and answers with a plan, and changes nothing.",
        model="sonnet",
        permission_mode="plan",
        instructions="You plan a task for another agent. Read what you need, change nothing, and answer with the "
        f"steps, the files that change and what to look out for. {_ALONE}",
    ),
)
"""The built-in child agents; files of a project with these names replace them."""

BuildRecipe = Callable[[Agent, Model | None], Recipe]


class RuntimeTool:
    """A function as a tool that rules treat as a built-in one.

    ``complete`` returns the arguments with the whole names of what they name, which rules match.
    """

    def __init__(self, function: FunctionTool[..., Any], complete: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._function, self._complete = function, complete
        self.spec, self.traits = msgspec.structs.replace(function.spec, layer="builtin"), function.traits

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        parsed = self._function.parse(raw)
        if isinstance(parsed, InvalidArguments):
            return parsed
        return msgspec.structs.replace(parsed, value=self._complete(parsed.value))

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        return await self._function.call(context, arguments)


class TaskTool(RuntimeTool):
    """Runs the child agents that it is given; of two with one name the first counts."""

    def __init__(
        self,
        agents: Iterable[ChildAgent],
        build_recipe: BuildRecipe,
        models: ModelRegistry,
        *,
        general_purpose: bool = False,
    ) -> None:
        self._build_recipe, self._models = build_recipe, models
        self._definitions: dict[str, ChildAgent] = {}
        for agent in (*agents, *([GENERAL] if general_purpose else [])):
            self._definitions.setdefault(agent.name, agent)
        self._agents: WeakKeyDictionary[Recipe, dict[tuple[str, str], _BuiltAgent]] = WeakKeyDictionary()
        """The agents by the calling recipe, their names and models, so that their recipes are cached."""
        menu = menu_text(_ABOUT, [(agent.name, agent.description) for agent in self._definitions.values()])
        function = tool(self._run, name=TASK_TOOL, description=menu, effect="resume", timeout=None, traits=TASK_TRAITS)
        super().__init__(function, self._complete_name)

    async def _run(
        self,
        context: ToolContext,
        prompt: Annotated[str, "What the agent should do, in full: it sees nothing else."],
        description: Annotated[str, "The task in three to five words."] = "",
        subagent_type: Annotated[str, "The name of the agent."] = "",
        model: Annotated[str, "A tier (low, mid, high) or the name of a model, in place of the agent's own."] = "",
        resume: Annotated[str, "The id of an agent that an earlier result named, to continue that agent."] = "",
    ) -> ToolResult:
        if not prompt.strip():
            raise InvalidInput("the prompt of the agent is empty")
        call = cast("CallContext", context)
        past = await find_past_child(call, resume) if resume.strip() else None
        if past is not None:
            self._check_resumed(call, past, subagent_type)
        definition = self._find_definition(past.agent if past is not None else subagent_type)
        recipe = self._recipe_for(definition, call.owner_turn, model.strip())
        ending = await run_subagent(context, recipe, as_content(prompt), past)
        result = child_result(context.call, recipe.name, ending)
        if ending.limit in ("depth", "children"):
            return result  # no agent has started
        id = agent_key((*call.path, child_name(call.open_call.number)))
        return msgspec.structs.replace(result, content=(*result.content, Text(text=f"\n\n[agent id: {id}]")))

    def _complete_name(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name, resumed = str(arguments.get("subagent_type") or ""), str(arguments.get("resume") or "").strip()
        if name.strip() or not resumed:
            with suppress(InvalidInput):  # the call itself fails then
                return {**arguments, "subagent_type": self._find_definition(name).name}
        return arguments

    def _check_resumed(self, call: CallContext, past: PastChild, name: str) -> None:
        """Raise ``InvalidInput`` if the call names another agent, or names none and the rules forbid this agent."""
        if name.strip() and self._find_definition(name).name != past.agent:
            raise InvalidInput(f"the agent {agent_key(past.path)} is {past.agent!r}, not {name.strip()!r}")
        turn, given = call.owner_turn, call.open_call.call
        named = msgspec.structs.replace(given, arguments={**given.arguments, "subagent_type": past.agent})
        if not name.strip() and not isinstance(turn.env.policy.judge(named, self.spec, turn.path), Allow):
            raise InvalidInput(f"rules decide about this agent; name it too: subagent_type={past.agent!r}")

    def _find_definition(self, name: str) -> ChildAgent:
        name = name.strip()
        if not name and (GENERAL_AGENT in self._definitions or len(self._definitions) == 1):
            name = GENERAL_AGENT if GENERAL_AGENT in self._definitions else next(iter(self._definitions))
        found = [known for known in self._definitions if known.lower() == name.lower()]
        found = found or [known for known in self._definitions if known.lower().endswith(f":{name.lower()}")]
        definition = self._definitions.get(name) or (self._definitions[found[0]] if len(found) == 1 else None)
        if definition is None:
            known = ", ".join(found or self._definitions)
            reason = "name one of" if found or not name else f"there is no agent {name!r}; there are"
            raise InvalidInput(f"{reason}: {known}")
        return definition

    def _recipe_for(self, definition: ChildAgent, parent: Turn, model: str) -> Recipe:
        agents = self._agents.setdefault(parent.recipe, {})
        tools = [tool for tool in parent.tools.values() if not isinstance(tool, RuntimeTool | DeferredTask)]
        built = agents.get((definition.name, model))
        if built is None or built.tools != tools or built.limits != parent.limits:
            chosen = self._choose_model(model, definition, parent.recipe.model)
            agent = _make_agent(definition, parent, tools, chosen)
            built = agents[definition.name, model] = _BuiltAgent(agent, tools, parent.limits)
        recipe = self._build_recipe(built.agent, parent.recipe.model)
        recipe.allowed = _allowed_names(definition, parent)
        if (above := parent.recipe.allowed) is not None:
            recipe.tools = {name: one for name, one in recipe.tools.items() if name in above}
        return recipe

    def _choose_model(self, wanted: str, definition: ChildAgent, parent: Model) -> Model | None:
        """Return the model that the call names, else the agent's model, else its tier's, else the caller's."""
        models, named = self._models, definition.model
        if wanted:
            return find_named_model(models, wanted, parent)
        if named is not None and not isinstance(named, str):
            return named
        found, tier = find_file_model(models, named or "")
        if found is not None:
            return found
        if (tier and models.config.tiers) or models.has_tier_for(definition.name):
            return models.choose(tier=tier, subagent=definition.name, fallback=parent)
        return parent if isinstance(definition, SubAgent) else None


class _BuiltAgent(msgspec.Struct):
    agent: Agent
    tools: list[Tool]
    """The tools that the calling agent had."""
    limits: Any


def find_file_model(models: ModelRegistry, name: str) -> tuple[Model | None, str]:
    """Return the model that a file names, or else its tier; neither for ``inherit``. Raises ``ConfigError``."""
    found, tier = name_file_model(models, name)
    return models.find(found) if found else None, tier


def name_file_model(models: ModelRegistry, name: str) -> tuple[str, str]:
    """Return the model that a file names as its name in the registry, or else as its tier; neither for ``inherit``.

    Agent files often name old models of Claude. If such a model cannot be used, its tier is.
    """
    tier = tier_of(name)
    if not name or tier or name.lower() == "inherit":
        return "", tier
    family = _CLAUDE_FAMILY.search(name)
    if family is None or name in models.config.models or "/" in name:
        return name, ""
    if name.startswith("claude-"):
        with suppress(ConfigError, AuthenticationFailed):
            models.find(f"anthropic/{name}")
            return f"anthropic/{name}", tier_of(family[0])
    return "", tier_of(family[0])


def find_named_model(models: ModelRegistry, name: str, parent: Model) -> Model:
    """Return the model that a tool call names. Raises ``ConfigError`` for a model that a model may not choose."""
    if tier_of(name):
        return models.choose(tier=name, fallback=parent)
    if name.lower() == "inherit" or name == parent.name:
        return parent
    if name.startswith(SCRIPTED_PREFIX) or not (name in models.config.models or "/" in name):
        known = ", ".join(["low", "mid", "high", *models.config.models])
        raise ConfigError(f"there is no model {name!r}; use one of {known}, or PROVIDER/NAME")
    return models.find(name)


def _make_agent(definition: ChildAgent, parent: Turn, tools: Sequence[Tool], model: Model | None) -> Agent:
    if isinstance(definition, Agent):
        agent = copy.copy(definition)
        agent.model = model or agent.model
        return agent
    allowed, denied = definition.allowed_tools, definition.disallowed_tools
    inherited = [
        one
        for one in tools
        if (allowed is None or matches_tool(one.spec.name, allowed)) and is_of_servers(one.spec, definition.mcp_servers)
    ]
    mode = definition.permission_mode
    return Agent(
        definition.name,
        instructions=definition.instructions,
        model=model,
        tools=[one for one in inherited if not matches_tool(one.spec.name, denied, exact=False)]
        if definition.tools is None
        else definition.tools,
        limits=msgspec.structs.replace(parent.limits, max_steps=definition.max_steps or parent.limits.max_steps),
        middleware=[*([NarrowedMode(mode)] if mode else []), *definition.middleware],
        options=definition.options,
    )


def _allowed_names(definition: ChildAgent, parent: Turn) -> frozenset[str] | None:
    """Return the names of the tools that middleware may add to a child: never more than its caller may have."""
    above = parent.recipe.allowed
    if isinstance(definition, Agent):
        return above
    if definition.allowed_tools is None and not definition.disallowed_tools and definition.mcp_servers is None:
        return above
    names = [name for name in parent.tools if above is None or name in above]
    allowed, denied = definition.allowed_tools, definition.disallowed_tools
    return frozenset(
        name
        for name in names
        if (allowed is None or matches_tool(name, allowed))
        and not matches_tool(name, denied, exact=False)
        and is_of_servers(parent.tools[name].spec, definition.mcp_servers)
    )


def is_of_servers(spec: ToolSpec, servers: Sequence[str] | None) -> bool:
    """Return whether a tool belongs to the MCP servers of an agent; tools that read resources reach all servers."""
    if servers is None or not (spec.layer == "mcp" or spec.name.startswith("mcp__")):
        return True
    return any(spec.name.startswith(f"mcp__{tool_part(server)}__") for server in servers)


def matches_tool(name: str, patterns: Iterable[str], *, exact: bool = True) -> bool:
    """Return whether a list of tools names one: ``Bash``, ``Bash(git:*)``, ``mcp__server``, ``mcp__server__*``.

    Aliases such as ``Agent`` for ``Task``, names in lower case and whole names of tools whose names are cut count;
    without ``exact`` also those that may be meant.
    """
    written = [pattern.partition("(")[0].strip() for pattern in patterns]
    plain = [cut_name_of(one, exact=exact) or builtin_name_of(one) for one in written]
    return any(fnmatchcase(name, one) or (one.startswith("mcp__") and name.startswith(f"{one}__")) for one in plain)


class NarrowedMode(Middleware, Approver):
    """Narrows the permissions of an agent: ``plan`` only reads, ``dontAsk`` refuses what would ask."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Deny:
        called = turn.tools.get(call.name)
        if self._mode == "plan" and called is not None and called.spec.effect != "read":
            return Deny("this agent only reads (permissionMode: plan)")
        return call

    async def decide_approval(self, turn: Turn, request: ApprovalRequested) -> Deny | None:
        return Deny("this agent does not ask (permissionMode: dontAsk)") if self._mode == "dontAsk" else None


def menu_text(about: str, items: Iterable[tuple[str, str]]) -> str:
    """Return a description that lists names with their descriptions, which are shortened to fit ``MENU_CHARACTERS``.

    A name is never cut; names for which there is no room are counted at the end.
    """
    entries: dict[str, str] = {}
    for name, text in items:
        entries.setdefault(name, " ".join(text.split()))
    left = MENU_CHARACTERS
    room = _room_of_descriptions(list(entries.values()), left - sum(len(name) + 5 for name in entries))
    lines: list[str] = []
    for name, text in entries.items():
        shown = text if len(text) <= room else text[: room - 1] + "…"
        line = f"- {name}: {shown}" if text and room > 1 else f"- {name}"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"… and {len(entries) - len(lines)} more, which can be used by their names")
            break
        lines.append(line)
    return "\n".join([about, *lines])


def builtin_task_tool(builder: "AgentBuilder", models: ModelRegistry) -> TaskTool:
    """Return the tool that runs the built-in child agents."""
    return TaskTool(PROJECT_AGENTS, builder.build_recipe, models)


def _room_of_descriptions(texts: Sequence[str], budget: int) -> int:
    """Return the length to which descriptions are cut, so that all fit together; short ones leave room for others."""
    lengths = sorted(len(text) for text in texts)
    for position, length in enumerate(lengths):
        share = budget // (len(lengths) - position)
        if length > share:
            return max(share, 0)
        budget -= length
    return MENU_CHARACTERS
