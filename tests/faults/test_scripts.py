"""A script is killed at every place of every append, and around every effect; another process finishes it."""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import checks
from tests.faults.chart import ANSWER, CHANGED, draw
from tests.faults.conftest import Start
from tests.faults.homes import Home, read
from tests.faults.voyage import Ledger
from vaka.core.types.event import Event
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.progress import TurnCompleted, TurnFailed
from vaka.testing.failpoints import PLACES

EFFECTS = 4
AT_ONCE = 3
STEP = 17


def told(log: Sequence[Event]) -> list[ScriptAnswered]:
    return [event.data for event in log if isinstance(event.data, ScriptAnswered)]


async def undisturbed(home: Home, spawn: Start) -> tuple[list[Event], list[str]]:
    """Return the log of the run without a fault, and every place and time to die."""
    plan, count = home.plan(ask="deny"), home.folder / "count"
    child = await spawn("draw", plan, VAKA_FAILPOINT=f"count:{count}")
    lines = await child.rest()
    assert (child.code, lines[-1]) == (0, "turn.completed")
    log = await read(plan)
    checks.whole(log)
    assert log[-1].data.text == ANSWER  # type: ignore[attr-defined]  # a turn.completed
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    deaths = [f"{moment}:{number}" for moment in ("before", "after") for number in range(1, EFFECTS + 1)]
    return log, deaths + [f"{place}:{n}:kill" for place in PLACES for n in range(1, passes[place] + 1)]


async def killed_and_resumed(home: Home, spawn: Start, death: str, how: str) -> None:
    place = {"VAKA_FAILPOINT": death} if death.endswith("kill") else {}
    plan = home.plan(die="" if place else death, ask="deny")
    child = await spawn("draw", plan, **place)
    lines = await child.rest()
    assert child.code == -signal.SIGKILL or (child.code, lines[-1]) == (0, "turn.completed")
    await home.bury(plan)
    before = await read(plan)
    answered = {body.call for body in told(before) if body.call}
    had = Ledger(plan.ledger).count()
    plan = msgspec.structs.replace(plan, die="", ahead=60.0, how=how)
    child = await spawn("draw", plan)
    lines = await child.rest()
    assert child.code == 0
    log = await read(plan)
    checks.whole(log)
    checks.effects(plan, log, checks.lost(before))
    assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    if not checks.lost(before):
        assert last.text == ANSWER
    counted = Ledger(plan.ledger).count()
    assert all(counted[name, call] == had[name, call] for name, call in counted if call in answered)
    assert all(times == 1 for times in Counter((body.number, body.name) for body in told(log)).values())


async def each(home: Home, spawn: Start, deaths: Sequence[str]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, death: str) -> None:
        async with slots:
            try:
                await killed_and_resumed(home, spawn, death, "resume" if number % 2 else "say")
            except BaseException as error:
                error.add_note(f"death {number}: {death}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, death in enumerate(deaths):
            group.create_task(one(number, death))


async def test_a_script_killed_at_some_places_is_finished_by_another_process(home: Home, spawn: Start) -> None:
    _, deaths = await undisturbed(home, spawn)
    await each(home, spawn, deaths[::STEP])


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_script_killed_at_every_place_is_finished_by_another_process(home: Home, spawn: Start) -> None:
    _, deaths = await undisturbed(home, spawn)
    await each(home, spawn, deaths)


async def test_a_changed_script_is_refused_and_not_run(shared: Home, spawn: Start) -> None:
    plan = shared.plan(die="after:2", ask="deny")
    child = await spawn("draw", plan)
    await child.rest()
    assert child.code == -signal.SIGKILL
    await shared.bury(plan)
    before = await read(plan)
    effects = Ledger(plan.ledger).count()
    how, _ = await draw(msgspec.structs.replace(plan, die="", ahead=60.0, how="resume"), CHANGED)
    assert how == "turn.failed"
    log = await read(plan)
    checks.whole(log)
    last = log[-1].data
    assert isinstance(last, TurnFailed)
    assert (last.code, "not those this run began with" in last.message) == ("replay", True)
    assert Ledger(plan.ledger).count() == effects
    assert len(told(log)) == len(told(before))
