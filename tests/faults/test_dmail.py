"""A turn that rewinds itself by D-Mail is killed at each failpoint of each append: it rewinds once."""

import pytest

from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import check_each_death, resume_elsewhere, run_undisturbed, run_until_death
from tests.faults.programs.run_dmail import MESSAGE
from vaka.core.session.branches import live_events_of
from vaka.core.types.context import CheckpointSaved
from vaka.core.types.control import SessionReverted
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted

PROGRAM = "run_dmail"
SAMPLE_STEP = 11
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


def check_arrived(log: list[Event]) -> None:
    """Check that the turn was rewound once, has the message and is complete."""
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
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)
    check_arrived(undisturbed.log)

    async def die_and_resume(_: int, death: str) -> None:
        plan, before = await run_until_death(home, spawn, PROGRAM, death)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
        assert last_line == "ended"
        check_arrived(log)

    await check_each_death(home, undisturbed.failpoint_deaths(first=2)[::step], die_and_resume)


async def test_a_dmail_killed_at_some_places_rewinds_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_dmail_killed_at_every_place_rewinds_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
