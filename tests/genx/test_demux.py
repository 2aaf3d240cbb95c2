"""The demultiplexer: one stream per agent, stream id and kind, and readers that are slow, fail, leave or never come."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, runtime, wait_until
from vaka.config.options import Models
from vaka.core.types.errors import Closed, InvalidInput, TurnError
from vaka.genx.agent_events import AgentEventProjection
from vaka.genx.demux import (
    AgentStream,
    Demultiplexer,
    RoundEnd,
    Routed,
    StreamKey,
    StreamPiece,
    frame_of,
    frames,
)
from vaka.testing.models import ScriptedModel, call, fail, say

EOF = RoundEnd(kind="eof", agent_def="a", agent_state_id="s")


def piece(stream: str, data: Any = "x", *, ends: bool = False, kind: str = "text") -> StreamPiece:
    return StreamPiece(key=StreamKey("s", stream, kind), agent_def="a", data=data, ends=ends)


async def source(items: Iterable[Routed | Exception]) -> AsyncGenerator[Routed]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


def route(item: Routed) -> list[Routed]:
    return [item]


def demultiplex(*items: Routed | Exception, **options: Any) -> Demultiplexer[Routed]:
    return Demultiplexer(source(items), route, **options)


async def test_every_agent_of_a_turn_has_its_own_streams() -> None:
    child = agent(ScriptedModel(say("Rain today.", agent="weather")), name="weather", description="Knows it.")
    model = ScriptedModel(call("weather", prompt="Hilo?"), say("It rains in Hilo."))
    async with runtime() as rt:
        session = await rt.open(agent(model, child), id="s")
        texts: dict[str, str] = {}
        tools: list[Any] = []

        async def read(stream: AgentStream) -> None:
            if stream.key.kind == "tool":
                tools.extend([part.data["event"] async for part in stream])
            else:
                texts[stream.agent_def] = await stream.text()

        projection = AgentEventProjection(session.id)
        async with Demultiplexer(session.stream("Hi."), projection.route, on_new_stream=read) as demultiplexer:
            await demultiplexer.join()
        assert texts == {"weather": "Rain today.", "assistant": "It rains in Hilo."}
        assert tools == ["tool_start", "tool_done"]
        assert demultiplexer.last_end is not None
        assert demultiplexer.last_end.kind == "eof"
        assert not demultiplexer.errors
        async with aclosing(session.follow()) as events:
            stored = Demultiplexer(events, AgentEventProjection(session.id).route)
            async with stored:
                keys: list[str] = []
                async for stream in stored:
                    keys.append(stream.key.kind)
                    if len(keys) == 3:
                        break
    assert keys == ["tool", "text", "text"]


async def test_streams_end_with_the_round_and_raise_its_error() -> None:
    failed = RoundEnd(kind="error", agent_def="a", agent_state_id="s", code="model", message="refused")
    async with demultiplex(piece("1"), EOF, piece("2"), failed, piece("3"), piece("4", ends=True)) as demultiplexer:
        streams = [stream async for stream in demultiplexer]
        assert [stream.ending for stream in streams] == ["eof", "error", "closed", "end"]
        assert await streams[0].text() == "x"
        with pytest.raises(TurnError, match="refused") as raised:
            await streams[1].text()
        assert raised.value.code == "model"
        assert demultiplexer.streams == {}


async def test_an_error_of_the_source_reaches_every_open_stream_and_the_caller() -> None:
    async with demultiplex(piece("1"), piece("2", ends=True), ValueError("cut")) as demultiplexer:
        streams: list[AgentStream] = []

        async def gather() -> None:
            async for stream in demultiplexer:
                streams.append(stream)  # noqa: PERF401  # those before the error stay

        with pytest.raises(ValueError, match="cut"):
            await gather()
        with pytest.raises(ValueError, match="cut"):
            await streams[0].text()
        assert await streams[1].text() == "x"
        with pytest.raises(ValueError, match="cut"):
            await demultiplexer.join()


async def test_a_blocked_reader_loses_nothing_and_one_that_leaves_blocks_nothing() -> None:
    async def read(stream: AgentStream) -> None:
        if stream.key.stream_id == "leaves":
            async for _ in stream:
                break
        elif stream.key.stream_id == "fails":
            async for _ in stream:
                raise ValueError("reader")
        else:
            got.extend([part.data async for part in stream])

    got: list[Any] = []
    items = [piece(name, number) for number in range(50) for name in ("leaves", "fails", "reads")]
    async with demultiplex(*items, EOF, limit=2, on_new_stream=read) as demultiplexer:
        await demultiplexer.join()
    assert got == list(range(50))
    [(key, error)] = demultiplexer.errors
    assert (key.stream_id, str(error)) == ("fails", "reader")


async def test_a_cancelled_reader_blocks_nothing_and_another_one_may_go_on() -> None:
    gate = asyncio.Event()

    async def gated() -> AsyncGenerator[Routed]:
        yield piece("1", 0)
        await gate.wait()
        for number in range(1, 9):
            yield piece("1", number)
        yield EOF

    async with Demultiplexer(gated(), route, limit=4) as demultiplexer:
        stream = await anext(aiter(demultiplexer))
        reading = asyncio.create_task(stream.text())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        gate.set()
        await demultiplexer.join()
        assert [part.data async for part in stream] == [5, 6, 7, 8]
        assert stream.dropped == 4


async def test_a_slow_reader_drops_pieces_or_fails_alone_as_the_policy_says() -> None:
    items = [piece(name, number) for number in range(5) for name in ("1", "2")]
    async with demultiplex(*items, EOF, limit=2, policy="drop_oldest") as demultiplexer:
        await demultiplexer.join()
        first, second = [stream async for stream in demultiplexer]
        assert [part.data async for part in first] == [3, 4]
        assert (second.dropped, second.ending) == (3, "eof")
    async with demultiplex(*items, piece("3"), EOF, limit=2, policy="error") as demultiplexer:
        await demultiplexer.join()
        slow, _, other = [stream async for stream in demultiplexer]
        with pytest.raises(Closed, match="2 pieces behind"):
            await slow.text()
        assert other.ending == "eof"


async def test_a_reader_that_stops_reading_fails_alone_after_a_time() -> None:
    stuck = asyncio.Event()

    async def read(stream: AgentStream) -> None:
        async for part in stream:
            got.append((stream.key.stream_id, part.data))
            if stream.key.stream_id == "stuck":
                await stuck.wait()

    got: list[Any] = []
    items = [piece(name, number) for number in range(9) for name in ("stuck", "reads")]
    async with demultiplex(*items, EOF, limit=1, block_timeout=0, on_new_stream=read) as demultiplexer:
        await wait_until(lambda: demultiplexer.last_end is not None)
        stuck.set()
        await demultiplexer.join()
    assert [number for name, number in got if name == "reads"] == list(range(9))
    [(key, error)] = demultiplexer.errors
    assert key.stream_id == "stuck"
    assert "has read nothing for 0 seconds" in str(error)


async def test_thousands_of_streams_that_are_never_read_are_let_go() -> None:
    opened = [piece(str(number)) for number in range(3000)]
    async with demultiplex(*opened, *(piece(str(number), ends=True) for number in range(3000)), EOF) as demultiplexer:
        await demultiplexer.join()
        assert demultiplexer.streams == {}
        assert len([stream async for stream in demultiplexer]) == 1024


async def test_an_exception_of_a_sync_callback_leaves_its_stream_readable() -> None:
    def announce(stream: AgentStream) -> None:
        if stream.key.stream_id == "1":
            raise ValueError("callback")

    async with demultiplex(piece("1"), piece("2"), EOF, on_new_stream=announce) as demultiplexer:
        await demultiplexer.join()
        assert [await stream.text() async for stream in demultiplexer] == ["x", "x"]
        assert [str(error) for _, error in demultiplexer.errors] == ["callback"]


async def test_leaving_the_block_ends_a_source_that_goes_on_for_ever() -> None:
    async def endless() -> AsyncGenerator[Routed]:
        yield piece("1")
        await asyncio.Event().wait()

    async def read(stream: AgentStream) -> None:
        await stream.text()

    async with Demultiplexer(endless(), route, on_new_stream=read) as demultiplexer:
        stream = await anext(aiter(demultiplexer))
    with pytest.raises(Closed, match="the root stream was closed"):
        await stream.text()
    await demultiplexer.join()
    assert not demultiplexer.errors


@pytest.mark.parametrize(("options", "expected"), [({"limit": 0}, "at least 1"), ({"policy": "lose"}, "drop_oldest")])
def test_wrong_options_are_named(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        demultiplex(**options)


async def test_frames_are_plain_objects_with_the_ids_of_the_agent() -> None:
    async with runtime(models=Models(retries=0)) as rt:
        session = await rt.open(agent(ScriptedModel(say("Hi."), fail(400, "no"))), id="s")
        sent = [frame async for frame in frames(session.stream("Hi."), AgentEventProjection(session.id).route)]
        [failed] = [frame async for frame in frames(session.stream("Hi."), AgentEventProjection(session.id).route)]
    stream_id = sent[0].pop("stream_id")
    assert sent == [
        {"type": "text", "agent_def": "assistant", "agent_state_id": "s", "data": "Hi.", "begin": True},
        {
            "type": "text",
            "agent_def": "assistant",
            "agent_state_id": "s",
            "stream_id": stream_id,
            "data": "",
            "end": True,
        },
        {"type": "eof", "agent_def": "assistant", "agent_state_id": "s"},
    ]
    assert (failed["type"], failed["error"]["message"]) == ("error", "no (status 400)")
    assert frame_of(piece("1", b"\x00", kind="audio"))["data"] == "AA=="
