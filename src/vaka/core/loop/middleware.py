"""Behaviour around a turn: value in, value out, at six points.

Order is registration order at every point. A value of another kind than was asked for is a short circuit: an answer
instead of a model call, a result instead of a tool call. An error ends the turn, except before a tool, where it
becomes the call's result: a tool never runs past a middleware that failed. A stop cuts what comes before something and
what looks at an answer; what comes after a tool or an agent is always heard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vaka.core.loop.tools.result import as_result
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import InvalidInput, MiddlewareError, VakaError
from vaka.core.types.event import Body
from vaka.core.types.message import AssistantMessage, Content, ToolCall, ToolResult
from vaka.core.types.tool import Ask, Deny

if TYPE_CHECKING:
    from vaka.core.loop.context import Turn

_T = TypeVar("_T")
ERROR_NOTE = "middleware"


class Answer(msgspec.Struct, frozen=True):
    """From before_agent: this is the answer, no model is asked."""

    text: str


class Reject(msgspec.Struct, frozen=True):
    """From before_agent: the input is refused and leaves no trace in the conversation."""

    reason: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, as after_agent sees it; its ``text`` may be replaced."""

    text: str
    stop: str = "end"
    limit: str = ""
    error: str = ""


class Middleware:
    """Override only the points you need. What several must share for one run lives in ``turn.values``."""

    @staticmethod
    def from_functions(name: str, /, **points: Callable[..., Awaitable[Any]]) -> "Middleware":
        """Return a middleware of async functions named like the points; each takes what the method takes."""
        wrong = sorted(set(points) - set(_POINTS))
        if wrong:
            raise InvalidInput(f"middleware {name!r}: no such point {wrong[0]!r}, expected one of {', '.join(_POINTS)}")
        methods: dict[str, Any] = {point: staticmethod(function) for point, function in points.items()}
        made: Middleware = type(name, (Middleware,), {**methods, "name": name})()
        return made

    @property
    def name(self) -> str:
        """The name in errors and rules."""
        return type(self).__name__

    def tools(self) -> Sequence[Tool]:
        """Return tools that are added to those of the agent."""
        return ()

    async def before_agent(self, turn: "Turn", content: Content) -> Content | Answer | Reject:
        """See what was said, before anything acts on it.

        Runs again when a turn is resumed, with what the turn began with; what it then returns changes nothing.
        """
        return content

    async def before_step(self, turn: "Turn") -> Sequence[Body]:
        """Act between steps, with no call open; the events returned are written with ``step.started``."""
        return ()

    async def after_step(self, turn: "Turn") -> str:
        """Look at a step whose calls have their results; the name of a limit ends the turn."""
        return ""

    async def before_model(self, turn: "Turn", prompt: Prompt) -> Prompt | AssistantMessage:
        """See everything the model will see; a message in its place is the answer, and after_model is not asked."""
        return prompt

    async def after_model(self, turn: "Turn", message: AssistantMessage) -> AssistantMessage:
        """See a whole answer, before any of its calls runs."""
        return message

    async def before_tool(self, turn: "Turn", call: ToolCall) -> ToolCall | ToolResult | Ask | Deny:
        """See a call with valid arguments; change it, answer it, ask a person, or refuse it.

        Runs again for a call that is resumed. One that had begun keeps the arguments it began with.
        """
        return call

    async def after_tool(self, turn: "Turn", call: ToolCall, result: ToolResult) -> ToolResult:
        """See the result of a call, before the model does."""
        return result

    async def after_agent(self, turn: "Turn", outcome: Outcome) -> Outcome:
        """See how it ended. Always runs, also after an error or a stop.

        A turn that is suspended, or whose store is gone, has not ended: it runs when the turn was resumed and ends.
        """
        return outcome


_POINTS = (
    "before_agent", "before_step", "before_model", "after_model", "before_tool", "after_tool",
    "after_step", "after_agent",
)  # fmt: skip


