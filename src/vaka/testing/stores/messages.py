"""The contract of the message index: listing what was said."""

# ruff: noqa: S101  # a contract suite is made of asserts

from typing import Any

import msgspec
import pytest

from vaka.core.ports.messages import (
    MessageFilter,
    MessageQuery,
    MessageRow,
    MessageStats,
)
from vaka.core.ports.store import Store
from vaka.core.types.control import InputAdded, SessionOpened
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, MessageId, SessionId
from vaka.core.types.message import Reasoning, Stored, Text, ToolCall, ToolResult
from vaka.core.types.progress import (
    MessageCompleted,
    SubagentStarted,
    ToolCalled,
    ToolCompleted,
    ToolFailed,
    TurnCompleted,
)
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    write_session,
)

SESSION = SessionId("s")
ALL = MessageQuery()


def answer_message(id: str, text: str) -> MessageCompleted:
    """Return a model's answer."""
    return MessageCompleted(message_id=MessageId(id), content=(Reasoning(text="hidden"), Text(text=text)), model="m")


def tool_called(id: str, name: str, **arguments: object) -> ToolCalled:
    return ToolCalled(call=ToolCall(id=CallId(id), name=name, arguments=arguments), message_id=MessageId("m"))


def tool_result(id: str, text: str, *, failed: bool = False) -> ToolCompleted | ToolFailed:
    result = ToolResult(call=CallId(id), content=(Text(text=text),), failed=failed)
    return ToolFailed(result=result) if failed else ToolCompleted(result=result)


async def write_conversation(store: Store, session: str = "s", *, at: float = 0) -> EventSealer:
    """Write a question, two tool calls of which one fails, and the answer; each in an append of its own."""
    log, term = await begin_session(store, session, input_added("Where is the canoe?", "k1"), at=at)
    for bodies in (
        (
            answer_message("m1", ""),
            tool_called("call_1", "Grep", pattern="canoe", limit=3),
            tool_called("call_2", "Read"),
        ),
        (tool_result("call_1", "harbour.txt: the canoe is moored"), tool_result("call_2", "no such file", failed=True)),
        (answer_message("m2", "The canoe is in the harbour."), TurnCompleted(text="The canoe is in the harbour.")),
    ):
        await log.append_to(store, term, *bodies, turn="t1")
    await store.events.release(log.session, term)
    return log


async def list_texts(store: Store, query: MessageQuery, session: SessionId = SESSION) -> list[str]:
    return [row.text for row in (await store.messages.list(session, query)).messages]


