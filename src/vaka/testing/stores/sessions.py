"""The index: which sessions there are and what they wait for."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio
from typing import get_args

import msgspec
import pytest

from vaka.core.ports.store import Pending, Query, Removed, Retention, Status, Store
from vaka.core.session.index import rebuild
from vaka.core.types.control import QuestionAnswered, SessionClosed, SessionForked, SessionOpened
from vaka.core.types.errors import Busy, InvalidInput, NotFound
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.progress import TurnCancelled
from vaka.testing.stores.pen import Pen, approves, asks, asks_what, begun, kept, log, moment, said, turn_of, unsealed

S = SessionId("s")
LATER = "9999-01-01T00:00:00.000Z"


async def _names(store: Store, query: Query) -> list[str]:
    return [info.id for info in (await store.sessions.list(query)).sessions]


async def _of_each_status(store: Store) -> dict[str, Pen]:
    """Write one session of each status, named like it; two of them are closed, one with a turn unfinished."""
    start, end = turn_of()
    return {
        "idle": await kept(store, "idle", said("x"), start, end, turn="t"),
        "queued": await kept(store, "queued", said("x")),
        "running": await kept(store, "running", said("x"), start, turn="t"),
        "waiting": await kept(store, "waiting", said("x"), start, asks("a"), turn="t"),
        "closed": await kept(store, "closed", said("x"), start, end, SessionClosed(), turn="t"),
        "cut": await kept(store, "cut", said("x"), start, SessionClosed(), turn="t"),
    }


class ListContract:
    """Listing and paging."""

    async def test_the_newest_change_comes_first(self, store: Store, other: Store) -> None:
        for n, name in enumerate(("b", "a", "d", "c")):
            await kept(store, name, at=n)
        page = await other.sessions.list(Query())
        assert [info.id for info in page.sessions] == ["c", "d", "a", "b"]
        assert page.next == ""
        assert page.sessions[0] == await store.sessions.find(SessionId("c"))

    async def test_an_empty_store_has_an_empty_page(self, store: Store) -> None:
        page = await store.sessions.list(Query())
        assert (page.sessions, page.next) == ((), "")

    async def test_sessions_are_found_by_status(self, store: Store) -> None:
        await _of_each_status(store)
        found = {status: set(await _names(store, Query(status=status))) for status in get_args(Status)}
        assert found == {
            "idle": {"idle"}, "queued": {"queued"}, "running": {"running"}, "waiting": {"waiting"},
            "closed": {"closed", "cut"},
        }  # fmt: skip

    async def test_sessions_are_found_by_agent_id_and_origin(self, store: Store) -> None:
        await kept(store, "web-1", SessionOpened(agent="router"))
        await kept(store, "web-2", SessionForked(origin="web-1", cursor="1.1"), at=1)
        await kept(store, "WEB-3", SessionOpened(agent="Router"), at=2)
        await kept(store, "we", SessionOpened(agent="r%"), at=3)
        assert await _names(store, Query(agent="router")) == ["web-1"]
        assert await _names(store, Query(agent="r%")) == ["we"]
        assert await _names(store, Query(prefix="web-")) == ["web-2", "web-1"]
        assert await _names(store, Query(prefix="we")) == ["we", "web-2", "web-1"]
        assert await _names(store, Query(prefix="%")) == []
        assert await _names(store, Query(origin="web-1")) == ["web-2"]

    async def test_sessions_are_found_by_part_of_their_title(self, store: Store) -> None:
        titles = ["100% sure", "100 percent", "snake_case", "snake-case", "Plan THE trip", "back\\slash", "it's"]
        for n, title in enumerate(titles):
            await kept(store, f"s{n}", said(title), at=n)
        expected = {
            "100%": ["s0"], "%": ["s0"], "_": ["s2"], "SNAKE": ["s3", "s2"], "plan the": ["s4"], "\\": ["s5"],
            "'": ["s6"], "nothing": [], "100": ["s1", "s0"],
        }  # fmt: skip
        assert {text: await _names(store, Query(text=text)) for text in expected} == expected

    async def test_sessions_are_found_by_time(self, store: Store) -> None:
        for n in range(5):
            await kept(store, f"s{n}", at=n)
        assert await _names(store, Query(updated_after=moment(2))) == ["s4", "s3"]
        assert await _names(store, Query(updated_before=moment(2))) == ["s1", "s0"]
        assert await _names(store, Query(updated_after=moment(0), updated_before=moment(3))) == ["s2", "s1"]

    async def test_filters_narrow_together(self, store: Store) -> None:
        await kept(store, "a1", SessionOpened(agent="x"), said("tea"), at=1)
        await kept(store, "a2", SessionOpened(agent="x"), said("coffee"), at=2)
        await kept(store, "b1", SessionOpened(agent="x"), said("tea"), at=3)
        await kept(store, "a3", SessionOpened(agent="y"), said("tea"), at=4)
        query = Query(prefix="a", agent="x", text="TEA", status="queued", updated_before=moment(9))
        assert await _names(store, query) == ["a1"]

    async def test_pages_show_every_session_once_also_when_all_changed_at_one_time(self, store: Store) -> None:
        names = {f"s{n}" for n in range(23)}
        for name in names:
            await kept(store, name)
        for limit in (1, 2, 5, 22, 23, 24):
            seen: list[str] = []
            query = Query(limit=limit)
            while True:
                page = await store.sessions.list(query)
                assert len(page.sessions) <= limit
                seen += [info.id for info in page.sessions]
                if not page.next:
                    break
                query = msgspec.structs.replace(query, after=page.next)
            assert (len(seen), set(seen)) == (23, names)

    async def test_pages_miss_nothing_that_stays_while_others_change(self, store: Store) -> None:
        pens = {f"s{n:02}": await kept(store, f"s{n:02}") for n in range(20)}
        first = await store.sessions.list(Query(limit=7))
        for name in ("s19", "s03", "s10"):  # one that was shown, two that were not
            pen = pens[name]
            pen.at = 100
            await pen.write(store, await store.events.claim(pen.session), said("new", "k2"), release=True)
        await store.sessions.delete(SessionId("s05"))
        rest = await store.sessions.list(Query(limit=50, after=first.next))
        shown = [info.id for info in (*first.sessions, *rest.sessions)]
        assert sorted(shown) == sorted(set(pens) - {"s03", "s05", "s10"})

    async def test_a_cursor_nobody_gave_is_refused(self, store: Store) -> None:
        await kept(store, "s")
        for after in ("nonsense", "e30=", "🛶", "W10=", "bnVsbA==", "'; --"):
            with pytest.raises(InvalidInput):
                await store.sessions.list(Query(after=after))
        for limit in (0, -1):
            with pytest.raises(InvalidInput):
                await store.sessions.list(Query(limit=limit))

    async def test_a_row_says_whether_somebody_writes(self, store: Store, other: Store) -> None:
        await kept(store, "a")
        await begun(store, "b", at=1)
        for handle in (store, other):
            page = await handle.sessions.list(Query())
            assert [(info.id, info.live) for info in page.sessions] == [("b", True), ("a", False)]

    async def test_namespaces_list_their_own(self, store: Store) -> None:
        await kept(store, "mine", asks("a1"))
        await kept(store.scoped("tenant"), "theirs", asks("a2"))
        assert await _names(store, Query()) == ["mine"]
        assert await _names(store.scoped("tenant"), Query()) == ["theirs"]
        assert [row.id for row in await store.sessions.decisions()] == ["a1"]


class DecisionsContract:
    """What people still have to decide."""

    async def test_what_was_asked_is_listed_oldest_first(self, store: Store, other: Store) -> None:
        one = await kept(store, "one", said("x"), asks("a1"), at=10)
        two = await kept(store, "two", asks_what("q1"), asks("a2"), at=5)
        rows = [
            Pending(id=DecisionId("q1"), session=two.session, seq=1, event=two.events[0]),
            Pending(id=DecisionId("a2"), session=two.session, seq=2, event=two.events[1]),
            Pending(id=DecisionId("a1"), session=one.session, seq=2, event=one.events[1]),
        ]
        assert list(await other.sessions.decisions()) == rows
        assert list(await other.sessions.decisions(two.session)) == rows[:2]
        assert list(await other.sessions.decisions(SessionId("unknown"))) == []

    async def test_an_answer_settles_its_question_wherever_it_comes_from(self, store: Store, other: Store) -> None:
        pen, term = await begun(store, "s", asks("a1"), asks("a2"), asks_what("q1"))
        await other.events.offer(S, unsealed("s", approves("a1")), key="a1")
        async for event in store.events.read(S, after=pen.head):
            pen.take(event)
        await pen.write(store, term, QuestionAnswered(question=DecisionId("q1")))
        assert [row.id for row in await other.sessions.decisions()] == ["a2"]
        found = await other.sessions.find(S)
        assert found is not None
        assert found.pending == 1

    async def test_asked_and_answered_in_one_batch_is_not_open(self, store: Store) -> None:
        await kept(store, "s", asks("a1"), approves("a1"), asks("a2"))
        assert [row.id for row in await store.sessions.decisions()] == ["a2"]

    async def test_the_end_of_a_turn_settles_what_was_open(self, store: Store) -> None:
        pen, term = await begun(store, "s", said("x"), asks("a1"))
        await kept(store, "t", asks("a1"))
        await pen.write(store, term, asks("a2"), TurnCancelled())
        assert [row.session for row in await store.sessions.decisions()] == ["t"]


class DeleteContract:
    """Forgetting: on request, and what ``gc`` may take."""

    async def test_a_deleted_session_leaves_nothing(self, store: Store, other: Store) -> None:
        await kept(store, "s", asks("a1"), said("x", "o"))
        await kept(store, "t")
        await other.sessions.delete(S)
        assert await store.sessions.find(S) is None
        assert await log(store, "s") == []
        assert list(await store.sessions.decisions()) == []
        assert await _names(store, Query()) == ["t"]
        await kept(store, "s")
        assert await store.events.offer(S, unsealed("s", said("x", "o")), key="o") == 2

    async def test_a_session_that_is_written_cannot_be_deleted(self, store: Store, other: Store) -> None:
        await begun(store, "s")
        for handle in (store, other):
            with pytest.raises(Busy):
                await handle.sessions.delete(S)
        assert len(await log(store, "s")) == 1

    async def test_what_does_not_exist_cannot_be_deleted(self, store: Store) -> None:
        await kept(store.scoped("tenant"), "s")
        with pytest.raises(NotFound):
            await store.sessions.delete(S)

    async def test_gc_takes_what_is_done_and_old_and_nothing_else(self, store: Store, other: Store) -> None:
        pens = await _of_each_status(store)
        live, _ = await begun(store, "live", said("x"), *turn_of())
        await kept(store, "asked", asks("a1"))
        await kept(store, "recent", said("x"), *turn_of(), at=1000)
        before = {name: await log(store, name) for name in (*pens, "live", "asked", "recent")}
        dry = await other.gc(Retention(idle_before=moment(500), dry_run=True))
        assert set(dry.sessions) == {"idle", "closed"}
        assert dry.bytes > 0
        assert {name: await log(store, name) for name in before} == before
        assert await other.gc(Retention(idle_before=moment(500))) == dry
        gone: dict[str, list[bytes]] = {"idle": [], "closed": []}
        assert {name: await log(store, name) for name in before} == {**before, **gone}
        assert await store.sessions.find(live.session) is not None
        assert await other.gc(Retention(idle_before=moment(500))) == Removed()

    async def test_gc_without_a_time_takes_no_session(self, store: Store) -> None:
        await kept(store, "s", SessionClosed())
        assert await store.gc(Retention()) == Removed()
        assert await store.sessions.find(S) is not None

    async def test_gc_stays_in_its_namespace(self, store: Store) -> None:
        tenant = store.scoped("tenant")
        await kept(tenant, "s", SessionClosed())
        assert await store.gc(Retention(idle_before=LATER)) == Removed()
        assert (await tenant.gc(Retention(idle_before=LATER))).sessions == ("s",)

    async def test_reindex_finds_every_row_as_it_was(self, store: Store, other: Store) -> None:
        pens = await _of_each_status(store)
        pen, term = await begun(store, "live", asks("a9"))
        await kept(store.scoped("tenant"), "theirs")
        page, decisions = await store.sessions.list(Query()), await store.sessions.decisions()
        assert await other.reindex() == len(pens) + 1
        assert await store.sessions.list(Query()) == page
        assert await store.sessions.decisions() == decisions
        for name, written in pens.items():
            found = await store.sessions.find(SessionId(name))
            assert found == msgspec.structs.replace(rebuild(written.session, written.events), term=1)
        assert await store.events.offer(SessionId("idle"), unsealed("idle", said("x")), key="k") == 1
        assert await pen.write(store, term, said("on", "k2")) == 2

    async def test_many_may_list_while_many_write(self, store: Store, other: Store) -> None:
        async def write(name: str) -> None:
            pen, term = await begun(store, name)
            for n in range(5):
                await pen.write(store, term, said("x", f"k{n}x"))

        async def look() -> None:
            for _ in range(10):
                for info in (await other.sessions.list(Query(limit=100))).sessions:
                    assert info == await other.sessions.find(info.id) or info.head < 6
                await asyncio.sleep(0)

        await asyncio.gather(look(), *(write(f"s{n}") for n in range(20)))
        assert {info.head for info in (await other.sessions.list(Query(limit=100))).sessions} == {6}


class SessionsContract(ListContract, DecisionsContract, DeleteContract):
    """What the index promises."""
