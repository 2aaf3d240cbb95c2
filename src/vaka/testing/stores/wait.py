"""Waiting for a log to grow."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio

import pytest

from vaka.core.ports.store import Store
from vaka.core.types.errors import Closed
from vaka.core.types.ids import SessionId
from vaka.testing.stores.pen import Pen, begun, kept, said, unsealed

S = SessionId("s")


async def _waiting(store: Store, after: int, session: SessionId = S) -> "asyncio.Task[int]":
    task = asyncio.create_task(store.events.wait(session, after=after))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


class WaitContract:
    """Wake-ups: none is missed, whoever wrote."""

    async def test_a_head_that_is_already_above_is_returned_at_once(self, store: Store, other: Store) -> None:
        await kept(store, "s", said("a", "a"), said("b", "b"))
        assert await store.events.wait(S, after=0) == 2
        assert await other.events.wait(S, after=1) == 2

    async def test_an_append_wakes_those_who_wait_beside_the_writer(self, store: Store) -> None:
        pen, term = await begun(store, "s")
        tasks = [await _waiting(store, 1) for _ in range(3)]
        later = await _waiting(store, 2)
        await pen.write(store, term, said("two", "k2"))
        assert await asyncio.gather(*tasks) == [2, 2, 2]
        assert not later.done()
        await pen.write(store, term, said("three", "k3"))
        assert await later == 3

    async def test_an_append_wakes_those_who_wait_elsewhere(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        for n in range(2, 5):
            task = await _waiting(other, n - 1)
            await pen.write(store, term, said("x", f"k{n}"))
            assert await task == n

    async def test_an_offer_from_elsewhere_wakes_the_writer(self, store: Store, other: Store) -> None:
        await begun(store, "s")
        task = await _waiting(store, 1)
        await other.events.offer(S, unsealed("s", said("psst", "o")), key="o")
        assert await task == 2

    async def test_an_offer_wakes_those_who_wait_while_nobody_writes(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        tasks = [await _waiting(handle, 1) for handle in (store, other)]
        await other.events.offer(S, unsealed("s", said("psst", "o")), key="o")
        assert await asyncio.gather(*tasks) == [2, 2]

    async def test_one_can_wait_for_a_session_that_does_not_exist_yet(self, store: Store, other: Store) -> None:
        tasks = [await _waiting(handle, 0) for handle in (store, other)]
        await begun(store, "s")
        assert await asyncio.gather(*tasks) == [1, 1]

    async def test_those_who_wait_for_another_session_sleep_on(self, store: Store) -> None:
        await kept(store, "t")
        task = await _waiting(store, 1, SessionId("t"))
        await begun(store, "s")
        await begun(store.scoped("elsewhere"), "t", said("a", "a"), said("b", "b"))
        assert not task.done()
        task.cancel()

    async def test_a_new_writer_wakes_those_who_waited_for_the_old_one(self, store: Store, other: Store) -> None:
        pen = await kept(store, "s")
        watching = await _waiting(store, 1)
        term = await other.events.claim(S)
        await pen.write(other, term, said("two", "k2"))
        assert await watching == 2

    async def test_who_stops_waiting_is_forgotten(self, store: Store) -> None:
        pen, term = await begun(store, "s")
        task, other_task = await _waiting(store, 1), await _waiting(store, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await pen.write(store, term, said("two", "k2"))
        assert await other_task == 2

    async def test_a_closed_handle_waits_for_nothing(self, store: Store) -> None:
        await kept(store, "s")
        task = await _waiting(store, 1)
        await store.close()
        with pytest.raises(Closed):
            await task

    async def test_no_wake_up_is_missed_in_a_long_conversation(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")

        async def follow(handle: Store) -> list[int]:
            seen, head = [1], 1
            while head < 60:
                await handle.events.wait(S, after=head)
                async for event in handle.events.read(S, after=head):
                    head = event.seq
                    seen.append(head)
            return seen

        async def write(pen: Pen) -> None:
            while pen.head < 60:
                await pen.write(store, term, said("x", f"k{pen.head}"))
                await asyncio.sleep(0)

        one, two, _ = await asyncio.gather(follow(store), follow(other), write(pen))
        assert one == two == list(range(1, 61))
