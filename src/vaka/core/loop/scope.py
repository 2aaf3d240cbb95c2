"""What a turn knows, shared by the steps, the tools and the middleware of one agent in one turn."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.loop.limits import Limits
from vaka.core.loop.middleware import Chain, Middleware
from vaka.core.loop.stop import Stop
from vaka.core.ports.clock import Clock, Ids
from vaka.core.ports.model import Model
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool
from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.session.state import Lane, State
from vaka.core.types.content import text_of
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import Digest, Path, SessionId, TurnId
from vaka.core.types.progress import MessageCompleted
from vaka.core.types.tool import ToolChoice
from vaka.core.types.usage import Usage

AskMode: TypeAlias = Literal["wait", "suspend", "deny"]
"""What to do when a person is needed: wait here, leave the question in the log and stop, or take it as a no."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What makes an agent: everything a turn needs that is not in the log."""

    name: str
    model: Model
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    middleware: tuple[Middleware, ...] = ()
    limits: Limits = Limits()
    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}


class Env:
    """What the runtime lends to every turn."""

    def __init__(self, clock: Clock, ids: Ids, policy: Policy, ask: AskMode = "wait") -> None:
        self.clock, self.ids, self.policy, self.ask = clock, ids, policy, ask
        self.known: set[Digest] = set()
        """Texts already kept as blobs."""
        self.strays: set[asyncio.Task[Any]] = set()
        """Tools that would not stop when told to."""


class Turn:
    """One agent at work in one turn."""

    def __init__(self, log: Log, recipe: Recipe, env: Env, place: Place, stop: Stop) -> None:
        self.log, self.recipe, self.env, self.stop = log, recipe, env, stop
        self.at = place
        self.values: dict[str, Any] = {}
        self.chain = Chain(recipe.middleware, recipe.limits.middleware_timeout)
        self.tools = _by_name(recipe)
        self.timer = Timer(stop, recipe.limits.timeout)

    @property
    def session(self) -> SessionId:
        """The session this happens in."""
        return self.log.session

    @property
    def id(self) -> TurnId:
        """The turn."""
        return self.at.turn

    @property
    def path(self) -> Path:
        """Which agent this is, seen from the root."""
        return self.at.path

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.recipe.name

    @property
    def state(self) -> State:
        """The session as the log has it now."""
        return self.log.state

    @property
    def lane(self) -> Lane:
        """How far this agent has come."""
        return self.log.state.lane(self.at.path)

    @property
    def usage(self) -> Usage:
        """What this agent has used in this turn."""
        return self.lane.usage

    @property
    def text(self) -> str:
        """The words of the last answer, written already or about to be."""
        for place, body in reversed(self.log.deferred):
            if place.path == self.at.path and isinstance(body, MessageCompleted) and text_of(body.content):
                return text_of(body.content)
        return self.log.window.text(self.at.turn, self.at.path)

    def count(self, tool: str) -> int:
        """Return how often a tool was called in this turn."""
        return self.lane.tools.get(tool, 0)

    def step(self, number: int) -> None:
        """Go on to a step."""
        self.at = Place(self.at.turn, number, self.at.path)


class Timer:
    """Stops a turn when its time is over; stands still while a person is waited for."""

    def __init__(self, stop: Stop, seconds: float | None) -> None:
        self._stop, self._left = stop, seconds
        self._handle: asyncio.TimerHandle | None = None
        self._paused = 0

    def start(self) -> None:
        """Let the time run."""
        if self._left is not None and self._handle is None and not self._paused:
            self._handle = asyncio.get_running_loop().call_later(self._left, self._stop.trigger, "limit", "time")

    def cancel(self) -> None:
        """Let it stand."""
        if self._handle is not None:
            self._left = max(self._handle.when() - asyncio.get_running_loop().time(), 0.0)
            self._handle.cancel()
            self._handle = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it stand while a person is waited for."""
        self._paused += 1
        self.cancel()
        try:
            yield
        finally:
            self._paused -= 1
            self.start()


def _by_name(recipe: Recipe) -> dict[str, Tool]:
    brought: Sequence[Tool] = [tool for middleware in recipe.middleware for tool in middleware.tools()]
    tools: dict[str, Tool] = {}
    for tool in (*recipe.tools, *brought):
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {recipe.name!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools
