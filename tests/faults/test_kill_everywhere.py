"""A run is killed at every place of every append, and around every effect; another process finishes it.

What is asked of each of these deaths is in ``checks``. ``make test`` tries some, ``make test-all`` every one.
"""

import asyncio
import signal
from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import ANSWER, EffectLedger, Plan, make_agent, open_store, runtime_options
from tests.faults.log_stores import LogStore, read_log
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.progress import TurnCompleted
from vaka.runtime.runtime import Runtime
from vaka.testing.failpoints import FAILPOINTS

EFFECTS = 5
"""Effects of the undisturbed run."""
AT_ONCE = 3
"""Deaths tried side by side: most of the time goes into starting Python."""
SAMPLE_STEP = 19
"""Of the deaths, ``make test`` tries every so many."""


class UndisturbedRun:
    """The run without a fault: what it came to, and how often it passed each place."""

    def __init__(self, log: list[Event], passes: dict[str, int]) -> None:
        self.log, self.passes = log, passes

    def list_deaths(self) -> list[str]:
        """Return every place and time to die."""
        moments = [f"{moment}:{number}" for moment in ("before", "after") for number in range(1, EFFECTS + 1)]
        return moments + [f"{place}:{n}:kill" for place in FAILPOINTS for n in range(1, self.passes[place] + 1)]


async def run_undisturbed(home: LogStore, spawn: StartProgram) -> UndisturbedRun:
    plan, count = home.new_plan(), home.folder / "count"
    child = await spawn("sail", plan, VAKA_FAILPOINT=f"count:{count}")
    lines = await child.read_to_end()
    log = await read_log(plan)
    assert (child.code, lines[-1]) == (0, "ended")
    log_checks.assert_chain_complete(log)
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
    log_checks.assert_effects(plan, log, log_checks.NO_CALLS)
    assert len(log_checks.parse_acknowledged(lines)) == len(log)
    return UndisturbedRun(log, msgspec.json.decode(count.read_bytes(), type=dict[str, int]))


async def run_until_death(home: LogStore, spawn: StartProgram, death: str, **more: object) -> tuple[Plan, list[Event]]:
    """Run until death and return what is in the log then; everything it acknowledged is."""
    place = {"VAKA_FAILPOINT": death} if death.endswith("kill") else {}
    plan = home.new_plan(die="" if place else death, **more)
    child = await spawn("sail", plan, **place)
    lines = await child.read_to_end()
    # Appends that happen side by side may share a write, so the last passes of a place may not come.
    assert child.code == -signal.SIGKILL or (child.code, lines[-1]) == (0, "ended")
    await home.expire_claim(plan)
    log = await read_log(plan)
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
    return msgspec.structs.replace(plan, die="", ahead=60.0), log


async def resume_elsewhere(plan: Plan, spawn: StartProgram, before: Sequence[Event]) -> list[Event]:
    """Let another process finish it, and return the log; nothing it found there has changed."""
    child = await spawn("sail", plan)
    lines = await child.read_to_end()
    assert (child.code, lines[-1].split()[0]) == (
        0,
        "suspended" if plan.ask == "suspend" and _is_suspended(lines) else "ended",
    )
    log = await read_log(plan)
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
    assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
    return log


def _is_suspended(lines: Sequence[str]) -> bool:
    return lines[-1].startswith("suspended")


async def check_ended(plan: Plan, log: Sequence[Event], unsure: log_checks.CallIds) -> None:
    """The turn has its answer, calls and effects are paired, and there is nothing left to resume."""
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, unsure)
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == ANSWER
    store = open_store(plan)
    try:
        async with Runtime(runtime_options(plan, store)) as runtime:
            session = await runtime.open(make_agent(EffectLedger(plan.ledger)), id=plan.session)
            assert [event async for event in session.resume()] == []
            assert await runtime.decisions(session.id) == []
        info = await store.sessions.find(session.id)
    finally:
        await store.close()
    assert info is not None
    assert (info.head, info.hash, info.status, info.live) == (len(log), log[-1].hash, "idle", False)


async def resume_with_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event], how: str) -> None:
    """A person approves, and knows nothing of what became of lost calls."""
    plan, before = await run_until_death(home, spawn, death)
    unsure = log_checks.lost_calls(before)
    log = await resume_elsewhere(msgspec.structs.replace(plan, how=how), spawn, before)
    await check_ended(plan, log, unsure)
    log_checks.assert_same_outcome(log, calm, without=unsure)


