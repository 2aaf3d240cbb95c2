"""The log itself: what was appended is what is read."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
import pytest

from vaka.core.ports.store import Store
from vaka.core.session.index import rebuild
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import Corrupt, HeadMoved, LogError
from vaka.core.types.event import Custom, Event, Unknown, decode
from vaka.core.types.ids import SessionId
from vaka.testing.stores.pen import Pen, begun, kept, log, said, turn_of, unsealed

S = SessionId("s")
HOSTILE = [
    "'; drop table sessions; --", "%", "_", "a%b_c", "é", "e\u0301", "日本語", "🛶", "\u202eabc", "..", "/etc/passwd",
    "a b", '"', "\\", "ÿ", "\U0010fffd", "x" * 200, "null", "0",
]  # fmt: skip


class LogContract:
    """Appending and reading."""

    async def test_what_was_appended_is_read_byte_for_byte(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s", SessionOpened(agent="a"), said("hello"))
        start, end = turn_of()
        await pen.write(store, term, start, Custom(name="x", value={"n": [1, 2.5, None]}), end, turn="t1")
        for handle in (store, other):
            read = [event async for event in handle.events.read(S)]
            assert read == pen.events
            assert [event.seq for event in read] == [1, 2, 3, 4, 5]

    async def test_the_row_says_what_the_log_says(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        start, end = turn_of()
        await pen.write(store, term, start, turn="t1")
        await pen.write(store, term, end, turn="t1")
        expected = msgspec.structs.replace(rebuild(S, pen.events), term=1, live=True)
        assert await store.sessions.find(S) == expected
        assert await other.sessions.find(S) == expected

    async def test_a_log_is_read_from_and_up_to_any_event(self, store: Store) -> None:
        pen = await kept(store, "s", *(said(str(n), str(n)) for n in range(10)))
        stored = [event.stored for event in pen.events]
        for after in range(11):
            assert await log(store, "s", after=after) == stored[after:]
            for upto in range(11):
                assert await log(store, "s", after=after, upto=upto) == stored[after:upto]
        assert await log(store, "s", after=99) == []
        assert await log(store, "s", upto=99) == stored

    async def test_an_unknown_session_has_an_empty_log(self, store: Store) -> None:
        assert await log(store, "nobody") == []
        assert await store.sessions.find(SessionId("nobody")) is None

    async def test_a_read_ends_at_the_head_it_began_with(self, store: Store) -> None:
        pen, term = await begun(store, "s", *(Custom(name="n", value=n) for n in range(700)))
        read: list[int] = []
        async with aclosing(store.events.read(S)) as events:
            async for event in events:
                read.append(event.seq)
                if event.seq in {1, 400}:
                    await pen.write(store, term, Custom(name="meanwhile"))
        assert read == list(range(1, 701))
        assert len(await log(store, "s")) == 702

    async def test_a_batch_larger_than_a_transaction_usually_is_is_still_written_whole(self, store: Store) -> None:
        pen, term = await begun(store, "s", *(Custom(name="n", value=n) for n in range(1500)))
        assert await pen.write(store, term, Custom(name="last")) == 1501
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_a_batch_that_does_not_follow_the_head_writes_nothing(self, store: Store) -> None:
        pen, term = await begun(store, "s")
        good = Pen(S)
        good.take(pen.events[0])
        first, second, third = good.seal(*(said(str(n), str(n)) for n in range(3)))
        strange = Pen(S).seal(said("x", "x"), said("y", "y"))
        bad: list[list[Event]] = [
            [second],
            [first, third],
            [first, first],
            [second, first],
            [unsealed("s", said("x", "x"))],
            [first, unsealed("s", said("x", "x"))],
            [strange[1]],
            [first, strange[1]],
        ]
        for events in bad:
            with pytest.raises(LogError):
                await store.events.append(S, events, head=1, term=term)
        assert await log(store, "s") == [pen.events[0].stored]
        found = await store.sessions.find(S)
        assert found is not None
        assert (found.head, found.hash, found.inputs) == (1, pen.hash, 1)
        assert await store.events.append(S, [first, second], head=1, term=term) == 3

    async def test_a_first_batch_that_does_not_begin_at_1_makes_no_session(self, store: Store) -> None:
        term = await store.events.claim(S)
        with pytest.raises(LogError):
            await store.events.append(S, Pen(S).seal(said("a"), said("b", "b"))[1:], head=0, term=term)
        assert await store.sessions.find(S) is None
        assert await Pen(S).write(store, term, said("a")) == 1

    async def test_one_bad_batch_does_not_harm_those_written_with_it(self, store: Store) -> None:
        sessions = [await begun(store, f"s{n}") for n in range(9)]
        got = await asyncio.gather(
            *(
                store.events.append(pen.session, pen.seal(said("x", "x"))[: n % 3], head=1 if n % 3 else 0, term=term)
                for n, (pen, term) in enumerate(sessions)
            ),
            return_exceptions=True,
        )
        assert [head if isinstance(head, int) else 0 for head in got] == [0, 2, 2] * 3
        for n, (pen, _) in enumerate(sessions):
            assert await log(store, pen.session) == [event.stored for event in pen.events[: 2 if n % 3 else 1]]

    async def test_an_empty_batch_checks_the_head_and_may_release(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        assert await store.events.append(S, [], head=1, term=term) == 1
        assert await store.events.append(S, [], head=1, term=term, release=True) == 1
        assert await other.events.claim(S) == term + 1
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_events_of_a_type_nobody_knows_keep_their_bytes(self, store: Store) -> None:
        odd = b'{ "z" : 1.50,"a":[ ],"big":123456789012345678901234567890,"u":"\\u00e9"}'
        pen = await kept(store, "s", Unknown(name="future.thing", raw=odd, of="control"), said("x"))
        assert await log(store, "s") == [event.stored for event in pen.events]
        assert odd in pen.events[0].stored
        assert (await anext(store.events.read(S))).type == "future.thing"

    async def test_any_text_survives(self, store: Store) -> None:
        texts = ["\x00", "a\x00b", "\u2028\u2029\x85", "\ufffe\uffff", "🛶" * 1000, '"\\\n', "\x1b[0m", ""]
        pen = await kept(store, "s", *(said(text, f"k{n}") for n, text in enumerate(texts)))
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_ten_megabytes_in_one_event_survive(self, store: Store) -> None:
        pen = await kept(store, "s", said("0123456789" * 1_000_000))
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_session_ids_are_only_names(self, store: Store, other: Store) -> None:
        pens = {name: await kept(store, name, said(name)) for name in HOSTILE}
        for name, pen in pens.items():
            assert await log(other, name) == [event.stored for event in pen.events]
            found = await other.sessions.find(SessionId(name))
            assert found is not None
            assert found.id == name

    async def test_namespaces_never_see_each_other(self, store: Store, other: Store) -> None:
        tenant, again = store.scoped("tenant"), other.scoped("tenant")
        mine, _ = await begun(store, "s", said("mine"))
        theirs, term = await begun(tenant, "s", said("theirs"))
        await theirs.write(tenant, term, said("more", "k2"))
        assert await log(other, "s") == [event.stored for event in mine.events]
        assert await log(again, "s") == [event.stored for event in theirs.events]
        assert await log(store.scoped("tenant2"), "s") == []
        assert await log(store.scoped("tenan"), "s") == []
        assert (tenant.namespace, store.namespace) == ("tenant", "")

    async def test_a_fork_is_the_same_bytes_under_another_name(self, store: Store) -> None:
        pen = await kept(store, "s", *(said(str(n), str(n)) for n in range(5)))
        fork = SessionId("fork")
        term = await store.events.claim(fork)
        assert await store.events.append(fork, pen.events[:3], head=0, term=term) == 3
        assert await log(store, "fork") == (await log(store, "s"))[:3]

    async def test_a_hundred_sessions_at_once_each_get_their_own_log(self, store: Store) -> None:
        async def session(name: str) -> Pen:
            pen, term = await begun(store, name, said(name))
            for n in range(5):
                await pen.write(store, term, said(str(n), f"{n}a"), said(str(n), f"{n}b"))
            return pen

        pens = await asyncio.gather(*(session(f"s{n}") for n in range(100)))
        for pen in pens:
            assert await log(store, pen.session) == [event.stored for event in pen.events]

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    async def test_a_cancelled_append_was_written_whole_or_not_at_all(self, store: Store, turns: int) -> None:
        pen, term = await begun(store, "s")
        task = asyncio.create_task(pen.write(store, term, said("a", "ka"), said("b", "kb")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while True:  # a write that was under way may still arrive; then the next one is told
            stored = await log(store, "s")
            assert stored in ([event.stored for event in pen.events[:1]], [event.stored for event in pen.events])
            on = Pen(S)
            for event in stored:
                on.take(decode(event))
            try:
                assert await on.write(store, term, said("c", "kc")) == len(stored) + 1
                break
            except HeadMoved:
                continue
        assert await log(store, "s") == [event.stored for event in on.events]


class ChainContract:
    """Changed bytes show. ``tamper(session, seq, stored)`` writes behind the store's back."""

    @pytest.fixture
    def tamper(self) -> Callable[[str, int, bytes | None], Awaitable[None]]:
        """Replace the stored bytes of an event, or remove it."""
        raise NotImplementedError

    async def test_a_changed_event_is_found_whichever_it_is(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        pen = await kept(store, "s", *(said(f"word {n}", str(n)) for n in range(4)))
        for event in pen.events:
            await tamper("s", event.seq, event.stored.replace(b"word", b"ward"))
            with pytest.raises(Corrupt):
                await log(store, "s")
            with pytest.raises(Corrupt):
                await log(store, "s", after=event.seq - 1)
            if event.seq < 4:
                with pytest.raises(Corrupt):
                    await log(store, "s", after=event.seq)
            await tamper("s", event.seq, event.stored)
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_a_missing_event_is_found_whichever_it_is(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        for seq in range(1, 5):
            await kept(store, f"s{seq}", *(said(f"word {n}", str(n)) for n in range(4)))
            await tamper(f"s{seq}", seq, None)
            with pytest.raises(Corrupt):
                await log(store, f"s{seq}")

    async def test_bytes_that_are_no_event_are_found(
        self, store: Store, tamper: Callable[[str, int, bytes | None], Awaitable[None]]
    ) -> None:
        await kept(store, "s")
        for stored in (b"", b"{", b"[]", b"\xff\xfe", b"null"):
            await tamper("s", 1, stored)
            with pytest.raises(Corrupt):
                await log(store, "s")
