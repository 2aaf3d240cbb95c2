"""Run one tool: with its key, inside its time, never past a stop, and with one result whatever happens."""

import asyncio
from typing import Any

import msgspec

from vaka.core.loop.context import Context, key_of
from vaka.core.loop.judge import Ready
from vaka.core.loop.paying import serve
from vaka.core.loop.result import as_result, failure
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.loop.texts import offload_result
from vaka.core.loop.watch import watched
from vaka.core.session.log import stamp
from vaka.core.session.state import OpenCall
from vaka.core.types.content import Text
from vaka.core.types.errors import MiddlewareError
from vaka.core.types.ids import CallId, DecisionId, MessageId
from vaka.core.types.message import Reason, ToolCall, ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import ToolReturned, ToolStarted

_REASONS: dict[str, Reason] = {"interrupted": "interrupted", "cancelled": "cancelled", "limit": "limit"}


class Left(msgspec.Struct, frozen=True):
    """The call waits for a person and stays open."""

    decisions: tuple[DecisionId, ...]


def started(turn: Turn, ready: Ready, open: OpenCall) -> ToolStarted:
    """Return what must be in the log before the tool runs."""
    spec = ready.tool.spec
    deadline = stamp(turn.env.clock.time() + spec.timeout) if spec.timeout is not None else ""
    return ToolStarted(
        call=ready.call, key=key_of(turn, open), effect=spec.effect, deadline=deadline, attempt=open.attempt + 1
    )


async def execute(turn: Turn, ready: Ready, open: OpenCall) -> ToolResult | Left:
    """Run a tool whose start is in the log. What it returned is in the log before anyone looks at it."""
    turn.log.require()
    context = Context(turn, open, ready.tool.spec.timeout)
    context.folder = ready.folder
    try:
        result = await _run(turn, ready, context)
    finally:
        await context.close()
    if isinstance(result, Left):
        return result
    result = await offload_result(turn, result)
    if turn.chain.has("after_tool"):
        await turn.log.append(turn.at, ToolReturned(result=result))
        return await after(turn, ready.call, result)
    return result


async def after(turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
    """Let the middleware see what a tool returned."""
    return await offload_result(turn, await turn.chain.after_tool(turn, call, result))


async def again(turn: Turn, call: ToolCall, time: int) -> ToolResult | None:
    """Run a ``read`` call another ``time`` and return what it came to, ``None`` when it waits for a person.

    Only for what looks at results: nothing of it is in the log but the result that is passed on.
    """
    tool, open = turn.tools[call.name], turn.state.open.get(call.id)
    if tool.spec.effect != "read":
        raise MiddlewareError(f"{call.name!r} may not run twice: its effect is {tool.spec.effect!r}, not 'read'")
    turn.log.require()
    known = open or OpenCall(call=call, path=turn.path, message=MessageId(""), step=turn.at.step, number=0)
    known = msgspec.structs.replace(known, asked=())  # what it asks a model now are questions of their own
    context = Context(turn, known, tool.spec.timeout, block=time)
    try:
        result = await _run(turn, Ready(tool, call), context)
    finally:
        await context.close()
    return None if isinstance(result, Left) else await offload_result(turn, result)


async def _run(turn: Turn, ready: Ready, context: Context) -> ToolResult | Left:
    call = ready.call.id
    task = asyncio.create_task(_call(turn, ready, context))
    task.add_done_callback(context.over)
    try:
        context.timer.start()
        with turn.stop.region():
            await context.gate
    except Stopped as stopped:
        await _abandon(turn, task, ready.call.name)
        said = f"stopped before it was done: {stopped}{_doubt(ready)}"
        return _cut(task, call, _REASONS[stopped.why], said)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        await _abandon(turn, task, ready.call.name)
        return failure(call, "timeout", f"no result within {ready.tool.spec.timeout} s{_doubt(ready)}")
    if context.suspended:
        return Left(tuple(context.suspended))
    if task.cancelled():
        return failure(call, "error", "the tool cancelled itself")
    return task.result()


def _cut(task: "asyncio.Task[ToolResult]", call: CallId, reason: Reason, said: str) -> ToolResult:
    """Return what a tool that was told to stop came to: the result it left with, or what is known without one."""
    result = task.result() if task.done() and not task.cancelled() else None
    if result is None or result.reason in _REASONS:
        return failure(call, reason, said)
    if not result.failed:
        return result
    return msgspec.structs.replace(result, content=(*result.content, Text(text=f"\n[{said}]")), reason=reason)


def _unpaid(stopped: Stopped) -> str:
    unpaid = f"it needs an answer of a model, for which the budget of this turn ({stopped.note}) has no room left"
    return unpaid if stopped.why == "limit" else f"stopped before it was done: {stopped}"


def _doubt(ready: Ready) -> str:
    """What the model should know of a call that was cut: it may have had its effect."""
    return "; its outcome is unknown, verify before repeating it" if ready.tool.spec.effect == "once" else ""


async def _call(turn: Turn, ready: Ready, context: Context) -> ToolResult:
    def blocked(seconds: float) -> None:
        text = f"{ready.call.name!r} held the event loop for {seconds:.1f} s: make it a plain def, or await"
        turn.log.later(turn.at, Logged(level="warning", message=text))

    serve(turn, ready.call.id)
    try:
        return as_result(ready.call.id, await watched(ready.tool.call(context, ready.call.arguments), blocked))
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except Stopped as stopped:
        return failure(ready.call.id, _REASONS[stopped.why], _unpaid(stopped))
    except BaseException as error:  # noqa: BLE001  # a failing tool raises what it likes; the model reads it
        return failure(ready.call.id, "error", f"{type(error).__name__}: {error}")


async def _abandon(turn: Turn, task: "asyncio.Task[Any]", name: str) -> None:
    """Cancel a tool and give it a moment; one that will not leave is left behind and reported."""
    task.cancel()
    await asyncio.wait([task], timeout=turn.recipe.limits.grace)
    if not task.done():
        turn.env.strays.add(task)
        task.add_done_callback(turn.env.strays.discard)
        text = f"{name!r} did not stop within {turn.recipe.limits.grace} s of being cancelled and was left behind"
        turn.log.later(turn.at, Logged(level="error", message=text))