class MiddlewareChain:
    """The middlewares of one agent, as they were when the run began."""

    def __init__(self, middleware: Sequence[Middleware], timeout: float | None) -> None:
        self._timeout = timeout
        self._by_point = {
            point: [m for m in middleware if getattr(type(m), point) is not getattr(Middleware, point)]
            for point in _POINTS
        }

    def handles(self, point: str) -> bool:
        """Whether anyone listens at ``point``."""
        return bool(self._by_point[point])

    async def before_agent(self, turn: "Turn", content: Content) -> Content | Answer | Reject:
        """Run the point."""
        for m in self._by_point["before_agent"]:
            value = await self._run_one(m, turn, m.before_agent(turn, content), tuple, Answer, Reject)
            if isinstance(value, Answer | Reject):
                return value
            content = value
        return content

    async def before_step(self, turn: "Turn") -> list[Body]:
        """Run the point; a stop does not cut it, because it may write."""
        events: list[Body] = []
        for m in self._by_point["before_step"]:
            events += await self._run_one(m, None, m.before_step(turn), tuple, list)
        return events

    async def after_step(self, turn: "Turn") -> str:
        """Run the point; the first limit that is named counts."""
        limit = ""
        for m in self._by_point["after_step"]:
            limit = limit or await self._run_one(m, None, m.after_step(turn), str)
        return limit

    async def before_model(self, turn: "Turn", prompt: Prompt) -> Prompt | AssistantMessage:
        """Run the point."""
        for m in self._by_point["before_model"]:
            value = await self._run_one(m, turn, m.before_model(turn, prompt), Prompt, AssistantMessage)
            if isinstance(value, AssistantMessage):
                return value
            prompt = value
        return prompt

    async def after_model(self, turn: "Turn", message: AssistantMessage) -> AssistantMessage:
        """Run the point."""
        for m in self._by_point["after_model"]:
            message = await self._run_one(m, turn, m.after_model(turn, message), AssistantMessage)
        return message

    async def before_tool(self, turn: "Turn", call: ToolCall) -> tuple[ToolCall, ToolResult | Deny | None, Ask | None]:
        """Run the point: the call as it is now, what ends it, and the first question anyone had."""
        asked: Ask | None = None
        for m in self._by_point["before_tool"]:
            value = await self._run_one(m, turn, m.before_tool(turn, call), ToolCall, ToolResult, Deny, Ask)
            if isinstance(value, ToolResult | Deny):
                return call, value, None
            if isinstance(value, Ask):
                asked = asked or msgspec.structs.replace(value, rule=value.rule or f"middleware:{m.name}")
            elif value.name != call.name:
                raise MiddlewareError(f"middleware {m.name!r} may not turn {call.name!r} into {value.name!r}")
            else:
                call = msgspec.structs.replace(value, id=call.id, provider_id=call.provider_id)
        return call, None, asked

    async def after_tool(self, turn: "Turn", call: ToolCall, result: ToolResult) -> ToolResult:
        """Run the point."""
        for m in self._by_point["after_tool"]:
            value = await self._run_one(m, None, m.after_tool(turn, call, result), ToolResult)
            result = as_result(call.id, value)
        return result

    async def after_agent(self, turn: "Turn", outcome: Outcome) -> tuple[Outcome, BaseException | None]:
        """Run the point for everyone, whatever the others do; return the first error."""
        failed: BaseException | None = None
        for m in self._by_point["after_agent"]:
            work = self._run_one(m, None, m.after_agent(turn, outcome), Outcome)
            value = (await asyncio.gather(work, return_exceptions=True))[0]
            if isinstance(value, BaseException):
                failed = failed or value
            else:
                outcome = value
        return outcome, failed

    async def _run_one(self, middleware: Middleware, turn: "Turn | None", work: Awaitable[_T], *kinds: type) -> _T:
        """Wait for one point of one middleware; what it raises carries its name as a note.

        A stop of ``turn`` cuts it; what comes after a tool or an agent is always heard.
        """
        bound = asyncio.timeout(self._timeout)
        try:
            if turn is None and self._timeout is None:
                value = await work
            else:
                with turn.stop.cancellable() if turn else nullcontext():
                    async with bound:
                        value = await work
        except TimeoutError as error:
            if not bound.expired():
                error.add_note(f"{ERROR_NOTE} {middleware.name!r}")
                raise
            raise MiddlewareError(f"middleware {middleware.name!r} timed out after {self._timeout} s") from error
        except Exception as error:
            error.add_note(f"{ERROR_NOTE} {middleware.name!r}")
            raise
        if not isinstance(value, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise MiddlewareError(f"middleware {middleware.name!r} returned {value!r}, expected one of {names}")
        return value


def describe_failure(error: BaseException) -> tuple[str, str]:
    """Return the code and the words for an error that ends a turn."""
    text = f"{error}" if isinstance(error, VakaError) else f"{type(error).__name__}: {error}"
    blamed = [note for note in getattr(error, "__notes__", ()) if note.startswith(ERROR_NOTE)]
    if blamed:
        return MiddlewareError.code, f"{blamed[0]}: {text}"
    return (error.code if isinstance(error, VakaError) else "internal"), text
