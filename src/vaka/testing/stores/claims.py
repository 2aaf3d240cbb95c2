"""One writer, many petitioners: who may append."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio

import pytest

from vaka.core.ports.store import Store
from vaka.core.types.errors import Busy, Closed, ConflictError, HeadMoved, NotFound
from vaka.core.types.ids import SessionId, Term
from vaka.testing.stores.pen import Pen, begun, kept, log, said

S = SessionId("s")


class ClaimsContract:
    """Claims, terms and fencing."""

    async def test_a_new_session_is_claimed_with_term_1_and_exists_from_its_first_append_on(self, store: Store) -> None:
        assert await store.events.claim(S) == 1
        assert await store.sessions.find(S) is None
        pen = Pen(S)
        assert await pen.write(store, Term(1), said("hello")) == 1
        found = await store.sessions.find(S)
        assert found is not None
        assert (found.head, found.term) == (1, 1)

    async def test_a_session_that_is_written_cannot_be_claimed_by_another_handle(
        self, store: Store, other: Store
    ) -> None:
        await begun(store, "s")
        with pytest.raises(Busy):
            await other.events.claim(S)

    async def test_nor_by_the_same_handle_again(self, store: Store) -> None:
        await store.events.claim(S)
        with pytest.raises(Busy):
            await store.events.claim(S)

    async def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        got = await asyncio.gather(
            *(handle.events.claim(S) for _ in range(8) for handle in (store, other)), return_exceptions=True
        )
        assert [term for term in got if not isinstance(term, Busy)] == [2]

    async def test_of_two_who_claim_a_session_nobody_has_written_one_gets_to_write_it(
        self, store: Store, other: Store
    ) -> None:
        wrote: list[list[bytes]] = []
        for handle in (store, other):
            pen = Pen(S)
            try:
                await pen.write(handle, await handle.events.claim(S), said(f"from {len(wrote)}"))
            except (Busy, ConflictError):
                continue
            wrote.append([event.stored for event in pen.events])
        assert wrote == [await log(store, "s")]

    async def test_two_who_both_got_a_claim_on_an_unwritten_session_cannot_both_write(
        self, store: Store, other: Store
    ) -> None:
        claims: list[tuple[Store, Term]] = []
        for handle in (store, other):
            try:
                claims.append((handle, await handle.events.claim(S)))
            except Busy:
                continue
        got = await asyncio.gather(
            *(Pen(S).write(handle, term, said(str(n))) for n, (handle, term) in enumerate(claims)),
            return_exceptions=True,
        )
        assert [head for head in got if not isinstance(head, ConflictError)] == [1]
        assert len(await log(other, "s")) == 1

    async def test_each_claim_has_a_higher_term(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        for term, handle in enumerate((other, store, store, other), 2):
            assert await handle.events.claim(S) == term
            await handle.events.release(S, Term(term))

    async def test_the_end_of_a_claim_lets_another_writer_in(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        assert store.events.held(S, term)
        await store.events.release(S, term)
        assert not store.events.held(S, term)
        later = await other.events.claim(S)
        assert other.events.held(S, later)
        assert await pen.write(other, later, said("more", "k2")) == 2

    async def test_release_in_an_append_ends_the_claim_with_it(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        await pen.write(store, term, said("bye", "k2"), release=True)
        assert not store.events.held(S, term)
        assert await other.events.claim(S) == term + 1
        assert await log(other, "s") == [event.stored for event in pen.events]

    async def test_releasing_a_claim_that_is_over_does_nothing(self, store: Store, other: Store) -> None:
        _, old = await begun(store, "s")
        await store.events.release(S, old)
        term = await other.events.claim(S)
        await store.events.release(S, old)
        await store.events.release(SessionId("unknown"), Term(3))
        assert other.events.held(S, term)
        with pytest.raises(Busy):
            await store.events.claim(S)

    async def test_a_claim_on_an_unwritten_session_can_be_released_too(self, store: Store, other: Store) -> None:
        term = await store.events.claim(S)
        await store.events.release(S, term)
        assert not store.events.held(S, term)
        await begun(other, "s")

    async def test_an_old_term_is_refused_and_writes_nothing(self, store: Store, other: Store) -> None:
        pen, old = await begun(store, "s")
        await store.events.release(S, old)
        term = await other.events.claim(S)
        with pytest.raises(ConflictError):
            await Pen(S).write(store, old, said("stale"))
        stale = Pen(S)
        stale.take(pen.events[0])
        with pytest.raises(ConflictError):
            await stale.write(store, old, said("stale"))
        await pen.write(other, term, said("fresh", "k2"))
        assert await log(store, "s") == [event.stored for event in pen.events]

    async def test_an_old_term_is_refused_after_the_same_handle_has_claimed_again(self, store: Store) -> None:
        pen, old = await begun(store, "s")
        await store.events.release(S, old)
        term = await store.events.claim(S)
        assert not store.events.held(S, old)
        with pytest.raises(ConflictError):
            await store.events.append(S, pen.seal(said("stale", "k2")), head=1, term=old)
        assert store.events.held(S, term)
        assert len(await log(store, "s")) == 1

    async def test_who_never_claimed_cannot_append(self, store: Store, other: Store) -> None:
        with pytest.raises(ConflictError):
            await Pen(S).write(store, Term(1), said("hello"))
        pen, term = await begun(store, "s")
        with pytest.raises(ConflictError):
            await pen.write(other, term, said("mine", "k2"))
        assert len(await log(store, "s")) == 1

    async def test_a_writer_whose_head_is_behind_is_told_and_keeps_its_claim(self, store: Store) -> None:
        pen, term = await begun(store, "s")
        await pen.write(store, term, said("two", "k2"))
        behind = Pen(S)
        behind.take(pen.events[0])
        with pytest.raises(HeadMoved):
            await behind.write(store, term, said("three", "k3"))
        with pytest.raises(HeadMoved):
            await Pen(S).write(store, term, said("again"))
        assert store.events.held(S, term)
        assert await pen.write(store, term, said("three", "k3")) == 3

    async def test_closing_a_handle_ends_its_claims(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s")
        await store.close()
        assert not store.events.held(S, term)
        assert await other.events.claim(S) == term + 1
        assert await pen.write(other, Term(term + 1), said("on", "k2")) == 2

    async def test_a_closed_handle_says_so(self, store: Store) -> None:
        await begun(store, "s")
        await store.close()
        await store.close()
        with pytest.raises(Closed):
            await store.events.claim(SessionId("t"))
        with pytest.raises(Closed):
            await store.sessions.find(S)
        with pytest.raises(Closed):
            await log(store, "s")

    async def test_a_claim_of_one_session_is_not_a_claim_of_another(self, store: Store, other: Store) -> None:
        _, term = await begun(store, "s")
        await begun(other, "t")
        assert not store.events.held(SessionId("t"), term)
        with pytest.raises(Busy):
            await store.events.claim(SessionId("t"))

    async def test_a_deleted_session_is_nobodys(self, store: Store, other: Store) -> None:
        _, term = await begun(store, "s")
        with pytest.raises(Busy):
            await other.sessions.delete(S)
        await store.events.release(S, term)
        await other.sessions.delete(S)
        with pytest.raises(NotFound):
            await other.sessions.delete(S)
        with pytest.raises(ConflictError):
            await Pen(S).write(store, term, said("ghost"))
        await begun(other, "s")
