"""vaka in each durability, measured like the peers."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import vaka
from bench import stores
from bench.agents import AddingModel
from bench.peers.harness import Peer, add, report_peers
from bench.startup import USE_STATEMENT

MODEL = AddingModel()


def make() -> vaka.Agent:
    """Return an agent with one tool."""
    return vaka.Agent("adder", model=MODEL, tools=[add])


def make_peer(kind: stores.StoreKind, home: Path) -> Peer:
    """Return vaka on a store, with a new session for every run; the runtime is made by the first run."""
    made: list[vaka.Runtime] = []

    async def run(agent: Any) -> str:
        if not made:
            made.append(vaka.Runtime(store=stores.store_url_of(kind, home), durability=kind.durability))
        session = await made[0].open(agent)
        return (await session.run("hi")).text

    return Peer(f"vaka {version('vaka')}, {kind.store}", kind.survives, USE_STATEMENT, make, run)


with stores.temporary_folder() as folder:
    report_peers(*[make_peer(kind, folder) for kind in stores.LOCAL])
