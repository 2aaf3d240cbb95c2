"""A script is killed at every place of every append, and around every effect; another process finishes it."""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import EffectLedger
from tests.faults.crash_script import CHANGED_SCRIPT, SCRIPT_ANSWER, run_script
from tests.faults.log_stores import LogStore, read_log
from vaka.core.types.event import Event
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.progress import TurnCompleted, TurnFailed
from vaka.testing.failpoints import FAILPOINTS

EFFECTS = 4
AT_ONCE = 3
SAMPLE_STEP = 17


def script_answers_in(log: Sequence[Event]) -> list[ScriptAnswered]:
    return [event.data for event in log if isinstance(event.data, ScriptAnswered)]


async def run_undisturbed(home: LogStore, spawn: StartProgram) -> tuple[list[Event], list[str]]:
    """Return the log of the run without a fault, and every place and time to die."""
    plan, count = home.new_plan(ask="deny"), home.folder / "count"
    child = await spawn("draw", plan, VAKA_FAILPOINT=f"count:{count}")
    lines = await child.read_to_end()
    assert (child.code, lines[-1]) == (0, "turn.completed")
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    assert log[-1].data.text == SCRIPT_ANSWER  # type: ignore[attr-defined]  # a turn.completed
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    deaths = [f"{moment}:{number}" for moment in ("before", "after") for number in range(1, EFFECTS + 1)]
    return log, deaths + [f"{place}:{n}:kill" for place in FAILPOINTS for n in range(1, passes[place] + 1)]


async def kill_and_resume(home: LogStore, spawn: StartProgram, death: str, how: str) -> None:
    place = {"VAKA_FAILPOINT": death} if death.endswith("kill") else {}
    plan = home.new_plan(die="" if place else death, ask="deny")
    child = await spawn("draw", plan, **place)
    lines = await child.read_to_end()
    assert child.code == -signal.SIGKILL or (child.code, lines[-1]) == (0, "turn.completed")
    await home.expire_claim(plan)
    before = await read_log(plan)
    answered = {body.call for body in script_answers_in(before) if body.call}
    had = EffectLedger(plan.ledger).count_effects()
    plan = msgspec.structs.replace(plan, die="", ahead=60.0, how=how)
    child = await spawn("draw", plan)
    lines = await child.read_to_end()
    assert child.code == 0
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, log_checks.lost_calls(before))
    assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    if not log_checks.lost_calls(before):
        assert last.text == SCRIPT_ANSWER
    counted = EffectLedger(plan.ledger).count_effects()
    assert all(counted[name, call] == had[name, call] for name, call in counted if call in answered)
    assert all(times == 1 for times in Counter((body.number, body.name) for body in script_answers_in(log)).values())


async def run_each_death(home: LogStore, spawn: StartProgram, deaths: Sequence[str]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, death: str) -> None:
        async with slots:
            try:
                await kill_and_resume(home, spawn, death, "resume" if number % 2 else "say")
            except BaseException as error:
                error.add_note(f"death {number}: {death}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, death in enumerate(deaths):
            group.create_task(one(number, death))


async def test_a_script_killed_at_some_places_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    _, deaths = await run_undisturbed(home, spawn)
    await run_each_death(home, spawn, deaths[::SAMPLE_STEP])


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_script_killed_at_every_place_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    _, deaths = await run_undisturbed(home, spawn)
    await run_each_death(home, spawn, deaths)


async def test_a_changed_script_is_refused_and_not_run(shared: LogStore, spawn: StartProgram) -> None:
    plan = shared.new_plan(die="after:2", ask="deny")
    child = await spawn("draw", plan)
    await child.read_to_end()
    assert child.code == -signal.SIGKILL
    await shared.expire_claim(plan)
    before = await read_log(plan)
    effects = EffectLedger(plan.ledger).count_effects()
    how, _ = await run_script(msgspec.structs.replace(plan, die="", ahead=60.0, how="resume"), CHANGED_SCRIPT)
    assert how == "turn.failed"
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    last = log[-1].data
    assert isinstance(last, TurnFailed)
    assert (last.code, "not those this run began with" in last.message) == ("replay", True)
    assert EffectLedger(plan.ledger).count_effects() == effects
    assert len(script_answers_in(log)) == len(script_answers_in(before))
