"""Turn: the state that steps, tools and middleware of one agent share in one turn; Env: services of the runtime."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeAlias

from vaka.core.loop.budget.reservations import Reservations
from vaka.core.loop.recipe import Recipe
from vaka.core.loop.stop import StopSignal
from vaka.core.loop.timer import Timer
from vaka.core.ports.clock import Clock, IdGenerator
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import World, shell_folder_key
from vaka.core.session.log import Log
from vaka.core.session.state import AgentProgress, SessionState, agent_key
from vaka.core.types.ids import JSON, Digest, EventScope, SessionId
from vaka.core.types.message import Usage

AskMode: TypeAlias = Literal["wait", "suspend", "deny"]
"""What a turn does when it needs a decision: wait for it, suspend with the request in the log, or deny it."""


class Env:
    """The services of the runtime that all turns share."""

    def __init__(self, clock: Clock, ids: IdGenerator, policy: Policy, ask: AskMode = "wait") -> None:
        self.clock, self.ids, self.policy, self.ask = clock, ids, policy, ask
        self.stored_digests: set[Digest] = set()
        """Digests of prompt texts that are stored as blobs already."""
        self.make_world: Callable[[], World] = World
        """Creates ``world`` on first use."""
        self.stray_tasks: set[asyncio.Task[Any]] = set()
        """Tasks of tools that did not end within the grace period of their cancellation."""

    @cached_property
    def world(self) -> World:
        """The files, commands and network that tools use."""
        return self.make_world()

    @property
    def world_created(self) -> bool:
        """Whether ``world`` was used yet."""
        return "world" in vars(self)

    async def end_commands(self, session: SessionId | None = None) -> None:
        """End the background commands of one session, or of all sessions."""
        if self.world_created and self.world.shells is not None:
            await self.world.shells.close(session)

    def can_wait(self) -> bool:
        """Whether the turn may still wait for a decision: the mode changes when the runtime closes."""
        return self.ask == "wait"


class Turn:
    """The run of one agent in one turn: its log, state, tools, limits and stop signal."""

    def __init__(
        self,
        log: Log,
        recipe: Recipe,
        env: Env,
        scope: EventScope,
        stop: StopSignal,
        parent_timer: "Timer | None" = None,
    ) -> None:
        self.log, self.recipe, self.env, self.stop = log, recipe, env, stop
        self.scope = scope
        self.session, self.id, self.path, self.agent = log.session, scope.turn, scope.path, recipe.name
        """The ids of session and turn, and the path of the agent below the root agent."""
        self.state: SessionState = log.state
        """The folded state of the log, without deferred events."""
        self._agent_key = agent_key(scope.path)
        self.values: dict[str, Any] = {}
        self.middleware, self.tools = recipe.middleware, recipe.tools
        self.admitted_calls = defaultdict(int, self.agent_progress.tools)
        for open in self.state.open_calls_of(scope.path):
            self.admitted_calls[open.call.name] -= 1
        self.timer = Timer(recipe.limits.timeout, lambda: stop.trigger("limit", "time"), parent_timer)
        self.budget_turns: tuple[Turn, ...] = (self,) if recipe.limits.has_budget else ()
        """The turns whose budgets pay for its model calls: itself and its parents, if they have a budget."""
        self.reservations, self.has_ended = Reservations(), False
        self.deps: Any = None
        """Dependencies of tools and instructions; they are never written to the log."""
        self.metadata: Mapping[str, Any] = {}
        self.system = recipe.system_text
        """The system prompt, with its digest."""

    def attach_to(self, parent: "Turn") -> "Turn":
        """Make this the turn of a child: usage counts against the budgets of ``parent``, too. Returns itself."""
        self.budget_turns, self.reservations = (*parent.budget_turns, *self.budget_turns), parent.reservations
        self.deps, self.metadata = parent.deps, parent.metadata
        return self

    @property
    def agent_progress(self) -> AgentProgress:
        """The progress of this agent as the log has it."""
        return self.state.lanes.get(self._agent_key) or AgentProgress()

    @property
    def usage(self) -> Usage:
        """The usage of this agent in this turn, without its children."""
        return self.agent_progress.usage

    @property
    def counted_usage(self) -> Usage:
        """The usage that counts against the limits of this agent: its own and that of its children."""
        if not self.path:
            return self.turn_usage
        progress = self.agent_progress
        return progress.usage + progress.below + self.log.pending.usage_under(self.path)

    @property
    def turn_usage(self) -> Usage:
        """The usage of the whole turn, children included."""
        running, pending = self.state.turn, self.log.pending
        stored = running.usage if running else Usage()
        return stored + pending.usage_under(()) if pending.usage else stored

    @property
    def last_text(self) -> str:
        """The text of the agent's last answer."""
        text = self.log.pending.texts.get(self.path)
        return text if text is not None else self.log.window.last_text(self.scope.turn, self.path)

    def get_state(self, key: str) -> JSON:
        """Return a value of the session's state, deferred changes included."""
        values = self.log.pending.values
        return values[key] if key in values else self.state.values.get(key)

    @property
    def asking_disabled(self) -> bool:
        """Whether no more approvals are requested: a rejection without a message ends the turn."""
        return self.state.turn is not None and bool(self.state.turn.rejected)

    def can_wait(self) -> bool:
        """Whether the turn may still wait for the answer of a person."""
        return self.env.can_wait() and not self.asking_disabled

    @property
    def shell_folder(self) -> str:
        """The folder in which the next command of this agent starts, ``""`` for the working folder."""
        folder = self.get_state(shell_folder_key(self.path))
        return folder if isinstance(folder, str) else ""

    @property
    def next_call_number(self) -> int:
        """The number of the agent's next tool call, deferred ones counted."""
        return self.state.calls_made_by(self.path) + self.log.pending.calls_made.get(self.path, 0) + 1

    def count(self, tool: str) -> int:
        """Return how many calls of a tool have passed ``before_tool`` in this turn."""
        return self.admitted_calls[tool]

    def start_step(self, number: int) -> None:
        """Write the following events under step ``number``."""
        self.scope = EventScope(self.scope.turn, number, self.scope.path)
