"""The loop. A turn goes on from whatever the log says, so starting, continuing and resuming are one thing.

    begin ─▶ ask the model ─▶ settle its calls ─▶ begin …      until it answers without a call, or a limit is reached

A turn ends in an event, never in an exception; only a store that cannot be written and a wait for a person get out.
"""

from collections.abc import Sequence

import msgspec

from vaka.core.loop.budget import exhausted
from vaka.core.loop.dispatch import settle
from vaka.core.loop.ending import Ending, last, rejected, seal, stopped
from vaka.core.loop.hopeless import hopeless
from vaka.core.loop.limits import reached
from vaka.core.loop.mail import deliver
from vaka.core.loop.middleware import Answer, Block, Outcome, describe
from vaka.core.loop.paying import at_work
from vaka.core.loop.prompt import told
from vaka.core.loop.scope import Turn
from vaka.core.loop.step import ask, begin, steered
from vaka.core.loop.stop import Stopped
from vaka.core.loop.texts import offload, restored
from vaka.core.session.place import Place
from vaka.core.types import progress
from vaka.core.types.content import Content, Text
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import StoreError, Suspended, TurnError
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, MessageId


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a new turn answers: inputs that are new here, the keys of all of them in order, and what they say."""

    content: Content
    keys: tuple[str, ...] = ()
    fresh: tuple[InputAdded, ...] = ()
    call: CallId | None = None
    """The call that starts a child agent."""


async def run(turn: Turn, opening: Opening | None) -> Ending:
    """Run a turn to its end: a new one, or with no ``opening`` the one the log says is unfinished."""
    ending = await drive(turn, opening)
    begun = any(isinstance(body, progress.TurnStarted) for _, body in turn.log.deferred)
    if turn.state.turn is None and not begun:
        raise TurnError(ending.message, code=ending.code)  # what was said cannot be kept: there is no turn to end
    await seal(turn, ending, "The turn ended before this call did.")
    await turn.log.append(turn.at, last(turn, ending), release=not turn.state.inputs)
    return ending


async def drive(turn: Turn, opening: Opening | None) -> Ending:
    """Let one agent work until it is done, and let after_agent see how it ended, whatever happened."""
    with at_work(turn):
        return await _drive(turn, opening)


async def _drive(turn: Turn, opening: Opening | None) -> Ending:
    turn.timer.start()
    try:
        ending = await _open(turn, opening) or await (turn.recipe.body or _converse)(turn)
    except Stopped as stop:
        ending = stopped(turn, stop)
    except (Suspended, StoreError):
        raise
    except Exception as error:  # noqa: BLE001  # around a turn: it ends in an event, and its neighbours go on
        code, message = describe(error)
        ending = Ending(kind="failed", text=turn.text, code=code, message=message)
    finally:
        turn.timer.cancel()
    return await _after(turn, ending)


async def _open(turn: Turn, opening: Opening | None) -> Ending | None:
    if opening is None:
        turn.log.later(turn.at, *_resumed(turn))
        turn.step(turn.lane.step)
        said = told(turn.log.window.at(turn.path), turn.path, turn.id)
        await turn.chain.before_agent(turn, await restored(turn.log.store.blobs, said))
        return None
    value: Content | Answer | Block = opening.content
    try:
        value = await turn.chain.before_agent(turn, await restored(turn.log.store.blobs, opening.content))
    finally:
        await _write_opening(turn, opening, value)
    if isinstance(value, Block):
        return Ending(kind="failed", code="blocked", message=value.reason, withdrawn=True)
    if isinstance(value, Answer):
        answer = progress.MessageCompleted(
            message_id=MessageId(turn.env.ids.new("msg")), content=(Text(text=value.text),), model="", stop="end"
        )
        turn.log.later(turn.at, answer)
        return Ending(text=value.text)
    return None


async def _write_opening(turn: Turn, opening: Opening, value: Content | Answer | Block) -> None:
    changed = value if isinstance(value, tuple) and value != opening.content else None
    if opening.call is not None:
        said = changed or opening.content
        parent = Place(turn.at.turn, 0, turn.path[:-1])
        started: Body = progress.SubagentStarted(
            call=opening.call, agent=turn.agent, child=turn.path[-1], content=await offload(turn, said)
        )
        turn.log.later(parent, started)
        return
    for fresh in opening.fresh:
        content = await offload(turn, fresh.content)
        turn.log.later(Place(), msgspec.structs.replace(fresh, content=content))
    started = progress.TurnStarted(
        agent=turn.agent, inputs=opening.keys, content=await offload(turn, changed) if changed else None
    )
    turn.log.later(turn.at, started)


async def _converse(turn: Turn) -> Ending:
    """Ask, settle, ask again, from wherever the log says this agent is."""
    lane = turn.lane
    calls, called = turn.state.calls_at(turn.path), lane.calls > 0
    if lane.step and lane.phase == "idle" and not called and not steered(turn):
        return Ending(text=turn.text)  # it had its answer, only the end was not written
    answered, asking = lane.phase == "answered", lane.phase == "asking"
    while True:
        turn.stop.check()
        if not answered:
            if (ending := rejected(turn)) is not None:
                return ending
            if not asking:
                await deliver(turn)
            limit = "" if asking else reached(turn.recipe.limits, turn.lane.step, turn.spent) or exhausted(turn)
            if limit:
                return Ending(text=turn.text, limit=limit)
            if not asking:
                await begin(turn)
            calls = await ask(turn)
            called = bool(calls)
        limit = (await settle(turn, calls) if calls else "") or (hopeless(turn) if called else "")
        turn.log.later(turn.at, progress.StepCompleted(number=turn.at.step))
        if limit or not (called or steered(turn)):
            return Ending(text=turn.text, limit=limit)
        answered = asking = False


def _resumed(turn: Turn) -> Sequence[Body]:
    return () if turn.path else (progress.TurnResumed(agent=turn.agent),)


async def _after(turn: Turn, ending: Ending) -> Ending:
    seen = Outcome(text=ending.text, stop=ending.kind, limit=ending.limit, error=ending.message)
    outcome, error = await turn.chain.after_agent(turn, seen)
    ending = msgspec.structs.replace(ending, text=outcome.text)
    if error is None or ending.kind != "completed":
        return ending
    if isinstance(error, Stopped) and error.why == "limit":  # no budget pays for what a middleware asks
        return msgspec.structs.replace(ending, limit=ending.limit or error.note)
    code, message = describe(error)
    return Ending(kind="failed", text=ending.text, code=code, message=message)
