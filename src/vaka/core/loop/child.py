"""A child agent: its own conversation under its own path, in its root's log, under its root's rules."""

import asyncio

from vaka.core.loop.context import Context
from vaka.core.loop.ending import Ending, seal
from vaka.core.loop.scope import Recipe, Turn
from vaka.core.loop.stop import Stop
from vaka.core.loop.turn import Opening, drive
from vaka.core.ports.tool import ToolContext
from vaka.core.session.place import Place
from vaka.core.session.state import lane_key
from vaka.core.types.content import Content
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.ids import Path
from vaka.core.types.progress import SubagentCompleted

DEEPEST = 16
"""How far agents and scripts may be nested in each other."""


def check_depth(path: Path) -> None:
    """Raise ``InvalidInput`` for a place too far down: something calls itself without end."""
    if len(path) > DEEPEST:
        raise InvalidInput(f"agents and scripts are nested deeper than {DEEPEST}: one of them calls itself")


async def run_child(context: ToolContext, recipe: Recipe, content: Content) -> Ending:
    """Run an agent as part of a tool call and return how it ended.

    After a crash the same call finds its children where they were: one that had ended is not run again.
    """
    if not isinstance(context, Context):
        raise InvalidInput("a child agent needs the context of the call that starts it")
    ending = await context.shelter(_run(context, recipe, content, context.child()))
    if isinstance(ending, Suspended):
        raise asyncio.CancelledError  # the call stays open; it runs again when someone has decided
    assert isinstance(ending, Ending)  # noqa: S101  # the only other thing _run returns
    return ending


async def _run(context: Context, recipe: Recipe, content: Content, name: str) -> Ending | Suspended:
    parent = context.owner
    path = (*parent.path, name)
    check_depth(path)
    lane = parent.state.lanes.get(lane_key(path))
    if lane is not None and lane.done is not None:
        done = lane.done
        return Ending(kind="failed" if done.failed else "completed", text=done.text, message=done.stop)
    stop = Stop(context.stop)
    turn = Turn(parent.log, recipe, parent.env, Place(parent.id, 0, path), stop, context.timer).below(parent)
    try:
        ending = await drive(turn, None if lane is not None else Opening(content=content, call=context.call))
    except Suspended as suspended:
        context.suspended.extend(suspended.decisions)  # type: ignore[arg-type]  # ids of decisions, as they were raised
        return suspended
    finally:
        stop.close()
    await _write_end(context, turn, ending)
    return ending


async def _write_end(context: Context, turn: Turn, ending: Ending) -> None:
    await seal(turn, ending, "The agent ended before this call did.")
    completed = SubagentCompleted(
        call=context.call, agent=turn.agent, child=turn.path[-1], text=ending.text, failed=ending.kind != "completed",
        stop=ending.message or ending.limit or "end",
    )  # fmt: skip
    await turn.log.append(context.owner.at, completed)
