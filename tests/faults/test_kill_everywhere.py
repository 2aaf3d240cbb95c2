"""A run is killed at every place of every append, and around every effect; another process finishes it.

What is asked of each of these deaths is in ``checks``. ``make test`` tries some, ``make test-all`` every one.
"""

import asyncio
import signal
from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import checks
from tests.faults.conftest import Start
from tests.faults.homes import Home, read
from tests.faults.voyage import ANSWER, Ledger, Plan, agent, open_store, options
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.progress import TurnCompleted
from vaka.runtime.runtime import Runtime
from vaka.testing.failpoints import PLACES

EFFECTS = 5
"""Effects of the undisturbed run."""
AT_ONCE = 3
"""Deaths tried side by side: most of the time goes into starting Python."""
STEP = 19
"""Of the deaths, ``make test`` tries every so many."""


class Undisturbed:
    """The run without a fault: what it came to, and how often it passed each place."""

    def __init__(self, log: list[Event], passes: dict[str, int]) -> None:
        self.log, self.passes = log, passes

    def deaths(self) -> list[str]:
        """Return every place and time to die."""
        moments = [f"{moment}:{number}" for moment in ("before", "after") for number in range(1, EFFECTS + 1)]
        return moments + [f"{place}:{n}:kill" for place in PLACES for n in range(1, self.passes[place] + 1)]


async def undisturbed(home: Home, spawn: Start) -> Undisturbed:
    plan, count = home.plan(), home.folder / "count"
    child = await spawn("sail", plan, VAKA_FAILPOINT=f"count:{count}")
    lines = await child.rest()
    log = await read(plan)
    assert (child.code, lines[-1]) == (0, "ended")
    checks.whole(log)
    checks.nothing_lost(checks.acknowledged(lines), log)
    checks.effects(plan, log, checks.NONE)
    assert len(checks.acknowledged(lines)) == len(log)
    return Undisturbed(log, msgspec.json.decode(count.read_bytes(), type=dict[str, int]))


async def dies(home: Home, spawn: Start, death: str, **more: object) -> tuple[Plan, list[Event]]:
    """Run until death and return what is in the log then; everything it acknowledged is."""
    place = {"VAKA_FAILPOINT": death} if death.endswith("kill") else {}
    plan = home.plan(die="" if place else death, **more)
    child = await spawn("sail", plan, **place)
    lines = await child.rest()
    # Appends that happen side by side may share a write, so the last passes of a place may not come.
    assert child.code == -signal.SIGKILL or (child.code, lines[-1]) == (0, "ended")
    await home.bury(plan)
    log = await read(plan)
    checks.nothing_lost(checks.acknowledged(lines), log)
    return msgspec.structs.replace(plan, die="", ahead=60.0), log


async def goes_on(plan: Plan, spawn: Start, before: Sequence[Event]) -> list[Event]:
    """Let another process finish it, and return the log; nothing it found there has changed."""
    child = await spawn("sail", plan)
    lines = await child.rest()
    assert (child.code, lines[-1].split()[0]) == (
        0,
        "suspended" if plan.ask == "suspend" and _waits(lines) else "ended",
    )
    log = await read(plan)
    checks.nothing_lost(checks.acknowledged(lines), log)
    assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
    return log


def _waits(lines: Sequence[str]) -> bool:
    return lines[-1].startswith("suspended")


async def ended(plan: Plan, log: Sequence[Event], unsure: checks.Calls) -> None:
    """The turn has its answer, calls and effects are paired, and there is nothing left to resume."""
    checks.whole(log)
    checks.effects(plan, log, unsure)
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == ANSWER
    store = open_store(plan)
    try:
        async with Runtime(options(plan, store)) as runtime:
            session = await runtime.open(agent(Ledger(plan.ledger)), id=plan.session)
            assert [event async for event in session.resume()] == []
            assert await runtime.decisions(session.id) == []
        info = await store.sessions.find(session.id)
    finally:
        await store.close()
    assert info is not None
    assert (info.head, info.hash, info.status, info.live) == (len(log), log[-1].hash, "idle", False)


async def with_somebody_to_ask(home: Home, spawn: Start, death: str, calm: Sequence[Event], how: str) -> None:
    """A person approves, and knows nothing of what became of lost calls."""
    plan, before = await dies(home, spawn, death)
    unsure = checks.lost(before)
    log = await goes_on(msgspec.structs.replace(plan, how=how), spawn, before)
    await ended(plan, log, unsure)
    checks.same(log, calm, but=unsure)


