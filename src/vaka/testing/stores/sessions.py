"""Contracts of the index of sessions and open decisions."""

# ruff: noqa: S101  # a contract suite is made of asserts

from typing import get_args

import msgspec
import pytest

from vaka.core.ports.store import PendingDecision, SessionQuery, SessionStatus, Store
from vaka.core.types.control import (
    QuestionAnswered,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SessionUpdated,
    SessionWorkspace,
)
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.progress import TurnCancelled
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    approval_resolved,
    begin_session,
    find_session,
    format_time,
    input_added,
    offer_event,
    question_asked,
    turn_events,
    write_session,
)

SESSION = SessionId("s")

FAR_FUTURE = "9999-01-01T00:00:00.000Z"


async def list_ids(store: Store, query: SessionQuery) -> list[str]:
    return [info.id for info in (await store.sessions.list(query)).sessions]


async def write_each_status(store: Store) -> dict[str, EventSealer]:
    """Write one session of each status, named like it; two of them are closed, one with a turn unfinished."""
    start, end = turn_events()
    bodies: dict[str, tuple[Body, ...]] = {
        "idle": (start, end),
        "queued": (),
        "running": (start,),
        "waiting": (start, approval_requested("a")),
        "closed": (start, end, SessionClosed()),
        "cut": (start, SessionClosed()),
    }
    return {name: await write_session(store, name, input_added("x"), *rest, turn="t") for name, rest in bodies.items()}


