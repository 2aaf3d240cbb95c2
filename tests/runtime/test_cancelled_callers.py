"""A caller that is cancelled, after any number of event-loop ticks, harms no other caller and keeps no claim."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.interleaving import PATIENCE, TickingEvents, run_skipping, sleep_ticks
from tests.runtime.runtime_fixtures import IDS
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import Store
from vaka.core.types.errors import Busy, NotFound, VakaError
from vaka.core.types.ids import SessionId
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.stores.postgres import PostgresStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import FunctionModel

Session = vaka.Session[Any]


async def stream(session: Session) -> None:
    async with session.stream("streamed") as turn:
        async for _ in turn:
            pass


async def fork(session: Session) -> None:
    forked = await session.fork()
    await forked.run("forked")


async def resume(session: Session) -> None:
    await session.resume().wait()


async def close(session: Session) -> None:
    await session.close()


async def rewind(session: Session) -> None:
    await session.rewind("1.1")


SHARED: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "run": lambda session: session.run("cancelled"),
    "run with a key": lambda session: session.run("cancelled", key="k"),
    "stream": stream,
    "send": lambda session: session.send("cancelled"),
    "steer": lambda session: session.steer("cancelled"),
    "resume": resume,
    "checkpoint": lambda session: session.checkpoint("here"),
    "fork": fork,
}
"""What a caller may do while others run turns."""
ALONE: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "interrupt": lambda session: session.interrupt(),
    "close": close,
    "rewind": rewind,
    "messages": lambda session: session.messages(),
    "last_turn": lambda session: session.last_turn(),
}
"""What a caller does that may end the turns of others."""


async def answer(prompt: Prompt) -> str:
    await sleep_ticks(2)
    return "done"


AGENT = vaka.Agent("helper", model=FunctionModel(answer))


@asynccontextmanager
async def two_runtimes(stores: list[Store]) -> AsyncGenerator[list[vaka.Runtime]]:
    """Two runtimes, as two processes have; both must close."""
    runtimes = [vaka.Runtime(store=store, environment=Environment(ids=IDS)) for store in stores]
    async with asyncio.timeout(PATIENCE):
        yield runtimes
        for rt in runtimes:
            await rt.close()
    for store in stores:
        await store.close()


async def cancel_after(
    runtimes: list[vaka.Runtime], name: str, action: Callable[[Session], Awaitable[Any]], ticks: int, before: int
) -> bool:
    """Cancel a caller after some ticks, check what the others get, and return whether the caller had ended by then.

    ``before``: how many of two others call before it; -1 for a caller that is alone.
    """
    ended = False
    for known in (False, True):
        here, there = [await rt.open(AGENT, id=f"{name.replace(' ', '-')}-{ticks}-{before}-{known}") for rt in runtimes]
        if known:
            await there.run("begin")
        others = 0 if before < 0 else 2
        innocent = [asyncio.create_task(here.run(f"innocent {number}")) for number in range(max(before, 0))]
        caller = asyncio.ensure_future(action(here))
        innocent += [asyncio.create_task(here.run(f"innocent {number}")) for number in range(len(innocent), others)]
        await sleep_ticks(ticks)
        ended = caller.done()
        caller.cancel()
        with suppress(asyncio.CancelledError, NotFound, Busy):
            await caller
        for task in innocent:
            assert (await task).text == "done"
        for session in (here, there):
            assert (await session.run("next")).text == "done"
    return ended


SAMPLED = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["sampled", "all"])


def tick_counts(step: int) -> list[int]:
    """Return the numbers of ticks to try: sparse, for 0, where an answer comes from another process."""
    return list(range(0, 80, step)) if step else [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 90, 150]


async def cancel_everywhere(stores: list[Store], step: int = 0) -> None:
    async with two_runtimes(stores) as runtimes:
        for name, action in {**SHARED, **ALONE}.items():
            for before in ((-1, 0, 1) if step else (1,)) if name in SHARED else (-1,):
                for ticks in tick_counts(step):
                    if await cancel_after(runtimes, name, action, ticks, before):
                        break


@SAMPLED
def test_a_cancelled_caller_harms_only_itself_on_a_memory_store(step: int) -> None:
    async def main() -> None:
        store = MemoryStore()
        stores: list[Store] = [store, store.open_handle()]
        for handle in stores:
            handle.events = TickingEvents(handle.events, random.Random(1))
        await cancel_everywhere(stores, step)

    run_skipping(main)


@SAMPLED
def test_a_cancelled_caller_harms_only_itself_on_a_sqlite_store(tmp_path: Path, step: int) -> None:
    async def main() -> None:
        await cancel_everywhere([SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)], step)

    run_skipping(main)


async def test_a_cancelled_caller_harms_only_itself_on_a_postgres_store(postgres_dsn: str) -> None:
    await cancel_everywhere([PostgresStore(postgres_dsn) for _ in range(2)])


async def test_a_cancelled_caller_leaves_the_turn_to_another_with_the_same_key() -> None:
    async with vaka.Runtime(store=MemoryStore()) as rt:
        for ticks in range(3, 8):
            session = await rt.open(AGENT, id=f"s{ticks}")
            cancelled, other = [asyncio.create_task(session.run("same", key="k")) for _ in range(2)]
            await sleep_ticks(ticks)
            cancelled.cancel()
            with suppress(asyncio.CancelledError):
                await cancelled
            assert (await other).text == "done"


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
async def test_a_cancelled_claim_on_sqlite_is_released(tmp_path: Path, *, again: bool) -> None:
    here, there = (SqliteStore(tmp_path / "vaka.db") for _ in range(2))
    async with vaka.Runtime(store=here) as rt:
        await (await rt.open(AGENT, id="s")).run("begin")
        for ticks in range(12):
            claim = asyncio.create_task(here.events.claim(SessionId("s")))
            await sleep_ticks(ticks)
            claim.cancel()
            if again:
                await sleep_ticks(1)
                claim.cancel()
            with suppress(asyncio.CancelledError):
                await here.events.release(SessionId("s"), await claim)
            await sleep_ticks(20)
            await there.events.release(SessionId("s"), await there.events.claim(SessionId("s")))
    for store in (here, there):
        await store.close()


async def test_closing_a_runtime_goes_on_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    for ticks in count():
        rt = vaka.Runtime(store=f"sqlite:///{tmp_path}/{ticks}.db")
        await (await rt.open(AGENT, id="s")).run("begin")
        closing = asyncio.create_task(rt.close())
        await sleep_ticks(ticks)
        ended = closing.done()
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await rt.close()
        with pytest.raises(VakaError, match="closed"):
            await rt.store.sessions.find(SessionId("s"))
        if ended:
            return
