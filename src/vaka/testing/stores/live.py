"""What is not stored: open blocks, for followers elsewhere."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio
from contextlib import aclosing

from vaka.core.ports.store import Store
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId
from vaka.core.types.progress import MessageSnapshot
from vaka.testing.stores.pen import begun, kept, said, unsealed

S = SessionId("s")
PATIENCE = 30


class Block:
    """An open block that grows."""

    def __init__(self, session: str = "s", number: int = 0) -> None:
        self.session, self.number, self.text = session, number, ""

    def snapshot(self) -> Event:
        """Return what it holds so far."""
        body = MessageSnapshot(message_id=MessageId("m"), block=self.number, of="text.delta", text=self.text)
        return unsealed(self.session, body)


async def _until(handle: Store, text: str, session: SessionId = S) -> Event:
    """Watch until a snapshot with this text comes."""
    async with asyncio.timeout(PATIENCE), aclosing(handle.live.watch(session)) as events:
        async for event in events:
            assert isinstance(event.data, MessageSnapshot)
            if event.data.text == text:
                return event
    raise AssertionError(f"the watch ended before {text!r}")


class LiveContract:
    """Snapshots cross handles; nobody who is slow, late or gone harms the writer."""

    async def test_a_follower_elsewhere_gets_the_open_block_as_it_is_now(self, store: Store, other: Store) -> None:
        await begun(store, "s")
        block = Block()
        block.text = "Hello 🛶 \x00"
        store.live.share(S, lambda: [block.snapshot()])
        assert (await _until(other, block.text)).data == block.snapshot().data

    async def test_and_as_it_grows(self, store: Store, other: Store) -> None:
        await begun(store, "s")
        block = Block()
        store.live.share(S, lambda: [block.snapshot()])
        following = asyncio.create_task(_until(other, "the end"))
        while not following.done():
            block.text = block.text + "." if len(block.text) < 20 and block.text != "the end" else "the end"
            store.live.touch(S)
            await asyncio.sleep(0)
        assert (await following).data == block.snapshot().data

    async def test_every_open_block_is_shown(self, store: Store, other: Store) -> None:
        await begun(store, "s")
        one, two = Block(number=0), Block(number=1)
        one.text, two.text = "one", "two"
        store.live.share(S, lambda: [one.snapshot(), two.snapshot()])
        assert (await _until(other, "one")).data == one.snapshot().data
        assert (await _until(other, "two")).data == two.snapshot().data

    async def test_a_follower_may_come_before_the_writer(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        following = asyncio.create_task(_until(other, "late"))
        await asyncio.sleep(0)
        await store.events.claim(S)
        block = Block()
        block.text = "late"
        store.live.share(S, lambda: [block.snapshot()])
        async with asyncio.timeout(PATIENCE):
            assert (await following).data == block.snapshot().data

    async def test_what_is_no_longer_shared_is_not_sent(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        old, new = Block(), Block()
        old.text, new.text = "old", "new"
        store.live.share(S, lambda: [old.snapshot()])
        store.live.share(S, None)
        store.live.touch(S)
        async with asyncio.timeout(PATIENCE), aclosing(other.live.watch(S)) as events:
            first = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            await pen.write(store, term, said("two", "k2"))
            assert await other.events.wait(S, after=1) == 2
            store.live.share(S, lambda: [new.snapshot()])
            while not first.done():
                store.live.touch(S)
                await asyncio.sleep(0)
            assert first.result().data == new.snapshot().data

    async def test_touching_what_nobody_follows_or_shares_does_nothing(self, store: Store) -> None:
        asked: list[int] = []

        def blocks() -> list[Event]:
            asked.append(1)
            return []

        await begun(store, "s")
        store.live.touch(S)
        store.live.share(S, blocks)
        store.live.touch(S)
        store.live.touch(SessionId("unknown"))
        store.live.share(SessionId("unknown"), None)
        await asyncio.sleep(0)
        assert asked == []

    async def test_a_follower_that_leaves_is_forgotten(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        block = Block()
        block.text = "x"
        store.live.share(S, lambda: [block.snapshot()])
        for _ in range(3):
            await _until(other, "x")
        store.live.touch(S)
        assert await pen.write(store, term, said("on", "k2")) == 2

    async def test_namespaces_are_apart(self, store: Store, other: Store) -> None:
        tenant, there = store.scoped("tenant"), other.scoped("tenant")
        mine, theirs = Block(), Block()
        mine.text, theirs.text = "mine", "theirs"
        await begun(store, "s")
        await begun(tenant, "s")
        store.live.share(S, lambda: [mine.snapshot()])
        tenant.live.share(S, lambda: [theirs.snapshot()])
        async with asyncio.timeout(PATIENCE), aclosing(there.live.watch(S)) as events:
            assert (await anext(events)).data == theirs.snapshot().data
        async with asyncio.timeout(PATIENCE), aclosing(other.live.watch(S)) as events:
            assert (await anext(events)).data == mine.snapshot().data

    async def test_a_watch_ends_with_its_handle(self, store: Store, other: Store) -> None:
        await begun(store, "s")

        async def watch() -> list[Event]:
            async with aclosing(other.live.watch(S)) as events:
                return [event async for event in events]

        task = asyncio.create_task(watch())
        for _ in range(5):
            await asyncio.sleep(0)
        await other.close()
        async with asyncio.timeout(PATIENCE):
            assert await task == []
