"""Contracts of the log: claims and terms, appending, reading, and detection of changed bytes."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from hashlib import sha256
from typing import TypeAlias

import msgspec
import pytest

from vaka.core.ports.store import Store
from vaka.core.session.index_rows import rebuild_row
from vaka.core.types.control import SessionOpened
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy, Closed, ConflictError, Corrupt, HeadMoved, LogError, NotFound
from vaka.core.types.event import Custom, Event, Unknown
from vaka.core.types.ids import SessionId, Term
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    approval_resolved,
    begin_session,
    find_session,
    input_added,
    offer_event,
    read_log,
    turn_events,
    unsealed_event,
    write_session,
)

SESSION = SessionId("s")

Tamper: TypeAlias = Callable[[str, int, bytes | None], Awaitable[None]]

HOSTILE_SESSION_IDS = [
    "'; drop table sessions; --",
    "%",
    "_",
    "a%b_c",
    "é",
    "e\u0301",
    "日本語",
    "🛶",
    "\u202eabc",
    "..",
    "/etc/passwd",
    "a b",
    '"',
    "\\",
    "ÿ",
    "\U0010fffd",
    "x" * 200,
    "null",
    "0",
]


def digest_of_events(events: Sequence[Event]) -> str:
    """Return the digest by which selected events are verified."""
    return sha256(b"".join([event.stored for event in events])).hexdigest()


class LogContract:
    """Appending to a log and reading it."""

    async def test_appended_events_are_read_byte_for_byte(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s", SessionOpened(agent="a"), input_added("hello"))
        start, end = turn_events()
        await log.append_to(store, term, start, Custom(name="x", value={"n": [1, 2.5, None]}), end, turn="t1")
        for handle in (store, other):
            read = [event async for event in handle.events.read(SESSION)]
            assert read == log.events
            assert [event.seq for event in read] == [1, 2, 3, 4, 5]

    async def test_the_index_row_matches_the_log(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        start, end = turn_events()
        await log.append_to(store, term, start, turn="t1")
        await log.append_to(store, term, end, turn="t1")
        expected = msgspec.structs.replace(rebuild_row(SESSION, log.events), term=1, live=True)
        assert await store.sessions.find(SESSION) == expected
        assert await other.sessions.find(SESSION) == expected

    async def test_a_log_is_read_from_and_up_to_any_event(self, store: Store) -> None:
        log = await write_session(store, "s", *(input_added(str(n), str(n)) for n in range(10)))
        stored = log.stored
        for after in range(11):
            assert await read_log(store, "s", after=after) == stored[after:]
            for upto in range(11):
                assert await read_log(store, "s", after=after, upto=upto) == stored[after:upto]
        assert await read_log(store, "s", after=99) == []
        assert await read_log(store, "s", upto=99) == stored

    async def test_events_are_selected_by_their_seqs(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s", *(Custom(name="n", value=n) for n in range(3000)))
        for seqs in ([1], [2, 3, 5], [7, 2000, 2001, 3000], range(1, 3000, 3), range(1, 3001, 50), range(1, 3001), []):
            wanted = [log.events[seq - 1] for seq in seqs]
            events = await other.events.select(SESSION, list(seqs), digest=digest_of_events(wanted))
            assert events == wanted
            assert [(e.data, e.hash, e.id) for e in events] == [(e.data, e.hash, e.id) for e in wanted]

    async def test_selected_events_that_are_not_those_of_the_digest_are_corrupt(self, store: Store) -> None:
        log = await write_session(store, "s", *(input_added(str(n), str(n)) for n in range(5)))
        for seqs, wanted in (([1, 2], log.events[:1]), ([1, 6], log.events[:1]), ([], log.events[:1])):
            with pytest.raises(Corrupt):
                await store.events.select(SESSION, seqs, digest=digest_of_events(wanted))

    async def test_events_of_an_unknown_session_cannot_be_selected(self, store: Store) -> None:
        await write_session(store, "s")
        for handle, session in ((store, "unknown"), (store.with_namespace("tenant"), "s")):
            with pytest.raises(NotFound):
                await handle.events.select(SessionId(session), [1], digest=digest_of_events([]))

    async def test_an_unknown_session_has_an_empty_log(self, store: Store) -> None:
        assert await read_log(store, "unknown") == []
        assert await store.sessions.find(SessionId("unknown")) is None

    async def test_a_read_ends_at_the_head_it_began_with(self, store: Store) -> None:
        log, term = await begin_session(store, "s", *(Custom(name="n", value=n) for n in range(700)))
        read: list[int] = []
        async with aclosing(store.events.read(SESSION)) as events:
            async for event in events:
                read.append(event.seq)
                if event.seq in {1, 400}:
                    await log.append_to(store, term, Custom(name="meanwhile"))
        assert read == list(range(1, 701))
        assert len(await read_log(store, "s")) == 702

    async def test_a_batch_of_1500_events_is_written_whole(self, store: Store) -> None:
        log, term = await begin_session(store, "s", *(Custom(name="n", value=n) for n in range(1500)))
        assert await log.append_to(store, term, Custom(name="last")) == 1501
        assert await read_log(store, "s") == log.stored

    async def test_a_batch_that_does_not_follow_the_head_writes_nothing(self, store: Store) -> None:
        log, term = await begin_session(store, "s")
        bodies = [input_added(str(n), str(n)) for n in range(3)]
        first, second, third = EventSealer(SESSION, log.events[0]).seal(*bodies)
        foreign = EventSealer(SESSION).seal(input_added("x", "x"), input_added("y", "y"))[1]
        unsealed = unsealed_event("s", input_added("x", "x"))
        invalid: list[list[Event]] = [
            [second],
            [first, third],
            [first, first],
            [second, first],
            [unsealed],
            [first, unsealed],
            [foreign],
            [first, foreign],
        ]
        for events in invalid:
            with pytest.raises(LogError):
                await store.events.append(SESSION, events, head=1, term=term)
        assert await read_log(store, "s") == [log.events[0].stored]
        found = await find_session(store)
        assert (found.head, found.hash, found.inputs) == (1, log.hash, 1)
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
        appends = [
            store.events.append(log.session, log.seal(input_added("x", "x"))[: n % 3], head=min(n % 3, 1), term=term)
            for n, (log, term) in enumerate(sessions)
        ]
        got = await asyncio.gather(*appends, return_exceptions=True)
        assert [head if isinstance(head, int) else 0 for head in got] == [0, 2, 2] * 3
        for n, (log, _) in enumerate(sessions):
            assert await read_log(store, log.session) == [event.stored for event in log.events[: 2 if n % 3 else 1]]

    async def test_an_empty_batch_checks_the_head_and_may_release(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        assert await store.events.append(SESSION, [], head=1, term=term) == 1
        assert await store.events.append(SESSION, [], head=1, term=term, release=True) == 1
        assert await other.events.claim(SESSION) == term + 1
        assert await read_log(store, "s") == log.stored

    async def test_events_of_an_unknown_type_keep_their_bytes(self, store: Store) -> None:
        odd = b'{ "z" : 1.50,"a":[ ],"big":123456789012345678901234567890,"u":"\\u00e9"}'
        log = await write_session(store, "s", Unknown(name="future.thing", raw=odd, of="control"), input_added("x"))
        assert await read_log(store, "s") == log.stored
        assert odd in log.events[0].stored
        assert (await anext(store.events.read(SESSION))).type == "future.thing"

    async def test_any_text_survives(self, store: Store) -> None:
        texts = ["\x00", "a\x00b", "\u2028\u2029\x85", "\ufffe\uffff", "🛶" * 1000, '"\\\n', "\x1b[0m", ""]
        log = await write_session(store, "s", *(input_added(text, f"k{n}") for n, text in enumerate(texts)))
        assert await read_log(store, "s") == log.stored

    async def test_ten_megabytes_in_one_event_survive(self, store: Store) -> None:
        log = await write_session(store, "s", input_added("0123456789" * 1_000_000))
        assert await read_log(store, "s") == log.stored

    async def test_hostile_session_ids_are_only_names(self, store: Store, other: Store) -> None:
        logs = {name: await write_session(store, name, input_added(name)) for name in HOSTILE_SESSION_IDS}
        for name, log in logs.items():
            assert await read_log(other, name) == log.stored
            assert (await find_session(other, name)).id == name

    async def test_namespaces_never_see_each_other(self, store: Store, other: Store) -> None:
        tenant, again = store.with_namespace("tenant"), other.with_namespace("tenant")
        mine, _ = await begin_session(store, "s", input_added("mine"))
        theirs, term = await begin_session(tenant, "s", input_added("theirs"))
        await theirs.append_to(tenant, term, input_added("more", "k2"))
        assert await read_log(other, "s") == mine.stored
        assert await read_log(again, "s") == theirs.stored
        assert await read_log(store.with_namespace("tenant2"), "s") == []
        assert await read_log(store.with_namespace("tenan"), "s") == []
        assert (tenant.namespace, store.namespace) == ("tenant", "")

    async def test_namespaces_have_writers_keys_and_decisions_of_their_own(self, store: Store, other: Store) -> None:
        spaces = [store.with_namespace(name) for name in ("one", "two")]
        claims = [await begin_session(space, "s", input_added("x"), approval_requested("apr_1")) for space in spaces]
        (one, two), (_, (_, term)) = spaces, claims
        waiting = asyncio.create_task(two.events.wait(SESSION, after=2))
        assert await offer_event(one, input_added("first", "k2")) == 3
        assert await offer_event(one, approval_resolved("apr_1", by="ann")) == 4
        assert [pending.id for pending in await one.sessions.decisions()] == []
        assert [pending.id for pending in await two.sessions.decisions(SESSION)] == ["apr_1"]
        assert not waiting.done()
        assert await offer_event(other.with_namespace("two"), approval_resolved("apr_1", by="bob")) == 3
        assert await waiting == 3
        assert await offer_event(two, input_added("second", "k2")) == 4
        assert await offer_event(one, input_added("again", "k2")) == 3
        await one.close()
        assert two.events.is_held(SESSION, term)
        assert [b"second" in raw for raw in await read_log(two, "s")] == [False, False, False, True]
        with pytest.raises(NotFound):
            await offer_event(store.with_namespace("three"), input_added("x"))
        with pytest.raises(NotFound):
            await store.sessions.delete(SESSION)

    async def test_a_fork_is_the_same_bytes_under_another_name(self, store: Store) -> None:
        log = await write_session(store, "s", *(input_added(str(n), str(n)) for n in range(5)))
        fork = SessionId("fork")
        term = await store.events.claim(fork)
        assert await store.events.append(fork, log.events[:3], head=0, term=term) == 3
        assert await read_log(store, "fork") == (await read_log(store, "s"))[:3]

    async def test_a_hundred_sessions_at_once_each_get_their_own_log(self, store: Store) -> None:
        async def session(name: str) -> EventSealer:
            log, term = await begin_session(store, name, input_added(name))
            for n in range(5):
                await log.append_to(store, term, input_added(str(n), f"{n}a"), input_added(str(n), f"{n}b"))
            return log

        logs = await asyncio.gather(*(session(f"s{n}") for n in range(100)))
        for log in logs:
            assert await read_log(store, log.session) == log.stored

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    async def test_a_cancelled_append_was_written_whole_or_not_at_all(self, store: Store, turns: int) -> None:
        log, term = await begin_session(store, "s")
        task = asyncio.create_task(log.append_to(store, term, input_added("a", "ka"), input_added("b", "kb")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while True:  # a write that was under way may still be committed; then the next append raises HeadMoved
            stored = await read_log(store, "s")
            assert stored in ([event.stored for event in log.events[:1]], log.stored)
            on = EventSealer(SESSION, *map(decode, stored))
            try:
                assert await on.append_to(store, term, input_added("c", "kc")) == len(stored) + 1
                break
            except HeadMoved:
                continue
        assert await read_log(store, "s") == on.stored


class ChainContract:
    """Changed bytes raise ``Corrupt``. ``tamper(session, seq, stored)`` changes them without the store."""

    @pytest.fixture
    def tamper(self) -> Tamper:
        """Replace the stored bytes of an event, or remove it."""
        raise NotImplementedError

    async def test_a_changed_event_is_corrupt_at_any_seq(self, store: Store, tamper: Tamper) -> None:
        log = await write_session(store, "s", *(input_added(f"word {n}", str(n)) for n in range(4)))
        for event in log.events:
            await tamper("s", event.seq, event.stored.replace(b"word", b"ward"))
            for after in {0, event.seq - 1, min(event.seq, 3)}:
                with pytest.raises(Corrupt):
                    await read_log(store, "s", after=after)
            await tamper("s", event.seq, event.stored)
        assert await read_log(store, "s") == log.stored

    async def test_a_changed_event_at_the_end_of_a_partial_read_is_corrupt(self, store: Store, tamper: Tamper) -> None:
        log = await write_session(store, "s", *(input_added(f"word {n}", str(n)) for n in range(4)))
        for event in log.events:
            await tamper("s", event.seq, event.stored.replace(b"word", b"ward"))
            for after in {0, event.seq - 1}:
                with pytest.raises(Corrupt):
                    await read_log(store, "s", after=after, upto=event.seq)
            before = log.stored[: event.seq - 1]
            assert await read_log(store, "s", upto=event.seq - 1) == before, "what is before it is not damaged"
            await tamper("s", event.seq, event.stored)

    async def test_a_missing_event_is_corrupt_at_any_seq(self, store: Store, tamper: Tamper) -> None:
        for seq in range(1, 5):
            await write_session(store, f"s{seq}", *(input_added(f"word {n}", str(n)) for n in range(4)))
            await tamper(f"s{seq}", seq, None)
            with pytest.raises(Corrupt):
                await read_log(store, f"s{seq}")

    async def test_a_selected_event_that_was_changed_or_removed_is_corrupt(self, store: Store, tamper: Tamper) -> None:
        log = await write_session(store, "s", *(input_added(f"word {n}", str(n)) for n in range(4)))
        seqs, digest = [1, 2, 4], digest_of_events([log.events[0], log.events[1], log.events[3]])
        for seq in seqs:
            stored = log.events[seq - 1].stored
            for changed in (stored.replace(b"word", b"ward"), log.events[2].stored, b"", b"{"):
                await tamper("s", seq, changed)
                with pytest.raises(Corrupt):
                    await store.events.select(SESSION, seqs, digest=digest)
            await tamper("s", seq, stored)
        assert len(await store.events.select(SESSION, seqs, digest=digest)) == 3
        await tamper("s", 2, None)
        with pytest.raises(Corrupt):
            await store.events.select(SESSION, seqs, digest=digest)

    async def test_bytes_that_are_not_an_event_are_corrupt(self, store: Store, tamper: Tamper) -> None:
        await write_session(store, "s")
        for stored in (b"", b"{", b"[]", b"\xff\xfe", b"null"):
            await tamper("s", 1, stored)
            with pytest.raises(Corrupt):
                await read_log(store, "s")


class ClaimsContract:
    """Claims, terms and fencing."""

    async def test_a_new_session_is_claimed_with_term_1_and_exists_from_its_first_append_on(self, store: Store) -> None:
        assert await store.events.claim(SESSION) == 1
        assert await store.sessions.find(SESSION) is None
        log = EventSealer(SESSION)
        assert await log.append_to(store, Term(1), input_added("hello")) == 1
        found = await find_session(store)
        assert (found.head, found.term) == (1, 1)

    async def test_a_session_with_a_writer_cannot_be_claimed_by_another_handle(
        self, store: Store, other: Store
    ) -> None:
        await begin_session(store, "s")
        with pytest.raises(Busy):
            await other.events.claim(SESSION)

    async def test_a_handle_cannot_claim_a_session_twice(self, store: Store) -> None:
        await store.events.claim(SESSION)
        with pytest.raises(Busy):
            await store.events.claim(SESSION)

    async def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        claims = [handle.events.claim(SESSION) for _ in range(8) for handle in (store, other)]
        got = await asyncio.gather(*claims, return_exceptions=True)
        assert [term for term in got if not isinstance(term, Busy)] == [2]

    async def test_of_two_handles_that_claim_a_new_session_one_writes_it(self, store: Store, other: Store) -> None:
        wrote: list[list[bytes]] = []
        for handle in (store, other):
            log = EventSealer(SESSION)
            with suppress(Busy, ConflictError):
                await log.append_to(handle, await handle.events.claim(SESSION), input_added(f"from {len(wrote)}"))
                wrote.append(log.stored)
        assert wrote == [await read_log(store, "s")]

    async def test_two_claims_on_a_new_session_allow_one_first_append(self, store: Store, other: Store) -> None:
        claims: list[tuple[Store, Term]] = []
        for handle in (store, other):
            with suppress(Busy):
                claims.append((handle, await handle.events.claim(SESSION)))
        appends = [EventSealer(SESSION).append_to(handle, term, input_added("x")) for handle, term in claims]
        got = await asyncio.gather(*appends, return_exceptions=True)
        assert [head for head in got if not isinstance(head, ConflictError)] == [1]
        assert len(await read_log(other, "s")) == 1

    async def test_each_claim_has_a_higher_term(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        for term, handle in enumerate((other, store, store, other), 2):
            assert await handle.events.claim(SESSION) == term
            await handle.events.release(SESSION, Term(term))

    async def test_the_end_of_a_claim_lets_another_writer_in(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        assert store.events.is_held(SESSION, term)
        await store.events.release(SESSION, term)
        assert not store.events.is_held(SESSION, term)
        later = await other.events.claim(SESSION)
        assert other.events.is_held(SESSION, later)
        assert await log.append_to(other, later, input_added("more", "k2")) == 2

    async def test_release_in_an_append_ends_the_claim_with_it(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        await log.append_to(store, term, input_added("bye", "k2"), release=True)
        assert not store.events.is_held(SESSION, term)
        assert await other.events.claim(SESSION) == term + 1
        assert not other.events.predecessor_died(SESSION, Term(term + 1))
        assert await read_log(other, "s") == log.stored

    async def test_releasing_a_claim_that_is_over_does_nothing(self, store: Store, other: Store) -> None:
        _, old = await begin_session(store, "s")
        await store.events.release(SESSION, old)
        term = await other.events.claim(SESSION)
        await store.events.release(SESSION, old)
        await store.events.release(SessionId("unknown"), Term(3))
        assert other.events.is_held(SESSION, term)
        with pytest.raises(Busy):
            await store.events.claim(SESSION)

    async def test_a_claim_on_a_new_session_can_be_released(self, store: Store, other: Store) -> None:
        term = await store.events.claim(SESSION)
        await store.events.release(SESSION, term)
        assert not store.events.is_held(SESSION, term)
        await begin_session(other, "s")

    async def test_an_old_term_is_refused_and_writes_nothing(self, store: Store, other: Store) -> None:
        log, old = await begin_session(store, "s")
        await store.events.release(SESSION, old)
        term = await other.events.claim(SESSION)
        for stale in (EventSealer(SESSION), EventSealer(SESSION, log.events[0])):
            with pytest.raises(ConflictError):
                await stale.append_to(store, old, input_added("stale"))
        await log.append_to(other, term, input_added("fresh", "k2"))
        assert await read_log(store, "s") == log.stored

    async def test_an_old_term_is_refused_after_the_same_handle_has_claimed_again(self, store: Store) -> None:
        log, old = await begin_session(store, "s")
        await store.events.release(SESSION, old)
        term = await store.events.claim(SESSION)
        assert not store.events.is_held(SESSION, old)
        with pytest.raises(ConflictError):
            await store.events.append(SESSION, log.seal(input_added("stale", "k2")), head=1, term=old)
        assert store.events.is_held(SESSION, term)
        assert len(await read_log(store, "s")) == 1

    async def test_a_handle_without_a_claim_cannot_append(self, store: Store, other: Store) -> None:
        with pytest.raises(ConflictError):
            await EventSealer(SESSION).append_to(store, Term(1), input_added("hello"))
        log, term = await begin_session(store, "s")
        with pytest.raises(ConflictError):
            await log.append_to(other, term, input_added("mine", "k2"))
        assert len(await read_log(store, "s")) == 1

    async def test_an_append_behind_the_head_raises_head_moved_and_keeps_the_claim(self, store: Store) -> None:
        log, term = await begin_session(store, "s")
        await log.append_to(store, term, input_added("two", "k2"))
        for behind in (EventSealer(SESSION), EventSealer(SESSION, log.events[0])):
            with pytest.raises(HeadMoved):
                await behind.append_to(store, term, input_added("three", "k3"))
        assert store.events.is_held(SESSION, term)
        assert await log.append_to(store, term, input_added("three", "k3")) == 3

    async def test_closing_a_handle_ends_its_claims(self, store: Store, other: Store) -> None:
        log, term = await begin_session(store, "s")
        await store.close()
        assert not store.events.is_held(SESSION, term)
        assert await other.events.claim(SESSION) == term + 1
        assert await log.append_to(other, Term(term + 1), input_added("on", "k2")) == 2

    async def test_a_closed_handle_raises_closed(self, store: Store) -> None:
        await begin_session(store, "s")
        await store.close()
        await store.close()
        for attempt in (store.events.claim(SessionId("t")), store.sessions.find(SESSION), read_log(store, "s")):
            with pytest.raises(Closed):
                await attempt

    async def test_a_claim_of_one_session_is_not_a_claim_of_another(self, store: Store, other: Store) -> None:
        _, term = await begin_session(store, "s")
        await begin_session(other, "t")
        assert not store.events.is_held(SessionId("t"), term)
        with pytest.raises(Busy):
            await store.events.claim(SessionId("t"))

    async def test_a_deleted_session_can_be_begun_again(self, store: Store, other: Store) -> None:
        _, term = await begin_session(store, "s")
        with pytest.raises(Busy):
            await other.sessions.delete(SESSION)
        await store.events.release(SESSION, term)
        await other.sessions.delete(SESSION)
        with pytest.raises(NotFound):
            await other.sessions.delete(SESSION)
        with pytest.raises(ConflictError):
            await EventSealer(SESSION).append_to(store, term, input_added("ghost"))
        await begin_session(other, "s")
