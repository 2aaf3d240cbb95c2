"""Middleware that limits how often models and tools are called, lets tools cool down, and retries failed tool calls."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware, Outcome, Reject
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.tools.result import failed_result
from vaka.core.loop.tools.run import rerun_read_call
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Content, ToolCall, ToolResult

MAX_PAUSE = 30.0


class ToolRetry(Middleware):
    """Makes a failed call of a ``read`` tool again, ``times`` times at most, waiting twice as long before each.

    Only what failed by itself or took too long is repeated: not what was refused, stopped or asked for wrongly. With
    ``tools`` only those; a tool with another effect than ``read`` is never repeated.
    """

    def __init__(self, times: int = 2, *, pause: float = 0.5, tools: Collection[str] | None = None) -> None:
        if times < 1 or not 0 <= pause < float("inf"):
            raise ConfigError(f"times is at least 1 and pause at least 0 s, not {times!r} and {pause!r}")
        self._times, self._pause, self._tools = times, pause, None if tools is None else frozenset(tools)

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return the first result that did not fail, or the last one."""
        tool = turn.tools.get(call.name)
        if tool is None or tool.spec.effect != "read" or (self._tools is not None and call.name not in self._tools):
            return result
        for number in range(1, self._times + 1):
            if not result.failed or result.reason not in ("error", "timeout"):
                break
            try:
                with turn.stop.cancellable():
                    await turn.env.clock.sleep(min(self._pause * 2 ** (number - 1), MAX_PAUSE))
            except TurnStopped:
                break
            result = await rerun_read_call(turn, call, number) or result
        return result


