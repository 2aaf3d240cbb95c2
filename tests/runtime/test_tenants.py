"""Many tenants on one store: a runtime for each namespace, over shared connections."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.config.options import Storage
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import NotFound, Suspended
from vaka.stores.memory import MemoryStore
from vaka.stores.postgres import PostgresStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, say

TENANTS = [f"tenant-{number}" for number in range(12)]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store
    if request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("postgres_dsn"))
    else:
        made = SqliteStore(tmp_path / "vaka.db", durability="process") if request.param == "sqlite" else MemoryStore()
    yield made
    await made.close()


def count_connections() -> int:
    """Return the number of open files and sockets of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@vaka.tool(effect="once")
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def suspend(rt: vaka.Runtime, tenant: str) -> "vaka.Session[Any]":
    model = ScriptedModel(call("pay", amount=1), say(f"Paid by {tenant}."))
    session = await rt.open(agent(model, pay), id="s", metadata={"tenant": tenant})
    with pytest.raises(Suspended):
        await session.run(f"Pay, {tenant}.", key="same")
    await session.update(owner="ann", title=tenant)
    return session


async def test_runtimes_of_many_namespaces_run_the_same_session_id_apart(store: Any) -> None:
    first = runtime(
        store, storage=Storage(namespace=TENANTS[0]), permissions=vaka.Permissions(ask="suspend", confirm=("pay",))
    )
    await suspend(first, TENANTS[0])
    used = count_connections()
    runtimes = {
        tenant: runtime(
            store, storage=Storage(namespace=tenant), permissions=vaka.Permissions(ask="suspend", confirm=("pay",))
        )
        for tenant in TENANTS[1:]
    }
    sessions = await asyncio.gather(*(suspend(rt, tenant) for tenant, rt in runtimes.items()))
    assert count_connections() - used <= 10  # PostgreSQL opens a pool of at most 10, SQLite nothing
    for (tenant, rt), session in zip(runtimes.items(), sessions, strict=True):
        [pending] = await rt.decisions()
        with pytest.raises(NotFound):
            await first.resolve(pending.id, "approve")
        await rt.resolve(pending.id, "approve")
        assert (await session.resume().wait()).text == f"Paid by {tenant}."
        assert (await session.run("Again?", key="same")).text == f"Paid by {tenant}."
        page = await rt.store.sessions.list(SessionQuery(owner="ann"))
        assert [(info.id, info.title, info.metadata) for info in page.sessions] == [("s", tenant, {"tenant": tenant})]
        await rt.close()
    assert len(await first.decisions()) == 1
    await first.close()
    assert await store.sessions.find("s") is None
    assert (await store.with_namespace(TENANTS[3]).sessions.find("s")).status == "idle"
