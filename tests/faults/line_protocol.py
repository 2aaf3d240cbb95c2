"""The protocol between a test and its subprocess: it prints a line for each event, and reads a line to continue."""

import asyncio
import sys
from hashlib import sha256

from vaka.core.types.event import Event


def print_line(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def print_event(event: Event) -> None:
    """Acknowledge a durable event that this process has received."""
    if event.seq:
        print_line("event", event.id, sha256(event.stored).hexdigest())


class InputLines:
    """Lines from the test."""

    def __init__(self) -> None:
        self._lines: asyncio.StreamReader | None = None

    async def read_line(self) -> str:
        """Return the next line, ``""`` at the end."""
        if self._lines is None:
            self._lines = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(self._lines)
            await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        return (await self._lines.readline()).decode().strip()

    async def wait_at_gate(self, name: str) -> None:
        """Print the name of the gate, and wait for a line."""
        print_line("gate", name)
        await self.read_line()
