"""Clients that read slowly or not at all: nothing stored is lost, and memory stays bounded."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.server.test_app import Scripted
from tests.server.ws.conftest import Connect
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.ids import Cursor
from vaka.server.event_filter import EventFilter
from vaka.server.settings import ServerSettings
from vaka.server.ws.outbound import OutboundQueue
from vaka.server.ws.subscriptions import SessionFeed
from vaka.testing import say

ALICE = PRINCIPALS["alice"]
EVENTS = 24


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # the server does not announce it
        await asyncio.sleep(0)


async def test_a_client_that_does_not_read_is_closed_and_resumes_at_its_cursor(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    settings = ServerSettings(stall_timeout=0.2)
    async with serve([scripted(say("Hi."))], settings=settings) as served:
        session = await served.service.create_session(ALICE, id="long")
        for number in range(EVENTS):  # together more than the buffers of the sockets
            await session.checkpoint(f"{number} {'x' * 300_000}")
        async with client(served, receive_buffer=65_536) as socket:
            await socket.send("subscribe", session="long")
            await wait_until(lambda: len(served.service.streams) == 1)
            await wait_until(lambda: len(served.service.streams) == 0)  # the client has not read for too long
            code, reason = await socket.closed()
            seqs = [event["seq"] for event in socket.events]
            last = socket.events[-1]["id"]
            assert (code, reason) == (4108, f"frames were not read in time; last cursor: s1 {last}")
            assert seqs == list(range(1, seqs[-1] + 1))
            assert seqs[-1] < EVENTS
        async with client(served) as socket:
            subscribed = await socket.request("subscribe", session="long", after=last)
            assert subscribed["replayed"] == EVENTS + 2 - seqs[-1]
            while not socket.events or socket.events[-1]["id"] != subscribed["cursor"]:
                await socket.read()
            assert [event["seq"] for event in socket.events] == list(range(seqs[-1] + 1, EVENTS + 3))


async def test_a_client_that_does_not_read_its_replies_is_closed(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))], settings=ServerSettings(stall_timeout=0.2)) as served:
        await served.service.create_session(ALICE, id="large", metadata={"text": "x" * 15_000})
        async with client(served, receive_buffer=65_536) as socket:
            for _ in range(1000):
                await socket.send("state.get", session="large")
            await wait_until(lambda: len(served.service.streams) == 0)
            assert (await socket.closed())[0] == 4108


class Dictated:
    """A model that says what the test gives it."""

    name = "dictated"

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str] = asyncio.Queue()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        while piece := await self.pieces.get():
            yield TextChunk(piece)
        yield StopChunk("end")


def shown_text(frames: list[dict[str, Any]]) -> str:
    """Return the text that a client shows after these frames: deltas at their offsets, and snapshots."""
    text = ""
    for frame in frames:
        event = frame.get("event", {"type": ""})
        if event["type"] == "message.snapshot":
            text = event["data"]["text"]
        elif event["type"] == "text.delta" and event["data"]["offset"] == len(text):
            text += event["data"]["text"]
    return text


async def test_deltas_that_a_slow_client_misses_come_as_a_snapshot() -> None:
    model, queue = Dictated(), OutboundQueue(max_bytes=8000)
    frames: list[dict[str, Any]] = []

    async def read_until(condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            frame: dict[str, Any] = json.loads(await queue.take())
            frames.append(frame)
            if condition(frame):
                return frame

    async with vaka.Runtime(store="memory:") as runtime:
        session = await runtime.open(vaka.Agent("assistant", model=model), id="s")
        await session.send("Go.")
        feed = SessionFeed(runtime.hub, session.id, Cursor(), "s1", EventFilter(), queue)
        reading = asyncio.create_task(feed.run())
        text = ""
        while not queue.pressure:  # the client reads nothing
            text += "word " * 20
            model.pieces.put_nowait("word " * 20)
            await asyncio.sleep(0)
        for _ in range(300):  # more than a follower holds, and too long to be merged
            text += "more " * 1000
            model.pieces.put_nowait("more " * 1000)
        await wait_until(model.pieces.empty)
        await read_until(lambda _: shown_text(frames) == text)
        assert "message.snapshot" in [frame["event"]["type"] for frame in frames if "event" in frame]
        assert [frame["active"] for frame in frames if frame.get("ctl") == "pressure"][:2] == [True, False]
        model.pieces.put_nowait("")
        await read_until(lambda frame: frame.get("event", {}).get("type") == "turn.completed")
        stored = [frame["event"]["seq"] for frame in frames if "seq" in frame.get("event", {})]
        assert stored == list(range(1, stored[-1] + 1))
        reading.cancel()
        await asyncio.wait([reading])


async def test_a_queue_of_few_frames_loses_neither_text_nor_stored_events() -> None:
    model, queue = Dictated(), OutboundQueue(max_frames=5)
    async with vaka.Runtime(store="memory:") as runtime:
        session = await runtime.open(vaka.Agent("assistant", model=model), id="s")
        await session.update(title="Slow")
        feed = SessionFeed(runtime.hub, session.id, Cursor(), "s1", EventFilter(), queue)
        reading = asyncio.create_task(feed.run())
        await wait_until(lambda: len(queue) == 2)  # session.opened and session.updated
        for piece in ("Hello ", "there."):
            model.pieces.put_nowait(piece)
        await session.send("Go.")
        await wait_until(model.pieces.empty)
        frames: list[dict[str, Any]] = []
        while shown_text(frames) != "Hello there.":
            frames.append(json.loads(await queue.take()))
        stored = [frame["event"]["seq"] for frame in frames if "seq" in frame.get("event", {})]
        assert stored == list(range(1, stored[-1] + 1))
        model.pieces.put_nowait("")
        reading.cancel()
        await asyncio.wait([reading])
