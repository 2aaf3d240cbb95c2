"""A turn that a person ends with a no is killed at every place of every append: it ends there, and ends once."""

import signal

import msgspec
import pytest

from tests.faults import checks
from tests.faults.conftest import Start
from tests.faults.homes import Home, read
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted, TurnInterrupted
from vaka.testing.failpoints import PLACES

STEP = 7
"""Of the deaths, ``make test`` tries every so many."""


def refused(log: list[Event]) -> None:
    """Check that the no ended the turn, that every call has its result, and that the next prompt was answered."""
    checks.whole(log)
    assert {call: found.reason for call, found in checks.results(log).items()} == {
        "call_1": "", "call_2": "denied", "call_3": "interrupted",
    }  # fmt: skip
    ends = [event.data for event in log if isinstance(event.data, TurnInterrupted | TurnCompleted)]
    assert [end.type for end in ends] == ["turn.interrupted", "turn.completed"]
    assert getattr(ends[0], "code", "") == "rejected"
    assert ends[1].text == "Then not."
    assert [event.type for event in log].count("step.started") == 2


async def deaths(home: Home, spawn: Start, step: int) -> None:
    count = home.folder / "count"
    plan = home.plan()
    child = await spawn("refuse", plan, VAKA_FAILPOINT=f"count:{count}")
    assert (await child.rest())[-1] == "ended"
    refused(await read(plan))
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    every = [f"{place}:{number}:kill" for place in PLACES for number in range(2, passes[place] + 1)]
    for death in every[::step]:
        plan = home.plan()
        child = await spawn("refuse", plan, VAKA_FAILPOINT=death)
        lines = await child.rest()
        assert child.code == -signal.SIGKILL or lines[-1] == "ended"
        await home.bury(plan)
        before = await read(plan)
        checks.nothing_lost(checks.acknowledged(lines), before)
        child = await spawn("refuse", plan)
        assert (await child.rest())[-1] == "ended", death
        log = await read(plan)
        assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
        refused(log)


async def test_killed_anywhere_the_turn_ends_where_the_person_said_no(shared: Home, spawn: Start) -> None:
    await deaths(shared, spawn, STEP)


@pytest.mark.exhaustive
async def test_killed_everywhere_the_turn_ends_where_the_person_said_no(shared: Home, spawn: Start) -> None:
    await deaths(shared, spawn, 1)
