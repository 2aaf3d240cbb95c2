"""Runs that die at a planned place. Every planned death is a real SIGKILL: a run that ends normally fails the test."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import Plan
from tests.faults.log_stores import LogStore, read_log
from vaka.core.types.event import Event
from vaka.testing.crashes import FAILPOINTS

COUNTED_RUNS = 3
MAX_ATTEMPTS = 20
"""Runs started for one death at a failpoint. PostgreSQL's group commit may put two appends into one transaction, so a
run may pass a failpoint less often than the counted runs did; another one is started then."""
AT_ONCE = 3
"""Deaths tried side by side: most of the time goes into starting Python."""

DeathTest: TypeAlias = Callable[[int, str], Awaitable[None]]


class UndisturbedRun(msgspec.Struct, frozen=True):
    """The log of a run without a fault, and how often such a run passes each failpoint at least."""

    log: list[Event]
    passes: dict[str, int]

    def failpoint_deaths(self, *, first: int = 1) -> list[str]:
        return [f"{place}:{n}:kill" for place in FAILPOINTS for n in range(first, self.passes[place] + 1)]


def effect_deaths(count: int) -> list[str]:
    return [f"{moment}:{number}" for moment in ("before", "after") for number in range(1, count + 1)]


async def run_undisturbed(
    home: LogStore, spawn: StartProgram, program: str, last_line: str = "ended", **fields: object
) -> UndisturbedRun:
    """Run a program a few times without a fault; everything it acknowledged is in its log."""
    log: list[Event] = []
    passes: list[dict[str, int]] = []
    for _ in range(COUNTED_RUNS):
        plan = home.new_plan(**fields)
        count = home.folder / f"count-{len(passes)}"
        child = await spawn(program, plan, VAKA_FAILPOINT=f"count:{count}")
        lines = await child.read_to_end()
        assert (child.code, lines[-1]) == (0, last_line)
        passes.append(msgspec.json.decode(count.read_bytes(), type=dict[str, int]))
        log = await read_log(plan)
        log_checks.assert_chain_complete(log)
        log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
        log_checks.assert_effects(plan, log, log_checks.NO_CALLS)
    return UndisturbedRun(log, {place: min(counts[place] for counts in passes) for place in FAILPOINTS})


async def run_until_death(
    home: LogStore, spawn: StartProgram, program: str, death: str, **fields: object
) -> tuple[Plan, list[Event]]:
    """Run until SIGKILL; return the plan to resume with, and the log, which has everything that was acknowledged."""
    at_failpoint = death.endswith(":kill")
    environment = {"VAKA_FAILPOINT": death} if at_failpoint else {}
    for _ in range(MAX_ATTEMPTS if at_failpoint else 1):
        plan = home.new_plan(die="" if at_failpoint else death, **fields)
        child = await spawn(program, plan, **environment)
        lines = await child.read_to_end()
        if child.code == -signal.SIGKILL:
            home.death_count += 1
            await home.expire_claim(plan)
            log = await read_log(plan)
            log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
            return msgspec.structs.replace(plan, die="", ahead=60.0), log
        assert child.code == 0, f"exit code {child.code} instead of SIGKILL at {death}: {lines[-3:]}"
    pytest.fail(f"no run died at {death}: every one ended normally")


async def resume_elsewhere(
    plan: Plan, spawn: StartProgram, program: str, before: Sequence[Event]
) -> tuple[str, list[Event]]:
    """Let another process go on; return its last line and the log, whose beginning is still what it was."""
    child = await spawn(program, plan)
    lines = await child.read_to_end()
    assert child.code == 0
    log = await read_log(plan)
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
    assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
    return lines[-1], log


async def check_each_death(home: LogStore, deaths: Sequence[str], check: DeathTest) -> None:
    """Run ``check(number, death)`` for each death, a few at a time; fail unless each of them was a SIGKILL."""
    slots, before = asyncio.Semaphore(AT_ONCE), home.death_count

    async def check_one(number: int, death: str) -> None:
        async with slots:
            try:
                await check(number, death)
            except BaseException as error:
                error.add_note(f"death {number}: {death}")
                raise

    async with asyncio.TaskGroup() as group:
        for number, death in enumerate(deaths):
            group.create_task(check_one(number, death))
    assert len(deaths) > 0
    assert home.death_count - before == len(deaths), "some planned deaths did not happen"
