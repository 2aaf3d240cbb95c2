"""A connection leaves nothing behind, however it ends, and is not tried again too early."""

import asyncio
import os
import select
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

import vaka
from tests.mcp.http_servers import library_server, serving
from tests.mcp.test_servers_in_turns import SERVER
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.errors import McpError
from vaka.mcp.client import McpConnection
from vaka.mcp.definition import McpServer
from vaka.mcp.middleware import McpTools
from vaka.mcp.running_call import CallHandlers
from vaka.mcp.stdio import ServerLog, ServerStreams, process_starter
from vaka.mcp.tools import ListedTool
from vaka.runtime.middleware_services import RuntimeServices
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

START = process_starter(dict(os.environ))
ECHO = ListedTool(name="echo", reads=True)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()


async def connect_and_close(server: McpServer, cycles: int) -> None:
    """Connect and close; every third time without waiting for the connection."""
    for number in range(cycles):
        connection = McpConnection(server, START)
        if number % 3:
            await connection.start()
            assert connection.state == "ready", connection.reason
        else:
            connection.begin()
            await asyncio.sleep(0)
        await connection.aclose()


@pytest.mark.parametrize("cycles", [9, pytest.param(1_000, marks=[pytest.mark.exhaustive, pytest.mark.timeout(900)])])
async def test_cycles_of_connecting_and_closing_leave_no_task_no_process_and_no_file(cycles: int) -> None:
    stdio = McpServer(name="p", command=sys.executable, args=("-S", "-E", str(SERVER)))
    async with serving(library_server().streamable_http_app()) as url:
        http = McpServer(name="h", transport="http", url=f"{url}/mcp")
        for server in (stdio, http):
            await connect_and_close(server, 3)
            before = (len(asyncio.all_tasks()), open_files(), children())
            await connect_and_close(server, cycles)
            after = (len(asyncio.all_tasks()), open_files(), children())
            assert after[2] == before[2]
            assert after[0] <= before[0] + 2  # the HTTP server of this process keeps some for a moment
            assert after[1] <= before[1] + 2


async def test_a_server_that_keeps_failing_is_left_alone_for_longer_and_longer(tmp_path: Path) -> None:
    now = 0.0
    log = tmp_path / "starts"
    script = f"echo x >> {log}; exit 1"
    server = McpServer(name="p", command="/bin/sh", args=("-c", script))
    connection = McpConnection(server, START, clock=lambda: now)
    for wait, starts in ((0.0, 1), (1.0, 1), (4.0, 2), (5.0, 2), (5.0, 3)):
        now += wait
        with pytest.raises(McpError, match="the MCP server 'p' is not available"):
            await connection.call(ECHO, {"text": "hi"}, CallHandlers())
        assert log.read_text("ascii").count("x") == starts
    await connection.aclose()


async def test_a_server_that_fails_again_is_reported_once() -> None:
    now, may_fail = 0.0, asyncio.Event()
    may_fail.set()

    @asynccontextmanager
    async def start(server: McpServer, log: ServerLog) -> AsyncGenerator[ServerStreams]:
        await may_fail.wait()
        if may_fail.is_set():
            raise McpError("it does not start")
        yield cast("ServerStreams", None)

    connection = McpConnection(McpServer(name="p", command="x"), start, clock=lambda: now)
    store = MemoryStore()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Let time pass until another attempt begins, and then let that fail."""
        nonlocal now
        state = connection.state
        if state == "connecting":
            may_fail.set()
            await connection.start()
        else:
            may_fail.clear()
            now += 100
        return state

    model = ScriptedModel(call("wait"), call("wait"), say("Done."))
    async with runtime(store) as rt:
        services = RuntimeServices(rt.options, rt.store, rt.env, rt.secrets.add)
        tools = McpTools([connection.server], lambda _: connection, services)
        await (await rt.open(agent(model, wait, middleware=[tools]), id="s")).run("Go.")
    await tools.close()
    log = await read_log(store, "s")
    assert [result.text for result in results_by_call(log).values()] == ["failed", "connecting"]
    assert [event.type for event in log].count("mcp.changed") == 1


@pytest.mark.every_loop
async def test_a_server_that_ignores_the_end_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 1000 & echo $! $$ > {pids}; exec 3<&0; {sys.executable} -S -E {SERVER} <&3; wait"
    start = process_starter(dict(os.environ), patience=0.1)
    connection = McpConnection(McpServer(name="p", command="/bin/sh", args=("-c", script)), start)
    await connection.start()
    assert connection.state == "ready", connection.reason
    processes = [os.pidfd_open(int(pid)) for pid in pids.read_text("ascii").split()]
    await connection.aclose()
    for process in processes:
        ended, _, _ = select.select([process], [], [], 30)
        os.close(process)
        assert ended
