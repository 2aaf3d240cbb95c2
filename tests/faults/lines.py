"""How our programs speak with the test: a line on standard output for what happened, one on standard input to go on."""

import asyncio
import sys
from hashlib import sha256

from vaka.core.types.event import Event


def say(*words: object) -> None:
    """Tell the test something."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def acknowledge(event: Event) -> None:
    """Tell the test that this process was shown a durable event."""
    if event.seq:
        say("event", event.id, sha256(event.stored).hexdigest())


class Ears:
    """Lines from the test."""

    def __init__(self) -> None:
        self._lines: asyncio.StreamReader | None = None

    async def hear(self) -> str:
        """Return the next line, ``""`` when there is none any more."""
        if self._lines is None:
            self._lines = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(self._lines)
            await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        return (await self._lines.readline()).decode().strip()

    async def gate(self, name: str) -> None:
        """Say where we are, and go on when told to."""
        say("gate", name)
        await self.hear()
