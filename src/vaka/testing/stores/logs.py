"""Contracts of the log: claims and terms, appending, reading, and finding changed bytes."""

# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
import pytest

from vaka.core.ports.store import Store
from vaka.core.session.index_rows import rebuild_row
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Busy, Closed, ConflictError, Corrupt, HeadMoved, LogError, NotFound
from vaka.core.types.event import Custom, Event, Unknown, decode
from vaka.core.types.ids import SessionId, Term
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    read_log,
    turn_events,
    unsealed_event,
    write_session,
)

SESSION = SessionId("s")

HOSTILE_SESSION_IDS = [
    "'; drop table sessions; --", "%", "_", "a%b_c", "é", "e\u0301", "日本語", "🛶", "\u202eabc", "..", "/etc/passwd",
    "a b", '"', "\\", "ÿ", "\U0010fffd", "x" * 200, "null", "0",
]  # fmt: skip


class LogContract:
    """Appending and reading."""

    async def test_what_was_appended_is_read_byte_for_byte(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s", SessionOpened(agent="a"), input_added("hello"))
        start, end = turn_events()
        await pen.append_to(store, term, start, Custom(name="x", value={"n": [1, 2.5, None]}), end, turn="t1")
        for handle in (store, other):
            read = [event async for event in handle.events.read(SESSION)]
            assert read == pen.events
            assert [event.seq for event in read] == [1, 2, 3, 4, 5]

    async def test_the_row_says_what_the_log_says(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s")
        start, end = turn_events()
        await pen.append_to(store, term, start, turn="t1")
        await pen.append_to(store, term, end, turn="t1")
        expected = msgspec.structs.replace(rebuild_row(SESSION, pen.events), term=1, live=True)
        assert await store.sessions.find(SESSION) == expected
        assert await other.sessions.find(SESSION) == expected

    async def test_a_log_is_read_from_and_up_to_any_event(self, store: Store) -> None:
        pen = await write_session(store, "s", *(input_added(str(n), str(n)) for n in range(10)))
        stored = [event.stored for event in pen.events]
        for after in range(11):
            assert await read_log(store, "s", after=after) == stored[after:]
            for upto in range(11):
                assert await read_log(store, "s", after=after, upto=upto) == stored[after:upto]
        assert await read_log(store, "s", after=99) == []
        assert await read_log(store, "s", upto=99) == stored

    async def test_an_unknown_session_has_an_empty_log(self, store: Store) -> None:
        assert await read_log(store, "nobody") == []
        assert await store.sessions.find(SessionId("nobody")) is None

    async def test_a_read_ends_at_the_head_it_began_with(self, store: Store) -> None:
        pen, term = await begin_session(store, "s", *(Custom(name="n", value=n) for n in range(700)))
        read: list[int] = []
        async with aclosing(store.events.read(SESSION)) as events:
            async for event in events:
                read.append(event.seq)
                if event.seq in {1, 400}:
                    await pen.append_to(store, term, Custom(name="meanwhile"))
        assert read == list(range(1, 701))
        assert len(await read_log(store, "s")) == 702

    async def test_a_batch_larger_than_a_transaction_usually_is_is_still_written_whole(self, store: Store) -> None:
        pen, term = await begin_session(store, "s", *(Custom(name="n", value=n) for n in range(1500)))
        assert await pen.append_to(store, term, Custom(name="last")) == 1501
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_a_batch_that_does_not_follow_the_head_writes_nothing(self, store: Store) -> None:
        pen, term = await begin_session(store, "s")
        good = EventSealer(SESSION)
        good.add_sealed(pen.events[0])
        first, second, third = good.seal(*(input_added(str(n), str(n)) for n in range(3)))
        strange = EventSealer(SESSION).seal(input_added("x", "x"), input_added("y", "y"))
        bad: list[list[Event]] = [
            [second],
            [first, third],
            [first, first],
            [second, first],
            [unsealed_event("s", input_added("x", "x"))],
            [first, unsealed_event("s", input_added("x", "x"))],
            [strange[1]],
            [first, strange[1]],
        ]
        for events in bad:
            with pytest.raises(LogError):
                await store.events.append(SESSION, events, head=1, term=term)
        assert await read_log(store, "s") == [pen.events[0].stored]
        found = await store.sessions.find(SESSION)
        assert found is not None
        assert (found.head, found.hash, found.inputs) == (1, pen.hash, 1)
        assert await store.events.append(SESSION, [first, second], head=1, term=term) == 3

    async def test_a_first_batch_that_does_not_begin_at_1_makes_no_session(self, store: Store) -> None:
        term = await store.events.claim(SESSION)
        with pytest.raises(LogError):
            await store.events.append(
                SESSION, EventSealer(SESSION).seal(input_added("a"), input_added("b", "b"))[1:], head=0, term=term
            )
        assert await store.sessions.find(SESSION) is None
        assert await EventSealer(SESSION).append_to(store, term, input_added("a")) == 1

    async def test_one_bad_batch_does_not_harm_those_written_with_it(self, store: Store) -> None:
        sessions = [await begin_session(store, f"s{n}") for n in range(9)]
        got = await asyncio.gather(
            *(
                store.events.append(
                    pen.session, pen.seal(input_added("x", "x"))[: n % 3], head=1 if n % 3 else 0, term=term
                )
                for n, (pen, term) in enumerate(sessions)
            ),
            return_exceptions=True,
        )
        assert [head if isinstance(head, int) else 0 for head in got] == [0, 2, 2] * 3
        for n, (pen, _) in enumerate(sessions):
            assert await read_log(store, pen.session) == [event.stored for event in pen.events[: 2 if n % 3 else 1]]

    async def test_an_empty_batch_checks_the_head_and_may_release(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s")
        assert await store.events.append(SESSION, [], head=1, term=term) == 1
        assert await store.events.append(SESSION, [], head=1, term=term, release=True) == 1
        assert await other.events.claim(SESSION) == term + 1
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_events_of_a_type_nobody_knows_keep_their_bytes(self, store: Store) -> None:
        odd = b'{ "z" : 1.50,"a":[ ],"big":123456789012345678901234567890,"u":"\\u00e9"}'
        pen = await write_session(store, "s", Unknown(name="future.thing", raw=odd, of="control"), input_added("x"))
        assert await read_log(store, "s") == [event.stored for event in pen.events]
        assert odd in pen.events[0].stored
        assert (await anext(store.events.read(SESSION))).type == "future.thing"

    async def test_any_text_survives(self, store: Store) -> None:
        texts = ["\x00", "a\x00b", "\u2028\u2029\x85", "\ufffe\uffff", "🛶" * 1000, '"\\\n', "\x1b[0m", ""]
        pen = await write_session(store, "s", *(input_added(text, f"k{n}") for n, text in enumerate(texts)))
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_ten_megabytes_in_one_event_survive(self, store: Store) -> None:
        pen = await write_session(store, "s", input_added("0123456789" * 1_000_000))
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_session_ids_are_only_names(self, store: Store, other: Store) -> None:
        pens = {name: await write_session(store, name, input_added(name)) for name in HOSTILE_SESSION_IDS}
        for name, pen in pens.items():
            assert await read_log(other, name) == [event.stored for event in pen.events]
            found = await other.sessions.find(SessionId(name))
            assert found is not None
            assert found.id == name

    async def test_namespaces_never_see_each_other(self, store: Store, other: Store) -> None:
        tenant, again = store.with_namespace("tenant"), other.with_namespace("tenant")
        mine, _ = await begin_session(store, "s", input_added("mine"))
        theirs, term = await begin_session(tenant, "s", input_added("theirs"))
        await theirs.append_to(tenant, term, input_added("more", "k2"))
        assert await read_log(other, "s") == [event.stored for event in mine.events]
        assert await read_log(again, "s") == [event.stored for event in theirs.events]
        assert await read_log(store.with_namespace("tenant2"), "s") == []
        assert await read_log(store.with_namespace("tenan"), "s") == []
        assert (tenant.namespace, store.namespace) == ("tenant", "")

    async def test_a_fork_is_the_same_bytes_under_another_name(self, store: Store) -> None:
        pen = await write_session(store, "s", *(input_added(str(n), str(n)) for n in range(5)))
        fork = SessionId("fork")
        term = await store.events.claim(fork)
        assert await store.events.append(fork, pen.events[:3], head=0, term=term) == 3
        assert await read_log(store, "fork") == (await read_log(store, "s"))[:3]

    async def test_a_hundred_sessions_at_once_each_get_their_own_log(self, store: Store) -> None:
        async def session(name: str) -> EventSealer:
            pen, term = await begin_session(store, name, input_added(name))
            for n in range(5):
                await pen.append_to(store, term, input_added(str(n), f"{n}a"), input_added(str(n), f"{n}b"))
            return pen

        pens = await asyncio.gather(*(session(f"s{n}") for n in range(100)))
        for pen in pens:
            assert await read_log(store, pen.session) == [event.stored for event in pen.events]

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    async def test_a_cancelled_append_was_written_whole_or_not_at_all(self, store: Store, turns: int) -> None:
        pen, term = await begin_session(store, "s")
        task = asyncio.create_task(pen.append_to(store, term, input_added("a", "ka"), input_added("b", "kb")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while True:  # a write that was under way may still arrive; then the next one is told
            stored = await read_log(store, "s")
            assert stored in ([event.stored for event in pen.events[:1]], [event.stored for event in pen.events])
            on = EventSealer(SESSION)
            for event in stored:
                on.add_sealed(decode(event))
            try:
                assert await on.append_to(store, term, input_added("c", "kc")) == len(stored) + 1
                break
            except HeadMoved:
                continue
        assert await read_log(store, "s") == [event.stored for event in on.events]


class ChainContract:
    """Changed bytes show. ``tamper(session, seq, stored)`` writes behind the store's back."""

    @pytest.fixture
    def tamper(self) -> Callable[[str, int, bytes | None], Awaitable[None]]:
        """Replace the stored bytes of an event, or remove it."""
        raise NotImplementedError

    async def test_a_changed_event_is_found_whichever_it_is(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        pen = await write_session(store, "s", *(input_added(f"word {n}", str(n)) for n in range(4)))
        for event in pen.events:
            await tamper("s", event.seq, event.stored.replace(b"word", b"ward"))
            with pytest.raises(Corrupt):
                await read_log(store, "s")
            with pytest.raises(Corrupt):
                await read_log(store, "s", after=event.seq - 1)
            if event.seq < 4:
                with pytest.raises(Corrupt):
                    await read_log(store, "s", after=event.seq)
            await tamper("s", event.seq, event.stored)
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_a_missing_event_is_found_whichever_it_is(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        for seq in range(1, 5):
            await write_session(store, f"s{seq}", *(input_added(f"word {n}", str(n)) for n in range(4)))
            await tamper(f"s{seq}", seq, None)
            with pytest.raises(Corrupt):
                await read_log(store, f"s{seq}")

    async def test_bytes_that_are_no_event_are_found(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        await write_session(store, "s")
        for stored in (b"", b"{", b"[]", b"\xff\xfe", b"null"):
            await tamper("s", 1, stored)
            with pytest.raises(Corrupt):
                await read_log(store, "s")


CLAIMED_SESSION = SessionId("s")


class ClaimsContract:
    """Claims, terms and fencing."""

    async def test_a_new_session_is_claimed_with_term_1_and_exists_from_its_first_append_on(self, store: Store) -> None:
        assert await store.events.claim(CLAIMED_SESSION) == 1
        assert await store.sessions.find(CLAIMED_SESSION) is None
        pen = EventSealer(CLAIMED_SESSION)
        assert await pen.append_to(store, Term(1), input_added("hello")) == 1
        found = await store.sessions.find(CLAIMED_SESSION)
        assert found is not None
        assert (found.head, found.term) == (1, 1)

    async def test_a_session_that_is_written_cannot_be_claimed_by_another_handle(
        self, store: Store, other: Store
    ) -> None:
        await begin_session(store, "s")
        with pytest.raises(Busy):
            await other.events.claim(CLAIMED_SESSION)

    async def test_nor_by_the_same_handle_again(self, store: Store) -> None:
        await store.events.claim(CLAIMED_SESSION)
        with pytest.raises(Busy):
            await store.events.claim(CLAIMED_SESSION)

    async def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        got = await asyncio.gather(
            *(handle.events.claim(CLAIMED_SESSION) for _ in range(8) for handle in (store, other)),
            return_exceptions=True,
        )
        assert [term for term in got if not isinstance(term, Busy)] == [2]

    async def test_of_two_who_claim_a_session_nobody_has_written_one_gets_to_write_it(
        self, store: Store, other: Store
    ) -> None:
        wrote: list[list[bytes]] = []
        for handle in (store, other):
            pen = EventSealer(CLAIMED_SESSION)
            try:
                await pen.append_to(
                    handle, await handle.events.claim(CLAIMED_SESSION), input_added(f"from {len(wrote)}")
                )
            except (Busy, ConflictError):
                continue
            wrote.append([event.stored for event in pen.events])
        assert wrote == [await read_log(store, "s")]

    async def test_two_who_both_got_a_claim_on_an_unwritten_session_cannot_both_write(
        self, store: Store, other: Store
    ) -> None:
        claims: list[tuple[Store, Term]] = []
        for handle in (store, other):
            try:
                claims.append((handle, await handle.events.claim(CLAIMED_SESSION)))
            except Busy:
                continue
        got = await asyncio.gather(
            *(
                EventSealer(CLAIMED_SESSION).append_to(handle, term, input_added(str(n)))
                for n, (handle, term) in enumerate(claims)
            ),
            return_exceptions=True,
        )
        assert [head for head in got if not isinstance(head, ConflictError)] == [1]
        assert len(await read_log(other, "s")) == 1

    async def test_each_claim_has_a_higher_term(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        for term, handle in enumerate((other, store, store, other), 2):
            assert await handle.events.claim(CLAIMED_SESSION) == term
            await handle.events.release(CLAIMED_SESSION, Term(term))

    async def test_the_end_of_a_claim_lets_another_writer_in(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s")
        assert store.events.is_held(CLAIMED_SESSION, term)
        await store.events.release(CLAIMED_SESSION, term)
        assert not store.events.is_held(CLAIMED_SESSION, term)
        later = await other.events.claim(CLAIMED_SESSION)
        assert other.events.is_held(CLAIMED_SESSION, later)
        assert await pen.append_to(other, later, input_added("more", "k2")) == 2

    async def test_release_in_an_append_ends_the_claim_with_it(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s")
        await pen.append_to(store, term, input_added("bye", "k2"), release=True)
        assert not store.events.is_held(CLAIMED_SESSION, term)
        assert await other.events.claim(CLAIMED_SESSION) == term + 1
        assert await read_log(other, "s") == [event.stored for event in pen.events]

    async def test_releasing_a_claim_that_is_over_does_nothing(self, store: Store, other: Store) -> None:
        _, old = await begin_session(store, "s")
        await store.events.release(CLAIMED_SESSION, old)
        term = await other.events.claim(CLAIMED_SESSION)
        await store.events.release(CLAIMED_SESSION, old)
        await store.events.release(SessionId("unknown"), Term(3))
        assert other.events.is_held(CLAIMED_SESSION, term)
        with pytest.raises(Busy):
            await store.events.claim(CLAIMED_SESSION)

    async def test_a_claim_on_an_unwritten_session_can_be_released_too(self, store: Store, other: Store) -> None:
        term = await store.events.claim(CLAIMED_SESSION)
        await store.events.release(CLAIMED_SESSION, term)
        assert not store.events.is_held(CLAIMED_SESSION, term)
        await begin_session(other, "s")

    async def test_an_old_term_is_refused_and_writes_nothing(self, store: Store, other: Store) -> None:
        pen, old = await begin_session(store, "s")
        await store.events.release(CLAIMED_SESSION, old)
        term = await other.events.claim(CLAIMED_SESSION)
        with pytest.raises(ConflictError):
            await EventSealer(CLAIMED_SESSION).append_to(store, old, input_added("stale"))
        stale = EventSealer(CLAIMED_SESSION)
        stale.add_sealed(pen.events[0])
        with pytest.raises(ConflictError):
            await stale.append_to(store, old, input_added("stale"))
        await pen.append_to(other, term, input_added("fresh", "k2"))
        assert await read_log(store, "s") == [event.stored for event in pen.events]

    async def test_an_old_term_is_refused_after_the_same_handle_has_claimed_again(self, store: Store) -> None:
        pen, old = await begin_session(store, "s")
        await store.events.release(CLAIMED_SESSION, old)
        term = await store.events.claim(CLAIMED_SESSION)
        assert not store.events.is_held(CLAIMED_SESSION, old)
        with pytest.raises(ConflictError):
            await store.events.append(CLAIMED_SESSION, pen.seal(input_added("stale", "k2")), head=1, term=old)
        assert store.events.is_held(CLAIMED_SESSION, term)
        assert len(await read_log(store, "s")) == 1

    async def test_who_never_claimed_cannot_append(self, store: Store, other: Store) -> None:
        with pytest.raises(ConflictError):
            await EventSealer(CLAIMED_SESSION).append_to(store, Term(1), input_added("hello"))
        pen, term = await begin_session(store, "s")
        with pytest.raises(ConflictError):
            await pen.append_to(other, term, input_added("mine", "k2"))
        assert len(await read_log(store, "s")) == 1

    async def test_a_writer_whose_head_is_behind_is_told_and_keeps_its_claim(self, store: Store) -> None:
        pen, term = await begin_session(store, "s")
        await pen.append_to(store, term, input_added("two", "k2"))
        behind = EventSealer(CLAIMED_SESSION)
        behind.add_sealed(pen.events[0])
        with pytest.raises(HeadMoved):
            await behind.append_to(store, term, input_added("three", "k3"))
        with pytest.raises(HeadMoved):
            await EventSealer(CLAIMED_SESSION).append_to(store, term, input_added("again"))
        assert store.events.is_held(CLAIMED_SESSION, term)
        assert await pen.append_to(store, term, input_added("three", "k3")) == 3

    async def test_closing_a_handle_ends_its_claims(self, store: Store, other: Store) -> None:
        pen, term = await begin_session(store, "s")
        await store.close()
        assert not store.events.is_held(CLAIMED_SESSION, term)
        assert await other.events.claim(CLAIMED_SESSION) == term + 1
        assert await pen.append_to(other, Term(term + 1), input_added("on", "k2")) == 2

    async def test_a_closed_handle_says_so(self, store: Store) -> None:
        await begin_session(store, "s")
        await store.close()
        await store.close()
        with pytest.raises(Closed):
            await store.events.claim(SessionId("t"))
        with pytest.raises(Closed):
            await store.sessions.find(CLAIMED_SESSION)
        with pytest.raises(Closed):
            await read_log(store, "s")

    async def test_a_claim_of_one_session_is_not_a_claim_of_another(self, store: Store, other: Store) -> None:
        _, term = await begin_session(store, "s")
        await begin_session(other, "t")
        assert not store.events.is_held(SessionId("t"), term)
        with pytest.raises(Busy):
            await store.events.claim(SessionId("t"))

    async def test_a_deleted_session_is_nobodys(self, store: Store, other: Store) -> None:
        _, term = await begin_session(store, "s")
        with pytest.raises(Busy):
            await other.sessions.delete(CLAIMED_SESSION)
        await store.events.release(CLAIMED_SESSION, term)
        await other.sessions.delete(CLAIMED_SESSION)
        with pytest.raises(NotFound):
            await other.sessions.delete(CLAIMED_SESSION)
        with pytest.raises(ConflictError):
            await EventSealer(CLAIMED_SESSION).append_to(store, term, input_added("ghost"))
        await begin_session(other, "s")
