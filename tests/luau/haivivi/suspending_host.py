"""The vaka host: a call suspends the coroutine that makes it, and the others continue."""

from collections.abc import Mapping
from pathlib import Path

from tests.luau.surfaces.surface_fixtures import make_services
from vaka.core.ports.net import Network
from vaka.core.types.ids import JSON
from vaka.luau.host import surface_functions
from vaka.luau.program import Program, main_source, prelude_source
from vaka.luau.require import read_library
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.vm import VmRunner
from vaka.stores.memory import MemoryStore


async def run_suspending_script(
    libraries: list[Path], env: Mapping[str, str], network: Network, source: str, *arguments: JSON
) -> list[str]:
    """Run a script to its end and return what it logged."""
    logged: list[str] = []
    services = make_services(
        network=network,
        values=MemoryStore().values,
        env=env,
        log=lambda _, line: logged.append(line),
    )
    program = Program(
        source, library=await read_library(libraries), preludes=(prelude_source(("builtin",)),), main=main_source()
    )
    vms = VmRunner()
    try:
        await drive(vms.open(program), surface_functions(services), NullJournal(), [{"mode": "plain"}, *arguments])
    finally:
        await vms.close()
    return logged