async def with_nobody_to_ask(home: Home, spawn: Start, death: str, calm: Sequence[Event]) -> None:
    """What was not approved before is refused, lost calls are sealed; the rest is as it would have been."""
    plan, before = await dies(home, spawn, death)
    unsure, refused = checks.lost(before), checks.calls_of(calm, "deploy")
    log = await goes_on(msgspec.structs.replace(plan, how="resume", ask="deny", decide=""), spawn, before)
    await ended(plan, log, unsure)
    if checks.approved(before):
        refused = checks.NONE
    assert all(checks.results(log)[call].reason == "denied" for call in refused)
    checks.same(log, calm, but=unsure | refused, unasked="deploy" if refused else "")


async def with_somebody_elsewhere(home: Home, spawn: Start, death: str, calm: Sequence[Event]) -> None:
    """Each process stops where a person is needed, this one decides, the next goes on."""
    plan, before = await dies(home, spawn, death)
    unsure = checks.lost(before)
    plan = msgspec.structs.replace(plan, how="resume", ask="suspend", decide="")
    log = await goes_on(plan, spawn, before)
    while not isinstance(log[-1].data, TurnCompleted):
        assert await decided(plan)
        log = await goes_on(plan, spawn, log)
    await ended(plan, log, unsure)
    checks.same(log, calm, but=unsure)


async def decided(plan: Plan) -> int:
    """Decide everything that waits; return how much that was."""
    store = open_store(plan)
    try:
        async with Runtime(options(plan, store)) as person:
            waiting = await person.decisions(plan.session)
            for pending in waiting:
                if pending.event.type == "approval.requested":
                    await person.resolve(pending.id, "approve")
                else:
                    await person.answer(pending.id, {"outcome": "leave it"})
    finally:
        await store.close()
    return len(waiting)


async def each(home: Home, spawn: Start, calm: Undisturbed, deaths: Sequence[str]) -> None:
    """Die and go on in every way, a few at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, death: str) -> None:
        async with slots:
            try:
                if number % 4 == 0:
                    await with_nobody_to_ask(home, spawn, death, calm.log)
                elif number % 4 == 1:
                    await with_somebody_elsewhere(home, spawn, death, calm.log)
                else:
                    await with_somebody_to_ask(home, spawn, death, calm.log, "say" if number % 4 == 2 else "resume")
            except BaseException as error:
                error.add_note(f"death {number}: {death}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, death in enumerate(deaths):
            group.create_task(one(number, death))


async def test_a_run_killed_at_some_places_is_finished_by_another_process(home: Home, spawn: Start) -> None:
    calm = await undisturbed(home, spawn)
    await each(home, spawn, calm, calm.deaths()[::STEP])


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", range(2))
async def test_a_run_killed_at_every_place_is_finished_by_another_process(home: Home, spawn: Start, way: int) -> None:
    calm = await undisturbed(home, spawn)
    deaths = calm.deaths()
    await each(home, spawn, calm, deaths[way:] + deaths[:way])


async def test_two_runs_without_a_fault_come_to_the_same(home: Home, spawn: Start) -> None:
    one, two = await undisturbed(home, spawn), await undisturbed(home, spawn)
    checks.same(one.log, two.log)
    assert min(one.passes.values()) >= 15


@pytest.mark.parametrize(("death", "known"), [("before:2", "charge: fare"), ("after:2", "it did")])
async def test_a_person_who_can_look_it_up_settles_a_lost_call(
    home: Home, spawn: Start, death: str, known: str
) -> None:
    """It happened: the call gets that result. It did not: it runs as a new call. The effect is there once."""
    plan, before = await dies(home, spawn, death)
    assert checks.lost(before) == {"call_3"}
    log = await goes_on(msgspec.structs.replace(plan, how="resume", decide="ledger"), spawn, before)
    checks.whole(log)
    charged = [call for name, call in Ledger(plan.ledger).count().elements() if name == "charge"]
    assert charged == (["call_3"] if death.startswith("after") else ["call_4"])
    assert [checks.results(log)[CallId(call)].text for call in charged] == [known]
    assert isinstance(log[-1].data, TurnCompleted)