class ListContract:
    """Listing sessions in pages, with filters."""

    async def test_the_newest_change_comes_first(self, store: Store, other: Store) -> None:
        for n, name in enumerate(("b", "a", "d", "c")):
            await write_session(store, name, at=n)
        page = await other.sessions.list(SessionQuery())
        assert [info.id for info in page.sessions] == ["c", "d", "a", "b"]
        assert page.next == ""
        assert page.sessions[0] == await store.sessions.find(SessionId("c"))

    async def test_an_empty_store_has_an_empty_page(self, store: Store) -> None:
        page = await store.sessions.list(SessionQuery())
        assert (page.sessions, page.next) == ((), "")

    async def test_sessions_are_found_by_status(self, store: Store) -> None:
        await write_each_status(store)
        found = {status: set(await list_ids(store, SessionQuery(status=status))) for status in get_args(SessionStatus)}
        assert found == {
            "idle": {"idle"},
            "queued": {"queued"},
            "running": {"running"},
            "waiting": {"waiting"},
            "closed": {"closed", "cut"},
        }

    async def test_sessions_are_found_by_agent_id_and_origin(self, store: Store) -> None:
        await write_session(store, "web-1", SessionOpened(agent="router"))
        await write_session(store, "web-2", SessionForked(origin="web-1", cursor="1.1"), at=1)
        await write_session(store, "WEB-3", SessionOpened(agent="Router"), at=2)
        await write_session(store, "we", SessionOpened(agent="r%"), at=3)
        assert await list_ids(store, SessionQuery(agent="router")) == ["web-1"]
        assert await list_ids(store, SessionQuery(agent="r%")) == ["we"]
        assert await list_ids(store, SessionQuery(prefix="web-")) == ["web-2", "web-1"]
        assert await list_ids(store, SessionQuery(prefix="we")) == ["we", "web-2", "web-1"]
        assert await list_ids(store, SessionQuery(prefix="%")) == []
        assert await list_ids(store, SessionQuery(origin="web-1")) == ["web-2"]

    async def test_sessions_are_found_by_part_of_their_title(self, store: Store) -> None:
        titles = ["100% sure", "100 percent", "snake_case", "snake-case", "Plan THE trip", "back\\slash", "it's"]
        for n, title in enumerate(titles):
            await write_session(store, f"s{n}", input_added(title), at=n)
        expected = {
            "100%": ["s0"],
            "%": ["s0"],
            "_": ["s2"],
            "SNAKE": ["s3", "s2"],
            "plan the": ["s4"],
            "\\": ["s5"],
            "'": ["s6"],
            "nothing": [],
            "100": ["s1", "s0"],
        }
        assert {text: await list_ids(store, SessionQuery(text=text)) for text in expected} == expected

    async def test_sessions_are_found_by_time(self, store: Store) -> None:
        for n in range(5):
            await write_session(store, f"s{n}", at=n)
        assert await list_ids(store, SessionQuery(updated_after=format_time(2))) == ["s4", "s3"]
        assert await list_ids(store, SessionQuery(updated_before=format_time(2))) == ["s1", "s0"]
        between = SessionQuery(updated_after=format_time(0), updated_before=format_time(3))
        assert await list_ids(store, between) == ["s2", "s1"]

    async def test_sessions_are_found_by_folder(self, store: Store) -> None:
        folders = {"top": "/a", "below": "/a/b", "beside": "/ab", "other": "/c", "none": ""}
        for at, (name, root) in enumerate(folders.items()):
            workspace = SessionWorkspace(root=root) if root else None
            await write_session(store, name, SessionOpened(agent="x", workspace=workspace), at=at)
        moved = SessionUpdated(workspace=SessionWorkspace(root="/a/c"))
        await write_session(store, "moved", SessionOpened(workspace=SessionWorkspace(root="/d")), moved, at=9)
        expected = {"/a": ["moved", "none", "below", "top"], "/a/b": ["none", "below"], "/d": ["none"]}
        for _ in range(2):
            assert {folder: await list_ids(store, SessionQuery(folder=folder)) for folder in expected} == expected
            await store.reindex()
        found = await store.sessions.find(SessionId("moved"))
        assert found is not None
        assert found.folder == "/a/c"

    async def test_sessions_are_found_by_owner_and_tag(self, store: Store) -> None:
        opened = SessionOpened(title="Tea", owner="ann", tags=("a", "a b"), metadata={"n": 1, "old": True})
        await write_session(store, "opened", opened, input_added("coffee"), at=1)
        changed = SessionUpdated(title="Milk", owner="bob", tags=("b", "'%🛶"), metadata={"n": 2, "old": None})
        await write_session(store, "updated", opened, changed, *turn_events(), at=2)
        cleared = SessionUpdated(title="", owner="", tags=(), metadata={"n": None, "old": None})
        await write_session(store, "cleared", opened, cleared, input_added("water"), at=3)
        await write_session(store, "plain", SessionOpened(), input_added("juice"), at=4)
        owners = {"ann": ["opened"], "bob": ["updated"], "an": [], "a%": []}
        tags = {"a": ["opened"], "a b": ["opened"], "b": ["updated"], "'%🛶": ["updated"], "a\na b": [], "c": []}
        expected: dict[str, tuple[object, ...]] = {
            "opened": ("Tea", "ann", ("a", "a b"), {"n": 1, "old": True}),
            "updated": ("Milk", "bob", ("b", "'%🛶"), {"n": 2}),
            "cleared": ("water", "", (), {}),
            "plain": ("juice", "", (), {}),
        }
        for _ in range(2):
            assert {owner: await list_ids(store, SessionQuery(owner=owner)) for owner in owners} == owners
            assert {tag: await list_ids(store, SessionQuery(tag=tag)) for tag in tags} == tags
            found = (await store.sessions.list(SessionQuery())).sessions
            assert {row.id: (row.title, row.owner, row.tags, row.metadata) for row in found} == expected
            await store.reindex()
        assert await list_ids(store.with_namespace("tenant"), SessionQuery(owner="ann")) == []
        assert await list_ids(store, SessionQuery(owner="bob", tag="b", text="MILK")) == ["updated"]

    async def test_sessions_have_a_state_and_the_version_of_their_labels(self, store: Store) -> None:
        opened, run = SessionOpened(title="Tea"), SessionUpdated(workspace=SessionWorkspace(root="/a"))
        await write_session(store, "new", opened, input_added("coffee"), run, *turn_events(), at=1)
        await write_session(store, "paused", opened, SessionUpdated(state="paused"), input_added("x"), at=2)
        again = SessionUpdated(state="active", title="Milk")
        await write_session(store, "again", opened, SessionUpdated(state="paused"), again, at=3)
        await write_session(store, "archived", SessionUpdated(state="archived"), SessionUpdated(tags=("a",)), at=4)
        states = {
            "active": ["again", "new"],
            "paused": ["paused"],
            "archived": ["archived"],
            "ended": [],
            "act%'": [],
        }
        expected = {"new": ("active", 1), "paused": ("paused", 2), "again": ("active", 3), "archived": ("archived", 2)}
        for _ in range(2):
            assert {state: await list_ids(store, SessionQuery(state=state)) for state in states} == states
            found = (await store.sessions.list(SessionQuery())).sessions
            assert {row.id: (row.state, row.version) for row in found} == expected
            await store.reindex()
        assert await list_ids(store.with_namespace("tenant"), SessionQuery(state="paused")) == []

    async def test_sessions_are_found_by_their_metadata(self, store: Store) -> None:
        rows: dict[str, dict[str, object]] = {
            "a": {"n": 1, "it's \"%": "x'\\", "on": True},
            "b": {"n": 1, "deep": {"on": True}},
            "c": {"n": "1", "null": "a\0b", "on": 1},
            "d": {"zero": -0.0, "big": 2**60, "half": 0.5, "off": False},
        }
        for at, (name, metadata) in enumerate(rows.items()):
            await write_session(store, name, SessionOpened(metadata=metadata, owner="ann"), at=at)
        searches: tuple[tuple[dict[str, object], list[str]], ...] = (
            ({"n": 1}, ["b", "a"]),
            ({"n": "1"}, ["c"]),
            ({"null": "a\0b"}, ["c"]),
            ({"n": 2}, []),
            ({"on": True}, ["a"]),
            ({"it's \"%": "x'\\", "n": 1}, ["a"]),
            ({"n": 1, "on": False}, []),
            ({"o": 1}, []),
            ({"n": 1.0}, ["b", "a"]),
            ({"on": 1.0}, ["c"]),
            ({"zero": 0}, ["d"]),
            ({"zero": False}, []),
            ({"big": float(2**60)}, ["d"]),
            ({"big": 2**60 + 1}, []),
            ({"half": 0.5}, ["d"]),
            ({"big": 10**400}, []),
            ({"off": 0}, []),
            ({"off": False}, ["d"]),
            ({"on": 1}, ["c"]),
        )
        for wanted, expected in searches:
            assert await list_ids(store, SessionQuery(metadata=wanted, owner="ann")) == expected, wanted
        assert await list_ids(store, SessionQuery(metadata={"n": 1}, limit=1)) == ["b"]
        assert await list_ids(store.with_namespace("tenant"), SessionQuery(metadata={"n": 1})) == []
        wrong: tuple[dict[str, object], ...] = (
            {"n": None},
            {"n": [1]},
            {"n": {"on": True}},
            {"\0": 1},
            {"n": b""},
            {"n": float("nan")},
        )
        for bad in wrong:
            with pytest.raises(InvalidInput, match="can be compared"):
                await store.sessions.list(SessionQuery(metadata=bad))

    async def test_metadata_too_large_for_the_index_are_left_out_of_it(self, store: Store) -> None:
        await write_session(store, "s", SessionOpened(metadata={"a": "x" * 20_000}, tags=("a\nb", "", "c")))
        found = await store.sessions.find(SessionId("s"))
        assert found is not None
        assert (found.metadata, found.tags) == ({}, ("c",))

    async def test_filters_narrow_together(self, store: Store) -> None:
        await write_session(store, "a1", SessionOpened(agent="x"), input_added("tea"), at=1)
        await write_session(store, "a2", SessionOpened(agent="x"), input_added("coffee"), at=2)
        await write_session(store, "b1", SessionOpened(agent="x"), input_added("tea"), at=3)
        await write_session(store, "a3", SessionOpened(agent="y"), input_added("tea"), at=4)
        query = SessionQuery(prefix="a", agent="x", text="TEA", status="queued", updated_before=format_time(9))
        assert await list_ids(store, query) == ["a1"]

    async def test_pages_show_every_session_once_also_when_all_changed_at_one_time(self, store: Store) -> None:
        names = {f"s{n}" for n in range(23)}
        for name in names:
            await write_session(store, name)
        for limit in (1, 2, 5, 22, 23, 24):
            seen: list[str] = []
            query = SessionQuery(limit=limit)
            while True:
                page = await store.sessions.list(query)
                assert len(page.sessions) <= limit
                seen += [info.id for info in page.sessions]
                if not page.next:
                    break
                query = msgspec.structs.replace(query, after=page.next)
            assert (len(seen), set(seen)) == (23, names)

    async def test_pages_miss_nothing_that_stays_while_others_change(self, store: Store) -> None:
        logs = {f"s{n:02}": await write_session(store, f"s{n:02}") for n in range(20)}
        first = await store.sessions.list(SessionQuery(limit=7))
        for name in ("s19", "s03", "s10"):  # the first is on the first page, the others are not
            log = logs[name]
            log.at = 100
            await log.append_to(store, await store.events.claim(log.session), input_added("new", "k2"), release=True)
        await store.sessions.delete(SessionId("s05"))
        rest = await store.sessions.list(SessionQuery(limit=50, after=first.next))
        shown = [info.id for info in (*first.sessions, *rest.sessions)]
        assert sorted(shown) == sorted(set(logs) - {"s03", "s05", "s10"})

    async def test_an_invalid_cursor_is_refused(self, store: Store) -> None:
        await write_session(store, "s")
        for after in ("nonsense", "e30=", "🛶", "W10=", "bnVsbA==", "'; --"):
            with pytest.raises(InvalidInput):
                await store.sessions.list(SessionQuery(after=after))
        for limit in (0, -1):
            with pytest.raises(InvalidInput):
                await store.sessions.list(SessionQuery(limit=limit))

    async def test_a_row_shows_whether_the_session_has_a_writer(self, store: Store, other: Store) -> None:
        await write_session(store, "a")
        await begin_session(store, "b", at=1)
        for handle in (store, other):
            page = await handle.sessions.list(SessionQuery())
            assert [(info.id, info.live) for info in page.sessions] == [("b", True), ("a", False)]

    async def test_namespaces_list_their_own(self, store: Store) -> None:
        await write_session(store, "mine", approval_requested("a1"))
        await write_session(store.with_namespace("tenant"), "theirs", approval_requested("a2"))
        assert await list_ids(store, SessionQuery()) == ["mine"]
        assert await list_ids(store.with_namespace("tenant"), SessionQuery()) == ["theirs"]
        assert [row.id for row in await store.sessions.decisions()] == ["a1"]


