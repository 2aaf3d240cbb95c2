"""A router is killed at each failpoint of each append, and around each effect; another process finishes its turn."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_router import ROUTER_ANSWER
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import (
    check_each_death,
    effect_deaths,
    resume_elsewhere,
    run_undisturbed,
    run_until_death,
)
from tests.genx.match.router_fixtures import outline
from vaka.core.types.event import Event
from vaka.core.types.monitor import UsageRecorded

PROGRAM = "run_router"
EFFECTS = 3
SAMPLE_STEP = 31
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""
ROUTED = [
    "- turn",
    "- match ['papers', 'song']",
    """- office agent-1 <- 'Sail.\\n{"kind":"log"}'""",
    "agent-1 match []",
    """agent-1 clerk agent-1 <- 'Sail.\\n{"kind":"log"}'""",
    "agent-1/agent-1 says Done.",
    "agent-1 end of agent-1",
    "- end of agent-1",
    "- singer agent-2 <- 'Sail.'",
    "agent-2 says La la, song is stamped.",
    "- end of agent-2",
    "- active singer",
    f"- completed {ROUTER_ANSWER!r}",
]


def routed_events(log: Sequence[Event]) -> list[str]:
    """Return the outline of a log without what a resumed turn repeats: that it goes on, and that calls begin."""
    return [line for line in outline(log) if line != "- resumed" and " calls " not in line]


def count_matches(log: Sequence[Event]) -> int:
    return len([event for event in log if isinstance(event.data, UsageRecorded) and event.data.agent == "front"])


async def kill_and_resume(home: LogStore, spawn: StartProgram, death: str, how: str) -> None:
    plan, before = await run_until_death(home, spawn, PROGRAM, death, ask="deny")
    _, log = await resume_elsewhere(msgspec.structs.replace(plan, how=how), spawn, PROGRAM, before)
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, log_checks.lost_calls(before))
    assert routed_events(log) == ROUTED
    assert count_matches(log) == 1


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM, "turn.completed", ask="deny")
    assert routed_events(undisturbed.log) == ROUTED
    deaths = effect_deaths(EFFECTS) + undisturbed.failpoint_deaths()

    async def die_and_resume(number: int, death: str) -> None:
        await kill_and_resume(home, spawn, death, "resume" if number % 2 else "say")

    await check_each_death(home, deaths[::step], die_and_resume)


async def test_a_router_killed_at_some_places_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_router_killed_at_every_place_is_finished_by_another_process(
    home: LogStore, spawn: StartProgram
) -> None:
    await run_each_death(home, spawn, 1)
