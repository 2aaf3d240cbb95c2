"""Where a script works: inside a tool's call, or one after the other in the turns of an agent."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec

from vaka.core.loop.child import check_depth
from vaka.core.loop.context import Context
from vaka.core.loop.nest import START, Nest, Waits
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stop
from vaka.core.loop.texts import LARGE
from vaka.core.ports.store import Blobs
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.session.place import Place
from vaka.core.session.state import lane_key
from vaka.core.session.window import END
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.progress import SubagentCompleted, SubagentStarted


@asynccontextmanager
async def nested(
    context: ToolContext, agent: str, code: Digest, tools: Mapping[str, Tool]
) -> AsyncGenerator[tuple[Nest, SubagentCompleted | None]]:
    """Give the place of a script that is a tool's call, and how it ended if it has; ``tools`` are more it may call."""
    if not isinstance(context, Context):
        raise InvalidInput("a script needs the context of the call that runs it")
    parent, child = context.owner, context.child()
    path = (*parent.path, child)
    check_depth(path)
    lane = parent.state.lanes.get(lane_key(path))
    stop = Stop(context.stop)
    turn = Turn(parent.log, parent.recipe, parent.env, Place(parent.id, 0, path), stop, context.timer).below(parent)
    turn.agent, turn.tools = agent, {**turn.tools, **tools}
    if lane is None:
        parent.log.later(parent.at, SubagentStarted(call=context.call, agent=agent, child=child))
    try:
        done = await _whole(parent.log.store.blobs, lane.done) if lane and lane.done else None
        yield Nest(turn, list(parent.log.window.at(path)), code, context.call), done
    except Waits as waits:
        context.suspended.extend(waits.decisions)
        raise asyncio.CancelledError from waits  # the call stays open; it runs again when someone has decided
    finally:
        stop.close()


async def ended(context: ToolContext, nest: Nest, agent: str, value: JSON, error: str = "") -> None:
    """Put down how a script that is a tool's call has ended."""
    blobs = nest.turn.log.store.blobs
    written = msgspec.json.encode(nest.turn.log.secrets.cleaned(value))
    blob = await blobs.put(written) if len(written) > LARGE else None
    body = SubagentCompleted(
        call=context.call, agent=agent, child=nest.turn.path[-1], failed=bool(error), stop=error or "end",
        value=None if blob else value, blob=blob,
    )  # fmt: skip
    nest.turn.log.later(Place(nest.turn.id, 0, nest.turn.path[:-1]), body)


async def _whole(blobs: Blobs, done: SubagentCompleted) -> SubagentCompleted:
    if done.blob is None:
        return done
    return msgspec.structs.replace(done, value=msgspec.json.decode(await blobs.get(done.blob)))


def unfinished(events: Iterable[Event]) -> tuple[list[Event], JSON]:
    """Return the events of the script that has not ended yet, and how the one before it ended, ``None`` for none.

    ``events`` are those of a place where scripts run one after the other.
    """
    current: list[Event] = []
    how: JSON = None
    for event in events:
        body = event.data
        if isinstance(body, ScriptAnswered) and body.name == START:
            current = [event]
        elif isinstance(body, ScriptAnswered) and body.name == END:
            current, how = [], body.answer
        elif current:
            current.append(event)
    return current, how
