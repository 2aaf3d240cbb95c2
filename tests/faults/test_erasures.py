"""A process is killed in the middle of an erasure: each session is whole or erased, and a second erasure ends it."""

import signal
from collections.abc import Sequence

import pytest

from tests.faults.conftest import StartProgram
from tests.faults.crash_run import Plan, open_store
from tests.faults.log_stores import LogStore
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import StepStarted
from vaka.memory.text import VALUES_PREFIX, owner_folder
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import FAILPOINTS
from vaka.testing.stores.sealed_events import input_added, write_session

SQLITE_SESSIONS, POSTGRES_SESSIONS = 34, 3
"""SQLite erases 32 sessions in a transaction, PostgreSQL each in its own."""


async def write_owner(store: Store, owner: str, count: int) -> dict[str, list[Event]]:
    """Write sessions of an owner and one of another; each names a blob of its own and one that all share."""
    logs: dict[str, list[Event]] = {}
    for number in range(count + 1):
        name = f"{owner}-{number}"
        whose = owner if number < count else f"{owner} and others"
        own, shared = await store.blobs.put(f"blob of {name}".encode()), await store.blobs.put(b"shared")
        steps = [StepStarted(agent="a", number=1, system=own, tools=shared)]
        log = await write_session(store, name, SessionOpened(owner=whose), input_added(f"I am {whose}"), *steps)
        logs[name] = log.events
    await store.values.put(f"{VALUES_PREFIX}n/{owner_folder(owner)}/notes.md", {"size": 0, "modified": 0, "digest": ""})
    return logs


async def read_events(store: Store, session: str) -> list[Event]:
    return [event async for event in store.events.read(SessionId(session))]


async def check_death(home: LogStore, spawn: StartProgram, death: str, count: int) -> None:
    plan: Plan = home.new_plan()
    owner, store = plan.session, open_store(plan)
    logs = await write_owner(store, owner, count)
    *erased, kept = logs
    await store.close()
    child = await spawn("erase_owner", plan, VAKA_FAILPOINT=death)
    lines = await child.read_to_end()
    assert child.code == -signal.SIGKILL, f"exit code {child.code} instead of SIGKILL at {death}: {lines}"
    home.death_count += 1

    store = open_store(plan)
    whole: list[str] = []
    for name in logs:
        events = await read_events(store, name)
        assert [event.hash for event in events][: len(logs[name])] == [event.hash for event in logs[name]]
        if events == logs[name]:
            whole.append(name)
        else:
            assert events[-1].type == "session.erased"
    async with Runtime(store=store) as runtime:
        report = await runtime.erase(owner=owner)
    assert set(report.sessions) == {*whole} - {kept}
    for name in erased:
        assert [event.type for event in await read_events(store, name) if not event.erased] == ["session.erased"]
        with pytest.raises(NotFound):
            await store.blobs.get(logs[name][-1].data.system)  # type: ignore[attr-defined]  # a step.started
    assert await read_events(store, kept) == logs[kept]
    step = logs[kept][-1].data
    assert isinstance(step, StepStarted)
    assert step.system
    assert step.tools
    assert [await store.blobs.get(step.system), await store.blobs.get(step.tools)][1] == b"shared"
    assert (await store.sessions.list(SessionQuery(owner=owner))).sessions == ()
    assert await store.values.keys(VALUES_PREFIX) == []
    await store.close()


def deaths_of(home: LogStore) -> tuple[int, Sequence[str]]:
    """Return how many sessions to erase, and every place to die at."""
    count, passes = (POSTGRES_SESSIONS, 3) if hasattr(home, "dsn") else (SQLITE_SESSIONS, 2)
    return count, [f"{name}:{number}:kill" for name in FAILPOINTS for number in range(1, passes + 1)]


async def test_an_erasure_killed_at_some_places_is_completed_by_another(shared: LogStore, spawn: StartProgram) -> None:
    count, deaths = deaths_of(shared)
    for death in deaths[3:7:3]:
        await check_death(shared, spawn, death, count)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
async def test_an_erasure_killed_at_every_place_is_completed_by_another(shared: LogStore, spawn: StartProgram) -> None:
    count, deaths = deaths_of(shared)
    for death in deaths:
        await check_death(shared, spawn, death, count)
