"""A turn that a person ends with a no is killed at every place of every append: it ends there, and ends once."""

import signal

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.log_stores import LogStore, read_log
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted, TurnInterrupted
from vaka.testing.failpoints import FAILPOINTS

SAMPLE_STEP = 7
"""Of the deaths, ``make test`` tries every so many."""


def check_rejected(log: list[Event]) -> None:
    """Check that the no ended the turn, that every call has its result, and that the next prompt was answered."""
    log_checks.assert_chain_complete(log)
    assert {call: found.reason for call, found in log_checks.results_by_call(log).items()} == {
        "call_1": "", "call_2": "denied", "call_3": "interrupted",
    }  # fmt: skip
    ends = [event.data for event in log if isinstance(event.data, TurnInterrupted | TurnCompleted)]
    assert [end.type for end in ends] == ["turn.interrupted", "turn.completed"]
    assert getattr(ends[0], "code", "") == "rejected"
    assert ends[1].text == "Then not."
    assert [event.type for event in log].count("step.started") == 2


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    count = home.folder / "count"
    plan = home.new_plan()
    child = await spawn("refuse", plan, VAKA_FAILPOINT=f"count:{count}")
    assert (await child.read_to_end())[-1] == "ended"
    check_rejected(await read_log(plan))
    passes = msgspec.json.decode(count.read_bytes(), type=dict[str, int])
    every = [f"{place}:{number}:kill" for place in FAILPOINTS for number in range(2, passes[place] + 1)]
    for death in every[::step]:
        plan = home.new_plan()
        child = await spawn("refuse", plan, VAKA_FAILPOINT=death)
        lines = await child.read_to_end()
        assert child.code == -signal.SIGKILL or lines[-1] == "ended"
        await home.expire_claim(plan)
        before = await read_log(plan)
        log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), before)
        child = await spawn("refuse", plan)
        assert (await child.read_to_end())[-1] == "ended", death
        log = await read_log(plan)
        assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
        check_rejected(log)


async def test_killed_anywhere_the_turn_ends_where_the_person_said_no(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
async def test_killed_everywhere_the_turn_ends_where_the_person_said_no(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
