"""What a turn knows, shared by the steps, the tools and the middleware of one agent in one turn."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from vaka.core.loop.limits import Limits
from vaka.core.loop.middleware import Chain, Middleware
from vaka.core.loop.purse import Purse
from vaka.core.loop.stop import Stop
from vaka.core.ports.clock import Clock, Ids
from vaka.core.ports.model import Model
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool
from vaka.core.ports.world import World, shell_folder
from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.session.state import Lane, State, lane_key
from vaka.core.types.content import text_of
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import MessageCompleted, ToolCalled
from vaka.core.types.tool import ToolChoice, ToolSpec
from vaka.core.types.usage import Usage

if TYPE_CHECKING:
    from vaka.core.loop.ending import Ending

AskMode: TypeAlias = Literal["wait", "suspend", "deny"]
"""What to do when a person is needed: wait here, leave the question in the log and stop, or take it as a no."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is to be asked."""

    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}


class Kept:
    """A text models see again and again, with its digest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = Digest(hashlib.sha256(text.encode()).hexdigest()) if text else None


class Menu:
    """The tools a model is told of, and the text of that list."""

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs
        self.text = Kept(msgspec.json.encode(specs).decode())


class Recipe:
    """What makes an agent: everything a turn needs that is not in the log. Made once, used by many turns."""

    def __init__(
        self, name: str, model: Model, *, instructions: str = "", tools: Sequence[Tool] = (),
        middleware: Sequence[Middleware] = (), limits: Limits | None = None, settings: Settings | None = None,
    ) -> None:  # fmt: skip
        self.name, self.model, self.instructions = name, model, instructions
        self.limits, self.settings = limits or Limits(), settings or Settings()
        self.body: Callable[[Turn], Awaitable[Ending]] | None = None
        """What the agent does in a turn, when that is something else than asking its model and settling its calls."""
        self.chain = Chain(middleware, self.limits.middleware_timeout)
        self.system = Kept(instructions)
        self.tools = _by_name(name, [*tools, *(tool for m in middleware for tool in m.tools())])
        self._menu: tuple[Policy, Menu] | None = None

    def menu(self, policy: Policy) -> Menu:
        """Return the tools a model may be told of under ``policy``."""
        if self._menu is None or self._menu[0] is not policy:
            specs = tuple(tool.spec for tool in self.tools.values() if policy.visible(tool.spec))
            self._menu = (policy, Menu(specs))
        return self._menu[1]


class Env:
    """What the runtime lends to every turn."""

    def __init__(self, clock: Clock, ids: Ids, policy: Policy, ask: AskMode = "wait") -> None:
        self.clock, self.ids, self.policy, self.ask = clock, ids, policy, ask
        self.known: set[Digest] = set()
        """Texts already kept as blobs."""
        self.lend: Callable[[], World] = World
        """Makes what tools can touch, when the first one does."""
        self.strays: set[asyncio.Task[Any]] = set()
        """Tools that would not stop when told to."""

    @cached_property
    def world(self) -> World:
        """What tools can touch."""
        return self.lend()

    @property
    def lent(self) -> bool:
        """Whether tools have touched anything yet."""
        return "world" in vars(self)

    def patient(self) -> bool:
        """Whether this is still a place to wait for a person."""
        return self.ask == "wait"


class Turn:
    """One agent at work in one turn."""

    def __init__(
        self, log: Log, recipe: Recipe, env: Env, place: Place, stop: Stop, above: "Timer | None" = None
    ) -> None:
        self.log, self.recipe, self.env, self.stop = log, recipe, env, stop
        self.at = place
        self.session, self.id, self.path, self.agent = log.session, place.turn, place.path, recipe.name
        """Where this happens: the session, the turn, and which agent this is, seen from the root."""
        self.state: State = log.state
        """The session as the log has it now."""
        self._lane = lane_key(place.path)
        self.values: dict[str, Any] = {}
        self.chain, self.tools = recipe.chain, recipe.tools
        self.admitted = Counter(self.lane.tools)
        for open in self.state.calls_at(place.path):
            self.admitted[open.call.name] -= 1
        self.timer = Timer(recipe.limits.timeout, lambda: stop.trigger("limit", "time"), above)
        self.payers: tuple[Turn, ...] = (self,) if recipe.limits.budgeted else ()
        """Whose budgets its model calls are paid from: of itself and everyone above it, those who have one."""
        self.purse, self.over = Purse(), False

    def below(self, parent: "Turn") -> "Turn":
        """Be at work for ``parent``: what this costs is paid from its budgets too."""
        self.payers, self.purse = (*parent.payers, *self.payers), parent.purse
        return self

    @property
    def lane(self) -> Lane:
        """How far this agent has come."""
        return self.state.lanes.get(self._lane) or Lane()

    @property
    def usage(self) -> Usage:
        """What this agent has used in this turn."""
        return self.lane.usage

    @property
    def spent(self) -> Usage:
        """What counts against this agent's limits: also what its children used."""
        if not self.path:
            return self.total
        here, lane = self.path, self.lane
        return sum(self._waiting(lambda place: place.path[: len(here)] == here), lane.usage + lane.below)

    @property
    def total(self) -> Usage:
        """What the whole turn has used, children included, written already or about to be."""
        return sum(self._waiting(lambda _: True), self.state.turn.usage if self.state.turn else Usage())

    def _waiting(self, mine: Callable[[Place], bool]) -> list[Usage]:
        """Return what was used and is not written yet."""
        return [body.usage for place, body in self.log.deferred if isinstance(body, UsageRecorded) and mine(place)]

    @property
    def text(self) -> str:
        """The words of the last answer, written already or about to be."""
        for place, body in reversed(self.log.deferred):
            if place.path == self.at.path and isinstance(body, MessageCompleted) and text_of(body.content):
                return text_of(body.content)
        return self.log.window.text(self.at.turn, self.at.path)

    def kept(self, key: str) -> JSON:
        """Return a value the session keeps, written already or about to be."""
        for _, body in reversed(self.log.deferred):
            if isinstance(body, StateChanged) and body.key == key:
                return body.value
        return self.state.values.get(key)

    @property
    def refused(self) -> bool:
        """Whether nobody is asked any more, here or below: a plain no ends the turn with the calls it has."""
        return self.state.turn is not None and bool(self.state.turn.rejected)

    def patient(self) -> bool:
        """Whether this is still a place to wait for a person's answer."""
        return self.env.patient() and not self.refused

    @property
    def folder(self) -> str:
        """Where the next command of this agent begins, ``""`` for the working folder."""
        folder = self.kept(shell_folder(self.path))
        return folder if isinstance(folder, str) else ""

    @property
    def next_call(self) -> int:
        """The number of the next call, after those written already and those about to be."""
        waiting = [body for place, body in self.log.deferred if place.path == self.path]
        return self.state.made(self.path) + sum(isinstance(body, ToolCalled) for body in waiting) + 1

    def count(self, tool: str) -> int:
        """Return how many calls of a tool this turn has let through so far."""
        return self.admitted[tool]

    def step(self, number: int) -> None:
        """Go on to a step."""
        self.at = Place(self.at.turn, number, self.at.path)


class Timer:
    """Rings when its time is over. While a person is waited for it stands still, and so does every timer above it."""

    def __init__(self, seconds: float | None, ring: Callable[[], None], above: "Timer | None" = None) -> None:
        self._left, self._ring, self._above = seconds, ring, above
        self._handle: asyncio.TimerHandle | None = None
        self._running, self._paused = False, 0

    def start(self) -> None:
        """Let the time run."""
        self._running = True
        self._go()

    def cancel(self) -> None:
        """Let it stand."""
        self._running = False
        self._stand()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let it stand while a person is waited for."""
        self._paused += 1
        self._stand()
        try:
            with self._above.paused() if self._above else nullcontext():
                yield
        finally:
            self._paused -= 1
            self._go()

    def _go(self) -> None:
        if self._running and self._left is not None and self._handle is None and not self._paused:
            self._handle = asyncio.get_running_loop().call_later(self._left, self._ring)

    def _stand(self) -> None:
        if self._handle is not None:
            self._left = max(self._handle.when() - asyncio.get_running_loop().time(), 0.0)
            self._handle.cancel()
            self._handle = None


def _by_name(agent: str, given: Sequence[Tool]) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for tool in given:
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {agent!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools
