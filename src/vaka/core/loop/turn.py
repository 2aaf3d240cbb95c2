"""A turn, from its input to the event that ends it. It continues from the log, so starting and resuming are one path.

A turn ends in an event, not in an exception. Only ``StoreError`` and ``Suspended`` propagate: the log cannot be
written, or the turn waits for a person.
"""

import msgspec

from vaka.core.loop.blobs import offload, restore_content
from vaka.core.loop.context import OutputCheck, Turn
from vaka.core.loop.prompt import turn_input_content
from vaka.core.loop.steps import restore_answer, run_steps
from vaka.core.loop.stop import TurnStopped
from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.ending import Answer, Ending, Outcome, Reject
from vaka.core.types.errors import InvalidOutput, StoreError, Suspended, TurnError, describe_failure
from vaka.core.types.ids import EventScope, MessageId
from vaka.core.types.message import Content, Text
from vaka.core.types.state import results_for_open_calls


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a new turn: its content, the keys of its inputs, and the inputs that are not in the log yet."""

    content: Content
    keys: tuple[str, ...] = ()
    fresh: tuple[InputAdded, ...] = ()
    started: progress.SubagentStarted | None = None
    """The event that starts a child agent, without its content; ``None`` for the root agent."""


async def run_turn(turn: Turn, turn_input: TurnInput | None) -> Ending:
    """Run a turn to its end: a new one, or without ``turn_input`` the one the log says is unfinished."""
    ending = await run_agent(turn, turn_input)
    if turn.state.turn is None and not turn.log.pending.turn_started:
        raise TurnError(ending.message, code=ending.code)  # the input could not be stored: no turn has started
    await seal_open_calls(turn, ending, "The turn ended before this call did.")
    # The claim ends with the turn, unless an input waits for the next one.
    await turn.log.append(turn.scope, ending.closing_event(turn.budget.used), release=not turn.state.inputs)
    return ending


async def run_agent(turn: Turn, turn_input: TurnInput | None) -> Ending:
    """Run one agent to its end, then ``after_agent``, also after an error or a stop."""
    charged = turn.budget.open()
    turn.timer.start()
    try:
        ending = await _run_agent(turn, turn_input)
        if turn.middleware.after_agent:
            ending = await _run_after_agent(turn, ending)
        return ending if turn.recipe.check_output is None else await _check_text(turn, turn.recipe.check_output, ending)
    finally:
        turn.budget.close(charged)


async def _run_agent(turn: Turn, turn_input: TurnInput | None) -> Ending:
    try:
        return await _begin(turn, turn_input) or await (turn.recipe.run_override or run_steps)(turn)
    except TurnStopped as stop:
        if stop.kind == "limit":
            return Ending(text=turn.last_text, limit=stop.note)
        return Ending(kind=stop.kind, text=turn.last_text, message=stop.note)
    except (Suspended, StoreError):
        raise
    except Exception as error:  # noqa: BLE001  # any error ends this turn in an event; other turns continue
        return Ending.of_error(error, turn.last_text)
    finally:
        turn.timer.cancel()


async def _begin(turn: Turn, turn_input: TurnInput | None) -> Ending | None:
    """Run ``before_agent`` and defer the events that begin the turn; return an ending if it answers or rejects."""
    if turn_input is None:
        if not turn.path:
            turn.log.defer(turn.scope, progress.TurnResumed(agent=turn.agent))
        turn.start_step(turn.agent_progress.step)
        content = turn_input_content(turn.log.window.events_at(turn.path), turn.path, turn.id)
        await turn.middleware.run_before_agent(turn, await restore_content(turn.log.store.blobs, content))
        return None
    value: Content | Answer | Reject = turn_input.content
    try:
        content = await restore_content(turn.log.store.blobs, turn_input.content)
        value = await turn.middleware.run_before_agent(turn, content) if turn.middleware.before_agent else content
    finally:
        await _write_input(turn, turn_input, value)
    if isinstance(value, Reject):
        return Ending(kind="failed", code=value.code, message=value.reason, withdrawn=True)
    if isinstance(value, Answer):
        answer = progress.MessageCompleted(
            message_id=MessageId(turn.env.ids.new_id("msg")), content=(Text(text=value.text),), model="", stop="end"
        )
        turn.log.defer(turn.scope, answer)
        return Ending(text=value.text)
    return None


async def _write_input(turn: Turn, turn_input: TurnInput, value: Content | Answer | Reject) -> None:
    changed = value if isinstance(value, tuple) and value != turn_input.content else None
    if turn_input.started is not None:
        content = await offload(turn.log, changed or turn_input.content)
        parent = EventScope(turn.scope.turn, 0, turn.path[:-1])
        turn.log.defer(parent, msgspec.structs.replace(turn_input.started, content=content))
        return
    for fresh in turn_input.fresh:
        content = await offload(turn.log, fresh.content)
        added = fresh if content is fresh.content else msgspec.structs.replace(fresh, content=content)
        turn.log.defer(EventScope(), added)
    new = await offload(turn.log, changed) if changed else None
    turn.log.defer(turn.scope, progress.TurnStarted(agent=turn.agent, inputs=turn_input.keys, content=new))


async def _run_after_agent(turn: Turn, ending: Ending) -> Ending:
    outcome = Outcome(text=ending.text, stop=ending.kind, limit=ending.limit, error=ending.message)
    outcome, error = await turn.middleware.run_after_agent(turn, outcome)
    ending = msgspec.structs.replace(ending, text=outcome.text)
    if error is None:
        return ending
    if ending.kind != "completed":
        also = f"after_agent failed: {describe_failure(error)[1]}"
        return msgspec.structs.replace(ending, message=f"{ending.message}; {also}" if ending.message else also)
    if isinstance(error, TurnStopped) and error.kind == "limit":  # no budget for a model call of a middleware
        return msgspec.structs.replace(ending, limit=ending.limit or error.note)
    return Ending.of_error(error, ending.text)


async def _check_text(turn: Turn, check: OutputCheck, ending: Ending) -> Ending:
    """Return the ending, failed if its text does not fit: a middleware or a script may have written it."""
    errors = check(await restore_answer(turn.log, turn.scope, ending.text)) if ending.is_answer else ""
    return Ending(kind="failed", text=ending.text, code=InvalidOutput.code, message=errors) if errors else ending


async def seal_open_calls(turn: Turn, ending: Ending, text: str) -> None:
    """Defer a failed result for each call of this agent or its children that has none."""
    if turn.log.pending.open_calls:
        await turn.log.append(turn.scope)  # ``tool.called`` must be in the log before the result that seals it
    if not turn.state.open:
        return
    answered = {result.call for _, result in turn.log.pending.results}
    for path, step, result in results_for_open_calls(turn.state, ending.seal_reason, text, turn.path):
        if result.call not in answered:
            turn.log.defer(EventScope(turn.id, step, path), progress.ToolFailed(result=result))
