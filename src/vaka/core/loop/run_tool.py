"""Run one tool within its timeout, cancel it on a stop, and return exactly one result."""

import asyncio
from typing import Any

from vaka.core.loop.blobs import offload_result
from vaka.core.loop.call_context import CallContext, idempotency_key
from vaka.core.loop.context import Turn
from vaka.core.loop.permission import PermittedCall
from vaka.core.loop.stop import TurnStopped, measure_steps, run_at_once
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.env import format_timestamp
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import ToolStarted
from vaka.core.types.state import OpenCall
from vaka.core.types.tool_result import as_result, failed_result, stopped_result, unknown_outcome_text


def tool_started_event(turn: Turn, permitted: PermittedCall, open_call: OpenCall) -> ToolStarted:
    """Return the event that must be in the log before the tool runs; ``open_call`` gets the key of the event."""
    spec = permitted.tool.spec
    deadline = format_timestamp(turn.env.clock.time() + spec.timeout) if spec.timeout is not None else ""
    open_call.key = key = idempotency_key(turn, open_call)
    attempt = open_call.attempt + 1
    return ToolStarted(call=permitted.call, key=key, effect=spec.effect, deadline=deadline, attempt=attempt)


async def run_in_context(permitted: PermittedCall, context: CallContext) -> ToolResult:
    """Run a tool whose start is in the log. Raises ``DecisionPending`` when it waits for a person: it stays open."""
    turn = context.owner_turn
    turn.log.require_writer()
    try:
        result = await _run_until_done(turn, permitted, context)
    finally:
        await context.close()
    return await offload_result(turn.log, result)


async def _run_until_done(turn: Turn, permitted: PermittedCall, context: CallContext) -> ToolResult:
    call = permitted.call.id
    if getattr(permitted.tool, "never_suspends", False):
        turn.stop.check()
        try:
            return run_at_once(_call_tool(turn, permitted, context))
        except asyncio.CancelledError:
            return failed_result(call, "error", "the tool cancelled itself")
    done = context.done_future
    task = asyncio.create_task(_call_tool(turn, permitted, context))
    task.add_done_callback(context.finish)
    try:
        context.timer.start()
        with turn.stop.cancellable():
            await done
    except TurnStopped as stopped:
        await _cancel_task(turn, task, permitted.call.name)
        text = f"stopped before it was done: {stopped}{unknown_outcome_text(permitted.tool.spec)}"
        returned = task.result() if task.done() and not task.cancelled() else None
        return stopped_result(call, stopped.kind, text, returned)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        await _cancel_task(turn, task, permitted.call.name)
        spec = permitted.tool.spec
        return failed_result(call, "timeout", f"no result within {spec.timeout} s{unknown_outcome_text(spec)}")
    if context.suspended:
        raise DecisionPending(*context.suspended)
    if task.cancelled():
        return failed_result(call, "error", "the tool cancelled itself")
    return task.result()


async def _call_tool(turn: Turn, permitted: PermittedCall, context: CallContext) -> ToolResult:
    def report_blocked(seconds: float) -> None:
        text = f"{permitted.call.name!r} held the event loop for {seconds:.1f} s: make it a plain def, or await"
        turn.log.defer(turn.scope, Logged(level="warning", message=text))

    turn.budget.charge_to_call(permitted.call.id)
    try:
        work = measure_steps(permitted.tool.call(context, permitted.call.arguments), report_blocked)
        return as_result(permitted.call.id, await work)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except TurnStopped as stopped:
        return failed_result(permitted.call.id, stopped.kind, _stop_text(stopped))
    except BaseException as error:  # noqa: BLE001  # a tool may raise anything; the model gets the message
        return failed_result(permitted.call.id, "error", f"{type(error).__name__}: {error}")


def _stop_text(stopped: TurnStopped) -> str:
    unpaid = f"it needs an answer of a model, for which the budget of this turn ({stopped.note}) has no room left"
    return unpaid if stopped.kind == "limit" else f"stopped before it was done: {stopped}"


async def _cancel_task(turn: Turn, task: "asyncio.Task[Any]", name: str) -> None:
    """Cancel a tool and wait for the grace period; a task that has not ended then is abandoned and logged."""
    task.cancel()
    await asyncio.wait([task], timeout=turn.limits.grace)
    if not task.done():
        turn.env.stray_tasks.add(task)
        task.add_done_callback(turn.env.stray_tasks.discard)
        text = f"{name!r} did not stop within {turn.limits.grace} s of being cancelled and was left behind"
        turn.log.defer(turn.scope, Logged(level="error", message=text))
