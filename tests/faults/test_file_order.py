"""A step whose calls wait for each other is killed at each point: the held calls had not begun, and simply begin."""

from collections.abc import Sequence

import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import (
    check_each_death,
    effect_deaths,
    resume_elsewhere,
    run_undisturbed,
    run_until_death,
)
from tests.faults.programs.run_file_order import WORDS, folder_of
from vaka.core.types.control import QuestionAsked
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.progress import ToolCalled, ToolCompleted, ToolFailed, ToolStarted, TurnCompleted

PROGRAM = "run_file_order"
SAMPLE_STEP = 11
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


def check_order(log: Sequence[Event]) -> None:
    """Check that no call began before the one before it had its result."""
    running: set[CallId] = set()
    for event in log:
        if isinstance(event.data, ToolStarted):
            running.add(event.data.call.id)
            assert len(running) == 1
        elif isinstance(event.data, ToolCompleted | ToolFailed):
            running.discard(event.data.result.call)


def check_reads(log: Sequence[Event]) -> None:
    """Check that each read has seen what the commands before it have written, and no more."""
    results = log_checks.results_by_call(log)
    called = [event.data.call for event in log if isinstance(event.data, ToolCalled)]
    for number, read in enumerate([call.id for call in called if call.name == "Read"], start=1):
        assert [word for word in WORDS if word in results[read].text] == [*WORDS[:number]]
    assert isinstance(log[-1].data, TurnCompleted)
    assert log[-1].data.text == "done"


def asked_calls(log: Sequence[Event]) -> set[CallId | None]:
    return {event.data.call for event in log if isinstance(event.data, QuestionAsked)}


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)
    check_order(undisturbed.log)
    check_reads(undisturbed.log)

    async def die_and_resume(_: int, death: str) -> None:
        plan, before = await run_until_death(home, spawn, PROGRAM, death)
        check_order(before)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
        assert last_line == "ended"
        log_checks.assert_chain_complete(log)
        check_reads(log)
        assert asked_calls(log) == log_checks.lost_calls(before), "only a command that had begun is asked about"
        assert (folder_of(plan) / "f").read_text().split() == [*WORDS], "each command has run once"

    deaths = effect_deaths(len(WORDS)) + undisturbed.failpoint_deaths(first=2)
    await check_each_death(home, deaths[::step], die_and_resume)


async def test_a_step_with_held_calls_that_is_killed_at_some_points_keeps_its_order(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_step_with_held_calls_that_is_killed_at_every_point_keeps_its_order(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, 1)
