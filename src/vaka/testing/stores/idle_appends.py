"""Contracts of appends to idle sessions: claim, write and release in one transaction."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio

import msgspec
import pytest

from vaka.core.ports.messages import MessageQuery
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.index_rows import rebuild_row
from vaka.core.types.errors import Busy, ConflictError, HeadMoved, InvalidInput, LogError
from vaka.core.types.ids import SessionId
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    find_session,
    input_added,
    offer_event,
    read_log,
    write_session,
)

SESSION = SessionId("s")
NEW = SessionInfo(id=SESSION)


class IdleAppendsContract:
    """Appending to a session that has no writer."""

    async def test_an_idle_append_writes_a_new_session_and_continues_it(self, store: Store, other: Store) -> None:
        log = EventSealer("s")
        assert await store.events.append_idle(NEW, log.seal(input_added("one", "1"), input_added("two", "2"))) == 2
        assert await other.events.append_idle(await find_session(other), log.seal(input_added("three", "3"))) == 3
        assert await read_log(store, "s") == log.stored
        expected = msgspec.structs.replace(rebuild_row(SESSION, log.events), term=2)
        assert await store.sessions.find(SESSION) == expected
        listed = await store.messages.list(SESSION, MessageQuery())
        assert [row.text for row in listed.messages] == ["one", "two", "three"]

    async def test_an_idle_append_leaves_the_session_without_a_writer(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s")
        await store.events.append_idle(await find_session(store), log.seal(input_added("two", "2")))
        assert not (await find_session(other)).live
        assert await other.events.claim(SESSION) == 3

    async def test_an_idle_append_of_no_events_changes_nothing(self, store: Store) -> None:
        await write_session(store, "s")
        before = await find_session(store)
        assert await store.events.append_idle(before, []) == before.head
        assert await find_session(store) == before

    async def test_a_session_with_a_writer_refuses_idle_appends(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        found = await find_session(store)
        events = EventSealer("s", *log.events).seal(input_added("two", "2"))
        for handle in (store, other):
            with pytest.raises(Busy):
                await handle.events.append_idle(found, events)
        assert await log.append_to(store, term, input_added("three", "3")) == 2
        assert await read_log(store, "s") == log.stored

    async def test_a_claim_of_a_new_session_refuses_idle_appends_of_its_handle(self, store: Store) -> None:
        term = await store.events.claim(SESSION)
        log = EventSealer("s")
        with pytest.raises(Busy):
            await store.events.append_idle(NEW, EventSealer("s").seal(input_added("other", "other")))
        assert await log.append_to(store, term, input_added("hello")) == 1

    async def test_an_idle_append_to_a_session_that_has_changed_writes_nothing(self, store: Store) -> None:
        log = await write_session(store, "s")
        read = await find_session(store)
        late = EventSealer("s", *log.events).seal(input_added("late", "late"))
        await offer_event(store, input_added("offered", "offered"))
        with pytest.raises(HeadMoved):
            await store.events.append_idle(read, late)
        with pytest.raises(HeadMoved):
            await store.events.append_idle(NEW, EventSealer("s").seal(input_added("first", "first")))
        with pytest.raises(HeadMoved):
            await store.events.append_idle(SessionInfo(id=SessionId("unknown"), head=1, hash=log.hash, term=1), late)
        assert len(await read_log(store, "s")) == 2

    async def test_a_claim_since_the_read_moves_an_idle_append(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s")
        read = await find_session(store)
        await other.events.release(SESSION, await other.events.claim(SESSION))
        events = log.seal(input_added("two", "2"))
        with pytest.raises(HeadMoved):
            await store.events.append_idle(read, events)
        assert await store.events.append_idle(await find_session(store), events) == 2

    async def test_one_of_many_simultaneous_idle_appends_wins(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s")
        read = await find_session(store)

        async def append(number: int) -> bool:
            events = EventSealer("s", *log.events).seal(input_added(str(number), str(number)))
            try:
                await (store, other)[number % 2].events.append_idle(read, events)
            except HeadMoved:
                return False
            return True

        assert sorted(await asyncio.gather(*map(append, range(10)))) == [False] * 9 + [True]
        assert len(await read_log(store, "s")) == 2

    async def test_idle_appends_to_many_sessions_at_once_are_all_written(self, store: Store) -> None:
        logs = [await write_session(store, f"s{number}") for number in range(20)]
        infos = [await find_session(store, log.session) for log in logs]
        heads = await asyncio.gather(
            *(
                store.events.append_idle(info, log.seal(input_added("two", "2")))
                for info, log in zip(infos, logs, strict=True)
            )
        )
        assert heads == [2] * 20
        for log in logs:
            assert await read_log(store, log.session) == log.stored

    async def test_an_idle_append_that_does_not_follow_the_head_writes_nothing(self, store: Store) -> None:
        log = await write_session(store, "s")
        read = await find_session(store)
        _, second = EventSealer("s", *log.events).seal(input_added("one", "1"), input_added("two", "2"))
        foreign = EventSealer("s").seal(input_added("x", "x"), input_added("y", "y"))[1]
        for event in (second, foreign):
            with pytest.raises(LogError):
                await store.events.append_idle(read, [event])
        assert await find_session(store) == read

    async def test_an_idle_append_ends_the_claim_of_an_older_term(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        await store.events.release(SESSION, term)
        await other.events.append_idle(await find_session(other), log.seal(input_added("two", "2")))
        with pytest.raises(ConflictError):
            await log.append_to(store, term, input_added("three", "3"))

    async def test_an_idle_append_wakes_those_that_wait_for_the_session(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s")
        waits = [asyncio.create_task(handle.events.wait(SESSION, after=1)) for handle in (store, other)]
        await store.events.append_idle(await find_session(store), log.seal(input_added("two", "2")))
        assert await asyncio.gather(*waits) == [2, 2]

    async def test_an_erased_session_refuses_idle_appends(self, store: Store) -> None:
        await write_session(store, "s")
        await store.erase([SESSION])
        log = await EventSealer("s").catch_up(store)
        with pytest.raises(InvalidInput, match="was erased"):
            await store.events.append_idle(await find_session(store), log.seal(input_added("two", "2")))

    async def test_idle_appends_are_of_their_namespace(self, store: Store) -> None:
        log = await write_session(store, "s")
        tenant = store.with_namespace("tenant")
        with pytest.raises(HeadMoved):
            await tenant.events.append_idle(await find_session(store), log.seal(input_added("two", "2")))
        assert await tenant.sessions.find(SESSION) is None
