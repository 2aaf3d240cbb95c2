"""A client of a server whose connections are cut: nothing is lost and nothing comes twice."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

import vaka
from tests.server.conftest import Served, serve_agents
from vaka.cli.remote.client import ServerClient, problem_of
from vaka.cli.remote.runtime import RemoteRuntime
from vaka.content import Text
from vaka.core.ports.store import SessionQuery
from vaka.errors import InvalidInput, NotFound, VakaError
from vaka.testing import ScriptedModel, call, say


class CuttingProxy:
    """Forwards connections to a server, and closes the first ones after some bytes of the answer."""

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._port, self.cuts = port, cuts
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        """The open connections; the event loop has only weak references to its tasks."""

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = self.cuts.pop(0) if self.cuts else 1 << 60
        self._tasks.add(asyncio.create_task(self._forward(reader, writer, left)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        request = asyncio.create_task(self._copy(reader, to_server, 1 << 60))
        try:
            await self._copy(from_server, writer, left)
        finally:
            request.cancel()
            for stream in (writer, to_server):
                stream.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int) -> None:
        while left > 0 and (data := await source.read(65536)):
            target.write(data[:left])
            await target.drain()
            left -= len(data)


@asynccontextmanager
async def proxied(served: Served, *cuts: int) -> AsyncGenerator[tuple[CuttingProxy, ServerClient]]:
    proxy = CuttingProxy(served.port, list(cuts))
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with ServerClient(f"http://127.0.0.1:{port}", "alice") as client:
            yield proxy, client
    finally:
        server.close()
        await proxy.close()


@vaka.tool(effect="read")
def look() -> str:
    """Look around."""
    return "water"


@vaka.tool(effect="read")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


def agent_of(*script: Any) -> vaka.Agent[Any]:
    return vaka.Agent("guide", model=ScriptedModel(*script), tools=[look])


@pytest.mark.parametrize("cut", [0, 90, 400, 900, 1500, 2600])
async def test_the_events_of_a_turn_are_complete_though_its_stream_is_cut(cut: int) -> None:
    async with serve_agents([agent_of(call("look"), say("Water, as far as one can see."))]) as served:
        async with ServerClient(served.url, "alice") as direct:
            session = await RemoteRuntime(direct, "guide").open(id="s")
            key = await session.send("Look.")
            async with aclosing(session.follow_turn(key)) as events:
                whole = [event async for event in events if event.seq]
        async with proxied(served, cut, cut) as (proxy, client):
            async with aclosing(client.follow(f"/sessions/s/turns/{key}")) as events:
                assert [event.id async for event in events if event.seq] == [event.id for event in whole]
            assert proxy.connections >= 2
    assert whole[-1].type == "turn.completed"


async def test_an_input_is_sent_again_after_a_lost_answer_and_runs_once() -> None:
    async with serve_agents([agent_of(say("Once."))]) as served, proxied(served, 1 << 60) as (proxy, client):
        session = await RemoteRuntime(client, "guide").open(id="s")
        proxy.cuts[:] = [0, 10]
        async with ServerClient(client.url, "alice") as other:
            again = await RemoteRuntime(other).open(id="s")
            assert again.id == session.id
            key = await again.send("Go.")
        assert (await session.find_turn(key))["status"] in ("completed", "running")
        assert len((await client.get("/sessions/s/turns"))["data"]) == 1


async def test_a_session_is_followed_on_after_the_server_has_ended_its_streams() -> None:
    async with serve_agents([agent_of(say("One."), say("Two."))]) as served:
        notes: list[str] = []
        async with ServerClient(served.url, "alice", on_lost=notes.append) as client:
            runtime = RemoteRuntime(client, "guide")
            session = await runtime.open(id="s")
            async with aclosing(runtime.follow("s", after="0")) as events:
                await session.send("Go.")
                async for event in events:
                    if event.type == "turn.completed":
                        break
                served.service.streams.cut_followers()
                await session.send("Go on.")
                seen = [event.type async for event in _until(events, "turn.completed")]
        assert seen[-1] == "turn.completed"


async def _until(events: AsyncGenerator[vaka.Event], kind: str) -> AsyncGenerator[vaka.Event]:
    async for event in events:
        yield event
        if event.type == kind:
            return


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "", InvalidInput),
        (404, "", NotFound),
        (409, "busy", VakaError),
        (409, "already_decided", NotFound),
        (401, "", VakaError),
        (403, "", VakaError),
        (503, "", VakaError),
        (500, "", VakaError),
    ],
)
def test_a_problem_of_the_server_is_the_error_that_a_local_turn_has(status: int, code: str, kind: type) -> None:
    body = b'{"detail": "no luck", "code": "%s"}' % code.encode()
    assert isinstance(problem_of(status, body), kind)
    assert "no luck" in str(problem_of(status, body))
    assert f"status {status}" in str(problem_of(status, b"<html>"))


async def test_the_sessions_of_a_server_are_listed_changed_and_deleted() -> None:
    script = [say("One."), say("Two."), say("Three.")]
    async with serve_agents([agent_of(*script)]) as served, ServerClient(f"{served.url}/api/v1/", "alice") as client:
        runtime = RemoteRuntime(client, "guide")
        session = await runtime.open(id="s")
        async with aclosing(session.follow_turn(await session.send([Text(text="Go.")]))) as events:
            ended = [event async for event in events][-1]
        assert ended.type == "turn.completed"
        assert not await session.withdraw((await session.find_turn())["key"])
        copied = await session.fork()
        page = await runtime.store.sessions.list(SessionQuery(limit=10))
        assert {info.id for info in page.sessions} == {"s", copied.id}
        compacted = await session.compact("Keep all.")
        assert (compacted.event, compacted.skipped) == (None, "")  # there is nothing to leave out
        await session.rewind("1", interrupt=True)
        stored = [event async for event in runtime.store.events.read("s")]
        assert stored[-1].type == "session.reverted"
        assert [event.seq async for event in runtime.store.events.read("s", after=1, upto=2)] == [2]
        await runtime.store.sessions.delete(copied.id)
        assert await runtime.store.sessions.find(copied.id) is None
        with pytest.raises(NotFound, match="no turn"):
            await (await runtime.open(id="new")).find_turn()


async def test_a_queued_input_is_taken_back_and_a_running_turn_is_cancelled() -> None:
    model = ScriptedModel(call("wait"), say("Never."))
    agent = vaka.Agent("waiter", model=model, tools=[wait])
    async with serve_agents([agent]) as served, ServerClient(served.url, "alice") as client:
        session = await RemoteRuntime(client).open(id="s")
        first = await session.send("Wait.")
        async with aclosing(session.resume()) as events:
            async for event in events:
                if event.type == "tool.started":
                    break
        queued = await session.send("Later.")
        assert await session.withdraw(queued)
        await session.interrupt("enough")
        async with aclosing(session.follow_turn(first)) as events:
            assert [event.type async for event in events][-1] == "turn.interrupted"
        with pytest.raises(VakaError, match="no unfinished turn"):
            await session.interrupt()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "does not answer as a server of vaka does"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "does not describe a session"),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "the server answers with status 302"),
    ],
)
async def test_another_program_at_the_address_is_recognized(answer: bytes, problem: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "localhost", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    async with ServerClient(f"http://localhost:{port}") as client:
        with pytest.raises(InvalidInput, match=problem):
            await RemoteRuntime(client).open(id="s")
    server.close()
