"""vaka, timed by the code that times the peers, in each durability."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import vaka
from bench import stores
from bench.agents import Adder
from bench.peers.harness import Peer, add, report
from bench.starting import USE

MODEL = Adder()


def make() -> vaka.Agent:
    """Return an agent with one tool."""
    return vaka.Agent("adder", model=MODEL, tools=[add])


def peer(kind: stores.Kind, home: Path) -> Peer:
    """Return vaka on a store, every run in a session of its own; the runtime is made at the first run."""
    made: list[vaka.Runtime] = []

    async def run(agent: Any) -> str:
        if not made:
            made.append(vaka.Runtime(store=stores.url(kind, home), durability=kind.durability))
        session = await made[0].open(agent)
        return (await session.run("hi")).text

    return Peer(f"vaka {version('vaka')}, {kind.store}", kind.survives, USE, make, run)


with stores.folder() as folder:
    report(*[peer(kind, folder) for kind in stores.LOCAL])