class RateLimit(Middleware):
    """Lets ``rate`` turns begin each second, ``burst`` of them at once after a quiet time, and ``concurrent`` run.

    The others wait in the order they came; with ``wait=False`` they are refused. All agents that are given the same
    object share it. A turn gives its place back when it ends, however that is; one that is suspended gives it back too
    and takes another when it goes on.
    """

    def __init__(
        self, *, rate: float | None = None, burst: int = 1, concurrent: int | None = None, wait: bool = True
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"rate is turns in a second, more than 0, not {rate!r}")
        if burst < 1 or (concurrent is not None and concurrent < 1):
            raise ConfigError(f"burst and concurrent are at least 1, not {burst!r} and {concurrent!r}")
        self._rate, self._burst, self._max_concurrent, self._wait = rate, burst, concurrent, wait
        self._tokens, self._refilled_at = float(burst), -1.0
        self._slot_ids = count(1)
        self._slots: dict[int, tuple[asyncio.Task[Any], Callable[[object], None]]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._key = f"rate_limit.{id(self)}"

    @property
    def running(self) -> int:
        """How many turns have a place now."""
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """How many turns wait for one."""
        return len(self._waiters)

    async def before_agent(self, turn: Turn, content: Content) -> Content | Reject:
        """Wait for a place and for the time to begin."""
        if not self._wait and (self._is_full() or self._seconds_until_token(turn) > 0):
            return Reject(reason="too many turns at once; try again later")
        await self._take_slot(turn)
        while (pause := self._seconds_until_token(turn)) > 0:
            await turn.env.clock.sleep(pause)
        if self._rate is not None:
            self._tokens -= 1
        return content

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        """Give the place back."""
        self._release(turn.values.pop(self._key, 0))
        return outcome

    async def _take_slot(self, turn: Turn) -> None:
        if self._waiters or self._is_full():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiting)
            try:
                while self._is_full() or self._waiters[0] is not waiting:
                    await waiting
                    waiting = self._requeue(waiting)
            finally:
                self._waiters.remove(waiting)
                self._wake_next()
        name, task = next(self._slot_ids), asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine always runs in one

        def release_slot(_: object) -> None:
            self._release(name)

        # A turn that is suspended does not come to its end here: its place goes back when its work does.
        task.add_done_callback(release_slot)
        self._slots[name] = (task, release_slot)
        turn.values[self._key] = name
        self._wake_next()

    def _requeue(self, waiting: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Stand at the same place of the line, to be woken once more."""
        fresh: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[self._waiters.index(waiting)] = fresh
        return fresh

    def _is_full(self) -> bool:
        return self._max_concurrent is not None and len(self._slots) >= self._max_concurrent

    def _release(self, slot: int) -> None:
        if slot in self._slots:
            task, gone = self._slots.pop(slot)
            task.remove_done_callback(gone)
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiters and not self._is_full() and not self._waiters[0].done():
            self._waiters[0].get_loop().call_soon_threadsafe(_wake_waiter, self._waiters[0])

    def _seconds_until_token(self, turn: Turn) -> float:
        """Return how long to wait until one more may begin."""
        if self._rate is None:
            return 0.0
        now = turn.env.clock.monotonic()
        if self._refilled_at < 0 or now < self._refilled_at:  # the first, or a runtime with another clock
            self._refilled_at = now
        self._tokens = min(self._tokens + (now - self._refilled_at) * self._rate, float(self._burst))
        self._refilled_at = now
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate


def _wake_waiter(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


MAX_SESSIONS = 1024
"""Sessions whose last calls are remembered."""


class CoolDownRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long a tool rests: seconds, steps of the agent, or both; with ``failures`` only after so many in a row."""

    seconds: float = 0.0
    steps: int = 0
    failures: int = 0


class _LastUse(msgspec.Struct):
    """The last use of a tool in a session."""

    at: float
    turn: str
    step: int
    failed: int = 0


class _StepUse(msgspec.Struct, frozen=True):
    """The step a tool was last let run in, and for which call: others of that step come too early."""

    turn: str
    step: int
    call: str


class CoolDown(Middleware):
    """Refuses a tool that rests, and tells the model for how long. The name ``*`` stands for every other tool.

    What was used is remembered in this process, for each session apart.
    """

    def __init__(self, tools: "Mapping[str, CoolDownRule | float]") -> None:
        self._rules = {
            name: rest if isinstance(rest, CoolDownRule) else CoolDownRule(seconds=rest) for name, rest in tools.items()
        }
        for name, rest in self._rules.items():
            fits = 0 <= rest.seconds < float("inf") and rest.steps >= 0 and rest.failures >= 0
            if not fits or not (rest.seconds or rest.steps):
                raise ConfigError(f"the rest of {name!r} is some seconds or steps, not {rest!r}")
        self._last_uses: OrderedDict[SessionId, dict[str, _LastUse]] = OrderedDict()
        self._step_uses: dict[SessionId, dict[str, _StepUse]] = {}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        """Let the call pass, or say when it may be made."""
        rest = self._rule_for(call.name)
        if rest is None:
            return call
        said = self._refusal_text(turn, call.name, rest, self._uses_in(turn.session).get(call.name))
        if not said and not rest.failures and not self._claim_step(turn, call):
            said = f"{call.name} is used once in a step; do something else meanwhile"
        return failed_result(call.id, "denied", said) if said else call

    def _refusal_text(self, turn: Turn, name: str, rule: CoolDownRule, use: _LastUse | None) -> str:
        """Return for how long a tool rests still, in words, ``""`` when it does not."""
        if use is None or use.failed < rule.failures:
            return ""
        wait = rule.seconds - (turn.env.clock.monotonic() - use.at)
        steps = rule.steps - (turn.scope.step - use.step) + 1 if use.turn == turn.id else 0
        if wait <= 0 and steps <= 0:
            return ""
        when = [f"{wait:.1f} s"] if wait > 0 else []
        when += [f"{steps} more steps"] if steps > 0 else []
        why = f" after {use.failed} failures in a row" if rule.failures else ""
        return f"{name} rests{why} for {' and '.join(when)}; do something else meanwhile"

    def _claim_step(self, turn: Turn, call: ToolCall) -> bool:
        """Let a call be the one of its step; false when another one is."""
        begun = self._step_uses.setdefault(turn.session, {})
        mine, known = _StepUse(turn.id, turn.scope.step, call.id), begun.get(call.name)
        if known is not None and (known.turn, known.step) == (mine.turn, mine.step):
            return known.call == mine.call
        begun[call.name] = mine
        return True

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Remember that it was used."""
        if self._rule_for(call.name) is not None:
            uses = self._uses_in(turn.session)
            before = uses.get(call.name)
            failed = (before.failed if before else 0) + 1 if result.failed else 0
            uses[call.name] = _LastUse(turn.env.clock.monotonic(), turn.id, turn.scope.step, failed)
        return result

    def _rule_for(self, name: str) -> CoolDownRule | None:
        return self._rules.get(name) or self._rules.get("*")

    def _uses_in(self, session: SessionId) -> dict[str, _LastUse]:
        uses = self._last_uses.setdefault(session, {})
        self._last_uses.move_to_end(session)
        if len(self._last_uses) > MAX_SESSIONS:
            gone, _ = self._last_uses.popitem(last=False)
            self._step_uses.pop(gone, None)
        return uses
