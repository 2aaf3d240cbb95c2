"""Run commands without a sandbox: a process group, limits and a scrubbed environment; nothing is enforced."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Child
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Literal

from vaka.core.ports.sandbox import Command, Process, RemovedPath
from vaka.core.types.errors import SandboxError
from vaka.core.types.progress import OutputStream
from vaka.sandbox.sensitive import build_command_environment
from vaka.system.event_loops import start_program, write_to_stream

CHUNK_BYTES = 64 * 1024

_IS_WINDOWS = sys.platform == "win32"


async def start_portable_process(command: Command, env: Mapping[str, str]) -> "PortableProcess":
    """Start a command in a process group of its own."""
    if not command.argv or not command.argv[0]:
        raise SandboxError("a command needs at least the name of a program")
    try:
        child = await start_program(
            command.argv,
            cwd=command.cwd,
            env=env,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=CHUNK_BYTES,
            start_new_session=not _IS_WINDOWS,
        )
    except (OSError, ValueError) as error:
        raise SandboxError(f"{command.argv[0]!r} cannot be started: {error}") from error
    return PortableProcess(child, command.stdin)


class PortableProcess:
    """A command in a process group of its own; implements ``Process``."""

    def __init__(self, child: Child, stdin: bytes | Literal["pipe"]) -> None:
        self._child = child
        self._output_claimed = self._output_abandoned = False
        self._stdin_lock = asyncio.Lock()
        self._stdin_task = None if stdin == "pipe" else asyncio.create_task(self._send_stdin(stdin))

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def removed(self) -> Sequence[RemovedPath]:
        """Nothing is protected without a sandbox."""
        return ()

    def announce(self, path: str) -> None:
        """Do nothing: nothing is removed."""

    async def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield the output as it is printed."""
        if self._output_claimed:
            raise SandboxError("the output of a command can be read once")
        self._output_claimed = True
        chunks: asyncio.Queue[tuple[OutputStream, bytes]] = asyncio.Queue(1)
        tasks = [asyncio.create_task(self._pump_stream(stream, chunks)) for stream in ("stdout", "stderr")]
        open_streams = len(tasks)
        try:
            while open_streams:
                stream, data = await chunks.get()
                if data:
                    yield stream, data
                else:
                    open_streams -= 1
        finally:
            self._output_abandoned = open_streams > 0
            for task in tasks:
                task.cancel()

    async def write_stdin(self, data: bytes) -> None:
        """Write to stdin; return when the pipe, or a small buffer before it, has taken all of it."""
        writer = self._child.stdin
        if self._stdin_task is not None or writer is None:
            raise SandboxError("the command was started without an open stdin; start it with stdin='pipe'")
        async with self._stdin_lock:
            for start in range(0, len(data), CHUNK_BYTES):
                try:
                    await writer.drain()  # first: a cancelled call may have left data in the buffer
                    write_to_stream(writer, data[start : start + CHUNK_BYTES])
                    await writer.drain()
                except ConnectionError as error:
                    raise SandboxError("the stdin of the command is closed") from error

    def close_stdin(self) -> None:
        """Close stdin: the command reads the end of the file."""
        if self._child.stdin is not None:
            self._child.stdin.close()

    async def wait(self) -> int:
        """Return the exit code, or minus the signal that ended the process."""
        if not self._output_claimed:
            self._output_claimed = True
            await self._discard_output()
        discarding = asyncio.create_task(self._discard_output()) if self._output_abandoned else None
        await self._wait_exit()
        if discarding is not None:
            discarding.cancel()
        return self._child.returncode or 0

    async def stop(self, grace: float = 2.0) -> None:
        """Send SIGTERM to the process group, and SIGKILL after ``grace`` seconds."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._wait_exit()
        self._signal_group(signal.SIGTERM if _IS_WINDOWS else signal.SIGKILL)
        await self._wait_exit()
        if self._stdin_task is not None:
            self._stdin_task.cancel()
        self.close_stdin()
        if self._output_abandoned or not self._output_claimed:
            transport = getattr(self._child, "_transport", None)  # the only way to close pipes before their end
            if transport is not None:
                transport.close()

    async def _wait_exit(self) -> None:
        """Wait for the exit of the process; asyncio's own ``wait`` also waits until its output has been read."""
        pause = 0.001
        while self._child.returncode is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.02)

    async def _discard_output(self) -> None:
        await asyncio.gather(*(_read_to_end(reader) for reader in (self._child.stdout, self._child.stderr)))

    async def _send_stdin(self, stdin: bytes) -> None:
        writer = self._child.stdin
        if writer is None:
            return
        with contextlib.suppress(ConnectionError):
            write_to_stream(writer, stdin)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _pump_stream(self, stream: OutputStream, chunks: "asyncio.Queue[tuple[OutputStream, bytes]]") -> None:
        reader = self._child.stdout if stream == "stdout" else self._child.stderr
        data = b"."
        while data and reader is not None:
            data = await reader.read(CHUNK_BYTES)
            await chunks.put((stream, data))

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            if _IS_WINDOWS:
                self._child.kill() if number != signal.SIGTERM else self._child.terminate()
            else:
                os.killpg(self._child.pid, number)


async def _read_to_end(reader: asyncio.StreamReader | None) -> None:
    while reader is not None and await reader.read(CHUNK_BYTES):
        pass


class Unconfined:
    """Commands have all permissions of this user. Limits still apply, and all their processes end with them."""

    name = "none"
    enforces: frozenset[str] = frozenset()

    def __init__(self, *, allow_env: Iterable[str] = (), portable: bool = sys.platform != "linux") -> None:
        """``portable``: use process groups only; processes that leave their group are then not found."""
        self._allow_env = tuple(allow_env)
        self._portable = portable

    async def start(self, command: Command) -> Process:
        """Start a command. Raises ``SandboxError`` when it cannot be started."""
        proxy = command.proxy if command.proxy and not command.network else ""
        if proxy and not proxy.startswith("http://"):
            raise SandboxError(
                f"without a sandbox the proxy of a command must have an address like http://…, not {proxy!r}"
            )
        if self._portable:
            return await start_portable_process(
                command, build_command_environment(os.environ, command.env, self._allow_env, proxy=proxy)
            )
        from vaka.sandbox.warden_client import build_job, start_job  # noqa: PLC0415  # uses names of Linux only

        return await start_job(build_job(self.name, command, self._allow_env, {}, proxy=proxy), command.stdin)
