"""A process is killed while it imports a thread and deletes a message; doing it again completes both, once."""

import signal

import pytest

from tests.faults.conftest import StartProgram
from tests.faults.crash_run import Plan, open_store
from tests.faults.log_stores import LogStore
from tests.faults.programs.import_thread import DELETED, MESSAGES, import_thread
from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import FAILPOINTS

APPENDS = 6
"""The thread, three batches of messages, the state, and the deletion."""
DEATHS = [f"{name}:{number}:kill" for name in FAILPOINTS for number in range(1, APPENDS + 1)]


async def check_death(home: LogStore, spawn: StartProgram, death: str) -> None:
    plan: Plan = home.new_plan()
    child = await spawn("import_thread", plan, VAKA_FAILPOINT=death)
    lines = await child.read_to_end()
    assert child.code == -signal.SIGKILL, f"exit code {child.code} instead of SIGKILL at {death}: {lines}"
    home.death_count += 1
    await home.expire_claim(plan)
    store = open_store(plan)
    async with Runtime(store=store) as runtime:
        await import_thread(runtime, plan.session)
        page = await runtime.threads.get_messages(plan.session, MessageQuery(limit=MESSAGES + 1))
        assert [row.id for row in page.messages] == [f"m{n}" for n in range(MESSAGES) if f"m{n}" != DELETED]
        assert (await runtime.threads.get(plan.session)).state == "ended"
        assert (await runtime.threads.stats(plan.session)).message_count == MESSAGES - 1
        search = MessageSearch(text='"message 7"', session=plan.session)
        assert (await runtime.threads.search(search)).hits == ()
    await store.close()


async def test_an_import_killed_at_some_places_is_completed_by_another(shared: LogStore, spawn: StartProgram) -> None:
    for death in (DEATHS[2], DEATHS[-1]):
        await check_death(shared, spawn, death)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_an_import_killed_at_every_place_is_completed_by_another(shared: LogStore, spawn: StartProgram) -> None:
    for death in DEATHS:
        await check_death(shared, spawn, death)
