"""The contract of the message index: listing what was said, and searching it."""

# ruff: noqa: S101  # a contract suite is made of asserts

import base64
from typing import Any

import msgspec
import pytest

from vaka.core.ports.messages import (
    MAX_QUERY_LENGTH,
    SEARCH_WINDOW,
    MessageFilter,
    MessageQuery,
    MessageRow,
    MessageSearch,
    MessageStats,
    SearchHit,
)
from vaka.core.ports.store import Retention, Store
from vaka.core.types.control import InputAdded, SessionOpened, SessionUpdated
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
    format_time,
    input_added,
    turn_events,
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


async def find_sessions(store: Store, text: str, **fields: object) -> list[str]:
    """Return the sessions of all hits, best first."""
    query = msgspec.convert({"text": text, **fields}, MessageSearch)
    return [hit.message.session for hit in (await store.messages.search(query)).hits]


async def search_all(store: Store, text: str, limit: int) -> list[SearchHit]:
    """Return the hits of all pages."""
    hits: list[SearchHit] = []
    after = ""
    while True:
        page = await store.messages.search(MessageSearch(text=text, limit=limit, after=after))
        assert len(page.hits) <= limit
        hits += page.hits
        after = page.next
        if not after:
            return hits


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
            ("call_1", "Grep", "pattern: canoe\nlimit: 3"), ("call_2", "Read", ""),
        ]  # fmt: skip
        assert await store.messages.stats(SESSION) == MessageStats(
            message_count=5, user_message_count=1, assistant_message_count=2, tool_message_count=2,
            first_message_at=log.events[0].ts, last_message_at=log.events[6].ts,
            size_bytes=sum(len(log.events[seq - 1].stored) for seq in seqs),
        )  # fmt: skip

    async def test_a_message_is_found_by_its_id(self, store: Store) -> None:
        await write_conversation(store)
        found = {id: await store.messages.find(SESSION, id) for id in ("k1", "m2", "call_2", "m", "%", "", "x\udcff")}
        assert {id: row and (row.role, row.name, row.seq) for id, row in found.items()} == {
            "k1": ("user", "", 1), "m2": ("assistant", "", 7), "call_2": ("tool", "Read", 6), "m": None, "%": None,
            "": None, "x\udcff": None,
        }  # fmt: skip
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
            (MessageFilter(keywords=("NEEDLE",)), ["a", "d"]), (MessageFilter(keywords=("look",)), ["a", "b", "c"]),
            (MessageFilter(keywords=("thread", "the need"), metadata={"n": 1}), ["a"]),
            (MessageFilter(keywords=("needle",), metadata={"n": 2}), []),
        ]  # fmt: skip
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
            "a": {"n": 1}, "b": {"n": 1.0}, "c": {"n": True}, "d": {"n": [1, {"x": 2}]}, "e": {"n": None}, "f": {},
        }  # fmt: skip
        bodies = [InputAdded(key=key, content=(Text(text=key),), metadata=each) for key, each in rows.items()]
        await write_session(store, "s", *bodies)
        expected: list[tuple[object, list[str]]] = [
            (1, ["a", "b"]), (1.0, ["a", "b"]), (True, ["c"]), (False, []), ("1", []), (None, ["e"]),
            ([1.0, {"x": 2}], ["d"]), ((1, {"x": 2.0}), ["d"]), ([True, {"x": 2}], []), ([1], []), ([1, {"y": 2}], []),
        ]  # fmt: skip
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
            MessageQuery(limit=0), MessageQuery(cursor="x"), MessageQuery(cursor="e30="), MessageQuery(cursor="🛶"),
            MessageQuery(filter=MessageFilter(role="king")), MessageQuery(filter=MessageFilter(since="yesterday")),
            MessageQuery(cursor="Wy0xLGZhbHNlXQ=="), MessageQuery(filter=MessageFilter(until="0000-13-01")),
        ]  # fmt: skip
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
            first, message_count=6, user_message_count=2, last_message_at=log.events[-2].ts,
            size_bytes=first.size_bytes + added,
        )  # fmt: skip
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


