"""Following: the stored events after a cursor, then new ones, without gaps or duplicates."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    S,
    flaky_harness,
    input_added,
    log_line,
    message_completed,
    run_event_loop,
    scope_at,
    step_started,
    text_delta,
    turn_completed,
    turn_started,
    visible_texts,
    write_simple_turn,
)
from vaka.core.ports.store import EventStore
from vaka.core.session.fanout import (
    BATCH_BYTES,
    MAX_OUTPUT_CHARS,
    MAX_QUEUED,
    MAX_QUEUED_CHARS,
    MERGE_FROM,
    RECENT_EVENTS,
    BlockBuffer,
    Fanout,
    Follower,
    chars_of,
)
from vaka.core.session.follow import READ_BATCH, Subscription
from vaka.core.session.hash_chain import seal_chain
from vaka.core.session.log import SessionLog
from vaka.core.types import context, control, progress
from vaka.core.types.errors import Closed, Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, EventScope, MessageId, SessionId
from vaka.stores.memory import MemoryStore


class EventReader:
    """Follows a session in a task of its own, and reads only while ``open`` is set."""

    def __init__(self, harness: LogHarness, after: Cursor | None = None) -> None:
        self.events: list[Event] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: BaseException | None = None
        self.task = asyncio.create_task(self._read(harness, after or Cursor()))

    async def _read(self, harness: LogHarness, after: Cursor) -> None:
        try:
            async with aclosing(harness.hub.follow(S, after)) as events:
                async for event in events:
                    self.events.append(event)
                    await self.open.wait()
        except (Closed, Unavailable) as error:
            self.error = error

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.events if event.seq]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def harness() -> AsyncGenerator[LogHarness]:
    harness = LogHarness()
    yield harness
    await harness.hub.close()
    await run_event_loop(5)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is still running"


async def publish_text(log: SessionLog, text: str, start: int = 0, message: str = "m1") -> None:
    """Publish a text as one delta per letter."""
    for offset, letter in enumerate(text, start):
        log.publish_live(T1, text_delta(letter, offset, message))
        await run_event_loop(2)


class TestOneProcess:
    async def test_every_event_comes_once_and_in_order_from_any_cursor(self, harness: LogHarness) -> None:
        log = await harness.open()
        await write_simple_turn(log)
        readers = [EventReader(harness, Cursor(1, seq)) for seq in range(log.head + 1)]
        await run_event_loop()
        await write_simple_turn(log, 2)
        await run_event_loop()
        for seq, reader in enumerate(readers):
            assert reader.seqs == list(range(seq + 1, log.head + 1))
            await reader.stop()

    async def test_a_follower_that_joins_during_a_message_gets_a_snapshot_of_it(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        early = EventReader(harness)
        await run_event_loop()
        await publish_text(log, "Hel")
        late = EventReader(harness, Cursor(1, 2))
        await run_event_loop()
        assert late.types == ["step.started", "message.snapshot"]
        await publish_text(log, "lo", 3)
        latest = EventReader(harness, Cursor(1, 3))
        await run_event_loop()
        assert latest.types == ["message.snapshot"]
        for reader in (early, late, latest):
            assert visible_texts(reader.events) == ["Hello"]
        await log.append(T1, message_completed("Hello!"), turn_completed())
        await run_event_loop()
        for reader in (early, late, latest):
            assert visible_texts(reader.events) == ["Hello!"]
            assert reader.seqs[-1] == log.head
            await reader.stop()
        after = EventReader(harness)
        await run_event_loop()
        assert "message.snapshot" not in after.types
        await after.stop()

    async def test_a_follower_that_joins_late_gets_the_deltas_that_none_has_read_redacted(
        self, harness: LogHarness
    ) -> None:
        log = await harness.open()
        log.secrets.add("hunter2-hunter2")
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        text = "hunter2-hunter2 " * 2 * MAX_QUEUED
        for offset in range(0, len(text), 5):
            log.publish_live(T1, text_delta(text[offset : offset + 5], offset))
        reader = EventReader(harness, Cursor(1, log.head))
        await run_event_loop()
        assert reader.types == ["message.snapshot"]
        await publish_text(log, "hunter2-hunter2.", len(text))
        assert visible_texts(reader.events) == ["[redacted] " * 2 * MAX_QUEUED + "[redacted]."]
        await reader.stop()

    async def test_deltas_before_and_after_a_follower_joins_are_in_its_snapshot(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        log.publish_live(T1, text_delta("He", 0))
        log.fanout.add_follower(Follower())
        log.publish_live(T1, text_delta("llo", 2))
        assert visible_texts(log.fanout.snapshots()) == ["Hello"]

    async def test_a_discarded_message_is_not_open_any_more(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        await publish_text(log, "Hmm")
        reader = EventReader(harness)
        await run_event_loop()
        await log.append(T1, progress.MessageDiscarded(message_id=MessageId("m1")))
        await publish_text(log, "Yes", 0, "m2")
        late = EventReader(harness, Cursor(1, log.head))
        await run_event_loop()
        assert visible_texts(reader.events) == visible_texts(late.events) == ["Yes"]
        await reader.stop()
        await late.stop()

    async def test_the_end_of_a_turn_closes_its_open_blocks(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        await publish_text(log, "Hm")
        log.publish_live(T1, progress.ToolOutputDelta(message_id=MessageId("call_1"), block=0, offset=0, text="…"))
        await log.append(T1, turn_completed())
        assert log.fanout.snapshots() == []

    async def test_an_invalid_cursor_resets_to_the_start_also_with_a_local_writer(self, harness: LogHarness) -> None:
        log = await harness.open()
        await write_simple_turn(log)
        for cursor in (Cursor(2, 3), Cursor(7, 0), Cursor(1, 10_000), Cursor(0, 10_000)):
            reader = EventReader(harness, cursor)
            await run_event_loop()
            assert reader.types[0] == "stream.reset"
            assert reader.seqs == list(range(1, log.head + 1))
            await reader.stop()

    async def test_a_slow_reader_loses_deltas_and_gets_a_snapshot(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        slow = EventReader(harness)
        await run_event_loop()
        slow.open.clear()
        text = ""
        for number in range(10 * MAX_QUEUED):
            message = f"m{number % 3}"
            log.publish_live(T1, text_delta("x", number // 3, message))
            if number % 50 == 0:
                await log.append(T1, log_line(str(number)))
            text += "x"
        follower = next(iter(log.fanout.followers))
        assert len(follower.queue) <= MAX_QUEUED + 60
        slow.open.set()
        await run_event_loop(20)
        assert slow.seqs == list(range(1, log.head + 1))
        assert sorted(map(len, visible_texts(slow.events))) == [MAX_QUEUED * 10 // 3] * 2 + [MAX_QUEUED * 10 // 3 + 1]
        assert slow.types.count("text.delta") < MAX_QUEUED + 10
        assert "message.snapshot" in slow.types
        await slow.stop()

    async def test_deltas_for_a_slow_reader_are_merged(self) -> None:
        fanout, follower = Fanout(S), Follower()
        fanout.add_follower(follower)
        follower.needs_snapshot = False
        for number in range(10_000):
            fanout.publish_live(Event(data=text_delta("x", number), session=S, ts=""))
        assert len(follower.queue) <= MERGE_FROM + 3
        assert not follower.needs_snapshot
        assert visible_texts(item for item in follower.queue if isinstance(item, Event)) == ["x" * 10_000]

    async def test_following_a_session_that_does_not_exist_waits_for_its_first_event(self, harness: LogHarness) -> None:
        reader = EventReader(harness)
        lost = EventReader(harness, Cursor(1, 42))
        await run_event_loop()
        assert reader.types == []
        assert lost.types == ["stream.reset"]
        log = await harness.open()
        await write_simple_turn(log)
        await run_event_loop()
        assert reader.seqs == lost.seqs == list(range(1, log.head + 1))
        await reader.stop()
        await lost.stop()

    async def test_a_long_history_is_read_in_batches(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x")] * (RECENT_EVENTS + 3 * READ_BATCH))
        following = Subscription(harness.hub, S, Cursor())
        async with following:
            batches = [await following.next_batch() for _ in range(6)]
        assert [len(batch) for batch in batches] == [16, 32, 64, 128, READ_BATCH, READ_BATCH]
        assert [event.seq for batch in batches for event in batch] == list(range(1, 753))

    async def test_large_events_come_in_batches_of_bounded_size(self, harness: LogHarness) -> None:
        log = await harness.open()
        for _ in range(40):
            await log.append(EventScope(), log_line("x" * 50_000))
        async with Subscription(harness.hub, S, Cursor()) as following:
            shared = [await following.next_batch() for _ in range(3)]  # from memory
            log.fanout.recent_events.clear()
            read = [await following.next_batch() for _ in range(3)]  # from the store
        assert [[event.seq for event in batch] for batch in (*shared, *read)] == [
            [2 * number + 1, 2 * number + 2] for number in range(6)
        ]
        assert all(sum(len(event.stored) for event in batch) <= BATCH_BYTES for batch in (*shared, *read))

    async def test_a_follower_queues_a_bounded_length_of_live_text(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        async with Subscription(harness.hub, S, Cursor(1, 3)) as following:
            log.publish_live(T1, text_delta("a", 0))
            assert [event.type for event in await following.next_batch()] == ["message.snapshot"]
            for number in range(9):
                log.publish_live(T1, text_delta("x" * 30_000, 1 + number * 30_000))
            missed = await following.next_batch()
            assert [(event.type, chars_of(event)) for event in missed] == [("message.snapshot", 270_001)]
            log.publish_live(T1, text_delta("y" * (2 * MAX_QUEUED_CHARS), 270_001))
            assert [event.type for event in await following.next_batch()] == ["text.delta"]

    async def test_deltas_and_durable_events_come_in_the_order_they_happened(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        async with Subscription(harness.hub, S, Cursor(1, 3)) as following:
            log.publish_live(T1, text_delta("He", 0))
            assert [event.type for event in await following.next_batch()] == ["message.snapshot"]
            log.publish_live(T1, text_delta("llo", 2))
            await log.append(T1, message_completed("Hello"))
            log.publish_live(T1, text_delta("Aha", 0, "m2"))
            batches = [await following.next_batch() for _ in range(2)]
            assert [[event.type for event in batch] for batch in batches] == [
                ["text.delta"],
                ["message.completed", "text.delta"],
            ]
            await log.append(T1, *[log_line("x")] * (READ_BATCH + 50))
            log.fanout.recent_events.clear()
            assert [len(await following.next_batch()) for _ in range(4)] == [16, 32, 64, 128]

    async def test_a_thousand_followers_see_the_same(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        readers = [EventReader(harness, Cursor(1, number % 4)) for number in range(1_000)]
        await run_event_loop(5)
        await publish_text(log, "Hello")
        await log.append(T1, message_completed("Hello"), turn_completed())
        await run_event_loop(20)
        assert {tuple(reader.seqs)[-2:] for reader in readers} == {(4, 5)}
        assert all(visible_texts(reader.events) == ["Hello"] for reader in readers)
        for reader in readers:
            await reader.stop()
        assert not log.fanout.followers

    async def test_a_head_beyond_the_stored_events_does_not_spin_the_reader(self, harness: LogHarness) -> None:
        log = await harness.open()
        await log.append(EventScope(), log_line("one"))
        log.fanout.clear_open_blocks()
        log.fanout.advance_head(5)
        reader = EventReader(harness)
        await run_event_loop()
        assert reader.seqs == [1]
        log.fanout.advance_head(6)
        await run_event_loop()
        assert reader.seqs == [1]
        await reader.stop()

    async def test_of_a_long_tool_output_only_the_end_is_held(self) -> None:
        first = progress.ToolOutputDelta(message_id=MessageId("call_1"), block=0, offset=0, text="")
        block = BlockBuffer(Event(data=first, session=S, ts=""))
        for number in range(1_000):
            block.add(f"{number:0512}")
        snapshot = block.snapshot().data
        assert isinstance(snapshot, progress.MessageSnapshot)
        assert MAX_OUTPUT_CHARS <= len(snapshot.text) <= 2 * MAX_OUTPUT_CHARS
        assert snapshot.offset + len(snapshot.text) == 512_000
        assert snapshot.text.endswith("999")


class TestWritersAndFollowers:
    async def test_followers_stay_while_writers_change(self, harness: LogHarness) -> None:
        reader = EventReader(harness)
        for number in range(1, 6):
            log = await harness.open()
            await write_simple_turn(log, number)
            other = EventReader(harness, Cursor(1, log.head))
            await harness.release(log)
            await harness.offer(input_added("from outside", f"o{number}"), f"o{number}")
            await run_event_loop()
            assert other.seqs == [log.head + 1]
            await other.stop()
        await run_event_loop()
        assert reader.seqs == list(range(1, len(await harness.stored_events()) + 1))
        await reader.stop()

    async def test_writers_of_one_session_in_one_process_are_counted(self, harness: LogHarness) -> None:
        first = await harness.open()
        harness.hub.attach_writer(S)
        await write_simple_turn(first)
        harness.hub.detach_writer(S)
        assert harness.hub.has_writer(S)
        await harness.release(first)
        assert not harness.hub.has_writer(S)

    async def test_a_session_without_writer_and_followers_leaves_no_fanout(self, harness: LogHarness) -> None:
        log = await harness.open()
        fanout = log.fanout
        await write_simple_turn(log)
        await harness.release(log)
        assert harness.hub.fanout_of(S) is not fanout
        harness.hub.remove_follower(S, Follower())

    async def test_closing_ends_every_follower(self, harness: LogHarness) -> None:
        log = await harness.open()
        await write_simple_turn(log)
        here, elsewhere = EventReader(harness), asyncio.create_task(_drain(harness, SessionId("other")))
        await run_event_loop()
        await harness.hub.close()
        await asyncio.wait([here.task, elsewhere])
        assert here.seqs == list(range(1, log.head + 1))
        assert [here.types[-1], *(event.type for event in elsewhere.result())] == ["stream.end", "stream.end"]
        assert here.events[-1].data == control.StreamEnd(reason="closed")

    async def test_a_follower_that_is_ended_reads_the_stored_events_first(self, harness: LogHarness) -> None:
        log = await harness.open()
        await write_simple_turn(log)
        follower = Follower()
        follower.end(Closed("over"))
        async with Subscription(harness.hub, S, Cursor(), follower) as following:
            assert len(await following.next_batch()) == log.head
            assert await following.next_batch() == []
            assert await following.next_batch() == []


async def _drain(harness: LogHarness, session: SessionId) -> list[Event]:
    async with aclosing(harness.hub.follow(session, Cursor())) as events:
        return [event async for event in events]


class SilentLiveChannel:
    """A live channel that carries nothing and fails when it is watched."""

    def share(self, session: SessionId, blocks: Callable[[], Sequence[Event]] | None) -> None: ...

    def touch(self, session: SessionId) -> None: ...

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        for event in list[Event]():
            yield event
        raise Unavailable("the line is down")


class GatedLiveChannel:
    """A live channel that carries one snapshot, when its gate is open."""

    def __init__(self, event: Event) -> None:
        self.gate = asyncio.Event()
        self._event = event

    def share(self, session: SessionId, blocks: Callable[[], Sequence[Event]] | None) -> None: ...

    def touch(self, session: SessionId) -> None: ...

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        await self.gate.wait()
        yield self._event
        await asyncio.Event().wait()


class LateHeads:
    """The events of a store that tells heads only to those who ask: waiting for a new one never ends."""

    def __init__(self, inner: EventStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def wait(self, session: SessionId, *, after: int) -> int:
        if after:
            await asyncio.Event().wait()
        return await self._inner.wait(session, after=after)


class TestTwoProcesses:
    async def test_followers_in_both_processes_see_the_same_events_and_text(self) -> None:
        store = MemoryStore()
        here, there = LogHarness(store), LogHarness(store.open_handle())
        near, far = EventReader(here), EventReader(there)
        log = await here.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        await publish_text(log, "Hello")
        while visible_texts(far.events) != ["Hello"]:
            await run_event_loop(1)
        late = EventReader(there, Cursor(1, 3))
        await run_event_loop()
        assert visible_texts(late.events) == ["Hello"], "although no further delta follows"
        assert late.types == ["message.snapshot"]
        await log.append(T1, message_completed("Hello!"), turn_completed())
        await run_event_loop()
        assert near.seqs == far.seqs == list(range(1, log.head + 1))
        assert visible_texts(near.events) == visible_texts(far.events) == visible_texts(late.events) == ["Hello!"]
        for reader in (near, far, late):
            await reader.stop()

    async def test_text_of_another_process_follows_the_events_that_were_stored_before_it(self) -> None:
        store = MemoryStore()
        here, there = LogHarness(store), LogHarness(store.open_handle())
        log = await here.open()
        await log.append(T1, input_added("q"), turn_started("k"))
        snapshot = progress.MessageSnapshot(message_id=MessageId("m1"), block=0, of="text.delta", text="Hel")
        there.store.live = live = GatedLiveChannel(Event(data=snapshot, session=S, ts="", turn=T1.turn))
        there.store.events = LateHeads(there.store.events)  # type: ignore[assignment]  # it delegates all but one method
        far = EventReader(there)
        await run_event_loop()
        await log.append(T1, step_started())
        live.gate.set()
        await run_event_loop()
        assert far.types[-2:] == ["step.started", "message.snapshot"]
        await far.stop()

    async def test_a_snapshot_after_the_end_of_its_message_is_ignored(self) -> None:
        fanout, follower = Fanout(S), Follower()
        fanout.add_follower(follower)
        follower.needs_snapshot = False
        snapshot = progress.MessageSnapshot(message_id=MessageId("m1"), block=0, of="text.delta", text="Hel")
        event = Event(data=snapshot, session=S, ts="", turn=T1.turn)
        fanout.publish_remote_block(event)
        assert fanout.snapshots() == [event]
        fanout.close_blocks([Event(data=message_completed("Hello"), session=S, ts="")])
        fanout.publish_remote_block(event)
        assert fanout.snapshots() == []
        assert list(follower.queue) == [event]

    async def test_recent_events_with_a_gap_are_not_used(self) -> None:
        fanout = Fanout(S)
        entries = [(EventScope(), context.CheckpointSaved(label=f"{number}")) for number in range(1, 7)]
        events = seal_chain(S, None, entries, "2026-01-01T00:00:00.000Z")
        fanout.publish_durable(events[:2])
        assert fanout.recent_between(0, 2) == events[:2]
        fanout.advance_head(3)  # written by another process
        assert fanout.recent_between(1, 3) == []
        fanout.publish_durable(events[3:])
        assert fanout.recent_between(0, 6) == fanout.recent_between(2, 6) == []
        assert fanout.recent_between(3, 6) == events[3:]
        assert fanout.recent_between(4, 5) == events[4:5]

    async def test_a_resumed_turn_closes_the_open_blocks_of_a_dead_writer(self) -> None:
        fanout = Fanout(S)
        snapshot = progress.MessageSnapshot(message_id=MessageId("m1"), block=0, of="text.delta", text="Hel")
        fanout.publish_remote_block(Event(data=snapshot, session=S, ts="", turn=T1.turn))
        fanout.close_blocks([Event(data=progress.TurnResumed(agent="a"), session=S, ts="", turn=T1.turn)])
        assert fanout.snapshots() == []

    async def test_closing_the_store_ends_its_followers_with_an_error(self) -> None:
        harness, events = flaky_harness()
        reader = EventReader(harness)
        await run_event_loop()
        assert isinstance(harness.store, MemoryStore)
        await harness.store.close()
        await run_event_loop()
        assert isinstance(reader.error, Closed)
        assert reader.task.done()
        assert events.rows == 0

    async def test_a_failing_live_channel_ends_the_followers_with_an_error(self) -> None:
        harness = LogHarness()
        harness.store.live = SilentLiveChannel()
        reader = EventReader(harness)
        await run_event_loop()
        assert isinstance(reader.error, Unavailable)
        await run_event_loop(3)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_a_failing_read_ends_the_follower_and_it_can_reconnect(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        events.down = 1
        reader = EventReader(harness)
        await run_event_loop()
        assert isinstance(reader.error, Unavailable)
        again = EventReader(harness)
        await run_event_loop()
        assert again.seqs == list(range(1, log.head + 1))
        await again.stop()
        await harness.hub.close()


def test_scopes_compare_by_value() -> None:
    assert scope_at("t1", 1) == T1
