"""MCP servers that run in the sandbox of commands."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from vaka.core.ports.sandbox import Process
from vaka.core.types.errors import McpError, SandboxError
from vaka.mcp.definition import McpServer
from vaka.mcp.stdio import EXIT_SECONDS, ServerLog, ServerStreams, StartServer


class StartInSandbox(Protocol):
    """Starts a program in the sandbox of commands. Raises ``SandboxError``."""

    async def __call__(self, argv: tuple[str, ...], cwd: str, /, *, env: Mapping[str, str]) -> Process: ...


def sandboxed_servers(start_program: StartInSandbox, folder: str) -> StartServer:
    """Return a function that starts MCP servers in the sandbox, in ``folder`` unless their definition has a ``cwd``."""

    @asynccontextmanager
    async def start(server: McpServer, log: ServerLog) -> AsyncGenerator[ServerStreams]:
        argv, cwd = (server.command, *server.args), str(_absolute(folder, server.cwd))
        try:
            process = await start_program(argv, cwd, env=server.env)
        except SandboxError as error:
            raise McpError(f"{server.command!r} cannot be started in the sandbox: {error}") from error
        streams = _SandboxedStreams(process, log)
        try:
            yield streams
        finally:
            await streams.stop()

    return start


def _absolute(folder: str, cwd: str) -> Path:
    return Path(folder, cwd).resolve()


class _SandboxedStreams:
    """The streams of a server; implements ``ServerStreams``."""

    def __init__(self, process: Process, log: ServerLog) -> None:
        self._process, self._log = process, log
        self._output = process.output()

    async def read(self) -> bytes:
        async for stream, data in self._output:
            if stream == "stdout":
                return data
            self._log.write(data)
        return b""

    async def write(self, data: bytes) -> None:
        try:
            await self._process.write_stdin(data)
        except SandboxError as error:
            raise BrokenPipeError(str(error)) from error

    async def stop(self) -> None:
        """Close the input, wait, then end the server with its children."""
        await self._output.aclose()
        self._process.close_stdin()
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self._process.wait()
        await self._process.stop(EXIT_SECONDS)