class MessageSearchContract:
    """Searching the messages of all sessions."""

    async def test_words_phrases_exclusions_and_prefixes_are_found(self, store: Store, other: Store) -> None:
        texts = [
            "The quick brown fox", "the brown, quick fox", "Quicksand", "snake_case and kebab-case", "It's 3.14",
            "Straße nach MÜNCHEN", "cafe\u0301 au lait",
        ]  # fmt: skip
        for n, text in enumerate(texts):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {
            "quick": ["s0", "s1"], "QUICK fox": ["s0", "s1"], '"quick brown"': ["s0"], "quick -sand": ["s0", "s1"],
            "fox -\"quick brown\"": ["s1"], "quick*": ["s0", "s1", "s2"], "quic": [], "snake_case": ["s3"],
            "case -kebab": [], "kebab case": ["s3"], '"it\'s 3.14"': ["s4"], "314": [], "strasse": ["s5"],
            "munchen": ["s5"], "München": ["s5"], "café": ["s6"], "cafe": ["s6"], "fox nothing": [], "hidden": [],
        }  # fmt: skip
        assert {text: sorted(await find_sessions(other, text)) for text in expected} == expected

    async def test_texts_without_spaces_are_found_by_any_part(self, store: Store) -> None:
        texts = [
            "我们明天去东京都看展览",
            "東京タワーに行きました",
            "カヌーは港にあります",
            "เรือแคนูอยู่ที่ท่าเรือ",
            "카누는 항구에 있습니다",
            "用iPhone手機拍照",
        ]
        for n, text in enumerate(texts):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {
            "东京": ["s0", "s1"], "京都": ["s0"], "明天去东京": ["s0"], "展": ["s0"], "览": ["s0"], "东天": [],
            "東京": ["s0", "s1"], "タワー": ["s1"], "行きま": ["s1"], "カヌー": ["s2"], "港": ["s2"], "ｶﾇｰ": ["s2"],
            "แคนู": ["s3"],
            "항구": ["s4"], "iphone手機": ["s5"], "手機 IPHONE": ["s5"], '"去东京都看"': ["s0"], "东京 -展览": ["s1"],
        }  # fmt: skip
        assert {text: sorted(await find_sessions(store, text)) for text in expected} == expected

    async def test_forms_of_a_word_are_found(self, store: Store) -> None:
        texts = [
            "Two cats, two boxes, a story",
            "A catalogue",
            "Die Strasse in 臺北",
            "die Straße in 台北",
            "cat stories",
        ]
        for n, text in enumerate(texts):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {
            "cat": ["s0", "s4"], "cats": ["s0", "s4"], "cat*": ["s0", "s1", "s4"], "cats*": ["s0", "s4"],
            "box": ["s0"], "stories": ["s0", "s4"], "story": ["s0", "s4"], "strasse": ["s2", "s3"],
            "Straße": ["s2", "s3"], "台北": ["s2", "s3"], "臺北": ["s2", "s3"], "catalogues": ["s1"],
        }  # fmt: skip
        assert {text: sorted(await find_sessions(store, text)) for text in expected} == expected

    async def test_any_text_is_a_valid_query(self, store: Store) -> None:
        await write_conversation(store)
        hostile = [
            "", " ", "-", '"', '""', "*", "-*", "canoe AND", "NOT canoe", "canoe OR NEAR(", "^canoe", "words:canoe",
            "scope : canoe", "canoe' --", '"canoe', "canoe:*", "canoe <-> x", "!canoe & |", "\\", "\x00", "canoe\x00",
            "\udcff", "%_", "(canoe)", "{canoe}", "a:b:c", "🛶", "'; drop table messages; --", "-canoe", "_n _s",
        ]  # fmt: skip
        found = {text: bool(await find_sessions(store, text)) for text in hostile}
        assert [text for text, hit in found.items() if hit] == [
            "^canoe", "canoe' --", '"canoe', "canoe:*", "!canoe & |", "canoe\x00", "(canoe)", "{canoe}",
        ]  # fmt: skip
        with pytest.raises(InvalidInput, match="1001 characters"):
            await find_sessions(store, "x" * (MAX_QUERY_LENGTH + 1))
        long = " ".join(f"w{n}" for n in range(200))[:MAX_QUERY_LENGTH]
        assert await find_sessions(store, long) == []

    async def test_a_text_that_folding_makes_longer_is_stored_and_found(self, store: Store) -> None:
        ligatures = [chr(0xFDF0 + n) for n in range(9)]  # each is three or four letters
        words = ["".join(ligatures[n // by % 9] for by in (1, 9, 81, 729)) * 4 for n in range(3800)]
        await write_session(store, "s", input_added("canoe " + " ".join(words)))
        assert await find_sessions(store, f"canoe {words[7]}") == ["s"]

    async def test_a_hit_names_its_event_and_shows_where_it_matches(self, store: Store) -> None:
        long = "x " * 500 + "the\ncanoe is\there, a Canoe!" + " y" * 500
        await write_session(store, "s", input_added("hello", "k1"), answer_message("m1", long))
        (hit,) = (await store.messages.search(MessageSearch(text="canoe"))).hits
        assert (hit.message.id, hit.message.cursor, hit.message.role) == ("m1", "1.2", "assistant")
        assert (hit.message.text, hit.message.content) == ("", ())
        assert [hit.snippet[first:after] for first, after in hit.matches] == ["canoe", "Canoe"]
        assert "the canoe is here, a Canoe! y" in hit.snippet
        assert (hit.snippet[0], hit.snippet[-1], len(hit.snippet) < 300) == ("…", "…", True)
        assert hit.score > 0

    async def test_better_matches_come_first(self, store: Store) -> None:
        texts = ["a canoe " + "and so on " * 30, "canoe", "the canoe and the canoe and the canoe", "the canoe and me"]
        for n, text in enumerate(texts):
            await write_session(store, f"s{n}", input_added(text), at=n)
        found = await find_sessions(store, "canoe")
        assert found[-1] == "s0"
        assert found.index("s2") < found.index("s3")

    async def test_calls_and_results_of_tools_are_found(self, store: Store) -> None:
        await write_conversation(store)
        found = {text: (await store.messages.search(MessageSearch(text=text))).hits for text in ("grep", "moored")}
        assert [(hit.message.role, hit.message.id) for hit in found["grep"]] == [("call", "call_1")]
        assert [(hit.message.role, hit.message.name) for hit in found["moored"]] == [("tool", "Grep")]
        broken = ToolCall(id=CallId("call_9"), name="Write", raw='{"text": "unfinished sympho')
        await write_session(store, "t", ToolCalled(call=broken, message_id=MessageId("m")))
        assert await find_sessions(store, "write sympho") == ["t"]

    async def test_the_text_of_a_blob_is_found(self, store: Store) -> None:
        data = ("It begins here. " + "filler " * 3000 + "The Needle is far inside.").encode()
        digest = await store.blobs.put(data)
        part = Stored(blob=digest, size=len(data), preview="It begins")
        await write_session(store, "s", InputAdded(key="k", content=(Text(text="Look:"), part)))
        for _ in range(2):
            (hit,) = (await store.messages.search(MessageSearch(text="needle"))).hits
            assert "The Needle is far inside." in hit.snippet
            await store.reindex()

    async def test_filters_narrow_a_search(self, store: Store) -> None:
        await write_session(store, "a", SessionOpened(agent="x", owner="ann"), input_added("canoe one"), at=1)
        await write_session(store, "b", SessionOpened(agent="y", owner="bob"), input_added("canoe two"), at=2)
        await write_session(store, "c", SessionOpened(agent="x"), answer_message("m", "canoe three"), at=3)
        await write_session(
            store, "d", SessionOpened(agent="z", owner="ann"), SessionUpdated(owner="eve"), input_added("canoe"), at=4
        )
        child = SubagentStarted(call=CallId("c"), agent="x", child="agent-1", content=(Text(text="canoe"),))
        await write_session(store, "e", child, at=5)
        expected: dict[str, list[dict[str, object]]] = {
            "a": [{"owner": "ann"}, {"session": "a"}, {"agent": "x", "role": "user"}, {"until": format_time(1.5)}],
            "b": [{"since": format_time(2), "until": format_time(2.5)}],
            "c": [{"role": "Assistant"}], "d": [{"owner": "eve"}, {"agent": "z"}], "e": [{"path": ["agent-1"]}],
            "": [{"owner": "an"}, {"session": "unknown"}, {"agent": "x", "owner": "bob"}, {"role": "tool"}],
        }  # fmt: skip
        for session, queries in expected.items():
            for fields in queries:
                if session == "a" and "agent" in fields:
                    fields = {**fields, "until": format_time(4)}
                assert await find_sessions(store, "canoe", **fields) == ([session] if session else []), fields
        bad: list[dict[str, object]] = [
            {"role": "king"},
            {"since": "soon"},
            {"limit": 0},
            {"after": "x"},
            {"after": "W10="},
        ]
        for fields in bad:
            with pytest.raises(InvalidInput):
                await find_sessions(store, "canoe", **fields)

    async def test_pages_have_every_hit_once_while_messages_are_added(self, store: Store) -> None:
        bodies: list[Body] = [input_added("canoe " * (n % 3 + 1) + "x " * n, f"k{n}") for n in range(23)]
        await write_session(store, "s", *bodies)
        whole = await search_all(store, "canoe", 100)
        assert len({hit.message.id for hit in whole}) == 23
        for limit in (1, 5, 22, 23):
            assert await search_all(store, "canoe", limit) == whole
        first = await store.messages.search(MessageSearch(text="canoe", limit=10))
        await write_session(store, "t", input_added("canoe"), at=9)
        rest = await store.messages.search(MessageSearch(text="canoe", limit=50, after=first.next))
        assert [*first.hits, *rest.hits] == whole

    async def test_a_cursor_of_another_store_is_refused(self, store: Store) -> None:
        await write_session(store, "s", input_added("canoe"))
        refused = 0
        for place in (5, ["2026-01-01T00:00:00.000Z", "s", 1]):
            after = base64.urlsafe_b64encode(msgspec.json.encode([place, True, 0.9, place])).decode()
            try:
                await store.messages.search(MessageSearch(text="canoe", after=after))
            except InvalidInput:
                refused += 1
        assert refused == 1

    async def test_of_many_hits_the_newest_window_comes_first(self, store: Store) -> None:
        bodies: list[Body] = [input_added("canoe " * (n % 2 + 1) + "x", f"k{n}") for n in range(SEARCH_WINDOW + 30)]
        await write_session(store, "s", *bodies)
        hits = await search_all(store, "canoe", 400)
        assert len({hit.message.id for hit in hits}) == len(hits) == len(bodies)
        assert {hit.message.id for hit in hits[SEARCH_WINDOW:]} == {f"k{n}" for n in range(30)}
        assert [int(hit.message.id[1:]) % 2 for hit in hits[:SEARCH_WINDOW]] == [1] * 500 + [0] * 500
        assert await search_all(store, "canoe", SEARCH_WINDOW) == hits

    async def test_namespaces_find_their_own(self, store: Store) -> None:
        await write_session(store, "mine", input_added("a red canoe"))
        tenant = store.with_namespace("tenant")
        await write_session(tenant, "theirs", input_added("a blue canoe"))
        assert await find_sessions(store, "canoe") == ["mine"]
        assert await find_sessions(tenant, "canoe") == ["theirs"]
        assert await find_sessions(tenant, "red") == []
        assert await find_sessions(tenant, "canoe", session="mine") == []

    async def test_copied_messages_belong_to_the_fork(self, store: Store) -> None:
        log = await write_conversation(store)
        fork = SessionId("fork")
        term = await store.events.claim(fork)
        await store.events.append(fork, log.events, head=0, term=term, release=True)
        rows = (await store.messages.list(fork, ALL)).messages
        assert [(row.session, row.id) for row in rows] == [
            ("fork", id) for id in ("k1", "m1", "call_1", "call_2", "m2")
        ]
        assert [row.name for row in rows] == [row.name for row in (await store.messages.list(SESSION, ALL)).messages]
        found = await store.messages.find(fork, "m2")
        assert found is not None
        assert found.session == "fork"
        assert sorted(await find_sessions(store, "harbour", role="tool")) == ["fork", "s"]
        await store.sessions.delete(SESSION)
        assert await find_sessions(store, "harbour", role="tool") == ["fork"]

    async def test_deleted_sessions_are_not_found(self, store: Store) -> None:
        await write_conversation(store)
        start, end = turn_events()
        for name, at in (("t", 1), ("u", 2000)):
            await write_session(store, name, input_added("x", "k"), start, answer_message("m", "A harbour"), end, at=at)
        assert sorted(await find_sessions(store, "harbour")) == ["s", "s", "t", "u"]
        await store.sessions.delete(SESSION)
        assert await find_sessions(store, "harbour", session="s") == []
        assert await store.messages.find(SESSION, "k1") is None
        await store.gc(Retention(idle_before=format_time(1000)))
        assert await find_sessions(store, "harbour") == ["u"]
        await write_session(store, "s", input_added("a new harbour"))
        assert sorted(await find_sessions(store, "harbour")) == ["s", "u"]

    async def test_reindexing_finds_the_same(self, store: Store) -> None:
        log = await write_conversation(store)
        await write_conversation(store.with_namespace("tenant"))
        before = await store.messages.list(SESSION, MessageQuery()), await search_all(store, "canoe", 10)
        stats = await store.messages.stats(SESSION)
        assert await store.reindex() == 1
        after = await store.messages.list(SESSION, MessageQuery()), await search_all(store, "canoe", 10)
        assert after == before
        assert await store.messages.stats(SESSION) == stats
        term = await store.events.claim(SESSION)
        await log.append_to(store, term, input_added("Is the canoe dry?", "k2"))
        assert len(await search_all(store, "canoe", 10)) == len(before[1]) + 1
        assert len(await find_sessions(store.with_namespace("tenant"), "canoe")) == len(before[1])
