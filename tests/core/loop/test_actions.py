"""Every row of the state machine of an agent, and the guard that keeps its loop from spinning."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import get_args

import pytest
from msgspec import structs

import vaka
from tests.runtime.runtime_fixtures import agent
from vaka.core.loop.actions import (
    PHASES,
    Action,
    BeginStep,
    CallModel,
    CheckAnswer,
    End,
    FinishStep,
    LoadStep,
    Phase,
    PrepareStep,
    RunCalls,
    StepProgress,
    next_action,
)
from vaka.core.loop.context import Turn
from vaka.core.loop.steps import PERFORM, Perform, read_progress, run_steps
from vaka.core.ports.agent import AgentServices
from vaka.core.types.ending import Ending
from vaka.core.types.ids import MessageId
from vaka.core.types.message import Content, ToolCall
from vaka.core.types.state import OpenCall, call_id
from vaka.testing.models import ScriptedModel, call, calls, say

LIMITS = vaka.Limits(max_steps=3)
CALL = OpenCall(call=ToolCall(id=call_id((), 1), name="look"), path=(), message=MessageId("m"), step=1, number=1)
REFUSAL = Ending(kind="interrupted", code="rejected", message="a person refused look and said nothing more")

ROWS: list[tuple[StepProgress, Action]] = [
    (StepProgress("ready"), PrepareStep()),
    (StepProgress("ready", 2), PrepareStep()),
    (StepProgress("ready", 3), PrepareStep()),
    (StepProgress("ready", 2, limit="repeated_call"), End(Ending(limit="repeated_call"))),
    (StepProgress("ready", 2, refused="look"), End(REFUSAL)),
    (StepProgress("ready", 2, limit="repeated_call", refused="look"), End(Ending(limit="repeated_call"))),
    (StepProgress("prepared", 2), BeginStep()),
    (StepProgress("prepared", 3), End(Ending(limit="steps"))),
    (StepProgress("prepared", 2, limit="tokens"), End(Ending(limit="tokens"))),
    (StepProgress("prepared", 3, limit="tokens"), End(Ending(limit="steps"))),
    (StepProgress("asking", 3), CallModel()),
    (StepProgress("asking", 3, is_loaded=False), LoadStep()),
    (StepProgress("asking", 3, refused="look"), End(REFUSAL)),
    (StepProgress("asking", 3, refused="look", is_loaded=False), LoadStep()),
    (StepProgress("answered", 3, has_called=True, calls=(CALL,)), RunCalls()),
    (StepProgress("answered", 3, has_called=True, calls=(CALL,), is_loaded=False), LoadStep()),
    (StepProgress("answered", 3, has_called=True), FinishStep()),
    (StepProgress("answered", 3, has_called=True, refused="look"), FinishStep()),
    (StepProgress("answered", 3, has_called=True, limit="repeated_call"), FinishStep()),
    (StepProgress("answered", 3), FinishStep()),
    (StepProgress("answered", 3, is_loaded=False), LoadStep()),
    (StepProgress("finished", 3), CheckAnswer()),
    (StepProgress("done", 3), End(Ending())),
]


@pytest.mark.parametrize(("progress", "action"), ROWS)
def test_the_next_action_follows_from_the_progress_alone(progress: StepProgress, action: Action) -> None:
    assert (next_action(progress, LIMITS), type(next_action(progress, LIMITS))) == (action, type(action))


def test_without_a_limit_of_steps_there_is_always_another_one() -> None:
    assert next_action(StepProgress("prepared", 10_000), vaka.Limits(max_steps=None)) == BeginStep()


def test_the_rows_have_every_phase_and_every_action() -> None:
    assert {progress.phase for progress, _ in ROWS} == set(PHASES) == set(get_args(Phase))
    assert {type(action) for _, action in ROWS} == set(Action.__subclasses__())


def test_each_progress_has_an_action_and_an_action_leads_to_another_progress() -> None:
    for phase, opened, limit, refused, is_loaded in product(
        PHASES, ((), (CALL,)), ("", "t"), ("", "look"), (True, False)
    ):
        progress = StepProgress(
            phase, 1, calls=opened, has_called=bool(opened), limit=limit, refused=refused, is_loaded=is_loaded
        )
        action = next_action(progress, LIMITS)
        after = [structs.replace(progress, phase=phase, calls=(), is_loaded=True) for phase in action.leads_to]
        assert progress not in after
        assert bool(after) != isinstance(action, End)


@pytest.mark.parametrize(
    "after",
    [StepProgress("ready"), StepProgress("answered")],
    ids=["the progress does not change", "the phase is not one that the action leads to"],
)
async def test_the_loop_raises_when_an_action_does_not_do_what_it_declares(after: StepProgress) -> None:
    class Stuck(vaka.Middleware):
        async def before_agent(self, turn: Turn, content: Content) -> Content:
            await run_steps(turn, {PrepareStep: self._prepare})
            return content

        async def _prepare(self, turn: Turn, progress: StepProgress) -> StepProgress:
            return after

    model = ScriptedModel(say("never"))
    with pytest.raises(vaka.TurnError, match=r"PrepareStep led from StepProgress\(phase='ready'"):
        await vaka.run(agent(model, middleware=[Stuck()]), "Go.")
    assert model.prompts == []


class WatchedAgent(vaka.Agent):
    """Its body is the loop, which compares the progress after each action with that of the log."""

    needs_model = True

    def bind(self, services: AgentServices) -> Callable[[Turn], Awaitable[Ending]]:
        self.actions: list[str] = []
        performers = {action: partial(self._watch, action, perform) for action, perform in PERFORM.items()}
        return partial(run_steps, perform=performers)

    async def _watch(self, action: type[Action], perform: Perform, turn: Turn, progress: StepProgress) -> StepProgress:
        after = await perform(turn, progress)
        await turn.log.append(turn.scope)  # so that the log has the events that wait for the next write
        assert facts_of(after) == facts_of(read_progress(turn))
        self.actions.append(action.__name__)
        return after


def facts_of(progress: StepProgress) -> tuple[str, int, bool, list[str], str]:
    """Return the part of a progress that the log has."""
    phase = {"prepared": "ready", "done": "finished"}.get(progress.phase, progress.phase)
    has_called = progress.has_called and phase == "answered"
    return phase, progress.step, has_called, [call.call.id for call in progress.calls], progress.refused


async def test_after_each_action_the_progress_is_that_of_the_log() -> None:
    class Doubt(vaka.Middleware):
        async def check_answer(self, turn: Turn, text: str) -> str:
            return "Look again." if text == "unsure" else ""

    @vaka.tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return f"{at}: there"

    model = ScriptedModel(calls(call("look", at="a"), call("look", at="b")), say("unsure"), say("sure"))
    watched = WatchedAgent("watched", model=model, tools=[look], middleware=[Doubt()])
    assert (await vaka.run(watched, "Go.")).text == "sure"
    step = ["PrepareStep", "BeginStep", "CallModel"]
    with_calls = [*step, "RunCalls", "FinishStep"]
    assert watched.actions == [*with_calls, *([*step, "FinishStep", "CheckAnswer"] * 2)]
