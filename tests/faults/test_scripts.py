"""A script is killed at each failpoint of each append, and around each effect; another process finishes it."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import EffectLedger
from tests.faults.crash_script import CHANGED_SCRIPT, SCRIPT_ANSWER, run_script
from tests.faults.log_stores import LogStore, read_log
from tests.faults.planned_deaths import (
    check_each_death,
    effect_deaths,
    resume_elsewhere,
    run_undisturbed,
    run_until_death,
)
from vaka.core.types.event import Event
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.progress import TurnCompleted, TurnFailed

PROGRAM = "run_script"
EFFECTS = 4
SAMPLE_STEP = 37
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


def script_answers_in(log: Sequence[Event]) -> list[ScriptAnswered]:
    return [event.data for event in log if isinstance(event.data, ScriptAnswered)]


async def kill_and_resume(home: LogStore, spawn: StartProgram, death: str, how: str) -> None:
    plan, before = await run_until_death(home, spawn, PROGRAM, death, ask="deny")
    answered = {body.call for body in script_answers_in(before) if body.call}
    had = EffectLedger(plan.ledger).count_effects()
    _, log = await resume_elsewhere(msgspec.structs.replace(plan, how=how), spawn, PROGRAM, before)
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, log_checks.lost_calls(before))
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    if not log_checks.lost_calls(before):
        assert last.text == SCRIPT_ANSWER
    counted = EffectLedger(plan.ledger).count_effects()
    assert all(counted[name, call] == had[name, call] for name, call in counted if call in answered)
    assert all(times == 1 for times in Counter((body.number, body.name) for body in script_answers_in(log)).values())


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM, "turn.completed", ask="deny")
    last = undisturbed.log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == SCRIPT_ANSWER
    deaths = effect_deaths(EFFECTS) + undisturbed.failpoint_deaths()

    async def die_and_resume(number: int, death: str) -> None:
        await kill_and_resume(home, spawn, death, "resume" if number % 2 else "say")

    await check_each_death(home, deaths[::step], die_and_resume)


async def test_a_script_killed_at_some_places_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_script_killed_at_every_place_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, 1)


async def test_a_changed_script_is_refused_and_not_run(shared: LogStore, spawn: StartProgram) -> None:
    plan, before = await run_until_death(shared, spawn, PROGRAM, "after:2", ask="deny")
    effects = EffectLedger(plan.ledger).count_effects()
    how, _ = await run_script(msgspec.structs.replace(plan, how="resume"), CHANGED_SCRIPT)
    assert how == "turn.failed"
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    last = log[-1].data
    assert isinstance(last, TurnFailed)
    assert (last.code, "not those this run began with" in last.message) == ("replay", True)
    assert EffectLedger(plan.ledger).count_effects() == effects
    assert len(script_answers_in(log)) == len(script_answers_in(before))
