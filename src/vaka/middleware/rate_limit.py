"""Middleware that limits the rate of turns and of tool calls, and retries failed tool calls."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware, Outcome, Reject
from vaka.core.loop.tools.run import rerun_read_call
from vaka.core.messages.tool_result import failed_result
from vaka.core.session.stop import TurnStopped
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Content, ToolCall, ToolResult

MAX_PAUSE = 30.0


class ToolRetry(Middleware):
    """Repeats a failed call of a ``read`` tool up to ``times`` times; the pause doubles each time.

    Errors and timeouts are retried; denied, stopped and invalid calls are not. ``tools`` restricts it to some tools. A
    tool with another effect than ``read`` is never repeated.
    """

    def __init__(self, times: int = 2, *, pause: float = 0.5, tools: Collection[str] | None = None) -> None:
        if times < 1 or not 0 <= pause < float("inf"):
            raise ConfigError(f"times must be at least 1 and pause at least 0 seconds, not {times!r} and {pause!r}")
        self._times, self._pause, self._tools = times, pause, None if tools is None else frozenset(tools)

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
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
    """Limits turns to ``rate`` starts per second with bursts of ``burst``, and to ``concurrent`` at the same time.

    Further turns wait in order; with ``wait=False`` they are refused. Agents with the same object share the limits. A
    turn releases its slot when it ends or is suspended, and takes another when it is resumed.
    """

    def __init__(
        self, *, rate: float | None = None, burst: int = 1, concurrent: int | None = None, wait: bool = True
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"rate must be more than 0 turns per second, not {rate!r}")
        if burst < 1 or (concurrent is not None and concurrent < 1):
            raise ConfigError(f"burst and concurrent must be at least 1, not {burst!r} and {concurrent!r}")
        self._rate, self._burst, self._max_concurrent, self._wait = rate, burst, concurrent, wait
        self._tokens, self._refilled_at = float(burst), -1.0
        self._slot_ids = count(1)
        self._slots: dict[int, tuple[asyncio.Task[Any], Callable[[object], None]]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._key = f"rate_limit.{id(self)}"

    @property
    def running(self) -> int:
        """The number of turns that hold a slot."""
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a slot."""
        return len(self._waiters)

    async def before_agent(self, turn: Turn, content: Content) -> Content | Reject:
        if not self._wait and (self._is_full() or self._seconds_until_token(turn) > 0):
            return Reject(reason="too many turns at once; try again later")
        await self._take_slot(turn)
        while (pause := self._seconds_until_token(turn)) > 0:
            await turn.env.clock.sleep(pause)
        if self._rate is not None:
            self._tokens -= 1
        return content

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
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
        slot, task = next(self._slot_ids), asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine always runs in a task

        def release_slot(_: object) -> None:
            self._release(slot)

        # For a suspended turn ``after_agent`` is not called: release its slot when its task ends.
        task.add_done_callback(release_slot)
        self._slots[slot] = (task, release_slot)
        turn.values[self._key] = slot
        self._wake_next()

    def _requeue(self, waiting: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Replace a future that was woken by a new one at the same position of the queue."""
        replacement: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[self._waiters.index(waiting)] = replacement
        return replacement

    def _is_full(self) -> bool:
        return self._max_concurrent is not None and len(self._slots) >= self._max_concurrent

    def _release(self, slot: int) -> None:
        if slot in self._slots:
            task, callback = self._slots.pop(slot)
            task.remove_done_callback(callback)
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiters and not self._is_full() and not self._waiters[0].done():
            self._waiters[0].get_loop().call_soon_threadsafe(_wake_waiter, self._waiters[0])

    def _seconds_until_token(self, turn: Turn) -> float:
        if self._rate is None:
            return 0.0
        now = turn.env.clock.monotonic()
        if self._refilled_at < 0 or now < self._refilled_at:  # the first turn, or a runtime with another clock
            self._refilled_at = now
        self._tokens = min(self._tokens + (now - self._refilled_at) * self._rate, float(self._burst))
        self._refilled_at = now
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate


def _wake_waiter(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


MAX_SESSIONS = 1024
"""Sessions whose tool calls are remembered."""


class CoolDownRule(msgspec.Struct, frozen=True, kw_only=True):
    """The cool-down of a tool: seconds, steps of the agent, or both; with ``failures`` only after as many in a row."""

    seconds: float = 0.0
    steps: int = 0
    failures: int = 0


class _ToolUse(msgspec.Struct):
    """The last call of a tool in a session."""

    at: float = 0.0
    turn: str = ""
    step: int = 0
    failures: int = 0
    """Failures in a row."""
    admitted: tuple[str, int, str] = ("", 0, "")
    """The turn, the step and the id of the last call that was allowed; others of that step are refused."""


class CoolDown(Middleware):
    """Refuses calls of a tool during its cool-down, with the time left. The name ``*`` stands for all other tools.

    Calls are remembered in this process, by session.
    """

    def __init__(self, tools: "Mapping[str, CoolDownRule | float]") -> None:
        self._rules = {
            name: rule if isinstance(rule, CoolDownRule) else CoolDownRule(seconds=rule) for name, rule in tools.items()
        }
        for name, rule in self._rules.items():
            valid = 0 <= rule.seconds < float("inf") and rule.steps >= 0 and rule.failures >= 0
            if not valid or not (rule.seconds or rule.steps):
                raise ConfigError(f"the cool-down of {name!r} must have seconds or steps above 0, not {rule!r}")
        self._uses: OrderedDict[SessionId, dict[str, _ToolUse]] = OrderedDict()

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        rule = self._rule_for(call.name)
        if rule is None:
            return call
        use = self._use_of(turn.session, call.name)
        refusal = self._refusal_text(turn, call.name, rule, use)
        if not refusal and not rule.failures:
            step = (turn.id, turn.scope.step)
            if use.admitted[:2] != step:
                use.admitted = (*step, call.id)
            elif use.admitted[2] != call.id:
                refusal = f"{call.name} can be called once in a step; do something else meanwhile"
        return failed_result(call.id, "denied", refusal) if refusal else call

    def _refusal_text(self, turn: Turn, name: str, rule: CoolDownRule, use: _ToolUse) -> str:
        if not use.turn or use.failures < rule.failures:
            return ""
        seconds = rule.seconds - (turn.env.clock.monotonic() - use.at)
        steps = rule.steps - (turn.scope.step - use.step) + 1 if use.turn == turn.id else 0
        left = [f"{seconds:.1f} s"] if seconds > 0 else []
        left += [f"{steps} more steps"] if steps > 0 else []
        why = f" after {use.failures} failures in a row" if rule.failures else ""
        return f"{name} is cooling down{why} for {' and '.join(left)}; do something else meanwhile" if left else ""

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        if self._rule_for(call.name) is not None:
            use = self._use_of(turn.session, call.name)
            use.at, use.turn, use.step = turn.env.clock.monotonic(), turn.id, turn.scope.step
            use.failures = use.failures + 1 if result.failed else 0
        return result

    def _rule_for(self, name: str) -> CoolDownRule | None:
        return self._rules.get(name) or self._rules.get("*")

    def _use_of(self, session: SessionId, tool: str) -> _ToolUse:
        uses = self._uses.setdefault(session, {})
        self._uses.move_to_end(session)
        if len(self._uses) > MAX_SESSIONS:
            self._uses.popitem(last=False)
        return uses.setdefault(tool, _ToolUse())
