"""Middleware: the eight points of a turn, before and after an agent, a step, a model call and a tool call.

A middleware overrides some of them, and may have methods of the protocols in ``ports.turn_protocols``. Middlewares run
in the order of registration.

A value of another type is a short circuit: an answer instead of a model call, a result instead of a tool call. An error
ends the turn, except in ``before_tool``, where it becomes the result of the call: a tool does not run after a
middleware has failed. A stop does not cancel ``before_step``, ``after_step``, ``after_tool``, ``after_agent``,
``shorten_context`` and ``after_compaction``; it cancels all other methods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, cast

import msgspec

from vaka.core.loop.stop import TimeExceeded, await_bounded
from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.ports.turn_protocols import (
    METHODS,
    POINTS,
    Approver,
    ContextPolicy,
    Continuation,
    Method,
    ToolSource,
    unknown_method,
)
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.ending import Answer, Outcome, Reject
from vaka.core.types.errors import MIDDLEWARE_NOTE, InvalidInput, MiddlewareError
from vaka.core.types.event import Body
from vaka.core.types.message import AssistantMessage, Content, ToolCall, ToolResult
from vaka.core.types.tool import Allow, Ask, Deny
from vaka.core.types.tool_result import as_result
from vaka.core.types.type_parameters import Deps_contra

if TYPE_CHECKING:
    from vaka.core.loop.context import Turn

P = ParamSpec("P")
R = TypeVar("R")


class Middleware(Generic[Deps_contra]):
    """Base class; override only the points you need. Share values between middlewares of one run in ``turn.values``.

    A public coroutine method must be a point, be a method of one of the four protocols, or be declared by a
    base class that is no middleware. Another one is an error when the class is defined: it may be a misspelled point.
    """

    inherited: tuple[Method, ...] = ("before_tool", "after_tool", "decide_approval")
    """The methods that also run for the child agents of its agent, before the methods of their own middleware."""
    admits_steering: bool = False
    """Whether an input may join a running turn without passing its ``before_agent``."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        coroutines = [name for name, value in vars(cls).items() if name[0] != "_" and iscoroutinefunction(value)]
        for name in (*coroutines, *vars(cls).get("inherited", ())):
            if name not in METHODS and all(issubclass(base, Middleware) for base in _find_declaring(cls, name)):
                raise unknown_method(cls.__name__, name)

    @staticmethod
    def from_functions(name: str, /, **points: Callable[..., Awaitable[Any]]) -> "Middleware":
        """Return a middleware of async functions, by name of the point; each has the parameters of the method."""
        wrong = sorted(set(points) - set(POINTS))
        if wrong:
            raise InvalidInput(f"middleware {name!r}: no such point {wrong[0]!r}, expected one of {', '.join(POINTS)}")
        methods: dict[str, Any] = {point: staticmethod(function) for point, function in points.items()}
        middleware: Middleware = type(name, (Middleware,), {**methods, "name": name})()
        return middleware

    @property
    def name(self) -> str:
        """The name in errors and in the rules of approvals."""
        return type(self).__name__

    async def before_agent(self, turn: "Turn[Deps_contra]", content: Content) -> Content | Answer | Reject:
        """See and change the input of the turn, answer it, or reject it.

        Runs again when a turn is resumed, with the input that is in the log; its return value is then ignored.
        """
        return content

    async def after_agent(self, turn: "Turn[Deps_contra]", outcome: Outcome) -> Outcome:
        """See how the agent ended. Always runs, also after an error or a stop.

        A turn that is suspended, or whose store has failed, has not ended: this runs when it is resumed and ends.
        """
        return outcome

    async def before_step(self, turn: "Turn[Deps_contra]") -> Sequence[Body]:
        """Act between steps, when no call is open; the events returned are written with ``step.started``."""
        return ()

    async def after_step(self, turn: "Turn[Deps_contra]") -> str:
        """See a step whose calls all have results; a returned text ends the turn, with that text as the limit."""
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

    async def after_tool(self, turn: "Turn[Deps_contra]", call: ToolCall, result: ToolResult) -> ToolResult:
        """See and change the result of a call, before the model sees it."""
        return result


def _find_declaring(kind: type[Any], name: str) -> list[type[Any]]:
    """Return the classes, of a class and its bases, that have an attribute of their own."""
    return [base for base in kind.__mro__ if name in vars(base)]


