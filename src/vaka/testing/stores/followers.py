"""Contracts for processes that do not write the session: offers, waiting for the head, and live open blocks."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
from contextlib import aclosing

import pytest

from vaka.core.ports.store import Store
from vaka.core.types.control import InterruptRequested, QuestionAnswered
from vaka.core.types.decode import decode
from vaka.core.types.errors import Closed, HeadMoved, InvalidInput, NotFound
from vaka.core.types.event import Body, Custom, Event
from vaka.core.types.ids import DecisionId, MessageId, SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    approval_resolved,
    begin_session,
    find_session,
    input_added,
    offer_event,
    question_asked,
    read_log,
    unsealed_event,
    write_session,
)

SESSION = SessionId("s")


class OffersContract:
    """Events appended by processes that are not the writer, and their keys."""

    async def test_an_offer_is_the_next_event_of_the_log(self, store: Store, other: Store) -> None:
        log, _ = await begin_session(store, "s")
        assert await offer_event(other, input_added("from outside", "o1")) == 2
        stored = await read_log(store, "s")
        event = decode(stored[1])
        assert (event.data, event.seq, event.prev, event.id) == (input_added("from outside", "o1"), 2, log.hash, "1.2")
        found = await find_session(store)
        assert (found.head, found.hash, found.inputs) == (2, event.hash, 2)

    async def test_inputs_interrupts_and_answers_can_be_offered(self, store: Store, other: Store) -> None:
        await begin_session(store, "s", approval_requested("a1"), question_asked("q1"))
        offers = [
            ("i1", InterruptRequested(key="i1")),
            ("a1", approval_resolved("a1")),
            ("q1", QuestionAnswered(question=DecisionId("q1"), answer=[1])),
            ("o1", input_added("x", "o1")),
        ]
        for seq, (key, body) in enumerate(offers, 3):
            assert await other.events.offer(SESSION, unsealed_event("s", body), key=key) == seq
        assert [event.data async for event in store.events.read(SESSION, after=2)] == [body for _, body in offers]

    async def test_an_event_of_the_writer_cannot_be_offered(self, store: Store) -> None:
        await write_session(store, "s")
        for body, key in ((Custom(name="x"), "x"), (input_added("x", "a"), "b"), (input_added("x", ""), "")):
            with pytest.raises(InvalidInput):
                await store.events.offer(SESSION, unsealed_event("s", body), key=key)
        assert len(await read_log(store, "s")) == 1

    async def test_an_offer_to_an_unknown_session_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await offer_event(store, input_added("x", "o"))
        assert await store.sessions.find(SESSION) is None

    async def test_a_second_offer_with_a_key_returns_the_first_seq_and_writes_nothing(
        self, store: Store, other: Store
    ) -> None:
        await write_session(store, "s", approval_requested("a1"))
        assert await offer_event(store, approval_resolved("a1", by="ann")) == 2
        assert await offer_event(other, approval_resolved("a1", by="bob")) == 2
        assert await offer_event(store, input_added("x", "o")) == 3
        assert [event.data async for event in other.events.read(SESSION, after=1)] == [
            approval_resolved("a1", by="ann"),
            input_added("x", "o"),
        ]

    async def test_the_key_of_an_appended_event_also_counts_for_offers(self, store: Store, other: Store) -> None:
        await begin_session(store, "s", Custom(name="x"), input_added("mine", "k1"))
        assert await offer_event(other, input_added("again", "k1")) == 2
        assert len(await read_log(store, "s")) == 2

    async def test_a_key_counts_in_its_session_only(self, store: Store) -> None:
        for name in ("s", "t"):
            await write_session(store, name)
            assert await store.events.offer(SessionId(name), unsealed_event(name, input_added("x", "o")), key="o") == 2

    async def test_of_concurrent_offers_with_one_key_one_is_written(self, store: Store, other: Store) -> None:
        await write_session(store, "s", approval_requested("a1"))
        seqs = await asyncio.gather(
            *(offer_event(handle, approval_resolved("a1", by=f"{n}")) for n in range(10) for handle in (store, other))
        )
        assert set(seqs) == {2}
        assert len(await read_log(store, "s")) == 2

    async def test_concurrent_offers_of_two_handles_make_one_chain(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        handles = {"a": store, "b": other}
        bodies = [(name, input_added(f"{n}", f"{n}{name}")) for n in range(20) for name in handles]
        seqs = await asyncio.gather(*(offer_event(handles[name], body) for name, body in bodies))
        assert sorted(seqs) == list(range(2, 42))
        assert len(await read_log(other, "s")) == 41

    async def test_a_writer_reads_an_offer_after_head_moved_and_continues(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        await offer_event(other, input_added("psst", "o"))
        with pytest.raises(HeadMoved):
            await EventSealer(SESSION, log.events[-1]).append_to(store, term, input_added("two", "k2"))
        await log.catch_up(store)
        assert await log.append_to(store, term, input_added("two", "k2")) == 3
        assert await read_log(other, "s") == log.stored

    async def test_an_offer_and_an_append_at_once_make_one_chain(self, store: Store) -> None:
        log, term = await begin_session(store, "s")
        for n in range(10):
            offered, appended = await asyncio.gather(
                offer_event(store, input_added("o", f"o{n}")),
                EventSealer(SESSION, log.events[-1]).append_to(store, term, input_added("a", f"a{n}")),
                return_exceptions=True,
            )
            assert isinstance(offered, int)
            assert isinstance(appended, int | HeadMoved)
            await log.catch_up(store)
        assert log.head > 10

    async def test_hostile_keys_are_only_names(self, store: Store) -> None:
        await write_session(store, "s")
        keys = ["'; drop table keys; --", "%", "_", "🛶", "a\x00b", "a\x00c", "a", "é", "e\u0301", "K", " ", "x" * 5000]
        for seq, key in enumerate(keys, 2):
            assert await offer_event(store, input_added("x", key)) == seq
        for seq, key in enumerate(keys, 2):
            assert await offer_event(store, input_added("y", key)) == seq


async def _start_wait(store: Store, after: int, session: SessionId = SESSION) -> "asyncio.Task[int]":
    task = asyncio.create_task(store.events.wait(session, after=after))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


class WaitContract:
    """Waiting for the head of a log: no append or offer of any handle is missed."""

    async def test_a_head_that_is_already_above_is_returned_at_once(self, store: Store, other: Store) -> None:
        await write_session(store, "s", input_added("a", "a"), input_added("b", "b"))
        assert await store.events.wait(SESSION, after=0) == 2
        assert await other.events.wait(SESSION, after=1) == 2

    async def test_an_append_wakes_waits_in_the_same_handle(self, store: Store) -> None:
        log, term = await begin_session(store, "s")
        tasks = [await _start_wait(store, 1) for _ in range(3)]
        later = await _start_wait(store, 2)
        await log.append_to(store, term, input_added("two", "k2"))
        assert await asyncio.gather(*tasks) == [2, 2, 2]
        assert not later.done()
        await log.append_to(store, term, input_added("three", "k3"))
        assert await later == 3

    async def test_an_append_wakes_waits_in_another_handle(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        for n in range(2, 5):
            task = await _start_wait(other, n - 1)
            await log.append_to(store, term, input_added("x", f"k{n}"))
            assert await task == n

    async def test_an_offer_from_another_handle_wakes_the_writer(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")
        task = await _start_wait(store, 1)
        await offer_event(other, input_added("psst", "o"))
        assert await task == 2

    async def test_an_offer_wakes_waits_for_a_session_without_a_writer(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        tasks = [await _start_wait(handle, 1) for handle in (store, other)]
        await offer_event(other, input_added("psst", "o"))
        assert await asyncio.gather(*tasks) == [2, 2]

    async def test_a_wait_for_a_session_that_does_not_exist_yet_is_woken(self, store: Store, other: Store) -> None:
        tasks = [await _start_wait(handle, 0) for handle in (store, other)]
        await begin_session(store, "s")
        assert await asyncio.gather(*tasks) == [1, 1]

    async def test_waits_for_another_session_are_not_woken(self, store: Store) -> None:
        await write_session(store, "t")
        task = await _start_wait(store, 1, SessionId("t"))
        await begin_session(store, "s")
        await begin_session(store.with_namespace("elsewhere"), "t", input_added("a", "a"), input_added("b", "b"))
        assert not task.done()
        task.cancel()

    async def test_an_append_of_a_new_writer_wakes_older_waits(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s")
        watching = await _start_wait(store, 1)
        term = await other.events.claim(SESSION)
        await log.append_to(other, term, input_added("two", "k2"))
        assert await watching == 2

    async def test_a_cancelled_wait_does_not_disturb_others(self, store: Store) -> None:
        log, term = await begin_session(store, "s")
        task, other_task = await _start_wait(store, 1), await _start_wait(store, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await log.append_to(store, term, input_added("two", "k2"))
        assert await other_task == 2

    async def test_closing_a_handle_ends_its_waits(self, store: Store) -> None:
        await write_session(store, "s")
        task = await _start_wait(store, 1)
        await store.close()
        with pytest.raises(Closed):
            await task

    async def test_no_wake_up_is_missed_in_a_long_conversation(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")

        async def follow(handle: Store) -> list[int]:
            seen, head = [1], 1
            while head < 60:
                await handle.events.wait(SESSION, after=head)
                async for event in handle.events.read(SESSION, after=head):
                    head = event.seq
                    seen.append(head)
            return seen

        async def write(log: EventSealer) -> None:
            while log.head < 60:
                await log.append_to(store, term, input_added("x", f"k{log.head}"))
                await asyncio.sleep(0)

        one, two, _ = await asyncio.gather(follow(store), follow(other), write(log))
        assert one == two == list(range(1, 61))


WATCH_TIMEOUT = 30


class GrowingBlock:
    """An open block of the session ``s`` that grows."""

    def __init__(self, text: str = "", number: int = 0) -> None:
        self.text, self.number = text, number

    def snapshot(self) -> Event:
        body = MessageSnapshot(message_id=MessageId("m"), block=self.number, of="text.delta", text=self.text)
        return unsealed_event(SESSION, body)

    def share(self, store: Store) -> None:
        store.live.share(SESSION, lambda: [self.snapshot()])


async def _watch_until(handle: Store, text: str) -> Body:
    """Return the first snapshot with this text."""
    async with asyncio.timeout(WATCH_TIMEOUT), aclosing(handle.live.watch(SESSION)) as events:
        async for event in events:
            assert isinstance(event.data, MessageSnapshot)
            if event.data.text == text:
                return event.data
    raise AssertionError(f"the watch ended before {text!r}")


class LiveContract:
    """Snapshots of open blocks reach other handles; a slow, late or dead follower does not affect the writer."""

    async def test_a_follower_in_another_handle_gets_the_current_open_block(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")
        block = GrowingBlock("Hello 🛶 \x00")
        block.share(store)
        assert await _watch_until(other, block.text) == block.snapshot().data

    async def test_a_follower_in_another_handle_sees_an_open_block_grow(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")
        block = GrowingBlock()
        block.share(store)
        following = asyncio.create_task(_watch_until(other, "the end"))
        while not following.done():
            block.text = block.text + "." if len(block.text) < 20 and block.text != "the end" else "the end"
            store.live.touch(SESSION)
            await asyncio.sleep(0)
        assert await following == block.snapshot().data

    async def test_every_open_block_is_shown(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")
        one, two = GrowingBlock("one"), GrowingBlock("two", number=1)
        store.live.share(SESSION, lambda: [one.snapshot(), two.snapshot()])
        assert await _watch_until(other, "one") == one.snapshot().data
        assert await _watch_until(other, "two") == two.snapshot().data

    async def test_a_follower_may_come_before_the_writer(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        following = asyncio.create_task(_watch_until(other, "late"))
        await asyncio.sleep(0)
        await store.events.claim(SESSION)
        block = GrowingBlock("late")
        block.share(store)
        assert await following == block.snapshot().data

    async def test_blocks_that_are_no_longer_shared_are_not_sent(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        new = GrowingBlock("new")
        GrowingBlock("old").share(store)
        store.live.share(SESSION, None)
        store.live.touch(SESSION)
        async with asyncio.timeout(WATCH_TIMEOUT), aclosing(other.live.watch(SESSION)) as events:
            first = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            await log.append_to(store, term, input_added("two", "k2"))
            assert await other.events.wait(SESSION, after=1) == 2
            new.share(store)
            while not first.done():
                store.live.touch(SESSION)
                await asyncio.sleep(0)
            assert first.result().data == new.snapshot().data

    async def test_touching_a_session_without_followers_reads_no_blocks(self, store: Store) -> None:
        asked: list[int] = []

        def blocks() -> list[Event]:
            asked.append(1)
            return []

        await begin_session(store, "s")
        store.live.touch(SESSION)
        store.live.share(SESSION, blocks)
        store.live.touch(SESSION)
        store.live.touch(SessionId("unknown"))
        store.live.share(SessionId("unknown"), None)
        await asyncio.sleep(0)
        assert asked == []

    async def test_a_follower_that_leaves_does_not_disturb_the_writer(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        GrowingBlock("x").share(store)
        for _ in range(3):
            await _watch_until(other, "x")
        store.live.touch(SESSION)
        assert await log.append_to(store, term, input_added("on", "k2")) == 2

    async def test_namespaces_do_not_share_live_blocks(self, store: Store, other: Store) -> None:
        tenant, there = store.with_namespace("tenant"), other.with_namespace("tenant")
        mine, theirs = GrowingBlock("mine"), GrowingBlock("theirs")
        for handle, block in ((store, mine), (tenant, theirs)):
            await begin_session(handle, "s")
            block.share(handle)
        for handle, block in ((there, theirs), (other, mine)):
            async with asyncio.timeout(WATCH_TIMEOUT), aclosing(handle.live.watch(SESSION)) as events:
                assert (await anext(events)).data == block.snapshot().data

    async def test_a_watch_ends_with_its_handle(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")

        async def watch() -> list[Event]:
            async with aclosing(other.live.watch(SESSION)) as events:
                return [event async for event in events]

        task = asyncio.create_task(watch())
        for _ in range(5):
            await asyncio.sleep(0)
        await other.close()
        async with asyncio.timeout(WATCH_TIMEOUT):
            assert await task == []
