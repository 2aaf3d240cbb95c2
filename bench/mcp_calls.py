"""What a call of an MCP tool costs through vaka, compared with the library ``mcp`` alone."""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from bench.row import Row
from vaka.core.ports.tool import ToolContext
from vaka.mcp.client import McpConnection
from vaka.mcp.definition import McpServer
from vaka.mcp.stdio import process_starter
from vaka.mcp.tools import McpTool
from vaka.tools.arguments import ArgumentReader

COMMAND = (sys.executable, "-m", "bench.mcp_calls")
ARGUMENTS = {"a": 1, "b": 2}


def serve() -> None:
    """Serve one tool over stdio, with the library."""
    from mcp.server.mcpserver import MCPServer  # only the server's process needs it

    server = MCPServer("bench", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server.run("stdio")


async def time_calls(call: Callable[[], Awaitable[Any]], count: int) -> float:
    """Return the milliseconds of one call."""
    begin = time.perf_counter()
    for _ in range(count):
        await call()
    return (time.perf_counter() - begin) / count * 1000


async def compare_calls(mode: str, count: int, repeats: int) -> tuple[list[float], list[float]]:
    """Return the times of calls through vaka and through the library, in turns, each with a server of its own."""
    from mcp import Client, StdioServerParameters  # heavy, and part of what is measured

    server = McpServer(name="bench", command=COMMAND[0], args=COMMAND[1:], connect_timeout=60.0)
    connection = McpConnection(server, process_starter(dict(os.environ)))
    await connection.start()
    tool = McpTool(connection, connection.tools[0], "mcp__bench__add", lambda schema: ArgumentReader(schema).read)
    context = cast("ToolContext", SimpleNamespace(call="call_1", session="s"))

    async def call_tool() -> None:
        tool.parse(dict(ARGUMENTS))
        result = await tool.call(context, ARGUMENTS)
        assert result.text == "3"

    bare = StdioServerParameters(command=COMMAND[0], args=list(COMMAND[1:]), env=dict(os.environ))
    async with Client(bare, mode=mode) as client:
        ours: list[float] = []
        raw: list[float] = []
        for _ in range(repeats + 1):
            ours.append(await time_calls(call_tool, count))
            raw.append(await time_calls(lambda: client.call_tool("add", ARGUMENTS), count))
    await connection.aclose()
    return ours[1:], raw[1:]


def measure_calls(quick: bool) -> list[Row]:
    """Measure calls over stdio."""
    ours, raw = asyncio.run(compare_calls("auto", 50 if quick else 300, 3 if quick else 7))
    ratio = statistics.median(one / other for one, other in zip(ours, raw, strict=True))
    value = Row(
        name="MCP: call a tool over stdio",
        value=statistics.median(ours),
        unit="ms",
        low=min(ours),
        high=max(ours),
        raw=statistics.median(raw),
        ratio=ratio,
        note="raw: the library mcp alone",
    )
    return [value, Row(name="MCP: call, relative to the library", value=ratio, unit="×", target=1.3)]


if __name__ == "__main__":
    serve()