class DecisionsContract:
    """Listing the decisions that are pending."""

    async def test_pending_decisions_are_listed_oldest_first(self, store: Store, other: Store) -> None:
        one = await write_session(store, "one", input_added("x"), approval_requested("a1"), at=10)
        two = await write_session(store, "two", question_asked("q1"), approval_requested("a2"), at=5)
        rows = [
            PendingDecision(id=DecisionId("q1"), session=two.session, seq=1, event=two.events[0]),
            PendingDecision(id=DecisionId("a2"), session=two.session, seq=2, event=two.events[1]),
            PendingDecision(id=DecisionId("a1"), session=one.session, seq=2, event=one.events[1]),
        ]
        assert list(await other.sessions.decisions()) == rows
        assert list(await other.sessions.decisions(two.session)) == rows[:2]
        assert list(await other.sessions.decisions(SessionId("unknown"))) == []
        assert list(await other.sessions.decisions(id="a2")) == rows[1:2]
        assert list(await other.sessions.decisions(one.session, id="a1")) == rows[2:]
        assert list(await other.sessions.decisions(two.session, id="a1")) == []
        assert list(await other.sessions.decisions(id="unknown\udcff")) == []

    async def test_an_answer_settles_its_question_whether_offered_or_appended(self, store: Store, other: Store) -> None:
        log, term = await begin_session(
            store, "s", approval_requested("a1"), approval_requested("a2"), question_asked("q1")
        )
        await offer_event(other, approval_resolved("a1"))
        await log.catch_up(store)
        await log.append_to(store, term, QuestionAnswered(question=DecisionId("q1")))
        assert [row.id for row in await other.sessions.decisions()] == ["a2"]
        assert (await find_session(other)).pending == 1

    async def test_a_decision_settled_in_its_own_batch_is_not_pending(self, store: Store) -> None:
        await write_session(store, "s", approval_requested("a1"), approval_resolved("a1"), approval_requested("a2"))
        assert [row.id for row in await store.sessions.decisions()] == ["a2"]

    async def test_the_end_of_a_turn_settles_its_decisions(self, store: Store) -> None:
        log, term = await begin_session(store, "s", input_added("x"), approval_requested("a1"))
        await write_session(store, "t", approval_requested("a1"))
        await log.append_to(store, term, approval_requested("a2"), TurnCancelled())
        assert [row.session for row in await store.sessions.decisions()] == ["t"]
