"""The loop of an agent: ask what comes next, and do it, until the run ends.

    begin a step ─▶ call the model ─▶ run its calls ─▶ finish the step ─▶ begin a step …

Each function below performs one action of ``actions.py`` and returns the progress after it.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.actions import (
    Action,
    BeginStep,
    CallModel,
    CheckAnswer,
    End,
    FinishStep,
    LoadStep,
    PrepareStep,
    RunCalls,
    StepProgress,
    next_action,
)
from vaka.core.loop.blobs import PREVIEW_LENGTH, confirm_prompt_texts, restore_content, store_prompt_texts
from vaka.core.loop.calls import run_calls
from vaka.core.loop.context import OutputCheck, Turn
from vaka.core.loop.model_call import call_model
from vaka.core.ports.log import Log
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidOutput
from vaka.core.types.ids import EventScope
from vaka.core.types.message import text_of
from vaka.core.types.progress import AgentContinued, MessageCompleted, OutputRejected, StepCompleted, StepStarted

_FEEDBACK = "{}\nAnswer again: with JSON that matches the schema, and nothing else."

Perform: TypeAlias = Callable[[Turn, StepProgress], Coroutine[Any, Any, StepProgress]]


async def run_steps(turn: Turn, perform: Mapping[type[Action], Perform] | None = None) -> Ending:
    """Run an agent from where the log left it. Starting, resuming and continuing are the same code.

    Raises ``RuntimeError`` when an action does not lead to another progress, so that the loop cannot spin.
    """
    perform = perform or PERFORM
    progress = read_progress(turn)
    while type(action := next_action(progress, turn.limits)) is not End:
        before, progress = progress, await perform[type(action)](turn, progress)
        if progress.phase not in action.leads_to or progress == before:
            raise RuntimeError(f"{type(action).__name__} led from {before} to {progress}")
    return msgspec.structs.replace(action.ending, text=turn.last_text)


def read_progress(turn: Turn) -> StepProgress:
    """Return the progress that the log has of an agent."""
    known = turn.agent_progress
    if known.phase in ("asking", "answered"):
        return StepProgress(
            known.phase,
            known.step,
            calls=tuple(turn.state.open_calls_of(turn.path)),
            has_called=known.calls > 0,
            refused=_refused_tool(turn),
            is_loaded=False,
        )
    if known.phase == "idle" and known.step and not known.calls:
        return StepProgress("finished", known.step)
    return StepProgress("ready", known.step, refused=_refused_tool(turn))


async def load_step(turn: Turn, progress: StepProgress) -> StepProgress:
    turn.stop.check()
    await turn.load_prompt()
    return msgspec.structs.replace(progress, is_loaded=True)


async def prepare_step(turn: Turn, progress: StepProgress) -> StepProgress:
    turn.stop.check()
    await turn.load_prompt()
    chain = turn.middleware
    events = await chain.run_before_step(turn) if chain.before_step or chain.shorten_context else ()
    limit = turn.budget.exhausted_limit() if turn.budget.is_limited else ""
    return StepProgress("prepared", progress.step, limit=limit, events=events)


async def begin_step(turn: Turn, progress: StepProgress) -> StepProgress:
    """Write ``step.started`` with the digests of system prompt and tools, and the steered inputs that join the step."""
    number, log = progress.step + 1, turn.log
    turn.start_step(number)
    joining = steered_inputs(turn) if turn.state.inputs else ()
    secrets = log.secrets
    texts = [turn.system, turn.tool_menu.digested_text]
    known = log.window.held_texts & secrets.clean_digests if secrets.is_active else log.window.held_texts
    is_known = texts[0].digest in known and texts[1].digest in known
    if not is_known:
        texts = await store_prompt_texts(log, texts, turn.env.stored_digests)
    started = StepStarted(
        agent=turn.agent,
        number=number,
        model=turn.recipe.model.name,
        inputs=joining,
        system=texts[0].digest,
        tools=texts[1].digest,
    )
    await log.append(turn.scope, *progress.events, started)
    if not is_known:
        await confirm_prompt_texts(log, texts)
    return StepProgress("asking", number)


async def ask_for_answer(turn: Turn, progress: StepProgress) -> StepProgress:
    calls = tuple(await call_model(turn))
    return StepProgress("answered", progress.step, calls, has_called=bool(calls))


async def run_open_calls(turn: Turn, progress: StepProgress) -> StepProgress:
    limit = await run_calls(turn, progress.calls)
    return StepProgress("answered", progress.step, has_called=True, limit=limit)


async def finish_step(turn: Turn, progress: StepProgress) -> StepProgress:
    limit, has_called = progress.limit, progress.has_called
    if has_called and not limit and turn.middleware.after_step:
        limit = await turn.middleware.run_after_step(turn)
    turn.log.defer(turn.scope, StepCompleted(number=progress.step))
    if has_called:
        return StepProgress("ready", progress.step, limit=limit, refused=_refused_tool(turn))
    return StepProgress("finished", progress.step)


async def check_answer(turn: Turn, progress: StepProgress) -> StepProgress:
    if await _must_go_on(turn):
        return StepProgress("ready", progress.step, refused=_refused_tool(turn))
    return StepProgress("done", progress.step)


PERFORM: dict[type[Action], Perform] = {
    LoadStep: load_step,
    PrepareStep: prepare_step,
    BeginStep: begin_step,
    CallModel: ask_for_answer,
    RunCalls: run_open_calls,
    FinishStep: finish_step,
    CheckAnswer: check_answer,
}


def steered_inputs(turn: Turn) -> tuple[str, ...]:
    """Return the inputs that join the turn with its next step; none if they must not bypass a ``before_agent``."""
    if turn.path or turn.middleware.holds_inputs:
        return ()
    return turn.log.pending.steered_inputs(turn.state)


def _refused_tool(turn: Turn) -> str:
    """Return the tool of the root agent that a person has refused without a message."""
    running = turn.state.turn
    return running.rejected if running is not None and not turn.path else ""


async def _must_go_on(turn: Turn) -> bool:
    """Return whether an answer without calls is not the end: an input waits, it does not fit, or middleware objects."""
    if turn.state.inputs and steered_inputs(turn):
        return True
    check = turn.recipe.check_output
    if check is not None and await _ask_again(turn, check):
        return True
    return bool(turn.middleware.check_answer) and await _continue(turn)


async def _ask_again(turn: Turn, check: OutputCheck) -> bool:
    """Return whether the model has to answer again because its answer does not fit, and defer the event that says so.

    Raises ``InvalidOutput`` when it was asked again ``output_retries`` times.
    """
    retries = turn.limits.output_retries
    errors = check(await restore_answer(turn.log, turn.scope, turn.last_text))
    if not errors:
        return False
    number = turn.agent_progress.rejected + 1
    if number > retries:
        again = f" (asked again {retries} times)" if retries else ""
        raise InvalidOutput(f"{errors}{again}")
    feedback = _FEEDBACK.format(f"{errors[:1].upper()}{errors[1:]}.")
    turn.log.defer(turn.scope, OutputRejected(number=number, feedback=feedback))
    return True


async def _continue(turn: Turn) -> bool:
    """Return whether a middleware continues the agent, and defer the event with its text."""
    number = turn.agent_progress.continued + 1
    if number > turn.limits.max_continuations:
        return False
    text, by = await turn.middleware.run_check_answer(turn, turn.last_text)
    if text:
        turn.log.defer(turn.scope, AgentContinued(number=number, text=text, by=by))
    return bool(text)


async def restore_answer(log: Log, scope: EventScope, text: str) -> str:
    """Return the whole text of an agent's last answer; ``text`` is its beginning if it is too large for an event."""
    if len(text) < PREVIEW_LENGTH:
        return text
    own = [body for place, body in log.deferred if place.path == scope.path]
    for body in (*reversed(own), *(event.data for event in reversed(log.window.events) if event.path == scope.path)):
        if isinstance(body, MessageCompleted) and text_of(body.content) == text:
            return text_of(await restore_content(log.store.blobs, body.content))
    return text
