"""vaka in each durability, measured like the peers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vaka
from bench import stores
from bench.agents import AddingModel
from bench.compaction import run_talk
from bench.peers.harness import GROWTH_CHECKPOINTS, Growth, Memory, Peer, SeenTurn, add, report
from bench.startup import USE_STATEMENT
from vaka.config.options import Storage

MODEL = AddingModel()


def make() -> vaka.Agent:
    """Return an agent with one tool."""
    return vaka.Agent("adder", model=MODEL, tools=[add])


def make_peer(kind: stores.StoreKind, home: Path) -> Peer:
    """Return vaka on a store, with a new session for every run; the runtime is made by the first run."""
    made: list[vaka.Runtime] = []

    async def run(agent: Any) -> str:
        if not made:
            made.append(
                vaka.Runtime(store=stores.store_url_of(kind, home), storage=Storage(durability=kind.durability))
            )
        session = await made[0].open(agent)
        return (await session.run("hi")).text

    return Peer(f"vaka {version('vaka')}, {kind.store}", kind.survives, USE_STATEMENT, make, run)


async def take_turn(session: vaka.Session[Any]) -> SeenTurn:
    """Run one turn of a session."""
    return SeenTurn((await session.run("hi")).text, MODEL.messages_seen)


def make_growth(kind: stores.StoreKind) -> Growth:
    """Return one session of vaka on a store."""

    @asynccontextmanager
    async def open_session(folder: Path) -> AsyncIterator[vaka.Session[Any]]:
        async with vaka.Runtime(
            store=stores.store_url_of(kind, folder), storage=Storage(durability=kind.durability)
        ) as runtime:
            yield await runtime.open(make())

    name = f"vaka {version('vaka')}, {kind.store}"
    return Growth(name, kind.survives, open_session, take_turn, (*GROWTH_CHECKPOINTS, 5_000))


with stores.temporary_folder() as folder:
    report(
        [make_peer(kind, folder) for kind in stores.LOCAL],
        [make_growth(kind) for kind in stores.LOCAL],
        [Memory(f"vaka {version('vaka')}", run_talk)],
    )
