"""The stores give the same results: random operations on two handles of each, compared step by step."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.core.ports.store import Retention, SessionQuery, Store
from vaka.core.types.control import SessionClosed, SessionReverted
from vaka.core.types.errors import VakaError
from vaka.core.types.event import Body, Custom
from vaka.core.types.ids import SessionId, Term
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    approval_resolved,
    format_time,
    input_added,
    question_asked,
    read_log,
    turn_events,
    unsealed_event,
    write_session,
)

SESSIONS = [SessionId(name) for name in ("a", "b", "c")]


class RandomWork:
    """Random operations that depend only on the seed."""

    def __init__(self, seed: int, store: Store, other: Store) -> None:
        self.random, self.handles = random.Random(seed), (store, other)
        self.terms: dict[tuple[int, SessionId], Term] = {}
        self.at = 0

    async def run(self, steps: int) -> list[tuple[str, object]]:
        """Return the outcome of each step."""
        for name in SESSIONS:
            await write_session(self.handles[0], name)
        works: list[Callable[[int, SessionId], Awaitable[object]]] = [
            self.claim,
            self.append,
            self.append,
            self.append,
            self.offer,
            self.offer,
            self.release,
            self.look,
            self.list,
            self.delete,
            self.gc,
            self.values,
            self.messages,
        ]
        outcomes: list[tuple[str, object]] = []
        for _ in range(steps):
            self.at += 1
            work = self.random.choice(works)
            side = self.random.randrange(2)
            name = self.random.choice(SESSIONS)
            try:
                outcomes.append((work.__name__, await work(side, name)))
            except VakaError as error:
                outcomes.append((work.__name__, type(error).__name__))
        return outcomes

    def random_body(self) -> Body:
        key = self.random.choice("klmnop")
        start, end = turn_events()
        return self.random.choice(
            [
                input_added(f"{self.at}", key),
                approval_requested(key),
                approval_resolved(key),
                question_asked(key),
                start,
                end,
                Custom(name=key),
                SessionClosed(),
                SessionReverted(to=1),
            ]
        )

    async def claim(self, side: int, name: SessionId) -> object:
        if await self.handles[side].sessions.find(name) is None:
            return None  # claims of new sessions differ between stores
        self.terms[side, name] = await self.handles[side].events.claim(name)
        return self.terms[side, name]

    async def append(self, side: int, name: SessionId) -> object:
        store, bodies = self.handles[side], [self.random_body() for _ in range(self.random.randrange(1, 4))]
        release, behind = self.random.random() < 0.2, self.random.random() < 0.1
        term = self.terms.get((side, name), Term(1))
        events = [event async for event in store.events.read(name)]
        log = EventSealer(name, *events[: len(events) - behind], at=self.at)
        return await log.append_to(store, term, *bodies, turn="t", release=release), store.events.is_held(name, term)

    async def offer(self, side: int, name: SessionId) -> object:
        key = self.random.choice("klmnopqrs")
        body = self.random.choice([input_added(f"{self.at}", key), approval_resolved(key)])
        return await self.handles[side].events.offer(name, unsealed_event(name, body, at=self.at), key=key)

    async def release(self, side: int, name: SessionId) -> object:
        await self.handles[side].events.release(name, self.terms.get((side, name), Term(1)))
        return None

    async def look(self, side: int, name: SessionId) -> object:
        store = self.handles[side]
        return (
            await store.sessions.find(name),
            await read_log(store, name, after=self.random.randrange(5)),
            list(await store.sessions.decisions()),
        )

    async def list(self, side: int, name: SessionId) -> object:
        query = SessionQuery(
            status=self.random.choice([None, "idle", "queued", "running", "waiting", "closed"]),
            text=self.random.choice(["", "1"]),
            limit=self.random.randrange(1, 4),
        )
        page = await self.handles[side].sessions.list(query)
        return page, await self.handles[side].sessions.list(msgspec.structs.replace(query, after=page.next))

    async def delete(self, side: int, name: SessionId) -> object:
        if self.random.random() < 0.7:
            return None
        await self.handles[side].sessions.delete(name)
        await write_session(self.handles[side], name, input_added("anew"), at=self.at)
        return True

    async def gc(self, side: int, name: SessionId) -> object:
        before = format_time(self.at - 30)
        return await self.handles[side].gc(Retention(idle_before=before, dry_run=self.random.random() < 0.5))

    async def messages(self, side: int, name: SessionId) -> object:
        messages = self.handles[side].messages
        text = self.random.choice(["1*", "2*", "hello", "anew"])
        hits = (await messages.search(MessageSearch(text=text, limit=100))).hits
        listed = await messages.list(name, MessageQuery(limit=self.random.randrange(1, 9), reverse=True))
        found = await messages.find(name, self.random.choice("klmnop"))
        return sorted((hit.message.session, hit.message.seq, hit.score) for hit in hits), listed, found

    async def values(self, side: int, name: SessionId) -> object:
        values = self.handles[side].values
        await values.put(self.random.choice("xyz"), self.random.choice([None, self.at]))
        return await values.keys(), await values.get("x")


@pytest.mark.parametrize("seed", range(8))
async def test_memory_and_sqlite_give_the_same_results(tmp_path: Path, seed: int) -> None:
    memory = MemoryStore()
    expected = await RandomWork(seed, memory, memory.open_handle()).run(250)
    store, other = (SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2))
    assert await RandomWork(seed, store, other).run(250) == expected
    assert await store.reindex() == len((await store.sessions.list(SessionQuery(limit=100))).sessions)
    await other.close()
    await store.close()
