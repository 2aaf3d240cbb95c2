"""A turn that ends with a rejected approval is killed at each failpoint of each append: it ends there, and once."""

import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import check_each_death, resume_elsewhere, run_undisturbed, run_until_death
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted, TurnInterrupted

PROGRAM = "reject_approval"
SAMPLE_STEP = 13
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


def check_rejected(log: list[Event]) -> None:
    """Check that the rejection ended the turn, every call has a result, and the next prompt was answered."""
    log_checks.assert_chain_complete(log)
    assert {call: found.reason for call, found in log_checks.results_by_call(log).items()} == {
        "call_1": "",
        "call_2": "denied",
        "call_3": "interrupted",
    }
    ends = [event.data for event in log if isinstance(event.data, TurnInterrupted | TurnCompleted)]
    assert [end.type for end in ends] == ["turn.interrupted", "turn.completed"]
    assert getattr(ends[0], "code", "") == "rejected"
    assert ends[1].text == "Then not."
    assert [event.type for event in log].count("step.started") == 2


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)
    check_rejected(undisturbed.log)

    async def die_and_resume(_: int, death: str) -> None:
        plan, before = await run_until_death(home, spawn, PROGRAM, death)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
        assert last_line == "ended"
        check_rejected(log)

    await check_each_death(home, undisturbed.failpoint_deaths(first=2)[::step], die_and_resume)


async def test_a_rejected_turn_killed_at_some_places_ends_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_rejected_turn_killed_at_every_place_ends_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
