"""Child processes: started, read line by line, stopped, continued and killed; none outlives its test."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.forked_python import StreamedProcess, start_forked
from tests.unmeasured import without_coverage

TIMEOUT = 60.0
"""Seconds to wait for an expected event."""


class ChildProcess:
    """A process in a group of its own."""

    def __init__(self, process: StreamedProcess) -> None:
        self.process = process
        self._in = process.stdin
        self._out = process.stdout

    @property
    def code(self) -> int | None:
        return self.process.returncode

    async def read_line(self) -> str:
        """Return its next line, ``""`` when it has ended."""
        async with asyncio.timeout(TIMEOUT):
            return (await self._out.readline()).decode().rstrip("\n")

    async def read_until(self, word: str) -> list[str]:
        """Return the lines up to the one that begins with ``word``; fail when it ends before that."""
        lines: list[str] = []
        while line := await self.read_line():
            lines.append(line)
            if line.split()[0] == word:
                return lines
        raise AssertionError(f"the process ended without {word!r}: {lines}")

    async def read_to_end(self) -> list[str]:
        """Return its lines until it ends."""
        async with asyncio.timeout(TIMEOUT):
            lines = (await self._out.read()).decode().splitlines()
            await self.process.wait()
        return lines

    async def send_line(self, word: str) -> None:
        self._in.write(f"{word}\n".encode())
        with suppress(ConnectionError):
            await self._in.drain()

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def wait_exit(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return await self.process.wait()

    async def kill(self) -> None:
        """Kill a process that is expected to run; fail if it ended by itself."""
        self.send_signal(signal.SIGKILL)
        assert await self.wait_exit() == -signal.SIGKILL, "the process ended before it was killed"

    async def clean_up(self) -> None:
        """Kill the process if it still runs."""
        self.send_signal(signal.SIGKILL)
        await self.wait_exit()

    async def wait_stopped(self) -> None:
        """Wait until it is stopped by a signal, or has ended."""
        while self.code is None and "T" not in _group_states(self.process.pid):  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0)

    async def wait_group_exit(self) -> bool:
        """Wait until its process group is empty; false after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT / 6):
                while not self.is_group_empty():  # noqa: ASYNC110  # there is no event for the end of a grandchild
                    await asyncio.sleep(0)
        return self.is_group_empty()

    def is_group_empty(self) -> bool:
        """Whether no live process of its group is left."""
        return not any(state != "Z" for state in _group_states(self.process.pid))


def _group_states(leader: int) -> Iterator[str]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader:
                yield state


async def start_program(program: str, plan: msgspec.Struct, **environment: str) -> ChildProcess:
    """Start a program of ``tests.faults.programs`` with a plan."""
    arguments = ["-m", f"tests.faults.programs.{program}", msgspec.json.encode(plan).decode()]
    return ChildProcess(await start_forked(arguments, without_coverage() | environment, limit=1 << 24))
