"""Following: what is stored after a cursor, then what happens, with no gap and nothing twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import pytest

from tests.core.session.desk import (
    T1,
    Desk,
    S,
    answered,
    at,
    begun,
    delta,
    ended,
    flaky,
    note,
    said,
    settled,
    simple_turn,
    stepped,
    texts,
)
from vaka.core.session.cursor import Cursor
from vaka.core.session.fanout import MERGE, OUTPUT, QUEUE, TAIL, Block, Fanout, Follower
from vaka.core.session.follow import BATCH, Following
from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.types import progress
from vaka.core.types.errors import Closed, Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.stores.memory import MemoryStore


class Reader:
    """Somebody who follows in a task of their own, and reads only when told to."""

    def __init__(self, desk: Desk, after: Cursor | None = None) -> None:
        self.seen: list[Event] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: BaseException | None = None
        self.task = asyncio.create_task(self._read(desk, after or Cursor()))

    async def _read(self, desk: Desk, after: Cursor) -> None:
        try:
            async with aclosing(desk.hub.follow(S, after)) as events:
                async for event in events:
                    self.seen.append(event)
                    await self.open.wait()
        except (Closed, Unavailable) as error:
            self.error = error

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.seen]

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.seen if event.seq]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    made = Desk()
    yield made
    await made.hub.close()
    await settled(5)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task was left behind"


async def speak(log: Log, text: str, start: int = 0, message: str = "m1") -> None:
    """Say a text letter by letter."""
    for offset, letter in enumerate(text, start):
        log.live(T1, delta(letter, offset, message))
        await settled(2)


class TestOneProcess:
    async def test_everything_comes_once_and_in_order_from_any_place(self, desk: Desk) -> None:
        log = await desk.open()
        await simple_turn(log)
        readers = [Reader(desk, Cursor(1, seq)) for seq in range(log.head + 1)]
        await settled()
        await simple_turn(log, 2)
        await settled()
        for seq, reader in enumerate(readers):
            assert reader.seqs == list(range(seq + 1, log.head + 1))
            await reader.stop()

    async def test_who_joins_in_the_middle_of_a_message_gets_what_was_said_so_far(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        early = Reader(desk)
        await settled()
        await speak(log, "Hel")
        late = Reader(desk, Cursor(1, 2))
        await settled()
        assert late.types == ["step.started", "message.snapshot"]
        await speak(log, "lo", 3)
        latest = Reader(desk, Cursor(1, 3))
        await settled()
        assert latest.types == ["message.snapshot"]
        for reader in (early, late, latest):
            assert texts(reader.seen) == ["Hello"]
        await log.append(T1, answered("Hello!"), ended())
        await settled()
        for reader in (early, late, latest):
            assert texts(reader.seen) == ["Hello!"]
            assert reader.seqs[-1] == log.head
            await reader.stop()
        after = Reader(desk)
        await settled()
        assert "message.snapshot" not in after.types
        await after.stop()

    async def test_a_message_that_is_discarded_is_open_for_nobody(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        await speak(log, "Hmm")
        reader = Reader(desk)
        await settled()
        await log.append(T1, progress.MessageDiscarded(message_id=MessageId("m1")))
        await speak(log, "Yes", 0, "m2")
        late = Reader(desk, Cursor(1, log.head))
        await settled()
        assert texts(reader.seen) == texts(late.seen) == ["Yes"]
        await reader.stop()
        await late.stop()

    async def test_what_a_turn_left_open_ends_with_it(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        await speak(log, "Hm")
        log.live(T1, progress.ToolOutputDelta(message_id=MessageId("call_1"), block=0, offset=0, text="…"))
        await log.append(T1, ended())
        assert log.fanout.snapshots() == []

    async def test_a_cursor_of_another_epoch_starts_over_also_while_the_writer_is_here(self, desk: Desk) -> None:
        log = await desk.open()
        await simple_turn(log)
        for cursor in (Cursor(2, 3), Cursor(7, 0), Cursor(1, 10_000), Cursor(0, 10_000)):
            reader = Reader(desk, cursor)
            await settled()
            assert reader.types[0] == "stream.reset"
            assert reader.seqs == list(range(1, log.head + 1))
            await reader.stop()

    async def test_a_slow_reader_loses_pieces_and_gets_the_whole(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        slow = Reader(desk)
        await settled()
        slow.open.clear()
        text = ""
        for number in range(10 * QUEUE):
            message = f"m{number % 3}"
            log.live(T1, delta("x", number // 3, message))
            if number % 50 == 0:
                await log.append(T1, note(str(number)))
            text += "x"
        follower = next(iter(log.fanout.followers))
        assert len(follower.queue) <= QUEUE + 60
        slow.open.set()
        await settled(20)
        assert slow.seqs == list(range(1, log.head + 1))
        assert sorted(map(len, texts(slow.seen))) == [QUEUE * 10 // 3] * 2 + [QUEUE * 10 // 3 + 1]
        assert slow.types.count("text.delta") < QUEUE + 10
        assert "message.snapshot" in slow.types
        await slow.stop()

    async def test_pieces_for_a_slow_reader_are_joined(self) -> None:
        fanout, follower = Fanout(S), Follower()
        fanout.followers.add(follower)
        follower.behind = False
        for number in range(10_000):
            fanout.live(Event(data=delta("x", number), session=S, ts=""))
        assert len(follower.queue) <= MERGE + 3
        assert not follower.behind
        assert texts(item for item in follower.queue if isinstance(item, Event)) == ["x" * 10_000]

    async def test_following_what_does_not_exist_yet_waits_for_it(self, desk: Desk) -> None:
        reader = Reader(desk)
        lost = Reader(desk, Cursor(1, 42))
        await settled()
        assert reader.types == []
        assert lost.types == ["stream.reset"]
        log = await desk.open()
        await simple_turn(log)
        await settled()
        assert reader.seqs == lost.seqs == list(range(1, log.head + 1))
        await reader.stop()
        await lost.stop()

    async def test_a_long_history_is_read_in_batches(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(Place(), *[note("x")] * (TAIL + 3 * BATCH))
        following = Following(desk.hub, S, Cursor())
        async with following:
            sizes = [len(await following.batch()) for _ in range(4)]
        assert sizes == [BATCH, BATCH, BATCH, TAIL]

    async def test_pieces_and_stored_events_come_in_the_order_they_happened(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        async with Following(desk.hub, S, Cursor(1, 3)) as following:
            log.live(T1, delta("He", 0))
            assert [event.type for event in await following.batch()] == ["message.snapshot"]
            log.live(T1, delta("llo", 2))
            await log.append(T1, answered("Hello"))
            log.live(T1, delta("Aha", 0, "m2"))
            batches = [await following.batch() for _ in range(2)]
            assert [[event.type for event in batch] for batch in batches] == [
                ["text.delta"], ["message.completed", "text.delta"]
            ]  # fmt: skip
            await log.append(T1, *[note("x")] * (BATCH + 50))
            log.fanout.tail.clear()
            assert [len(await following.batch()) for _ in range(2)] == [BATCH, 50]

    async def test_a_thousand_followers_see_the_same(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        readers = [Reader(desk, Cursor(1, number % 4)) for number in range(1_000)]
        await settled(5)
        await speak(log, "Hello")
        await log.append(T1, answered("Hello"), ended())
        await settled(20)
        assert {tuple(reader.seqs)[-2:] for reader in readers} == {(4, 5)}
        assert all(texts(reader.seen) == ["Hello"] for reader in readers)
        for reader in readers:
            await reader.stop()
        assert not log.fanout.followers

    async def test_a_head_that_the_store_does_not_have_is_waited_for_and_does_not_spin(self, desk: Desk) -> None:
        log = await desk.open()
        await log.append(Place(), note("one"))
        log.fanout.forget()
        log.fanout.reach(5)
        reader = Reader(desk)
        await settled()
        assert reader.seqs == [1]
        log.fanout.reach(6)
        await settled()
        assert reader.seqs == [1]
        await reader.stop()

    async def test_what_a_tool_prints_is_kept_from_its_end_only(self) -> None:
        first = progress.ToolOutputDelta(message_id=MessageId("call_1"), block=0, offset=0, text="")
        block = Block(Event(data=first, session=S, ts=""))
        for number in range(1_000):
            block.add(f"{number:0512}")
        snapshot = block.snapshot().data
        assert isinstance(snapshot, progress.MessageSnapshot)
        assert OUTPUT <= len(snapshot.text) <= 2 * OUTPUT
        assert snapshot.offset + len(snapshot.text) == 512_000
        assert snapshot.text.endswith("999")


class TestComingAndGoing:
    async def test_followers_stay_while_the_writer_comes_and_goes(self, desk: Desk) -> None:
        reader = Reader(desk)
        for number in range(1, 6):
            log = await desk.open()
            await simple_turn(log, number)
            other = Reader(desk, Cursor(1, log.head))
            await desk.shut(log)
            await desk.offer(said("from outside", f"o{number}"), f"o{number}")
            await settled()
            assert other.seqs == [log.head + 1]
            await other.stop()
        await settled()
        assert reader.seqs == list(range(1, len(await desk.stored()) + 1))
        await reader.stop()

    async def test_two_writers_of_one_process_in_turn_count_as_two(self, desk: Desk) -> None:
        first = await desk.open()
        desk.hub.attach(S)
        await simple_turn(first)
        desk.hub.detach(S)
        assert desk.hub.writes(S)
        await desk.shut(first)
        assert not desk.hub.writes(S)

    async def test_nothing_is_left_of_a_session_nobody_looks_at(self, desk: Desk) -> None:
        log = await desk.open()
        fanout = log.fanout
        await simple_turn(log)
        await desk.shut(log)
        assert desk.hub.fanout(S) is not fanout
        desk.hub.leave(S, Follower())

    async def test_closing_ends_every_follower(self, desk: Desk) -> None:
        log = await desk.open()
        await simple_turn(log)
        here, elsewhere = Reader(desk), asyncio.create_task(_drain(desk, SessionId("other")))
        await settled()
        await desk.hub.close()
        await asyncio.wait([here.task, elsewhere])
        assert here.seqs == list(range(1, log.head + 1))
        assert elsewhere.result() == []

    async def test_a_follower_told_to_end_reads_what_there_is_first(self, desk: Desk) -> None:
        log = await desk.open()
        await simple_turn(log)
        follower = Follower()
        follower.end(Closed("over"))
        async with Following(desk.hub, S, Cursor(), follower) as following:
            assert len(await following.batch()) == log.head
            assert await following.batch() == []
            assert await following.batch() == []


async def _drain(desk: Desk, session: SessionId) -> list[Event]:
    async with aclosing(desk.hub.follow(session, Cursor())) as events:
        return [event async for event in events]


class Silent:
    """A line to other processes that is down."""

    def share(self, session: SessionId, blocks: Callable[[], Sequence[Event]] | None) -> None:
        """Nobody hears."""

    def touch(self, session: SessionId) -> None:
        """Nobody hears."""

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        for event in list[Event]():
            yield event
        raise Unavailable("the line is down")


class TestTwoProcesses:
    async def test_both_see_the_same_events_and_the_text_as_it_grows(self) -> None:
        store = MemoryStore()
        here, there = Desk(store), Desk(store.handle())
        near, far = Reader(here), Reader(there)
        log = await here.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        await speak(log, "Hello")
        while texts(far.seen) != ["Hello"]:
            await settled(1)
        late = Reader(there, Cursor(1, 3))
        await settled()
        assert texts(late.seen) == ["Hello"], "although nothing more is said"
        assert late.types == ["message.snapshot"]
        await log.append(T1, answered("Hello!"), ended())
        await settled()
        assert near.seqs == far.seqs == list(range(1, log.head + 1))
        assert texts(near.seen) == texts(far.seen) == texts(late.seen) == ["Hello!"]
        for reader in (near, far, late):
            await reader.stop()

    async def test_a_snapshot_that_comes_after_its_message_is_not_shown(self) -> None:
        fanout, follower = Fanout(S), Follower()
        fanout.followers.add(follower)
        follower.behind = False
        shown = progress.MessageSnapshot(message_id=MessageId("m1"), block=0, of="text.delta", text="Hel")
        event = Event(data=shown, session=S, ts="", turn=T1.turn)
        fanout.elsewhere(event)
        assert fanout.snapshots() == [event]
        fanout.close([Event(data=answered("Hello"), session=S, ts="")])
        fanout.elsewhere(event)
        assert fanout.snapshots() == []
        assert list(follower.queue) == [event]

    async def test_what_a_dead_writer_had_open_is_not_open_when_another_resumes(self) -> None:
        fanout = Fanout(S)
        shown = progress.MessageSnapshot(message_id=MessageId("m1"), block=0, of="text.delta", text="Hel")
        fanout.elsewhere(Event(data=shown, session=S, ts="", turn=T1.turn))
        fanout.close([Event(data=progress.TurnResumed(agent="a"), session=S, ts="", turn=T1.turn)])
        assert fanout.snapshots() == []

    async def test_who_follows_hears_that_the_store_is_gone_and_can_come_back(self) -> None:
        desk, events = flaky()
        reader = Reader(desk)
        await settled()
        assert isinstance(desk.store, MemoryStore)
        await desk.store.close()
        await settled()
        assert isinstance(reader.error, Closed)
        assert reader.task.done()
        assert events.rows == 0

    async def test_so_do_they_when_only_the_open_blocks_cannot_be_heard_of(self) -> None:
        desk = Desk()
        desk.store.live = Silent()
        reader = Reader(desk)
        await settled()
        assert isinstance(reader.error, Unavailable)
        await settled(3)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_a_store_that_cannot_be_read_is_told_too(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        events.down = 1
        reader = Reader(desk)
        await settled()
        assert isinstance(reader.error, Unavailable)
        again = Reader(desk)
        await settled()
        assert again.seqs == list(range(1, log.head + 1))
        await again.stop()
        await desk.hub.close()


def test_places_are_values() -> None:
    assert at("t1", 1) == T1
