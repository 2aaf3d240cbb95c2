"""Turns that are compacted are killed at each failpoint of each append: nothing is lost or compacted twice."""

import pytest

from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import check_each_death, resume_elsewhere, run_undisturbed, run_until_death
from vaka.core.loop.prompt import build_messages
from vaka.core.session.context_window import ContextWindow
from vaka.core.session.fold import fold
from vaka.core.types.context import ContextCompacted
from vaka.core.types.event import Event
from vaka.core.types.message import Message
from vaka.core.types.state import SessionState

PROGRAM = "run_compaction"
SAMPLE_STEP = 23
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


def seen_messages(log: list[Event]) -> list[Message]:
    """Return what the model sees after the last event."""
    return list(build_messages(ContextWindow(log, fold(SessionState(), log)).events_at(())))


def compactions(log: list[Event]) -> list[tuple[str, bool, list[str], str]]:
    bodies = [event.data for event in log if isinstance(event.data, ContextCompacted)]
    return [(body.trigger, bool(body.summary), [one.call for one in body.calls], body.failure) for body in bodies]


def without_ids(messages: list[Message]) -> list[str]:
    return [str(getattr(message, "content", None) or getattr(message, "results", None)) for message in messages]


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)
    expected = compactions(undisturbed.log)
    assert {trigger for trigger, *_ in expected} == {"auto", "manual"}
    assert {has_summary for _, has_summary, *_ in expected} == {True, False}
    seen = without_ids(seen_messages(undisturbed.log))

    async def die_and_resume(_: int, death: str) -> None:
        plan, before = await run_until_death(home, spawn, PROGRAM, death)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
        assert last_line == "ended"
        assert compactions(log) == expected
        assert without_ids(seen_messages(log)) == seen

    await check_each_death(home, undisturbed.failpoint_deaths(first=2)[::step], die_and_resume)


async def test_turns_killed_at_some_places_are_compacted_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
async def test_turns_killed_at_every_place_are_compacted_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
