"""Run one tool within its timeout, cancel it on a stop, and return exactly one result."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from inspect import iscoroutine
from types import TracebackType
from typing import Any

import msgspec

from vaka.core.loop.blobs import offload_result
from vaka.core.loop.budget.spending import charge_to_call
from vaka.core.loop.context import Turn
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.tools.context import CallContext, idempotency_key
from vaka.core.loop.tools.permission import PermittedCall
from vaka.core.loop.tools.result import as_result, failed_result
from vaka.core.session.log import format_timestamp
from vaka.core.session.state import OpenCall
from vaka.core.types.errors import MiddlewareError
from vaka.core.types.ids import CallId, DecisionId, MessageId
from vaka.core.types.message import FailureReason, Text, ToolCall, ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import ToolReturned, ToolStarted

MAX_STEP_SECONDS = 1.0
"""Seconds a tool may block the event loop before a warning is logged."""


async def measure_steps(work: Awaitable[Any], on_blocked: Callable[[float], None]) -> Any:
    """Await ``work``; call ``on_blocked`` with the time of each step in which it held the event loop for too long."""
    return await (_MeasuredSteps(work, on_blocked) if iscoroutine(work) else work)


class _MeasuredSteps(Generator[Any, Any, Any]):
    """A coroutine, whose every step is timed."""

    def __init__(self, work: Coroutine[Any, Any, Any], on_blocked: Callable[[float], None]) -> None:
        self._work, self._on_blocked = work, on_blocked

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value."""
        start = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._measure(start)

    def throw(self, kind: Any, error: BaseException | object = None, trace: TracebackType | None = None) -> Any:
        """Resume the coroutine with an error, such as its cancellation."""
        start = time.perf_counter()
        try:
            return self._work.throw(error if isinstance(error, BaseException) else kind)
        finally:
            self._measure(start)

    def close(self) -> None:
        """Close the coroutine; it may be closed already."""
        self._work.close()

    def _measure(self, start: float) -> None:
        took = time.perf_counter() - start
        if took > MAX_STEP_SECONDS:
            self._on_blocked(took)


_REASONS: dict[str, FailureReason] = {"interrupted": "interrupted", "cancelled": "cancelled", "limit": "limit"}


class AwaitingPerson(msgspec.Struct, frozen=True):
    """The call waits for a person and stays open."""

    decisions: tuple[DecisionId, ...]


def tool_started_event(turn: Turn, permitted: PermittedCall, open_call: OpenCall) -> ToolStarted:
    """Return the event that must be in the log before the tool runs."""
    spec = permitted.tool.spec
    deadline = format_timestamp(turn.env.clock.time() + spec.timeout) if spec.timeout is not None else ""
    return ToolStarted(
        call=permitted.call,
        key=idempotency_key(turn, open_call),
        effect=spec.effect,
        deadline=deadline,
        attempt=open_call.attempt + 1,
    )


async def run_tool(turn: Turn, permitted: PermittedCall, open_call: OpenCall) -> ToolResult | AwaitingPerson:
    """Run a tool whose start is in the log. Its result is written before ``after_tool`` sees it."""
    turn.log.require_writer()
    context = CallContext(turn, open_call, permitted.tool.spec.timeout)
    context.folder = permitted.folder
    try:
        result = await _run_until_done(turn, permitted, context)
    finally:
        await context.close()
    if isinstance(result, AwaitingPerson):
        return result
    result = await offload_result(turn, result)
    if turn.middleware.handles("after_tool"):
        await turn.log.append(turn.scope, ToolReturned(result=result))
        return await run_after_tool(turn, permitted.call, result)
    return result


