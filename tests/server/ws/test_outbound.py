"""The outbound queue of a connection: merged deltas, pressure, relief and overflow."""

import asyncio
import json
from typing import Any

from vaka.core.session.hash_chain import seal
from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.server.ws.outbound import OutboundQueue

SESSION = SessionId("s")


def delta(text: str, offset: int = 0, block: int = 0) -> Event:
    body = progress.TextDelta(message_id=MessageId("m"), block=block, offset=offset, text=text)
    return Event(data=body, session=SESSION, ts="")


async def take_all(queue: OutboundQueue) -> list[Any]:
    return [json.loads(await queue.take()) for _ in range(len(queue))]


def stored(seq: int, text: str = "") -> Event:
    event = Event(data=progress.TurnCompleted(text=text), session=SESSION, ts="")
    return seal(event, epoch=1, seq=seq, prev="0" * 64)


async def test_frames_leave_in_order_and_stored_events_keep_their_bytes() -> None:
    queue = OutboundQueue()
    queue.put(b'{"id":1,"result":{}}')
    event = stored(1, "é")
    queue.put_event("s1", event)
    assert await queue.take() == b'{"id":1,"result":{}}'
    assert queue.last_cursor == ""
    assert await queue.take() == b'{"sub":"s1","event":' + event.stored + b"}"
    assert (queue.last_cursor, queue.queued_bytes, len(queue)) == ("", 0, 0)
    queue.finish()
    assert await queue.take() == b""  # the event before it was sent
    assert queue.last_cursor == "s1 1.1"


async def test_a_taker_waits_for_the_next_frame() -> None:
    queue = OutboundQueue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.put(b"{}")
    assert await taking == b"{}"


async def test_deltas_of_one_block_are_merged_from_half_of_the_queue_on() -> None:
    queue = OutboundQueue(max_frames=10)
    for at in range(9):
        queue.put_event("s1", delta(str(at), at))
    queue.put_event("s2", delta("x"))  # of another subscription
    queue.put_event("s2", delta("y", block=1))  # of another block
    texts = [(frame["sub"], frame["event"]["data"]["text"]) for frame in await take_all(queue)]
    assert texts == [*(("s1", str(at)) for at in range(4)), ("s1", "45678"), ("s2", "x"), ("s2", "y")]


async def test_pressure_begins_at_four_fifths_and_ends_below_half() -> None:
    queue = OutboundQueue(max_frames=10)
    for seq in range(1, 9):
        queue.put_event("s1", stored(seq))
    relief = asyncio.ensure_future(queue.relief())
    assert json.loads(await queue.take()) == {
        "ctl": "pressure",
        "active": True,
        "queued_frames": 8,
        "queued_bytes": queue.queued_bytes,
    }
    states: list[tuple[bool, bool]] = []
    for seq in range(1, 5):
        states.append((queue.pressure, relief.done()))
        assert json.loads(await queue.take())["event"]["seq"] == seq
    assert states == [(True, False)] * 4
    await relief
    ended, *rest = await take_all(queue)
    assert (ended["active"], ended["queued_frames"], queue.pressure) == (False, 4, False)
    assert [frame["event"]["seq"] for frame in rest] == [5, 6, 7, 8]


async def test_bytes_count_as_well_as_frames() -> None:
    queue = OutboundQueue(max_bytes=1000)
    queue.put_event("s1", stored(1, "x" * 5000))  # larger than the queue: sent alone
    assert queue.pressure
    assert [next(iter(frame)) for frame in await take_all(queue)] == ["ctl", "sub"]
    assert [next(iter(frame)) for frame in await take_all(queue)] == ["ctl"]


async def test_a_reply_that_does_not_fit_ends_the_queue() -> None:
    queue = OutboundQueue(max_bytes=10)
    states: list[bool] = []
    for data in (b"x" * 20, b"{}"):  # alone the first one fits
        queue.put(data)
        states.append(queue.overflowed)
    assert states == [False, True]
    assert await queue.take() == b""
    full = OutboundQueue(max_frames=1)
    full.put(b"{}")
    full.put(b"{}", first=True)
    assert full.overflowed