class MessageListContract:
    """Listing the messages of a session."""

    async def test_messages_are_listed_with_what_their_events_say(self, store: Store, other: Store) -> None:
        log = await write_conversation(store)
        page = await other.messages.list(SESSION, MessageQuery())
        common: dict[str, Any] = {"session": SESSION, "turn": "t1"}
        seqs = [1, 2, 5, 6, 7]
        expected = [
            MessageRow(session=SESSION, seq=1, role="user", id="k1", text="Where is the canoe?"),
            MessageRow(**common, seq=2, role="assistant", id="m1"),
            MessageRow(**common, seq=5, role="tool", id="call_1", name="Grep", text="harbour.txt: the canoe is moored"),
            MessageRow(**common, seq=6, role="tool", id="call_2", name="Read", text="no such file", failed=True),
            MessageRow(**common, seq=7, role="assistant", id="m2", text="The canoe is in the harbour."),
        ]
        shown = [msgspec.structs.replace(row, ts="", content=()) for row in page.messages]
        assert (shown, page.has_more, page.next, page.prev) == (expected, False, "", "")
        assert [row.ts for row in page.messages] == [log.events[seq - 1].ts for seq in seqs]
        assert page.messages[4].content == (Reasoning(text="hidden"), Text(text="The canoe is in the harbour."))
        assert page.messages[4].cursor == log.events[6].id
        bare = await store.messages.list(SESSION, MessageQuery(include_content=False))
        assert [(row.id, row.text, row.content) for row in bare.messages] == [(row.id, "", ()) for row in expected]
        calls = await store.messages.list(SESSION, MessageQuery(filter=MessageFilter(role="call")))
        assert [(row.id, row.name, row.text) for row in calls.messages] == [
            ("call_1", "Grep", "pattern: canoe\nlimit: 3"),
            ("call_2", "Read", ""),
        ]
        assert await store.messages.stats(SESSION) == MessageStats(
            message_count=5,
            user_message_count=1,
            assistant_message_count=2,
            tool_message_count=2,
            first_message_at=log.events[0].ts,
            last_message_at=log.events[6].ts,
            size_bytes=sum(len(log.events[seq - 1].stored) for seq in seqs),
        )

    async def test_a_message_is_found_by_its_id(self, store: Store) -> None:
        await write_conversation(store)
        found = {id: await store.messages.find(SESSION, id) for id in ("k1", "m2", "call_2", "m", "%", "", "x\udcff")}
        assert {id: row and (row.role, row.name, row.seq) for id, row in found.items()} == {
            "k1": ("user", "", 1),
            "m2": ("assistant", "", 7),
            "call_2": ("tool", "Read", 6),
            "m": None,
            "%": None,
            "": None,
            "x\udcff": None,
        }
        assert await store.messages.find(SessionId("unknown"), "k1") is None
        assert await store.with_namespace("tenant").messages.find(SESSION, "k1") is None

    async def test_pages_go_both_ways_and_stay_while_messages_are_added(self, store: Store) -> None:
        log, term = await begin_session(store, "s", *(input_added(f"{n}", f"k{n}") for n in range(7)))
        for reverse in (False, True):
            order = [f"{n}" for n in range(7)]
            order = order[::-1] if reverse else order
            pages = [await store.messages.list(SESSION, MessageQuery(limit=3, reverse=reverse))]
            while pages[-1].next:
                assert pages[-1].has_more
                query = MessageQuery(limit=3, reverse=reverse, cursor=pages[-1].next)
                pages.append(await store.messages.list(SESSION, query))
            assert [[row.text for row in page.messages] for page in pages] == [order[:3], order[3:6], order[6:]]
            back = MessageQuery(limit=3, reverse=reverse, cursor=pages[2].prev)
            assert await store.messages.list(SESSION, back) == pages[1]
            first = await store.messages.list(SESSION, msgspec.structs.replace(back, cursor=pages[1].prev))
            assert ([row.text for row in first.messages], first.prev) == (order[:3], "")
            before = await store.messages.list(SESSION, msgspec.structs.replace(back, limit=2))
            assert [row.text for row in before.messages] == order[4:6]
            assert before.prev
        newest = await store.messages.list(SESSION, MessageQuery(limit=3, reverse=True))
        await log.append_to(store, term, input_added("new", "k9"))
        assert await list_texts(store, MessageQuery(limit=9, reverse=True, cursor=newest.next)) == ["3", "2", "1", "0"]

    async def test_filters_narrow_together_before_order_and_limit(self, store: Store) -> None:
        log = await write_conversation(store, at=10)
        rows: list[tuple[MessageFilter, list[str]]] = [
            (MessageFilter(role="USER"), ["k1"]),
            (MessageFilter(role="assistant"), ["m1", "m2"]),
            (MessageFilter(keywords=("HARBOUR", "file")), ["call_1", "call_2", "m2"]),
            (MessageFilter(keywords=("where is",)), ["k1"]),
            (MessageFilter(keywords=("hidden",)), []),
            (MessageFilter(keywords=("%",)), []),
            (MessageFilter(keywords=("canoe",), role="tool"), ["call_1"]),
            (MessageFilter(since=log.events[5].ts, until=log.events[6].ts), ["call_2", "m2"]),
            (MessageFilter(since=log.events[6].ts[:-1] + "+00:00"), ["m2"]),
            (MessageFilter(until="2020-01-01"), []),
            (MessageFilter(until="0999-12-31"), []),
            (MessageFilter(since="0999-12-31", role="user"), ["k1"]),
            (MessageFilter(until=log.events[0].ts[:10]), ["k1", "m1", "call_1", "call_2", "m2"]),
            (MessageFilter(path=("agent-1",)), []),
            (MessageFilter(metadata={"a": 1}), []),
        ]
        for filter, ids in rows:
            page = await store.messages.list(SESSION, MessageQuery(filter=filter))
            assert [row.id for row in page.messages] == ids, filter
        newest = MessageQuery(filter=MessageFilter(keywords=("canoe",)), limit=1, reverse=True)
        page = await store.messages.list(SESSION, newest)
        assert ([row.id for row in page.messages], page.has_more) == (["m2"], True)

    async def test_a_keyword_is_found_far_from_the_end(self, store: Store) -> None:
        bodies: list[Body] = [input_added(f"number {n}", f"k{n}") for n in range(1100)]
        await write_session(store, "s", *bodies)
        rare = MessageQuery(filter=MessageFilter(keywords=("number 1050", "NUMBER 3 ")), limit=1)
        assert await list_texts(store, rare) == ["number 1050"]
        many = MessageQuery(filter=MessageFilter(keywords=("number 10",)), limit=2, reverse=True)
        page = await store.messages.list(SESSION, many)
        assert ([row.text for row in page.messages], page.has_more) == (["number 1099", "number 1098"], True)

    async def test_a_keyword_is_found_in_the_text_of_a_blob(self, store: Store, other: Store) -> None:
        texts = {"a": "x " * 20_000 + "the Needle", "b": "x " * 40_000 + "the needle", "c": "x" * 40_000}
        bodies: list[Body] = []
        for key, text in texts.items():
            digest = await store.blobs.put(text.encode())
            part = Stored(blob=digest, size=len(text), preview=text[:1000])
            bodies.append(InputAdded(key=key, content=(Text(text="Look:"), part), metadata={"n": 1}))
        await write_session(store, "s", *bodies, input_added("needles", "d"))
        expected: list[tuple[MessageFilter, list[str]]] = [
            (MessageFilter(keywords=("NEEDLE",)), ["a", "d"]),
            (MessageFilter(keywords=("look",)), ["a", "b", "c"]),
            (MessageFilter(keywords=("thread", "the need"), metadata={"n": 1}), ["a"]),
            (MessageFilter(keywords=("needle",), metadata={"n": 2}), []),
        ]
        for filter, keys in expected:
            page = await other.messages.list(SESSION, MessageQuery(filter=filter))
            assert [row.id for row in page.messages] == keys, filter
        newest = MessageQuery(filter=MessageFilter(keywords=("needle",)), limit=1, reverse=True)
        page = await store.messages.list(SESSION, newest)
        assert [row.id for row in page.messages] == ["d"]
        page = await store.messages.list(SESSION, msgspec.structs.replace(newest, cursor=page.next))
        assert ([row.id for row in page.messages], page.next) == (["a"], "")

    async def test_metadata_are_compared_as_json(self, store: Store) -> None:
        rows: dict[str, dict[str, Any]] = {
            "a": {"n": 1},
            "b": {"n": 1.0},
            "c": {"n": True},
            "d": {"n": [1, {"x": 2}]},
            "e": {"n": None},
            "f": {},
        }
        bodies = [InputAdded(key=key, content=(Text(text=key),), metadata=each) for key, each in rows.items()]
        await write_session(store, "s", *bodies)
        expected: list[tuple[object, list[str]]] = [
            (1, ["a", "b"]),
            (1.0, ["a", "b"]),
            (True, ["c"]),
            (False, []),
            ("1", []),
            (None, ["e"]),
            ([1.0, {"x": 2}], ["d"]),
            ((1, {"x": 2.0}), ["d"]),
            ([True, {"x": 2}], []),
            ([1], []),
            ([1, {"y": 2}], []),
        ]
        for value, keys in expected:
            assert await list_texts(store, MessageQuery(filter=MessageFilter(metadata={"n": value}))) == keys, value

    async def test_messages_of_child_agents_are_listed_on_request(self, store: Store) -> None:
        started = SubagentStarted(call=CallId("call_1"), agent="x", child="agent-1", content=(Text(text="Count."),))
        await write_session(store, "s", input_added("Ask a child."), started)
        assert await list_texts(store, MessageQuery()) == ["Ask a child."]
        assert await list_texts(store, MessageQuery(filter=MessageFilter(path=("agent-1",)))) == ["Count."]
        assert await list_texts(store, MessageQuery(filter=MessageFilter(path=None))) == ["Ask a child.", "Count."]

    async def test_bad_queries_are_refused(self, store: Store) -> None:
        await write_conversation(store)
        bad = [
            MessageQuery(limit=0),
            MessageQuery(cursor="x"),
            MessageQuery(cursor="e30="),
            MessageQuery(cursor="🛶"),
            MessageQuery(filter=MessageFilter(role="king")),
            MessageQuery(filter=MessageFilter(since="yesterday")),
            MessageQuery(cursor="Wy0xLGZhbHNlXQ=="),
            MessageQuery(filter=MessageFilter(until="0000-13-01")),
        ]
        for query in bad:
            with pytest.raises(InvalidInput):
                await store.messages.list(SESSION, query)
        for name in ("unknown", "'; drop table messages; --"):
            with pytest.raises(NotFound):
                await store.messages.list(SessionId(name), MessageQuery())
            with pytest.raises(NotFound):
                await store.messages.stats(SessionId(name))
        with pytest.raises(NotFound):
            await store.with_namespace("tenant").messages.list(SESSION, MessageQuery())

    async def test_counts_follow_what_other_handles_write(self, store: Store, other: Store) -> None:
        log = await write_conversation(store)
        first = await store.messages.stats(SESSION)
        term = await other.events.claim(SESSION)
        await log.append_to(other, term, input_added("Is it dry?", "k2"), SessionOpened(agent="x"), release=True)
        added = len(log.events[-2].stored)
        expected = msgspec.structs.replace(
            first,
            message_count=6,
            user_message_count=2,
            last_message_at=log.events[-2].ts,
            size_bytes=first.size_bytes + added,
        )
        assert await store.messages.stats(SESSION) == await other.messages.stats(SESSION) == expected
        await other.sessions.delete(SESSION)
        await write_session(other, "s", *(input_added(str(n), str(n)) for n in range(20)))
        counted = await store.messages.stats(SESSION)
        assert (counted.message_count, counted.user_message_count, counted.assistant_message_count) == (20, 20, 0)
        await other.erase([SESSION])
        assert (await store.messages.stats(SESSION)).message_count == 0

    async def test_a_session_without_messages_has_an_empty_list(self, store: Store) -> None:
        await write_session(store, "s", SessionOpened(agent="x"))
        assert await list_texts(store, MessageQuery()) == []
        assert await store.messages.stats(SESSION) == MessageStats()
