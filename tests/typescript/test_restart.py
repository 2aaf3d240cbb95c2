"""A client that follows a session while its server stops and another one starts misses nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import vaka
from tests.server.conftest import Served, serve_agents
from tests.typescript.client_build import NODE, needs_packages
from tests.unmeasured import without_coverage
from vaka.testing import ScriptedModel, say

pytestmark = needs_packages


class Address:
    """An address that stays the same while the server behind it changes; without a server it closes connections.

    The port of a server that has ended may belong to another program already.
    """

    def __init__(self) -> None:
        self.port = self.target = 0
        self._pipes: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield
        for task in self._pipes:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.target:
            writer.close()
            return
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, inner_writer), (inner_reader, writer)):
            task = asyncio.create_task(_pipe(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        return
    finally:
        sink.close()


async def run_turn(served: Served, text: str) -> None:
    async with served.client() as client:
        answer = await client.post("/api/v1/sessions/s/turns", json={"input": text, "agent": "guide"})
        assert answer.json()["status"] == "completed"


async def read_until(output: asyncio.StreamReader, events: dict[str, list[int]], wanted: str) -> None:
    """Read the lines of the client until both of its streams have had an event of a type."""
    missing = {"sse", "ws"}
    while missing:
        transport, seq, kind = json.loads(await output.readline())
        events[transport].append(seq)
        if kind == wanted:
            missing.discard(transport)


async def test_streams_go_on_when_their_server_is_replaced(client_package: Path, tmp_path: Path) -> None:
    address, store = Address(), f"sqlite:///{tmp_path / 'log.db'}"
    events: dict[str, list[int]] = {"sse": [], "ws": []}
    async with address.listen():
        agent = vaka.Agent("guide", model=ScriptedModel(say("One."), say("Two.")))
        async with serve_agents([agent], store=store) as served:
            address.target = served.port
            await run_turn(served, "First.")
            process = await asyncio.create_subprocess_exec(
                NODE,
                client_package / "test" / "restart.mjs",
                f"http://127.0.0.1:{address.port}",
                "alice",
                stdout=asyncio.subprocess.PIPE,
                env=without_coverage(),
            )
            assert process.stdout is not None
            await read_until(process.stdout, events, "turn.completed")
            address.target = 0
        async with serve_agents([agent], store=store) as served:
            address.target = served.port
            await run_turn(served, "Second.")
            await read_until(process.stdout, events, "turn.completed")
            async with served.client() as client:
                await client.post("/api/v1/sessions/s/close")
            await read_until(process.stdout, events, "session.closed")
            reconnected: Any = json.loads(await process.stdout.readline())
            await process.wait()
    assert reconnected == [True, True]
    assert events["sse"] == events["ws"] == list(range(1, len(events["sse"]) + 1))
