"""Retry: a call that only reads and failed is made again."""

from collections.abc import Collection

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.tools.run import rerun_read_call
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import ToolCall, ToolResult

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
