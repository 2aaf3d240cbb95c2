"""The process of a stdio server: its pipes, its log, and its end."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from vaka.core.types.errors import McpError
from vaka.mcp.definition import McpServer
from vaka.system.event_loops import start_program, write_to_stream
from vaka.system.parent_death import bind_to_parent

READ_BYTES = 1 << 16
LOG_BYTES = 1 << 16
"""The most bytes that are kept of a server's log output."""
EXIT_SECONDS = 2.0
"""How long a server may take to end after its input has ended, and again after SIGTERM."""


class ServerLog:
    """The last bytes that a server wrote to stderr, or to stdout besides messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        self._data += data
        del self._data[:-LOG_BYTES]

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last line with text, shortened."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class ServerStreams(Protocol):
    """The input and output of a running server, as bytes."""

    async def read(self) -> bytes:
        """Return the next bytes of its output, ``b""`` at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its input. Raises ``OSError`` when the server has ended."""
        ...


StartServer: TypeAlias = "Callable[[McpServer, ServerLog], AbstractAsyncContextManager[ServerStreams]]"
"""Starts the process of a stdio server; leaving the context ends it, with its children."""


class _Pipes:
    def __init__(self, process: asyncio.subprocess.Process, patience: float) -> None:
        self._patience = patience
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        self.process = process
        self.input = process.stdin
        self.output = process.stdout
        self.errors = process.stderr

    async def read(self) -> bytes:
        return await self.output.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        write_to_stream(self.input, data)
        await self.input.drain()

    async def copy_errors(self, log: ServerLog) -> None:
        while data := await self.errors.read(READ_BYTES):
            log.write(data)

    async def stop(self) -> None:
        """Close the input, wait, then end the whole process group."""
        draining = asyncio.create_task(self._drain())  # a server that is blocked on its output could not end
        try:
            self.input.close()
            if not await self._exits():
                self._end_group(kill=False)
                await self._exits()
        finally:
            self._end_group(kill=True)  # children that outlived the server, too
            draining.cancel()
            await self._exits()
            self._close_pipes()

    async def _drain(self) -> None:
        while await self.read():
            pass

    async def _exits(self) -> bool:
        """Wait for the end of the process; not with ``wait()``, which also waits for children that have its pipes."""
        deadline, pause = time.monotonic() + self._patience, 0.001
        while self.process.returncode is None and time.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.02)
        return self.process.returncode is not None

    def _end_group(self, *, kill: bool) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL if kill else signal.SIGTERM)

    def _close_pipes(self) -> None:
        """Close the pipes also when a process outside of the group still has their other ends."""
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()


def _check_program(command: str, env: Mapping[str, str], cwd: str | None) -> None:
    """Raise ``McpError`` for a program that does not exist; its own start would report that only in the log."""
    if sys.platform != "linux" or (cwd is not None and not Path(cwd).is_dir()):
        return  # the start of the process reports it
    path = str(Path(cwd or ".", command)) if "/" in command else command
    if shutil.which(path, path=env.get("PATH", os.defpath)) is not None:
        return
    if "/" in command and Path(path).exists():
        raise McpError(f"{command!r} cannot be started: it is not an executable file")
    raise McpError(f"there is no {command!r}; install it, or correct the definition")


def process_starter(environment: Mapping[str, str], folder: str = "", *, patience: float = EXIT_SECONDS) -> StartServer:
    """Return what starts servers as plain processes, with an environment to which a definition adds its own."""

    @asynccontextmanager
    async def start(server: McpServer, log: ServerLog) -> AsyncGenerator[ServerStreams]:
        env = {**environment, **server.env}
        cwd = server.cwd or folder or None
        _check_program(server.command, env, cwd)
        try:
            process = await start_program(
                bind_to_parent([server.command, *server.args]),
                env=env,
                cwd=cwd,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=1 << 20,
            )
        except FileNotFoundError as error:
            missing = cwd if cwd and error.filename == cwd else server.command
            raise McpError(f"there is no {missing!r}; install it, or correct the definition") from error
        except (OSError, ValueError) as error:
            raise McpError(f"{server.command!r} cannot be started: {error}") from error
        pipes = _Pipes(process, patience)
        copying = asyncio.create_task(pipes.copy_errors(log))
        try:
            yield pipes
        finally:
            try:
                await pipes.stop()
            finally:
                copying.cancel()
                await asyncio.wait([copying])

    return start
