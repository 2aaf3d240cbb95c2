"""A run is killed at each failpoint of each append, and around each effect; another process finishes it."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import ANSWER, EffectLedger, Plan, make_agent, make_runtime, open_store
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import (
    UndisturbedRun,
    check_each_death,
    effect_deaths,
    resume_elsewhere,
    run_undisturbed,
    run_until_death,
)
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.progress import TurnCompleted

PROGRAM = "run_agent"
EFFECTS = 5
"""Effects of the undisturbed run."""
SAMPLE_STEP = 19
"""``make test`` tries every nineteenth death, ``make test-all`` each one."""


def list_deaths(undisturbed: UndisturbedRun) -> list[str]:
    return effect_deaths(EFFECTS) + undisturbed.failpoint_deaths()


async def resume_to_end(plan: Plan, spawn: StartProgram, before: Sequence[Event]) -> list[Event]:
    last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
    assert last_line == "ended"
    return log


async def check_ended(plan: Plan, log: Sequence[Event], unsure: log_checks.CallIds) -> None:
    """The turn has its answer, calls and effects are paired, and there is nothing left to resume."""
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, unsure)
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == ANSWER
    store = open_store(plan)
    try:
        async with make_runtime(plan, store) as runtime:
            session = await runtime.open(make_agent(EffectLedger(plan.ledger)), id=plan.session)
            assert [event async for event in session.resume()] == []
            assert await runtime.decisions(session.id) == []
        info = await store.sessions.find(session.id)
    finally:
        await store.close()
    assert info is not None
    assert (info.head, info.hash, info.status, info.live) == (len(log), log[-1].hash, "idle", False)


async def resume_with_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event], how: str) -> None:
    """A person approves, and leaves calls alone whose outcome is unknown."""
    plan, before = await run_until_death(home, spawn, PROGRAM, death)
    unsure = log_checks.lost_calls(before)
    log = await resume_to_end(msgspec.structs.replace(plan, how=how), spawn, before)
    await check_ended(plan, log, unsure)
    log_checks.assert_same_outcome(log, calm, without=unsure)


async def resume_without_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event]) -> None:
    """Calls that were not approved before the death are refused, lost calls are sealed; the rest is unchanged."""
    plan, before = await run_until_death(home, spawn, PROGRAM, death)
    unsure, refused = log_checks.lost_calls(before), log_checks.calls_of(calm, "deploy")
    log = await resume_to_end(msgspec.structs.replace(plan, how="resume", ask="deny", decide=""), spawn, before)
    await check_ended(plan, log, unsure)
    if log_checks.has_approval(before):
        refused = log_checks.NO_CALLS
    assert all(log_checks.results_by_call(log)[call].reason == "denied" for call in refused)
    log_checks.assert_same_outcome(log, calm, without=unsure | refused, unasked="deploy" if refused else "")


async def resume_with_remote_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event]) -> None:
    """Each process stops where a decision is needed, this one decides, the next goes on."""
    plan, log = await run_until_death(home, spawn, PROGRAM, death)
    unsure = log_checks.lost_calls(log)
    plan = msgspec.structs.replace(plan, how="resume", ask="suspend", decide="")
    last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, log)
    while last_line != "ended":
        assert last_line.startswith("suspended")
        assert await decide_all(plan)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, log)
    await check_ended(plan, log, unsure)
    log_checks.assert_same_outcome(log, calm, without=unsure)


async def decide_all(plan: Plan) -> int:
    """Decide everything that is pending; return how many decisions that was."""
    store = open_store(plan)
    try:
        async with make_runtime(plan, store) as person:
            pending_decisions = await person.decisions(plan.session)
            for pending in pending_decisions:
                if pending.event.type == "approval.requested":
                    await person.resolve(pending.id, "approve")
                else:
                    await person.answer(pending.id, {"outcome": "leave it"})
    finally:
        await store.close()
    return len(pending_decisions)


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    """Die at every ``step``-th place, and go on in one of four ways."""
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)

    async def die_and_resume(number: int, death: str) -> None:
        if number % 4 == 0:
            await resume_without_person(home, spawn, death, undisturbed.log)
        elif number % 4 == 1:
            await resume_with_remote_person(home, spawn, death, undisturbed.log)
        else:
            how = "say" if number % 4 == 2 else "resume"
            await resume_with_person(home, spawn, death, undisturbed.log, how)

    await check_each_death(home, list_deaths(undisturbed)[::step], die_and_resume)


async def test_a_run_killed_at_some_places_is_finished_by_another_process(home: LogStore, spawn: StartProgram) -> None:
    await run_each_death(home, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_run_killed_at_every_place_is_finished_by_another_process(home: LogStore, spawn: StartProgram) -> None:
    await run_each_death(home, spawn, 1)


async def test_two_runs_without_a_fault_have_the_same_outcome(home: LogStore, spawn: StartProgram) -> None:
    one, two = await run_undisturbed(home, spawn, PROGRAM), await run_undisturbed(home, spawn, PROGRAM)
    log_checks.assert_same_outcome(one.log, two.log)
    assert min(one.passes.values()) >= 15


@pytest.mark.parametrize(("death", "known"), [("before:2", "charge: fare"), ("after:2", "it did")])
async def test_the_answer_of_a_person_settles_a_lost_call(
    home: LogStore, spawn: StartProgram, death: str, known: str
) -> None:
    """If it happened, the call gets that result; if not, it runs as a new call. Either way there is one effect."""
    plan, before = await run_until_death(home, spawn, PROGRAM, death)
    assert log_checks.lost_calls(before) == {"call_3"}
    log = await resume_to_end(msgspec.structs.replace(plan, how="resume", decide="ledger"), spawn, before)
    log_checks.assert_chain_complete(log)
    charged = [call for name, call in EffectLedger(plan.ledger).count_effects().elements() if name == "charge"]
    assert charged == (["call_3"] if death.startswith("after") else ["call_4"])
    assert [log_checks.results_by_call(log)[CallId(call)].text for call in charged] == [known]
    assert isinstance(log[-1].data, TurnCompleted)
