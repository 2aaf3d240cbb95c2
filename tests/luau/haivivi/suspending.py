"""The host that vaka is: a call suspends the coroutine that makes it, and the others go on."""

from collections.abc import Mapping
from pathlib import Path

from vaka.core.ports.net import Network
from vaka.core.types.ids import JSON
from vaka.luau.compat import surface_functions
from vaka.luau.host.parts import Parts
from vaka.luau.prelude import main, prelude
from vaka.luau.program import Program
from vaka.luau.require import read_library
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.vm import Vms
from vaka.stores.memory import MemoryStore


async def run(
    libraries: list[Path], env: Mapping[str, str], network: Network, source: str, *arguments: JSON
) -> list[str]:
    """Run a script to its end and return what it logged."""
    logged: list[str] = []
    parts = Parts(network=network, values=MemoryStore().values, env=env, log=lambda _, line: logged.append(line))
    program = Program(source, library=await read_library(libraries), preludes=(prelude(("builtin",)),), main=main())
    vms = Vms()
    try:
        await drive(vms.open(program), surface_functions(parts), Unrecorded(), [{"mode": "plain"}, *arguments])
    finally:
        await vms.close()
    return logged
