"""Middleware: functions that see and may replace values at fixed points of a turn, such as before and after a tool.

At every point middlewares run in the order of registration. A value of another type is a short circuit: an answer
instead of a model call, a result instead of a tool call. An error ends the turn, except in ``before_tool``, where it
becomes the result of the call: a tool does not run after a middleware has failed. A stop cancels ``before_agent``,
``before_model``, ``after_model``, ``before_tool``, ``before_approval`` and ``before_stop``; the others run on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from inspect import iscoroutinefunction
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from vaka.core.loop.middleware_errors import error_at_point, wrong_value
from vaka.core.loop.stop import await_bounded
from vaka.core.loop.tool_result import as_result
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.ending import Answer, Outcome, Reject
from vaka.core.types.errors import InvalidInput, MiddlewareError
from vaka.core.types.event import Body
from vaka.core.types.message import AssistantMessage, Content, ToolCall, ToolResult
from vaka.core.types.tool import Allow, Ask, Deny
from vaka.core.types.type_parameters import Deps_contra

if TYPE_CHECKING:
    from vaka.core.loop.context import Turn

_T = TypeVar("_T")


class Middleware(Generic[Deps_contra]):
    """Base class; override only the points you need. Share values between middlewares of one run in ``turn.values``."""

    inherited: tuple[str, ...] = ("before_tool", "before_approval", "after_tool")
    """The points that also run for the child agents of its agent, before their own middleware."""
    admits_steering: bool = False
    """Whether an input may join a running turn without passing its ``before_agent``."""

    @staticmethod
    def from_functions(name: str, /, **points: Callable[..., Awaitable[Any]]) -> "Middleware":
        """Return a middleware of async functions, by name of the point; each has the parameters of the method."""
        wrong = sorted(set(points) - set(_POINTS))
        if wrong:
            raise InvalidInput(f"middleware {name!r}: no such point {wrong[0]!r}, expected one of {', '.join(_POINTS)}")
        methods: dict[str, Any] = {point: staticmethod(function) for point, function in points.items()}
        middleware: Middleware = type(name, (Middleware,), {**methods, "name": name})()
        return middleware

    @property
    def name(self) -> str:
        """The name in errors and in the rules of approvals."""
        return type(self).__name__

    def tools(self) -> Sequence[Tool]:
        """Return tools that are added to those of the agent."""
        return ()

    async def before_agent(self, turn: "Turn[Deps_contra]", content: Content) -> Content | Answer | Reject:
        """See and change the input of the turn, answer it, or reject it.

        Runs again when a turn is resumed, with the input that is in the log; its return value is then ignored.
        """
        return content

    async def before_step(self, turn: "Turn[Deps_contra]") -> Sequence[Body]:
        """Act between steps, when no call is open; the events returned are written with ``step.started``."""
        return ()

    async def after_step(self, turn: "Turn[Deps_contra]") -> str:
        """See a step whose calls all have results; a returned text ends the turn, with that text as the limit."""
        return ""

    async def context_too_long(self, turn: "Turn[Deps_contra]") -> Sequence[Body]:
        """Act when the provider has refused the prompt for its length; after the events returned it is asked again."""
        return ()

    async def before_compaction(self, turn: "Turn[Deps_contra]", request: CompactionRequest) -> CompactionRequest:
        """See and change the request to compact the context: its instructions, or ``skip`` with a reason."""
        return request

    async def after_compaction(self, turn: "Turn[Deps_contra]", event: ContextCompacted) -> None:
        """See a compaction, before it is written."""

    async def tools_for_step(self, turn: "Turn[Deps_contra]") -> Sequence[Tool]:
        """Return tools that the agent has from its next model call on, besides its own; the same ones if none changed.

        Of two tools with one name, the agent's own wins, then the first.
        """
        return ()

    async def prompt_for_step(self, turn: "Turn[Deps_contra]") -> str:
        """Return a text that follows the instructions in the system prompt of the next model call."""
        return ""

    async def before_model(self, turn: "Turn[Deps_contra]", prompt: Prompt) -> Prompt | AssistantMessage:
        """See and change the prompt; a message returned instead is the answer, and ``after_model`` does not run."""
        return prompt

    async def after_model(self, turn: "Turn[Deps_contra]", message: AssistantMessage) -> AssistantMessage:
        """See and change a complete answer, before any of its calls runs."""
        return message

    async def before_tool(
        self, turn: "Turn[Deps_contra]", call: ToolCall
    ) -> ToolCall | ToolResult | Allow | Ask | Deny:
        """See a call with valid arguments; change it, answer it, allow it, ask a person, or refuse it.

        ``Allow`` answers the questions of rules, but not those about protected paths, and no ``Ask`` of middleware.
        Runs again for a call that is resumed. A call that had started keeps the arguments it started with.
        """
        return call

    async def before_approval(self, turn: "Turn[Deps_contra]", request: ApprovalRequested) -> Allow | Deny | None:
        """Decide about a call instead of a person who would be asked, or return ``None`` to have the person asked."""
        return None

    async def after_tool(self, turn: "Turn[Deps_contra]", call: ToolCall, result: ToolResult) -> ToolResult:
        """See and change the result of a call, before the model sees it."""
        return result

    async def before_stop(self, turn: "Turn[Deps_contra]", text: str) -> str:
        """See the final answer; the model reads a returned text and goes on, ``Limits.max_continuations`` times."""
        return ""

    async def after_agent(self, turn: "Turn[Deps_contra]", outcome: Outcome) -> Outcome:
        """See how the agent ended. Always runs, also after an error or a stop.

        A turn that is suspended, or whose store has failed, has not ended: this runs when it is resumed and ends.
        """
        return outcome


_POINTS = tuple(name for name, member in vars(Middleware).items() if iscoroutinefunction(member))


class MiddlewareChain:
    """The middlewares of one agent, grouped by the points they override."""

    def __init__(self, middleware: Sequence[Middleware], timeout: float | None) -> None:
        self._timeout = timeout
        self._by_point = {
            point: [m for m in middleware if getattr(type(m), point) is not getattr(Middleware, point)]
            for point in _POINTS
        }

    def under(self, parent: "MiddlewareChain") -> "MiddlewareChain":
        """Return this chain for a child of the agent that has the chain ``parent``."""
        chain = MiddlewareChain((), self._timeout)
        for point, own in self._by_point.items():
            above = [m for m in parent._by_point[point] if point in m.inherited]  # noqa: SLF001
            chain._by_point[point] = [*above, *(m for m in own if m not in above)]
        return chain

    @cached_property
    def handled(self) -> frozenset[str]:
        """The points that a middleware overrides."""
        return frozenset(point for point, found in self._by_point.items() if found)

    @cached_property
    def holds_inputs(self) -> bool:
        """Whether an input must wait for a turn of its own, so that it does not bypass ``before_agent``."""
        return any(not m.admits_steering for m in self._by_point["before_agent"])

    @cached_property
    def has_sources(self) -> bool:
        """Whether a middleware adds tools or text to the next model call."""
        return bool(self._by_point["tools_for_step"] or self._by_point["prompt_for_step"])

    async def before_agent(self, turn: "Turn", content: Content) -> Content | Answer | Reject:
        for m in self._by_point["before_agent"]:
            value = await self._call(m, turn, "before_agent", m.before_agent(turn, content), tuple, Answer, Reject)
            if isinstance(value, Answer | Reject):
                return value
            content = value
        return content

    async def collect_events(self, point: str, turn: "Turn") -> list[Body]:
        """Return the events of all middlewares. A stop does not cancel the point, because it may write to the log."""
        events: list[Body] = []
        for m in self._by_point[point]:
            events += await self._call(m, None, point, getattr(m, point)(turn), tuple, list)
        return events

    async def before_compaction(self, turn: "Turn", request: CompactionRequest) -> CompactionRequest:
        for m in self._by_point["before_compaction"]:
            work = m.before_compaction(turn, request)
            request = await self._call(m, turn, "before_compaction", work, CompactionRequest)
        return request

    async def after_compaction(self, turn: "Turn", event: ContextCompacted) -> None:
        for m in self._by_point["after_compaction"]:
            await self._call(m, None, "after_compaction", m.after_compaction(turn, event), NoneType)

    async def after_step(self, turn: "Turn") -> str:
        """Run all middlewares; return the first limit."""
        limit = ""
        for m in self._by_point["after_step"]:
            limit = limit or await self._call(m, None, "after_step", m.after_step(turn), str)
        return limit

    async def tools_for_step(self, turn: "Turn") -> tuple[Tool, ...]:
        """Return the tools of all middlewares."""
        tools: list[Tool] = []
        for m in self._by_point["tools_for_step"]:
            tools += await self._call(m, turn, "tools_for_step", m.tools_for_step(turn), tuple, list)
        return tuple(tools)

    async def prompt_for_step(self, turn: "Turn") -> str:
        """Return the texts of all middlewares, in their order."""
        texts = list[str]()
        for m in self._by_point["prompt_for_step"]:
            texts.append(await self._call(m, turn, "prompt_for_step", m.prompt_for_step(turn), str))
        return "\n\n".join(text for text in texts if text)

    async def before_model(self, turn: "Turn", prompt: Prompt) -> Prompt | AssistantMessage:
        for m in self._by_point["before_model"]:
            value = await self._call(m, turn, "before_model", m.before_model(turn, prompt), Prompt, AssistantMessage)
            if isinstance(value, AssistantMessage):
                return value
            prompt = value
        return prompt

    async def after_model(self, turn: "Turn", message: AssistantMessage) -> AssistantMessage:
        for m in self._by_point["after_model"]:
            message = await self._call(m, turn, "after_model", m.after_model(turn, message), AssistantMessage)
        return message

    async def before_tool(
        self, turn: "Turn", call: ToolCall
    ) -> tuple[ToolCall, ToolResult | Deny | None, Ask | Allow | None]:
        """Return the call with all changes, the value that ends it, and the first ``Ask``, or else an ``Allow``."""
        verdict: Ask | Allow | None = None
        for m in self._by_point["before_tool"]:
            work = m.before_tool(turn, call)
            value = await self._call(m, turn, "before_tool", work, ToolCall, ToolResult, Deny, Ask, Allow)
            if isinstance(value, ToolResult | Deny):
                return call, value, None
            if isinstance(value, Ask | Allow):
                call = call if value.arguments is None else msgspec.structs.replace(call, arguments=value.arguments)
                if not isinstance(verdict, Ask):
                    verdict = msgspec.structs.replace(value, rule=value.rule or f"middleware:{m.name}", arguments=None)
            elif value.name != call.name:
                raise MiddlewareError(f"middleware {m.name!r} may not turn {call.name!r} into {value.name!r}")
            else:
                call = msgspec.structs.replace(value, id=call.id, provider_id=call.provider_id)
        return call, None, verdict

    async def before_approval(self, turn: "Turn", request: ApprovalRequested) -> Allow | Deny | None:
        """Ask all middlewares; a ``Deny`` wins over an ``Allow``."""
        found: Allow | Deny | None = None
        for m in self._by_point["before_approval"]:
            if not isinstance(found, Deny):
                work = m.before_approval(turn, request)
                found = await self._call(m, turn, "before_approval", work, Allow, Deny, NoneType) or found
        return found

    async def after_tool(self, turn: "Turn", call: ToolCall, result: ToolResult) -> ToolResult:
        for m in self._by_point["after_tool"]:
            value = await self._call(m, None, "after_tool", m.after_tool(turn, call, result), ToolResult)
            result = as_result(call.id, value)
        return result

    async def before_stop(self, turn: "Turn", text: str) -> tuple[str, str]:
        """Return the first text that continues the agent, and the name of its middleware."""
        for m in self._by_point["before_stop"]:
            if more := await self._call(m, turn, "before_stop", m.before_stop(turn, text), str):
                return more, m.name
        return "", ""

    async def after_agent(self, turn: "Turn", outcome: Outcome) -> tuple[Outcome, BaseException | None]:
        """Run all middlewares, also after one has failed; return the first error."""
        failed: BaseException | None = None
        for m in self._by_point["after_agent"]:
            work = self._call(m, None, "after_agent", m.after_agent(turn, outcome), Outcome)
            value = (await asyncio.gather(work, return_exceptions=True))[0]
            if isinstance(value, BaseException):
                failed = failed or value
            else:
                outcome = value
        return outcome, failed

    async def _call(self, m: Middleware, turn: "Turn | None", point: str, work: Awaitable[_T], *kinds: type) -> _T:
        """Return the value of a point of one middleware; a stop of ``turn`` cancels it, without ``turn`` it runs on."""
        try:
            value = await await_bounded(work, self._timeout, turn.stop if turn is not None else None)
        except Exception as error:
            if (failure := error_at_point(error, m.name, point, work, self._timeout)) is not error:
                raise failure from error
            raise
        if not isinstance(value, kinds):
            raise wrong_value(value, m.name, point, kinds)
        return value
