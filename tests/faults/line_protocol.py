"""How a test's subprocess talks to the test: it prints a line for each event, and reads a line to continue."""

import asyncio
import sys
from hashlib import sha256

from vaka.core.types.event import Event


def print_line(*words: object) -> None:
    """Tell the test something."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def print_event(event: Event) -> None:
    """Tell the test that this process was shown a durable event."""
    if event.seq:
        print_line("event", event.id, sha256(event.stored).hexdigest())


class InputLines:
    """Lines from the test."""

    def __init__(self) -> None:
        self._lines: asyncio.StreamReader | None = None

    async def read_line(self) -> str:
        """Return the next line, ``""`` when there is none any more."""
        if self._lines is None:
            self._lines = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(self._lines)
            await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        return (await self._lines.readline()).decode().strip()

    async def wait_at_gate(self, name: str) -> None:
        """Say where we are, and go on when told to."""
        print_line("gate", name)
        await self.read_line()