async def run_after_tool(turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
    """Pass a result through ``after_tool``."""
    return await offload_result(turn, await turn.middleware.after_tool(turn, call, result))


async def rerun_read_call(turn: Turn, call: ToolCall, retry_number: int) -> ToolResult | None:
    """Run a ``read`` call once more and return its result, ``None`` when it waits for a person.

    For use in ``after_tool``: the log gets no events of the rerun, only the result that the middleware returns.
    """
    tool, open = turn.tools[call.name], turn.state.open.get(call.id)
    if tool.spec.effect != "read":
        raise MiddlewareError(f"{call.name!r} may not run twice: its effect is {tool.spec.effect!r}, not 'read'")
    turn.log.require_writer()
    known = open or OpenCall(call=call, path=turn.path, message=MessageId(""), step=turn.scope.step, number=0)
    known = msgspec.structs.replace(known, asked=())  # the rerun makes model calls of its own
    context = CallContext(turn, known, tool.spec.timeout, block=retry_number)
    try:
        result = await _run_until_done(turn, PermittedCall(tool, call), context)
    finally:
        await context.close()
    return None if isinstance(result, AwaitingPerson) else await offload_result(turn, result)


async def _run_until_done(turn: Turn, permitted: PermittedCall, context: CallContext) -> ToolResult | AwaitingPerson:
    call = permitted.call.id
    if getattr(permitted.tool, "never_suspends", False):
        turn.stop.check()
        return _run_at_once(_call_tool(turn, permitted, context), call)
    done = context.done_future
    task = asyncio.create_task(_call_tool(turn, permitted, context))
    task.add_done_callback(context.finish)
    try:
        context.timer.start()
        with turn.stop.cancellable():
            await done
    except TurnStopped as stopped:
        await _cancel_task(turn, task, permitted.call.name)
        text = f"stopped before it was done: {stopped}{_unknown_outcome_text(permitted)}"
        return _stopped_result(task, call, _REASONS[stopped.kind], text)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        await _cancel_task(turn, task, permitted.call.name)
        return failed_result(
            call, "timeout", f"no result within {permitted.tool.spec.timeout} s{_unknown_outcome_text(permitted)}"
        )
    if context.suspended:
        return AwaitingPerson(tuple(context.suspended))
    if task.cancelled():
        return failed_result(call, "error", "the tool cancelled itself")
    return task.result()


def _run_at_once(work: Coroutine[Any, Any, ToolResult], call: CallId) -> ToolResult:
    """Run a tool that never suspends, without a task and a timeout."""
    try:
        copy_context().run(work.send, None)
    except StopIteration as end:
        result: ToolResult = end.value
        return result
    except asyncio.CancelledError:
        return failed_result(call, "error", "the tool cancelled itself")
    work.close()
    raise RuntimeError("a tool that never suspends was suspended")


def _stopped_result(task: "asyncio.Task[ToolResult]", call: CallId, reason: FailureReason, text: str) -> ToolResult:
    """Return the result of a cancelled tool: the one it has returned, or a failed one."""
    result = task.result() if task.done() and not task.cancelled() else None
    if result is None or result.reason in _REASONS:
        return failed_result(call, reason, text)
    if not result.failed:
        return result
    return msgspec.structs.replace(result, content=(*result.content, Text(text=f"\n[{text}]")), reason=reason)


def _stop_text(stopped: TurnStopped) -> str:
    unpaid = f"it needs an answer of a model, for which the budget of this turn ({stopped.note}) has no room left"
    return unpaid if stopped.kind == "limit" else f"stopped before it was done: {stopped}"


def _unknown_outcome_text(permitted: PermittedCall) -> str:
    """Return the warning for a ``once`` call that was cancelled: it may have had its effect."""
    return "; its outcome is unknown, verify before repeating it" if permitted.tool.spec.effect == "once" else ""


async def _call_tool(turn: Turn, permitted: PermittedCall, context: CallContext) -> ToolResult:
    def report_blocked(seconds: float) -> None:
        text = f"{permitted.call.name!r} held the event loop for {seconds:.1f} s: make it a plain def, or await"
        turn.log.defer(turn.scope, Logged(level="warning", message=text))

    charge_to_call(turn, permitted.call.id)
    try:
        return as_result(
            permitted.call.id,
            await measure_steps(permitted.tool.call(context, permitted.call.arguments), report_blocked),
        )
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except TurnStopped as stopped:
        return failed_result(permitted.call.id, _REASONS[stopped.kind], _stop_text(stopped))
    except BaseException as error:  # noqa: BLE001  # a tool may raise anything; the model gets the message
        return failed_result(permitted.call.id, "error", f"{type(error).__name__}: {error}")


async def _cancel_task(turn: Turn, task: "asyncio.Task[Any]", name: str) -> None:
    """Cancel a tool and wait for the grace period; a task that has not ended then is abandoned and logged."""
    task.cancel()
    await asyncio.wait([task], timeout=turn.recipe.limits.grace)
    if not task.done():
        turn.env.stray_tasks.add(task)
        task.add_done_callback(turn.env.stray_tasks.discard)
        text = f"{name!r} did not stop within {turn.recipe.limits.grace} s of being cancelled and was left behind"
        turn.log.defer(turn.scope, Logged(level="error", message=text))