async def resume_without_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event]) -> None:
    """What was not approved before is refused, lost calls are sealed; the rest is as it would have been."""
    plan, before = await run_until_death(home, spawn, death)
    unsure, refused = log_checks.lost_calls(before), log_checks.calls_of(calm, "deploy")
    log = await resume_elsewhere(msgspec.structs.replace(plan, how="resume", ask="deny", decide=""), spawn, before)
    await check_ended(plan, log, unsure)
    if log_checks.has_approval(before):
        refused = log_checks.NO_CALLS
    assert all(log_checks.results_by_call(log)[call].reason == "denied" for call in refused)
    log_checks.assert_same_outcome(log, calm, without=unsure | refused, unasked="deploy" if refused else "")


async def resume_with_remote_person(home: LogStore, spawn: StartProgram, death: str, calm: Sequence[Event]) -> None:
    """Each process stops where a person is needed, this one decides, the next goes on."""
    plan, before = await run_until_death(home, spawn, death)
    unsure = log_checks.lost_calls(before)
    plan = msgspec.structs.replace(plan, how="resume", ask="suspend", decide="")
    log = await resume_elsewhere(plan, spawn, before)
    while not isinstance(log[-1].data, TurnCompleted):
        assert await decide_all(plan)
        log = await resume_elsewhere(plan, spawn, log)
    await check_ended(plan, log, unsure)
    log_checks.assert_same_outcome(log, calm, without=unsure)


async def decide_all(plan: Plan) -> int:
    """Decide everything that waits; return how much that was."""
    store = open_store(plan)
    try:
        async with Runtime(runtime_options(plan, store)) as person:
            waiting = await person.decisions(plan.session)
            for pending in waiting:
                if pending.event.type == "approval.requested":
                    await person.resolve(pending.id, "approve")
                else:
                    await person.answer(pending.id, {"outcome": "leave it"})
    finally:
        await store.close()
    return len(waiting)


async def run_each_death(home: LogStore, spawn: StartProgram, calm: UndisturbedRun, deaths: Sequence[str]) -> None:
    """Die and go on in every way, a few at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, death: str) -> None:
        async with slots:
            try:
                if number % 4 == 0:
                    await resume_without_person(home, spawn, death, calm.log)
                elif number % 4 == 1:
                    await resume_with_remote_person(home, spawn, death, calm.log)
                else:
                    await resume_with_person(home, spawn, death, calm.log, "say" if number % 4 == 2 else "resume")
            except BaseException as error:
                error.add_note(f"death {number}: {death}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, death in enumerate(deaths):
            group.create_task(one(number, death))


async def test_a_run_killed_at_some_places_is_finished_by_another_process(home: LogStore, spawn: StartProgram) -> None:
    calm = await run_undisturbed(home, spawn)
    await run_each_death(home, spawn, calm, calm.list_deaths()[::SAMPLE_STEP])


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", range(2))
async def test_a_run_killed_at_every_place_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram, way: int
) -> None:
    calm = await run_undisturbed(home, spawn)
    deaths = calm.list_deaths()
    await run_each_death(home, spawn, calm, deaths[way:] + deaths[:way])


async def test_two_runs_without_a_fault_come_to_the_same(home: LogStore, spawn: StartProgram) -> None:
    one, two = await run_undisturbed(home, spawn), await run_undisturbed(home, spawn)
    log_checks.assert_same_outcome(one.log, two.log)
    assert min(one.passes.values()) >= 15


@pytest.mark.parametrize(("death", "known"), [("before:2", "charge: fare"), ("after:2", "it did")])
async def test_a_person_who_can_look_it_up_settles_a_lost_call(
    home: LogStore, spawn: StartProgram, death: str, known: str
) -> None:
    """It happened: the call gets that result. It did not: it runs as a new call. The effect is there once."""
    plan, before = await run_until_death(home, spawn, death)
    assert log_checks.lost_calls(before) == {"call_3"}
    log = await resume_elsewhere(msgspec.structs.replace(plan, how="resume", decide="ledger"), spawn, before)
    log_checks.assert_chain_complete(log)
    charged = [call for name, call in EffectLedger(plan.ledger).count_effects().elements() if name == "charge"]
    assert charged == (["call_3"] if death.startswith("after") else ["call_4"])
    assert [log_checks.results_by_call(log)[CallId(call)].text for call in charged] == [known]
    assert isinstance(log[-1].data, TurnCompleted)
