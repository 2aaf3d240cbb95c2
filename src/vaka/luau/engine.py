"""Where scripts run: the project's own in this process, all others in workers."""

from typing import Protocol

from vaka.luau.program import Program
from vaka.luau.script import Script
from vaka.luau.vm import Print, Vms
from vaka.luau.worker import Workers


class Home(Protocol):
    """A place where scripts run."""

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed``, line by line."""
        ...

    async def close(self) -> None:
        """Let go of everything; twice is once."""
        ...


class Engine:
    """Opens each script where it belongs. Nothing is started before it is needed."""

    def __init__(self, *, trusted: Home | None = None, others: Home | None = None) -> None:
        self._trusted = trusted or Vms()
        self._others = others or Workers()

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed``, line by line."""
        return (self._trusted if program.trusted else self._others).open(program, printed)

    async def close(self) -> None:
        """End the workers, and free the VMs that nobody uses."""
        await self._others.close()
        await self._trusted.close()
