"""Commands on systems that have no sandbox of ours: a process group, and what the standard library can do."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Child
from collections.abc import AsyncGenerator, Mapping

from vaka.core.ports.sandbox import Command, Stream
from vaka.core.types.errors import SandboxError

PIECE = 64 * 1024
_WINDOWS = sys.platform == "win32"


async def start_portably(command: Command, env: Mapping[str, str]) -> "Portable":
    """Start a command in a process group of its own."""
    if not command.argv or not command.argv[0]:
        raise SandboxError("a command needs at least the name of a program")
    try:
        child = await asyncio.create_subprocess_exec(
            *command.argv, cwd=command.cwd, env=dict(env), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=PIECE,
            start_new_session=not _WINDOWS,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise SandboxError(f"{command.argv[0]!r} cannot be started: {error}") from error
    return Portable(child, command.stdin)


class Portable:
    """A command that runs in a process group; implements ``Process``."""

    def __init__(self, child: Child, stdin: bytes) -> None:
        self._child = child
        self._claimed = False
        self._feeding = asyncio.get_running_loop().create_task(self._feed(stdin))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    async def output(self) -> AsyncGenerator[tuple[Stream, bytes]]:
        """Yield what it prints as it prints it."""
        if self._claimed:
            raise SandboxError("the output of a command can be read once")
        self._claimed = True
        pieces: asyncio.Queue[tuple[Stream, bytes]] = asyncio.Queue(1)
        tasks = [asyncio.create_task(self._pump(stream, pieces)) for stream in ("stdout", "stderr")]
        try:
            left = len(tasks)
            while left:
                stream, data = await pieces.get()
                if data:
                    yield stream, data
                else:
                    left -= 1
        finally:
            for task in tasks:
                task.cancel()

    async def wait(self) -> int:
        """Return its exit code; minus the signal that ended it."""
        if not self._claimed:
            self._claimed = True
            await asyncio.gather(*(_drop(reader) for reader in (self._child.stdout, self._child.stderr)))
        return await self._child.wait()

    async def stop(self, grace: float = 2.0) -> None:
        """End its process group: asked first, killed after ``grace`` seconds."""
        self._send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._child.wait()), grace)
        self._send(signal.SIGTERM if _WINDOWS else signal.SIGKILL)
        await self._child.wait()
        self._feeding.cancel()

    async def _feed(self, stdin: bytes) -> None:
        writer = self._child.stdin
        if writer is None:
            return
        with contextlib.suppress(ConnectionError):
            writer.write(stdin)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _pump(self, stream: Stream, pieces: "asyncio.Queue[tuple[Stream, bytes]]") -> None:
        reader = self._child.stdout if stream == "stdout" else self._child.stderr
        data = b"."
        while data and reader is not None:
            data = await reader.read(PIECE)
            await pieces.put((stream, data))

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            if _WINDOWS:
                self._child.kill() if number != signal.SIGTERM else self._child.terminate()
            else:
                os.killpg(self._child.pid, number)


async def _drop(reader: asyncio.StreamReader | None) -> None:
    while reader is not None and await reader.read(PIECE):
        pass
