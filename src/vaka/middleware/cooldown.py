"""CoolDown: a tool that was just used rests before it is used again."""

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from vaka.core.loop.middleware import Middleware
from vaka.core.loop.result import failure
from vaka.core.loop.scope import Turn
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolCall, ToolResult

SESSIONS = 1024
"""Sessions whose last calls are remembered."""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """How long a tool rests: seconds, steps of the agent, or both; with ``failures`` only after so many in a row."""

    seconds: float = 0.0
    steps: int = 0
    failures: int = 0


class _Use(msgspec.Struct):
    """The last use of a tool in a session."""

    at: float
    turn: str
    step: int
    failed: int = 0


class _Begun(msgspec.Struct, frozen=True):
    """The step a tool was last let run in, and for which call: others of that step come too early."""

    turn: str
    step: int
    call: str


class CoolDown(Middleware):
    """Refuses a tool that rests, and tells the model for how long. The name ``*`` stands for every other tool.

    What was used is remembered in this process, for each session apart.
    """

    def __init__(self, tools: "Mapping[str, Rest | float]") -> None:
        self._rests = {name: rest if isinstance(rest, Rest) else Rest(seconds=rest) for name, rest in tools.items()}
        for name, rest in self._rests.items():
            fits = 0 <= rest.seconds < float("inf") and rest.steps >= 0 and rest.failures >= 0
            if not fits or not (rest.seconds or rest.steps):
                raise ConfigError(f"the rest of {name!r} is some seconds or steps, not {rest!r}")
        self._used: OrderedDict[SessionId, dict[str, _Use]] = OrderedDict()
        self._begun: dict[SessionId, dict[str, _Begun]] = {}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        """Let the call pass, or say when it may be made."""
        rest = self._rest(call.name)
        if rest is None:
            return call
        said = self._resting(turn, call.name, rest, self._uses(turn.session).get(call.name))
        if not said and not rest.failures and not self._begin(turn, call):
            said = f"{call.name} is used once in a step; do something else meanwhile"
        return failure(call.id, "denied", said) if said else call

    def _resting(self, turn: Turn, name: str, rest: Rest, use: _Use | None) -> str:
        """Return for how long a tool rests still, in words, ``""`` when it does not."""
        if use is None or use.failed < rest.failures:
            return ""
        wait = rest.seconds - (turn.env.clock.monotonic() - use.at)
        steps = rest.steps - (turn.at.step - use.step) + 1 if use.turn == turn.id else 0
        if wait <= 0 and steps <= 0:
            return ""
        when = [f"{wait:.1f} s"] if wait > 0 else []
        when += [f"{steps} more steps"] if steps > 0 else []
        why = f" after {use.failed} failures in a row" if rest.failures else ""
        return f"{name} rests{why} for {' and '.join(when)}; do something else meanwhile"

    def _begin(self, turn: Turn, call: ToolCall) -> bool:
        """Let a call be the one of its step; false when another one is."""
        begun = self._begun.setdefault(turn.session, {})
        mine, known = _Begun(turn.id, turn.at.step, call.id), begun.get(call.name)
        if known is not None and (known.turn, known.step) == (mine.turn, mine.step):
            return known.call == mine.call
        begun[call.name] = mine
        return True

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Remember that it was used."""
        if self._rest(call.name) is not None:
            uses = self._uses(turn.session)
            before = uses.get(call.name)
            failed = (before.failed if before else 0) + 1 if result.failed else 0
            uses[call.name] = _Use(turn.env.clock.monotonic(), turn.id, turn.at.step, failed)
        return result

    def _rest(self, name: str) -> Rest | None:
        return self._rests.get(name) or self._rests.get("*")

    def _uses(self, session: SessionId) -> dict[str, _Use]:
        uses = self._used.setdefault(session, {})
        self._used.move_to_end(session)
        if len(self._used) > SESSIONS:
            gone, _ = self._used.popitem(last=False)
            self._begun.pop(gone, None)
        return uses
