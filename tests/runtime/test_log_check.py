"""``check_log`` reads everything that a run of the session would read, on every store."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

import vaka
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.ids import SessionId
from vaka.runtime.log_check import MAX_EVENTS_OF_BLOB, LogCheck, check_log, restore_blobs
from vaka.runtime.open_store import open_store
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

LARGE = "x" * 40_000


class Place(NamedTuple):
    """A store, and what flips the first byte of all blobs of a size, behind its back."""

    url: str
    damage: Callable[[int], Awaitable[int]]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        file = tmp_path / "vaka.db"

        async def damage_sqlite(size: int) -> int:
            changed = "update blobs set data = cast('y' || substr(data, 2) as blob) where length(data) = ?"
            with closing(sqlite3.connect(file)) as database, database:
                return database.execute(changed, (size,)).rowcount

        return Place(f"sqlite:///{file}", damage_sqlite)
    dsn = str(request.getfixturevalue("postgres_dsn"))

    async def damage_postgres(size: int) -> int:
        connection = await asyncpg.connect(dsn)
        try:
            changed = "update vaka.blobs set body = set_byte(body, 0, 121) where length(body) = $1"
            return int((await connection.execute(changed, size)).split()[-1])
        finally:
            await connection.close()

    return Place(dsn, damage_postgres)


def make_agent(steps: int = 1) -> vaka.Agent:
    """Return an agent whose instructions are a blob that each step uses."""

    @vaka.tool(effect="read", poll=True)
    async def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedModel(*[call("look")] * (steps - 1), say("Done."))
    return vaka.Agent("reader", model=model, instructions="i" * 50_000, tools=[look])


async def talk(url: str, steps: int = 1) -> None:
    async with vaka.Runtime(store=url) as runtime:
        await (await runtime.open(make_agent(steps), id="s")).run(LARGE)


async def row_of(store: Store) -> SessionInfo:
    found = await store.sessions.find(SessionId("s"))
    assert found is not None
    return found


async def check(store: Store) -> LogCheck:
    return await check_log(store, await row_of(store))


async def test_a_flipped_byte_of_a_blob_is_found_and_repaired_from_another_store(place: Place, tmp_path: Path) -> None:
    await talk(place.url)
    backup = f"sqlite:///{tmp_path}/backup.db"
    await talk(backup)  # the same content has the same digest
    store = open_store(place.url)
    try:
        good = await check(store)
        assert (good.ok, good.blob_problems) == (True, ())
        assert good.blobs >= 2
        assert await place.damage(len(LARGE)) == 1
        found = await check(store)
        [problem] = found.blob_problems
        assert (found.ok, problem.problem, problem.uses) == (False, "damaged", 1)
        assert found.error == problem.describe()
        assert (await restore_blobs(store, MemoryStore(), found)) == ()
        other = open_store(backup)
        try:
            assert await restore_blobs(store, other, found) == (problem.digest,)
        finally:
            await other.close()
        assert (await check(store)).ok
    finally:
        await store.close()


async def test_a_blob_that_many_events_use_is_read_once_and_names_the_first_of_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/vaka.db"
    await talk(url, steps=30)
    with closing(sqlite3.connect(tmp_path / "vaka.db")) as database, database:
        assert database.execute("delete from blobs where length(data) = 50000").rowcount == 1
    store = open_store(url)
    try:
        found = await check(store)
    finally:
        await store.close()
    [problem] = found.blob_problems
    assert (problem.problem, len(problem.events)) == ("missing", MAX_EVENTS_OF_BLOB)
    assert problem.uses >= 30
    assert f"and {problem.uses - MAX_EVENTS_OF_BLOB} more" in (found.error or "")


async def test_a_damaged_value_of_the_session_is_found_and_a_damaged_snapshot_is_no_problem(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/vaka.db"
    await talk(url, steps=70)
    store = open_store(url)
    try:
        await store.values.put(f"{session_values_prefix('s')}note", "good")
        with closing(sqlite3.connect(tmp_path / "vaka.db")) as database, database:
            assert database.execute("update snapshots set data = x'00'").rowcount > 0
        assert (await check(store)).ok
        with closing(sqlite3.connect(tmp_path / "vaka.db")) as database, database:
            assert database.execute("update pairs set value = cast('\"evil\"' as blob)").rowcount == 1
        found = await check(store)
        assert (found.ok, "is damaged" in (found.error or "")) == (False, True)
    finally:
        await store.close()


async def test_more_damaged_blobs_than_a_line_can_name_are_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/vaka.db"
    model = ScriptedModel(*[say("Done.")] * 5)
    async with vaka.Runtime(store=url) as runtime:
        session = await runtime.open(vaka.Agent("reader", model=model), id="s")
        for number in range(5):
            await session.run(f"{number} {LARGE}")
    with closing(sqlite3.connect(tmp_path / "vaka.db")) as database, database:
        database.execute("delete from blobs")
    store = open_store(url)
    try:
        found = await check(store)
    finally:
        await store.close()
    assert len(found.blob_problems) >= 5
    assert (found.error or "").endswith(f"; and {len(found.blob_problems) - 3} more blobs")
