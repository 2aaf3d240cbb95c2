"""A turn that changes memories is killed at each failpoint of each append: every change happens once."""

import pytest

from tests.faults.conftest import StartProgram
from tests.faults.crash_run import Plan, open_store
from tests.faults.log_stores import LogStore
from tests.faults.planned_deaths import check_each_death, resume_elsewhere, run_undisturbed, run_until_death
from tests.faults.programs.run_memory import EXPECTED
from vaka.core.ports.values import session_values_prefix
from vaka.core.session.fold import fold
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted
from vaka.core.types.state import SessionState
from vaka.files.kv import KeyValueFiles

PROGRAM = "run_memory"
SAMPLE_STEP = 17
"""``make test`` tries every so-many-th death, ``make test-all`` each one."""


async def check_remembered(plan: Plan, log: list[Event]) -> None:
    """Check that the turn is complete, all calls succeeded, and the memories have what the turn wrote, once."""
    assert isinstance(log[-1].data, TurnCompleted)
    assert [event.data for event in log if event.type == "tool.failed"] == []
    state = fold(SessionState(), log)
    assert [key for key in state.values if key.startswith("$memory/")] == []
    store = open_store(plan)
    try:
        files, folder = KeyValueFiles(store.values, prefix="memory/text/"), f"shared/{plan.session}"
        found = {name: (await files.read(f"{folder}/{name}")).data.decode() if name else "" for name in EXPECTED}
        record = await store.values.get(f"{session_values_prefix(plan.session)}working_memory")
        assert {**found, "": record["content"]} == EXPECTED
        assert [info.path for info in await files.entries(folder)] == [f"{folder}/moved", f"{folder}/notes.md"]
    finally:
        await store.close()


async def run_each_death(home: LogStore, spawn: StartProgram, step: int) -> None:
    undisturbed = await run_undisturbed(home, spawn, PROGRAM)

    async def die_and_resume(_: int, death: str) -> None:
        plan, before = await run_until_death(home, spawn, PROGRAM, death)
        last_line, log = await resume_elsewhere(plan, spawn, PROGRAM, before)
        assert last_line == "ended"
        await check_remembered(plan, log)

    await check_each_death(home, undisturbed.failpoint_deaths(first=2)[::step], die_and_resume)


async def test_a_turn_with_memory_killed_at_some_places_changes_it_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, SAMPLE_STEP)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_turn_with_memory_killed_at_every_place_changes_it_once(shared: LogStore, spawn: StartProgram) -> None:
    await run_each_death(shared, spawn, 1)
