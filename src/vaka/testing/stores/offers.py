"""Petitions: what anyone may add to a log without being its writer."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio

import pytest

from vaka.core.ports.store import Store
from vaka.core.types.control import InterruptRequested, QuestionAnswered
from vaka.core.types.errors import HeadMoved, InvalidInput, NotFound
from vaka.core.types.event import Custom, decode
from vaka.core.types.ids import DecisionId, SessionId
from vaka.testing.stores.pen import Pen, approves, asks, asks_what, begun, kept, log, said, unsealed

S = SessionId("s")


class OffersContract:
    """Offers and their keys."""

    async def test_an_offer_is_the_next_event_of_the_log(self, store: Store, other: Store) -> None:
        pen, _ = await begun(store, "s")
        assert await other.events.offer(S, unsealed("s", said("from outside", "o1")), key="o1") == 2
        stored = await log(store, "s")
        event = decode(stored[1])
        assert (event.data, event.seq, event.prev, event.id) == (said("from outside", "o1"), 2, pen.hash, "1.2")
        found = await store.sessions.find(S)
        assert found is not None
        assert (found.head, found.hash, found.inputs) == (2, event.hash, 2)

    async def test_everything_a_person_may_say_can_be_offered(self, store: Store, other: Store) -> None:
        await begun(store, "s", asks("a1"), asks_what("q1"))
        offers = [
            ("i1", InterruptRequested(key="i1")),
            ("a1", approves("a1")),
            ("q1", QuestionAnswered(question=DecisionId("q1"), answer=[1])),
            ("o1", said("x", "o1")),
        ]
        for seq, (key, body) in enumerate(offers, 3):
            assert await other.events.offer(S, unsealed("s", body), key=key) == seq
        assert [event.data async for event in store.events.read(S, after=2)] == [body for _, body in offers]

    async def test_what_only_the_writer_may_say_cannot(self, store: Store) -> None:
        await kept(store, "s")
        with pytest.raises(InvalidInput):
            await store.events.offer(S, unsealed("s", Custom(name="x")), key="x")
        with pytest.raises(InvalidInput):
            await store.events.offer(S, unsealed("s", said("x", "a")), key="b")
        with pytest.raises(InvalidInput):
            await store.events.offer(S, unsealed("s", said("x", "")), key="")
        assert len(await log(store, "s")) == 1

    async def test_an_unknown_session_takes_no_offers(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.events.offer(S, unsealed("s", said("x", "o")), key="o")
        assert await store.sessions.find(S) is None

    async def test_the_same_key_again_returns_the_first_and_writes_nothing(self, store: Store, other: Store) -> None:
        await kept(store, "s", asks("a1"))
        assert await store.events.offer(S, unsealed("s", approves("a1", by="ann")), key="a1") == 2
        assert await other.events.offer(S, unsealed("s", approves("a1", by="bob")), key="a1") == 2
        assert await store.events.offer(S, unsealed("s", said("x", "o")), key="o") == 3
        assert [event.data async for event in other.events.read(S, after=1)] == [
            approves("a1", by="ann"),
            said("x", "o"),
        ]

    async def test_an_event_of_the_writer_has_its_key_too(self, store: Store, other: Store) -> None:
        await begun(store, "s", Custom(name="x"), said("mine", "k1"))
        assert await other.events.offer(S, unsealed("s", said("again", "k1")), key="k1") == 2
        assert len(await log(store, "s")) == 2

    async def test_a_key_counts_in_its_session_only(self, store: Store) -> None:
        for name in ("s", "t"):
            await kept(store, name)
            assert await store.events.offer(SessionId(name), unsealed(name, said("x", "o")), key="o") == 2

    async def test_of_many_offers_with_one_key_at_once_one_is_written(self, store: Store, other: Store) -> None:
        await kept(store, "s", asks("a1"))
        seqs = await asyncio.gather(
            *(
                handle.events.offer(S, unsealed("s", approves("a1", by=f"{n}")), key="a1")
                for n in range(10)
                for handle in (store, other)
            )
        )
        assert set(seqs) == {2}
        assert len(await log(store, "s")) == 2

    async def test_offers_from_everywhere_all_arrive_in_one_chain(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        seqs = await asyncio.gather(
            *(
                handle.events.offer(S, unsealed("s", said(f"{n}", f"{n}{name}")), key=f"{n}{name}")
                for n in range(20)
                for name, handle in (("a", store), ("b", other))
            )
        )
        assert sorted(seqs) == list(range(2, 42))
        assert len(await log(other, "s")) == 41

    async def test_a_writer_learns_of_an_offer_by_its_head_reads_it_and_goes_on(
        self, store: Store, other: Store
    ) -> None:
        pen, term = await begun(store, "s")
        await other.events.offer(S, unsealed("s", said("psst", "o")), key="o")
        with pytest.raises(HeadMoved):
            await Pen.write(_copy(pen), store, term, said("two", "k2"))
        async for event in store.events.read(S, after=1):
            pen.take(event)
        assert await pen.write(store, term, said("two", "k2")) == 3
        assert await log(other, "s") == [event.stored for event in pen.events]

    async def test_an_offer_and_an_append_at_once_make_one_chain(self, store: Store) -> None:
        pen, term = await begun(store, "s")
        for n in range(10):
            offered, appended = await asyncio.gather(
                store.events.offer(S, unsealed("s", said("o", f"o{n}")), key=f"o{n}"),
                _copy(pen).write(store, term, said("a", f"a{n}")),
                return_exceptions=True,
            )
            assert isinstance(offered, int)
            assert isinstance(appended, int | HeadMoved)
            async for event in store.events.read(S, after=pen.head):
                pen.take(event)
        assert pen.head > 10

    async def test_hostile_keys_are_only_names(self, store: Store) -> None:
        await kept(store, "s")
        keys = ["'; drop table keys; --", "%", "_", "🛶", "a\x00b", "a\x00c", "a", "é", "e\u0301", "K", " ", "x" * 5000]
        for seq, key in enumerate(keys, 2):
            assert await store.events.offer(S, unsealed("s", said("x", key)), key=key) == seq
        for seq, key in enumerate(keys, 2):
            assert await store.events.offer(S, unsealed("s", said("y", key)), key=key) == seq


def _copy(pen: Pen) -> Pen:
    other = Pen(pen.session)
    other.take(pen.events[-1])
    return other