def has_method(middleware: Middleware, method: Callable[..., Any]) -> bool:
    """Return whether a middleware has a method of its own in place of a point or of a method of a protocol."""
    return getattr(type(middleware), method.__name__, method) is not method


def tools_of(middleware: Sequence[Middleware]) -> list[Tool]:
    """Return the tools that middlewares give their agent once and for all."""
    sources = [cast("ToolSource", m) for m in middleware if has_method(m, ToolSource.tools)]
    return [tool for source in sources for tool in source.tools()]


Group: TypeAlias = "tuple[tuple[Middleware, Callable[P, Awaitable[R]]], ...]"
"""The middlewares that have one method, each with that method."""


class MiddlewareChain:
    """The middlewares of one agent, grouped by their methods. An empty group is false, and costs a turn nothing."""

    def __init__(
        self, middleware: Sequence[Middleware], timeout: float | None, above: Sequence[Middleware] = ()
    ) -> None:
        """Group the middleware of an agent; ``above`` is the middleware of its parents, with the inherited methods."""
        self._own, self._above = middleware, above
        self._timeout = timeout
        self.before_agent = self._find(Middleware.before_agent)
        self.after_agent = self._find(Middleware.after_agent)
        self.before_step = self._find(Middleware.before_step)
        self.after_step = self._find(Middleware.after_step)
        self.before_model = self._find(Middleware.before_model)
        self.after_model = self._find(Middleware.after_model)
        self.before_tool = self._find(Middleware.before_tool)
        self.after_tool = self._find(Middleware.after_tool)
        self.tools_for_step = self._find(ToolSource.tools_for_step)
        self.prompt_for_step = self._find(ToolSource.prompt_for_step)
        self.shorten_context = self._find(ContextPolicy.shorten_context)
        self.before_compaction = self._find(ContextPolicy.before_compaction)
        self.after_compaction = self._find(ContextPolicy.after_compaction)
        self.check_answer = self._find(Continuation.check_answer)
        self.decide_approval = self._find(Approver.decide_approval)
        self.has_sources = bool(self.tools_for_step or self.prompt_for_step)
        """Whether a middleware adds tools or text to the next model call."""
        self.holds_inputs = any(not m.admits_steering for m, _ in self.before_agent)
        """Whether an input must wait for a turn of its own, so that it does not bypass ``before_agent``."""

    def _find(self, method: Callable[Concatenate[Any, P], Awaitable[R]]) -> "Group[P, R]":
        name = method.__name__
        above = [m for m in self._above if name in m.inherited and has_method(m, method)]
        own = [m for m in self._own if has_method(m, method) and m not in above]
        return tuple((m, getattr(m, name)) for m in (*above, *own))

    def under(self, parent: "MiddlewareChain") -> "MiddlewareChain":
        """Return this chain for a child of the agent that has the chain ``parent``."""
        above = [*parent._above, *(m for m in parent._own if m not in parent._above)]  # noqa: SLF001
        return MiddlewareChain(self._own, self._timeout, above)

    async def run_before_agent(self, turn: "Turn", content: Content) -> Content | Answer | Reject:
        for m, method in self.before_agent:
            value = await self.call(m, turn, "before_agent", method(turn, content), tuple, Answer, Reject)
            if isinstance(value, Answer | Reject):
                return value
            content = value
        return content

    async def run_after_agent(self, turn: "Turn", outcome: Outcome) -> tuple[Outcome, BaseException | None]:
        """Run all middlewares, also after one has failed; return the first error."""
        failed: BaseException | None = None
        for m, method in self.after_agent:
            work = self.call(m, None, "after_agent", method(turn, outcome), Outcome)
            value = (await asyncio.gather(work, return_exceptions=True))[0]
            if isinstance(value, BaseException):
                failed = failed or value
            else:
                outcome = value
        return outcome, failed

    async def run_before_step(self, turn: "Turn") -> list[Body]:
        """Return the events of all middlewares; events that shorten the context come last."""
        events: list[Body] = []
        for m, method in self.before_step:
            events += await self.call(m, None, "before_step", method(turn), tuple, list)
        events += await self.run_shorten_context(turn)
        return events

    async def run_after_step(self, turn: "Turn") -> str:
        """Run all middlewares; return the first limit."""
        limit = ""
        for m, method in self.after_step:
            limit = limit or await self.call(m, None, "after_step", method(turn), str)
        return limit

    async def run_before_model(self, turn: "Turn", prompt: Prompt) -> Prompt | AssistantMessage:
        for m, method in self.before_model:
            value = await self.call(m, turn, "before_model", method(turn, prompt), Prompt, AssistantMessage)
            if isinstance(value, AssistantMessage):
                return value
            prompt = value
        return prompt

    async def run_after_model(self, turn: "Turn", message: AssistantMessage) -> AssistantMessage:
        for m, method in self.after_model:
            message = await self.call(m, turn, "after_model", method(turn, message), AssistantMessage)
        return message

    async def run_before_tool(
        self, turn: "Turn", call: ToolCall
    ) -> tuple[ToolCall, ToolResult | Deny | None, Ask | Allow | None]:
        """Return the call with all changes, the value that ends it, and the first ``Ask``, or else an ``Allow``."""
        verdict: Ask | Allow | None = None
        for m, method in self.before_tool:
            value = await self.call(m, turn, "before_tool", method(turn, call), ToolCall, ToolResult, Deny, Ask, Allow)
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

    async def run_after_tool(self, turn: "Turn", call: ToolCall, result: ToolResult) -> ToolResult:
        for m, method in self.after_tool:
            value = await self.call(m, None, "after_tool", method(turn, call, result), ToolResult)
            result = as_result(call.id, value)
        return result

    async def run_tools_for_step(self, turn: "Turn") -> tuple[Tool, ...]:
        """Return the tools of all sources."""
        tools: list[Tool] = []
        for m, method in self.tools_for_step:
            tools += await self.call(m, turn, "tools_for_step", method(turn), tuple, list)
        return tuple(tools)

    async def run_prompt_for_step(self, turn: "Turn") -> str:
        """Return the texts of all sources, in their order."""
        texts = list[str]()
        for m, method in self.prompt_for_step:
            texts.append(await self.call(m, turn, "prompt_for_step", method(turn), str))
        return "\n\n".join(text for text in texts if text)

    async def run_shorten_context(self, turn: "Turn", *, refused: bool = False) -> list[Body]:
        """Return the events of all policies. A stop does not cancel them, because they may write to the log."""
        events: list[Body] = []
        for m, method in self.shorten_context:
            events += await self.call(m, None, "shorten_context", method(turn, refused=refused), tuple, list)
        return events

    async def run_check_answer(self, turn: "Turn", text: str) -> tuple[str, str]:
        """Return the first text that continues the agent, and the name of its middleware."""
        for m, method in self.check_answer:
            if more := await self.call(m, turn, "check_answer", method(turn, text), str):
                return more, m.name
        return "", ""

    async def run_decide_approval(self, turn: "Turn", request: ApprovalRequested) -> Allow | Deny | None:
        """Ask all middlewares; a ``Deny`` wins over an ``Allow``."""
        found: Allow | Deny | None = None
        for m, method in self.decide_approval:
            if not isinstance(found, Deny):
                work = method(turn, request)
                found = await self.call(m, turn, "decide_approval", work, Allow, Deny, NoneType) or found
        return found

    async def call(self, m: Middleware, turn: "Turn | None", method: str, work: Awaitable[R], *kinds: type) -> R:
        """Return the value of a method; a stop of ``turn`` cancels it, without ``turn`` it runs on."""
        try:
            if self._timeout is None and turn is None:
                value = await work
            else:
                value = await await_bounded(work, self._timeout, turn.stop if turn is not None else None)
        except Exception as error:
            if (failure := _error_at_point(error, m.name, method, work, self._timeout)) is not error:
                raise failure from error
            raise
        if not isinstance(value, kinds):
            raise MiddlewareError.for_value(value, m.name, method, kinds)
        return value


def _error_at_point(error: Exception, middleware: str, point: str, work: object, timeout: float | None) -> Exception:
    """Return the error to raise when ``work`` of a middleware has failed: the same with a note, or a clearer one."""
    if isinstance(error, TimeExceeded):
        return MiddlewareError(f"middleware {middleware!r} timed out after {timeout} s")
    if not hasattr(work, "__await__"):
        return MiddlewareError(f"{point} of middleware {middleware!r} must be an async function")
    error.add_note(f"{MIDDLEWARE_NOTE} {middleware!r}")
    return error
