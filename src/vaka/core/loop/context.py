"""Recipe: what defines an agent and is not in the log. Turn: the run of a recipe in one turn of a session."""

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Generic, TypeAlias, cast

import msgspec

from vaka.core.loop.ask_model import ask_model
from vaka.core.loop.blobs import DigestedText
from vaka.core.loop.budget import Budget
from vaka.core.loop.middleware import Middleware, MiddlewareChain, tools_of
from vaka.core.loop.permission import CallPermissions
from vaka.core.loop.stop import StopSignal, Timer
from vaka.core.loop.wait import DecisionWaits
from vaka.core.ports.env import Env
from vaka.core.ports.log import Log
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool
from vaka.core.ports.turn_protocols import AnswerObserver, ResultLimit
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, CallId, EventScope
from vaka.core.types.limits import Limits
from vaka.core.types.message import Usage
from vaka.core.types.state import AgentProgress, SessionState, agent_key
from vaka.core.types.tokens import estimate_text_tokens
from vaka.core.types.tool import ToolChoice, ToolSpec
from vaka.core.types.type_parameters import Deps_co


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tool choice, the provider options and the number of messages of every prompt."""

    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}
    recent: int | None = None
    """The most messages of the conversation in a prompt; ``None`` for all."""

    def tool_choice_after(self, tools: Mapping[str, int]) -> ToolChoice:
        """Return the choice after the calls that ``tools`` counts: a required call is required until one was made."""
        return self.tool_choice if self.tool_choice == "none" or not tools else "auto"


def tools_by_name(agent: str, given: Iterable[Tool]) -> dict[str, Tool]:
    """Return tools by their names. Raises ``InvalidInput`` when two have one name."""
    tools: dict[str, Tool] = {}
    for tool in given:
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {agent!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools


class ToolMenu:
    """The tools that a prompt offers to the model, and the digested text of that list."""

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs
        self.digested_text = DigestedText(msgspec.json.encode(specs).decode())
        self.tokens = estimate_text_tokens(len(self.digested_text.text))


class PromptParts:
    """Keeps the last tool menu and system prompt of an agent, and makes them again only from changed parts."""

    def __init__(self) -> None:
        self.menu: tuple[Policy, Mapping[str, Tool], ToolMenu] | None = None
        self._sent_menu: ToolMenu | None = None
        self._system: tuple[DigestedText, str, DigestedText] | None = None

    def make_menu(self, policy: Policy, tools: Mapping[str, Tool]) -> ToolMenu:
        """Return the tools that ``policy`` makes visible; the previous menu, if it is equal."""
        known = self.menu
        if known is None or known[0] is not policy or (known[1] is not tools and known[1] != tools):
            specs = tuple(tool.spec for tool in tools.values() if policy.visible(tool.spec))
            known = (policy, tools, ToolMenu(specs))
        self.menu = (policy, tools, known[2])  # equal tools are found the next time without a comparison of each
        return known[2]

    def sent_menu(self, specs: tuple[ToolSpec, ...]) -> ToolMenu:
        """Return the menu of a prompt in which a middleware has replaced the tools."""
        known = self._sent_menu
        if known is None or len(known.specs) != len(specs) or not all(map(is_, known.specs, specs)):
            known = self._sent_menu = ToolMenu(specs)
        return known

    def system(self, instructions: DigestedText, text: str) -> DigestedText:
        """Return the system prompt: the instructions, followed by a text."""
        known = self._system
        if known is None or known[0] is not instructions or known[1] != text:
            joined = DigestedText("\n\n".join(part for part in (instructions.text, text) if part))
            known = self._system = (instructions, text, joined)
        return known[2]


OutputCheck: TypeAlias = Callable[[str], str]
"""Returns what is wrong with an answer, ``""`` if nothing is."""
Instructions: TypeAlias = "str | Callable[[Turn], str | Awaitable[str]]"
"""A system prompt: a text, or a function that makes one at the start of each turn."""


class Recipe:
    """The definition of an agent: everything a turn needs that is not in the log. Built once, used by many turns."""

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        instructions: Instructions = "",
        tools: Sequence[Tool] = (),
        middleware: Sequence[Middleware] = (),
        limits: Limits | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self.name, self.model = name, model
        self.limits, self.settings = limits or Limits(), settings or ModelSettings()
        self.check_output: OutputCheck | None = None
        self.run_override: Callable[[Turn], Awaitable[Ending]] | None = None
        """Replaces the loop of model calls and tool calls, for an agent that runs something else, such as a script."""
        self.middleware = MiddlewareChain(middleware, self.limits.middleware_timeout)
        self.make_instructions = None if isinstance(instructions, str) else instructions
        self.system_text = DigestedText(instructions if isinstance(instructions, str) else "")
        self.tools = tools_by_name(name, [*tools, *tools_of(middleware)])
        self.allowed: frozenset[str] | None = None
        """The names of the tools that middleware may add; ``None`` for all."""
        self.prompt_parts = PromptParts()
        self.result_limit: ResultLimit | None = None
        self.answer_observer: AnswerObserver | None = None

    async def system_text_for(self, turn: "Turn") -> DigestedText:
        """Return the system prompt of a turn. Raises ``InvalidInput`` when ``make_instructions`` returns no str."""
        if self.make_instructions is None:
            return self.system_text
        made = self.make_instructions(turn)
        text = cast("object", await made if inspect.isawaitable(made) else made)
        if not isinstance(text, str):
            raise InvalidInput(f"the instructions of agent {self.name!r} must be a str, not {type(text).__name__}")
        return DigestedText(text)


class Turn(Generic[Deps_co]):
    """The run of one agent in one turn: its log, state, tools, budget and stop signal."""

    def __init__(
        self,
        log: Log,
        recipe: Recipe,
        env: Env,
        scope: EventScope,
        stop: StopSignal,
        parent: "Turn | None" = None,
        parent_timer: Timer | None = None,
    ) -> None:
        self.log = log
        self.recipe = recipe
        self.env = env
        self.stop = stop
        self.scope = scope
        self.session = log.session
        self.id = scope.turn
        self.path = scope.path
        """The agent below the root agent, ``()`` for the root itself."""
        self.agent = recipe.name
        self.state: SessionState = log.state
        """The folded state of the log, without deferred events."""
        self._agent_key = agent_key(scope.path)
        self.values: dict[str, Any] = {}
        """What middlewares and tools share during this run; it is not in the log."""
        self.middleware: MiddlewareChain = (
            recipe.middleware if parent is None else recipe.middleware.under(parent.middleware)
        )
        self.limits: Limits = recipe.limits if parent is None else recipe.limits.within(parent.limits)
        self.tools = recipe.tools
        self.depth: int = 0 if parent is None else parent.depth + 1
        children = self.state.turn.children if self.state.turn is not None else 0
        self.started: dict[str, int] = {"agents": children, "scripts": 0} if parent is None else parent.started
        """How many child agents, and scripts of scripts, the turn has started; all its agents share it."""
        self.admitted_calls = defaultdict(int, self.agent_progress.tools)
        """How many calls of each tool have passed ``before_tool``. Open calls do not count: they pass it again."""
        for open in self.state.open_calls_of(scope.path):
            self.admitted_calls[open.call.name] -= 1
        self.timer = Timer(self.limits.timeout, lambda: stop.trigger("limit", "time"), parent_timer)
        self.budget: Budget = Budget(self.limits, log, scope, recipe.name, parent.budget if parent else None)
        """Pays for its model calls, together with the budgets of the parents."""
        self.deps: Deps_co = parent.deps if parent is not None else cast("Any", None)
        """Dependencies of tools and instructions; they are never written to the log."""
        self.metadata: Mapping[str, Any] = parent.metadata if parent is not None else {}
        self.conversations: dict[CallId, str] | None = None
        """The calls of a script whose children keep their conversation: the child that each continues, or ``""``."""
        self.instructions = self.system = recipe.system_text
        """The instructions and the whole system prompt, with their digests."""
        self._added_tools: tuple[Tool, ...] = ()
        limit = recipe.result_limit
        self.has_cut_texts = limit is not None and limit.has_cut_texts(self)
        """Whether a text of the conversation is shown in part; from then on the agent has a tool to read it."""

    @property
    def tool_menu(self) -> ToolMenu:
        """The tools that the next model call offers."""
        policy, parts = self.env.policy, self.recipe.prompt_parts
        known = parts.menu
        if known is not None and known[0] is policy and known[1] is self.tools:
            return known[2]
        return parts.make_menu(policy, self.tools)

    async def load_prompt(self) -> None:
        """Load the tools and the system prompt of the next model call: the agent's own, and what middlewares add."""
        if self.recipe.make_instructions is not None and self.instructions is self.recipe.system_text:
            self.system = self.instructions = await self.recipe.system_text_for(self)
        if self.has_cut_texts or self.middleware.has_sources:
            await self.load_sources()

    async def load_sources(self) -> None:
        """Ask the middlewares for the tools and the text of the system prompt that they add to the next model call."""
        added, allowed = await self.middleware.run_tools_for_step(self), self.recipe.allowed
        added = added if allowed is None else tuple(tool for tool in added if tool.spec.name in allowed)
        limit = self.recipe.result_limit
        added += tuple(limit.reading_tools(self)) if self.has_cut_texts and limit is not None else ()
        if added != self._added_tools:
            self._added_tools, self.tools = added, dict(self.recipe.tools)
            for tool in added:
                self.tools.setdefault(tool.spec.name, tool)
        self.system = self.recipe.prompt_parts.system(
            self.instructions, await self.middleware.run_prompt_for_step(self)
        )

    @property
    def agent_progress(self) -> AgentProgress:
        """The progress of this agent as the log has it."""
        return self.state.lanes.get(self._agent_key) or AgentProgress()

    @property
    def usage(self) -> Usage:
        """The usage of this agent in this turn, without its children."""
        return self.agent_progress.usage

    @property
    def last_text(self) -> str:
        """The text of the agent's last answer."""
        text = self.log.pending.texts.get(self.path)
        return text if text is not None else self.log.window.last_text(self.scope.turn, self.path)

    @property
    def permissions(self) -> CallPermissions:
        """Permission for the calls of this agent."""
        return CallPermissions(self.log, self.env, self.limits, self.agent, self.path)

    @property
    def decision_waits(self) -> DecisionWaits:
        """The waits of the current step for decisions of people."""
        return DecisionWaits(self.log, self.scope, self.env, self.stop, self.timer)

    def get_state(self, key: str) -> JSON:
        """Return a value of the session's state, deferred changes included."""
        return self.log.get_value(key)

    def count(self, tool: str) -> int:
        """Return how many calls of a tool have passed ``before_tool`` in this turn."""
        return self.admitted_calls[tool]

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
        """Call a model on behalf of a middleware and return its complete answer; the budgets of the turn pay for it.

        Raises ``ModelError``, and ``TurnStopped`` when a budget cannot pay.
        """
        return await ask_model(self.budget, model, prompt)

    def start_step(self, number: int) -> None:
        """Write the following events under step ``number``."""
        self.scope = self.budget.scope = EventScope(self.scope.turn, number, self.scope.path)
