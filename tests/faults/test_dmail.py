"""A turn that goes back in its own conversation is killed at every place of every append: it goes back once."""

import signal

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore, read_log
from tests.faults.programs.run_dmail import MESSAGE
from vaka.core.session.branches import live_events_of
from vaka.core.types.control import CheckpointSaved, SessionReverted
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted
from vaka.testing.failpoints import FAILPOINTS

SAMPLE_STEP = 5
"""Of the deaths, ``make test`` tries every so many."""


def check_arrived(log: list[Event]) -> None:
    """Check that it went back once, that the mail is there and that the turn came to its end."""
    assert [event.type for event in log].count("session.reverted") == 1
    [reverted] = [event for event in log if isinstance(event.data, SessionReverted)]
    mail = log[reverted.seq].data
    assert isinstance(mail, CheckpointSaved)
    assert MESSAGE in str(mail.told)
    assert log[reverted.seq] in live_events_of(log)
    assert isinstance(log[-1].data, TurnCompleted)
    assert log[-1].data.text == "arrived"
    subjects = [event.data for event in live_events_of(log) if event.type == "tool.called"]
    assert len(subjects) == 2


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    count = home.folder / "count"
    plan = home.new_plan()
    child = await spawn("mail", plan, VAKA_FAILPOINT=f"count:{count}")
    assert (await child.read_to_end())[-1] == "ended"
    check_arrived(await read_log(plan))
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    every = [f"{place}:{number}:kill" for place in FAILPOINTS for number in range(2, passes[place] + 1)]
    for death in every[::step]:
        plan = home.new_plan()
        child = await spawn("mail", plan, VAKA_FAILPOINT=death)
        lines = await child.read_to_end()
        assert child.code == -signal.SIGKILL or lines[-1] == "ended"
        await home.expire_claim(plan)
        before = await read_log(plan)
        log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), before)
        child = await spawn("mail", plan)
        assert (await child.read_to_end())[-1] == "ended", death
        log = await read_log(plan)
        assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
        check_arrived(log)


async def test_killed_anywhere_it_goes_back_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
async def test_killed_everywhere_it_goes_back_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
