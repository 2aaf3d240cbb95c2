"""A turn that goes back in its own conversation is killed at every place of every append: it goes back once."""

import signal

import msgspec
import pytest

from tests.faults import checks
from tests.faults.conftest import Start
from tests.faults.homes import Home, read
from tests.faults.programs.mail import MESSAGE
from vaka.core.session.line import live
from vaka.core.types.control import CheckpointSaved, SessionReverted
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted
from vaka.testing.failpoints import PLACES

STEP = 5
"""Of the deaths, ``make test`` tries every so many."""


def arrived(log: list[Event]) -> None:
    """Check that it went back once, that the mail is there and that the turn came to its end."""
    assert [event.type for event in log].count("session.reverted") == 1
    [reverted] = [event for event in log if isinstance(event.data, SessionReverted)]
    mail = log[reverted.seq].data
    assert isinstance(mail, CheckpointSaved)
    assert MESSAGE in str(mail.told)
    assert log[reverted.seq] in live(log)
    assert isinstance(log[-1].data, TurnCompleted)
    assert log[-1].data.text == "arrived"
    subjects = [event.data for event in live(log) if event.type == "tool.called"]
    assert len(subjects) == 2


async def deaths(home: Home, spawn: Start, step: int) -> None:
    count = home.folder / "count"
    plan = home.plan()
    child = await spawn("mail", plan, VAKA_FAILPOINT=f"count:{count}")
    assert (await child.rest())[-1] == "ended"
    arrived(await read(plan))
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    every = [f"{place}:{number}:kill" for place in PLACES for number in range(2, passes[place] + 1)]
    for death in every[::step]:
        plan = home.plan()
        child = await spawn("mail", plan, VAKA_FAILPOINT=death)
        lines = await child.rest()
        assert child.code == -signal.SIGKILL or lines[-1] == "ended"
        await home.bury(plan)
        before = await read(plan)
        checks.nothing_lost(checks.acknowledged(lines), before)
        child = await spawn("mail", plan)
        assert (await child.rest())[-1] == "ended", death
        log = await read(plan)
        assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
        arrived(log)


async def test_killed_anywhere_it_goes_back_once(shared: Home, spawn: Start) -> None:
    await deaths(shared, spawn, STEP)


@pytest.mark.exhaustive
async def test_killed_everywhere_it_goes_back_once(shared: Home, spawn: Start) -> None:
    await deaths(shared, spawn, 1)
