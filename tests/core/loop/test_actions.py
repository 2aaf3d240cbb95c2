"""Every row of the state machine of an agent, and the guard that keeps its loop from spinning."""

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
from vaka.core.loop.steps import run_steps
from vaka.core.types.ending import Ending
from vaka.core.types.ids import MessageId
from vaka.core.types.message import Content, ToolCall
from vaka.core.types.state import OpenCall, call_id
from vaka.testing.models import ScriptedModel, say

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
    for phase, calls, limit, refused, is_loaded in product(
        PHASES, ((), (CALL,)), ("", "t"), ("", "look"), (True, False)
    ):
        progress = StepProgress(
            phase, 1, calls=calls, has_called=bool(calls), limit=limit, refused=refused, is_loaded=is_loaded
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
