"""Callers of MCP servers, of providers and of commands that are cancelled anywhere: nothing is left to report."""

import asyncio
import gzip
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from tests.faults.asyncio_reports import cancel_after, nothing_reported
from tests.mcp.http_servers import library_server, serving
from tests.mcp.test_servers_in_turns import SERVER
from tests.models.hostile.adapters import WIRES, adapter, close_model
from tests.models.transport.test_pool import HEAD, TRANSPORTS
from tests.tools.builtin.harness import ToolHarness
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.ports.model import Chunk, Prompt
from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import ModelUnavailable
from vaka.mcp.client import McpConnection
from vaka.mcp.definition import McpServer
from vaka.mcp.running_call import CallHandlers
from vaka.mcp.stdio import process_starter
from vaka.mcp.tools import ListedTool
from vaka.models.transport.pool import BodyReader, ConnectionPool, TransportFactory
from vaka.runtime.options import Project
from vaka.runtime.runtime import Runtime
from vaka.sandbox.linux import Bubblewrap
from vaka.sandbox.unconfined import Unconfined
from vaka.stores.memory import MemoryStore
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import PROMPT, ScriptedModel, call, say, try_stream
from vaka.testing.sandboxes import shell_command
from vaka.tools.builtin.search.grep import GrepEngine, run_grep

pytestmark = pytest.mark.every_loop
START = process_starter(dict(os.environ))


def mcp_server(*flags: str) -> McpServer:
    return McpServer(name="p", command=sys.executable, args=("-S", "-E", str(SERVER), *flags))


@pytest.mark.parametrize("name", ["echo", "fail", "progress", "pid"])
async def test_cancelled_callers_of_an_mcp_tool_report_nothing(name: str) -> None:
    async with nothing_reported():
        connection = McpConnection(mcp_server(), START)
        await connection.start()
        for steps in range(0, 600, 15):
            await cancel_after(steps, connection.call(ListedTool(name=name), {"text": "hi"}, CallHandlers()))
        assert connection.state == "ready"
        await connection.aclose()


async def test_cancelled_callers_of_an_mcp_server_over_http_report_nothing() -> None:
    async with nothing_reported(), serving(library_server().streamable_http_app()) as url:
        connection = McpConnection(McpServer(name="h", transport="http", url=f"{url}/mcp"), START)
        await connection.start()
        for steps in range(0, 300, 15):
            await cancel_after(steps, connection.call(ListedTool(name="add"), {"a": 1, "b": 2}, CallHandlers()))
        await connection.aclose()


@pytest.mark.parametrize("flag", ["", "die", "noise", "hang"])
async def test_cancelled_callers_of_an_mcp_server_that_starts_report_nothing(flag: str) -> None:
    async with nothing_reported():
        for steps in (0, 100, 1_000, 4_000):
            connection = McpConnection(mcp_server(*([flag] if flag else [])), START)
            await cancel_after(steps, connection.call(ListedTool(name="echo"), {"text": "hi"}, CallHandlers()))
            await connection.aclose()


class FailsWhenCancelled:
    """A model that calls a tool, and whose next answer ends with an error when its reader is cancelled."""

    name = "failing"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._first = ScriptedModel(call("mcp__p__sample"))

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        if prompt.tools:
            async with aclosing(self._first.stream(prompt)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        try:
            self.asked.set()
            await asyncio.Event().wait()
        finally:
            raise ModelUnavailable("the connection ended")


async def test_a_question_of_an_mcp_server_that_fails_when_it_is_withdrawn_is_not_reported() -> None:
    servers = {"p": {"command": sys.executable, "args": [str(SERVER), "sample"], "sampling": True}}
    model = FailsWhenCancelled()
    async with (
        nothing_reported(),
        Runtime(
            store=MemoryStore(), project=Project(mcp=servers), permissions=Permissions(allow=["mcp__p"])
        ) as runtime,
    ):
        session = await runtime.open(Agent("captain", model=model))
        running = asyncio.create_task(session.run("Go."))
        await model.asked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@WIRES
async def test_cancelled_callers_of_a_provider_report_nothing(wire: str) -> None:
    faults = [None, Fault(status=500), Fault(cut=300), Fault(reset_after=300), Fault(status=429)]
    async with nothing_reported(), FakeProvider(lambda _: say("Hi."), fault=faults * 12) as provider:
        model = adapter(wire, provider.url)
        for steps in range(0, 240, 4):
            await cancel_after(steps, try_stream(model, PROMPT))
        await close_model(model)


@pytest.mark.parametrize("direct", TRANSPORTS)
async def test_a_body_that_turns_out_damaged_after_its_reader_has_left_is_not_reported(
    direct: TransportFactory,
) -> None:
    """The rest of a body is read in the background, so that its connection can be used again."""
    events, rest = gzip.compress(b"data: 1\n\n"), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"content-encoding: gzip\r\nconnection: close\r\n\r\n" + events[:-8])
        await rest.wait()
        writer.write(b"not the checksum")
        writer.close()

    async with nothing_reported():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pool = ConnectionPool(direct=direct)
        request = httpx2.Request("GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        response = await pool.client_for(local=True).send(request, stream=True)
        body = BodyReader(response)
        assert await anext(body) == b"data: 1\n\n"
        pool.release(body)
        rest.set()
        await pool.wait_until_released()
        await pool.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("engine", ["python", "ripgrep"])
async def test_cancelled_callers_of_a_file_search_report_nothing(engine: GrepEngine, tmp_path: Path) -> None:
    bench = ToolHarness(tmp_path)
    for number in range(5):
        bench.write(f"{number}.txt", "some hit\n" * 50_000)
    async with nothing_reported():
        for steps in (*range(12), *range(20, 400, 40), 1_000, 4_000):
            await cancel_after(steps, run_grep(bench.files, {"pattern": "h[i]t"}, engine=engine))


async def run_command(sandbox: Sandbox, folder: Path, script: str) -> None:
    """Start a command, read its output and wait for its end; stop it if the caller is cancelled."""
    process = await sandbox.start(shell_command(script, folder))
    try:
        async with aclosing(process.output()) as output:
            async for _ in output:
                pass
        await process.wait()
    finally:
        await process.stop(0)


@pytest.mark.parametrize(
    "sandbox", [Bubblewrap(), Unconfined(), Unconfined(portable=True)], ids=["bubblewrap", "none", "portable"]
)
@pytest.mark.parametrize("script", ["echo hi; exec head -c 100000 /dev/zero", "kill -9 $$"])
async def test_cancelled_callers_of_a_command_report_nothing(sandbox: Sandbox, script: str, tmp_path: Path) -> None:
    async with nothing_reported():
        for steps in (*range(12), *range(20, 400, 20)):
            await cancel_after(steps, run_command(sandbox, tmp_path, script))
            await cancel_after(steps, run_command(sandbox, tmp_path / "missing", script))
