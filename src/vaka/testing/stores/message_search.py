"""The contract of the message index: searching what was said in all sessions."""

# ruff: noqa: S101  # a contract suite is made of asserts

import base64

import msgspec
import pytest

from vaka.core.ports.messages import MAX_QUERY_LENGTH, SEARCH_WINDOW, MessageQuery, MessageSearch, SearchHit
from vaka.core.ports.store import Retention, Store
from vaka.core.types.control import InputAdded, SessionOpened, SessionUpdated
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, MessageId, SessionId
from vaka.core.types.message import Stored, Text, ToolCall
from vaka.core.types.progress import SubagentStarted, ToolCalled
from vaka.testing.stores.messages import ALL, SESSION, answer_message, write_conversation
from vaka.testing.stores.sealed_events import format_time, input_added, turn_events, write_session


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


class MessageSearchContract:
    """Searching the messages of all sessions."""

    async def test_words_phrases_exclusions_and_prefixes_are_found(self, store: Store, other: Store) -> None:
        texts = [
            "The quick brown fox",
            "the brown, quick fox",
            "Quicksand",
            "snake_case and kebab-case",
            "It's 3.14",
            "Straße nach MÜNCHEN",
            "cafe\u0301 au lait",
        ]
        for n, text in enumerate(texts):
            await write_session(store, f"s{n}", input_added(text), at=n)
        expected = {
            "quick": ["s0", "s1"],
            "QUICK fox": ["s0", "s1"],
            '"quick brown"': ["s0"],
            "quick -sand": ["s0", "s1"],
            'fox -"quick brown"': ["s1"],
            "quick*": ["s0", "s1", "s2"],
            "quic": [],
            "snake_case": ["s3"],
            "case -kebab": [],
            "kebab case": ["s3"],
            '"it\'s 3.14"': ["s4"],
            "314": [],
            "strasse": ["s5"],
            "munchen": ["s5"],
            "München": ["s5"],
            "café": ["s6"],
            "cafe": ["s6"],
            "fox nothing": [],
            "hidden": [],
        }
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
            "东京": ["s0", "s1"],
            "京都": ["s0"],
            "明天去东京": ["s0"],
            "展": ["s0"],
            "览": ["s0"],
            "东天": [],
            "東京": ["s0", "s1"],
            "タワー": ["s1"],
            "行きま": ["s1"],
            "カヌー": ["s2"],
            "港": ["s2"],
            "ｶﾇｰ": ["s2"],
            "แคนู": ["s3"],
            "항구": ["s4"],
            "iphone手機": ["s5"],
            "手機 IPHONE": ["s5"],
            '"去东京都看"': ["s0"],
            "东京 -展览": ["s1"],
        }
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
            "cat": ["s0", "s4"],
            "cats": ["s0", "s4"],
            "cat*": ["s0", "s1", "s4"],
            "cats*": ["s0", "s4"],
            "box": ["s0"],
            "stories": ["s0", "s4"],
            "story": ["s0", "s4"],
            "strasse": ["s2", "s3"],
            "Straße": ["s2", "s3"],
            "台北": ["s2", "s3"],
            "臺北": ["s2", "s3"],
            "catalogues": ["s1"],
        }
        assert {text: sorted(await find_sessions(store, text)) for text in expected} == expected

    async def test_any_text_is_a_valid_query(self, store: Store) -> None:
        await write_conversation(store)
        hostile = [
            "",
            " ",
            "-",
            '"',
            '""',
            "*",
            "-*",
            "canoe AND",
            "NOT canoe",
            "canoe OR NEAR(",
            "^canoe",
            "words:canoe",
            "scope : canoe",
            "canoe' --",
            '"canoe',
            "canoe:*",
            "canoe <-> x",
            "!canoe & |",
            "\\",
            "\x00",
            "canoe\x00",
            "\udcff",
            "%_",
            "(canoe)",
            "{canoe}",
            "a:b:c",
            "🛶",
            "'; drop table messages; --",
            "-canoe",
            "_n _s",
        ]
        found = {text: bool(await find_sessions(store, text)) for text in hostile}
        assert [text for text, hit in found.items() if hit] == [
            "^canoe",
            "canoe' --",
            '"canoe',
            "canoe:*",
            "!canoe & |",
            "canoe\x00",
            "(canoe)",
            "{canoe}",
        ]
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
            "c": [{"role": "Assistant"}],
            "d": [{"owner": "eve"}, {"agent": "z"}],
            "e": [{"path": ["agent-1"]}],
            "": [{"owner": "an"}, {"session": "unknown"}, {"agent": "x", "owner": "bob"}, {"role": "tool"}],
        }
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
