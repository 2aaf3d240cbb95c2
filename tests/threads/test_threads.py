"""Threads through ``runtime.threads``, on every store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import vaka
from tests.runtime.runtime_fixtures import IDS
from vaka.config.options import Storage
from vaka.core.ports.messages import MessageFilter, MessageQuery, MessageRow, MessageSearch
from vaka.core.ports.store import Store, ThreadState
from vaka.core.types.ids import SessionId
from vaka.core.types.message import AssistantMessage, Message, Text, ToolMessage
from vaka.errors import AccessDenied, AlreadyExists, HeadMoved, InvalidInput, NotFound, VakaError
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.threads.deletion import MAX_HIDDEN_PARTS
from vaka.threads.thread import ActionItem, NewMessage, ThreadContext, ThreadPolicy
from vaka.threads.threads import Threads

CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "Let me look.",
    "id": "a2",
    "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "pump"}}],
}
RESULT = {"role": "tool", "content": "A valve.", "tool_call_id": "c1"}


@pytest.fixture
def store(every_store: Store) -> Store:
    return every_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def runtime(store: Store, clock: FakeClock) -> AsyncIterator[Runtime]:
    async with vaka.Runtime(store=store, environment=Environment(ids=IDS, clock=clock)) as made:
        yield made


@pytest.fixture
def threads(runtime: Runtime) -> Threads:
    return runtime.threads


def shown(rows: tuple[MessageRow, ...]) -> list[tuple[str, str]]:
    return [(row.role, row.text) for row in rows]


async def test_a_thread_is_created_read_changed_listed_and_deleted(threads: Threads, clock: FakeClock) -> None:
    made = await threads.create(
        id="t", title="Pumps", agent_id="helper", resource_id="kim", metadata={"topic": "water", "rank": 3}
    )
    assert (made.id, made.title, made.agent_id, made.resource_id) == ("t", "Pumps", "helper", "kim")
    assert made.metadata == {"topic": "water", "rank": 3}
    assert (made.state, made.created_at) == ("active", made.updated_at)
    assert made.is_owned_by("kim")
    assert not made.is_owned_by("")
    assert made.belongs_to_agent("helper")
    assert await threads.get("t", resource_id="kim") == made
    with pytest.raises(AlreadyExists, match="the id 't' is taken; choose another one"):
        await threads.create(id="t")
    clock.advance(5)
    changed = await threads.update("t", title="Valves", metadata={"rank": None, "new": True})
    assert (changed.title, changed.metadata) == ("Valves", {"topic": "water", "new": True})
    assert changed.version > made.version
    assert changed.updated_at > made.updated_at
    other = await threads.create(resource_id="lee", agent_id="helper", metadata={"topic": "water"})
    assert [each.id for each in (await threads.list(resource_id="kim")).threads] == ["t"]
    assert {each.id for each in (await threads.list(agent_id="helper")).threads} == {"t", other.id}
    assert {each.id for each in (await threads.list(metadata={"topic": "water"})).threads} == {"t", other.id}
    assert [each.id for each in (await threads.list(metadata={"new": True})).threads] == ["t"]
    assert (await threads.list(metadata={"topic": "fire"})).threads == ()
    first = await threads.list(limit=1)
    rest = await threads.list(limit=1, cursor=first.next_cursor)
    assert first.has_more
    assert {first.threads[0].id, rest.threads[0].id} == {"t", other.id}
    await threads.delete("t", resource_id="kim")
    for operation in (threads.get, threads.delete, threads.stats, threads.get_messages):
        with pytest.raises(NotFound, match="'t'"):
            await operation("t")
    with pytest.raises(NotFound):
        await threads.update("t", title="x")
    with pytest.raises(NotFound):
        await threads.add_message("t", {"role": "user", "content": "x"})
    assert (await threads.get_messages("t", missing_ok=True)).messages == ()


async def test_another_owner_is_denied_every_operation(threads: Threads) -> None:
    await threads.create(id="t", resource_id="kim")
    message = {"role": "user", "content": "x"}
    for denied in (
        threads.get("t", resource_id="lee"),
        threads.update("t", title="x", resource_id="lee"),
        threads.delete("t", resource_id=""),
        threads.set_state("t", "paused", resource_id="lee"),
        threads.add_message("t", message, resource_id="lee"),
        threads.get_messages("t", resource_id="lee"),
        threads.stats("t", resource_id="lee"),
        threads.set_context("t", ThreadContext(), resource_id="lee"),
        threads.search(MessageSearch(text="x", owner="kim"), resource_id="lee"),
    ):
        with pytest.raises(AccessDenied):
            await denied
    assert (await threads.get("t", resource_id="kim")).title == ""


async def test_a_change_of_an_old_version_is_refused(threads: Threads) -> None:
    made = await threads.create(id="t", title="one")
    changed = await threads.update("t", title="two", version=made.version)
    with pytest.raises(HeadMoved, match=f"has version {changed.version}, not {made.version}"):
        await threads.update("t", title="three", version=made.version)
    with pytest.raises(HeadMoved):
        await threads.set_state("t", "paused", version=made.version)
    results = await asyncio.gather(
        *(threads.update("t", title=f"{n}", version=changed.version) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, HeadMoved) for each in results) == 4
    await threads.add_message("t", {"role": "user", "content": "x"})  # is not a change of the description
    latest = await threads.get("t")
    assert (await threads.update("t", title="last", version=latest.version)).title == "last"


async def test_states_follow_the_transition_table(threads: Threads) -> None:
    paths = {
        ("active",): {"paused", "ended", "terminated"},
        ("paused",): {"active", "ended", "terminated"},
        ("ended",): {"archived"},
        ("terminated",): {"archived"},
        ("ended", "archived"): set[str](),
    }
    targets = ("active", "paused", "ended", "terminated", "archived", "gone")
    for number, (path, allowed) in enumerate(paths.items()):
        for target in targets:
            id = f"t{number}-{target}"
            await threads.create(id=id)
            for state in path:
                if state != "active":
                    await threads.set_state(id, cast("ThreadState", state))
            if target in allowed:
                assert (await threads.set_state(id, cast("ThreadState", target))).state == target
            else:
                with pytest.raises(InvalidInput):
                    await threads.set_state(id, cast("ThreadState", target))
    archived = {each.id for each in (await threads.list(state="archived")).threads}
    assert archived == {"t2-archived", "t3-archived", *(f"t4-{target}" for target in targets)}
    with pytest.raises(InvalidInput, match=r"no state 'nope'; the states are active, paused, ended"):
        await threads.list(state="nope")


async def test_a_policy_pauses_ends_and_archives_a_thread(threads: Threads, clock: FakeClock) -> None:
    hello = NewMessage(role="user", content="Hello")
    await threads.create(id="plain")
    await threads.create(id="idle", policy=ThreadPolicy(max_duration=None))
    await threads.create(id="old", policy=ThreadPolicy(auto_archive=True))
    await threads.create(id="full", policy=ThreadPolicy(max_messages=2))
    await threads.append_many("full", [hello, hello])
    assert (await threads.get("full")).state == "ended"
    with pytest.raises(InvalidInput, match="is ended and takes no messages"):
        await threads.add_message("full", hello)
    clock.advance(1801)
    assert (await threads.get("idle")).state == "paused"
    assert (await threads.list(state="paused")).threads == ()  # reading writes nothing
    with pytest.raises(InvalidInput, match="is paused and takes no messages; set its state to 'active'"):
        await threads.add_message("idle", hello)
    assert [each.id for each in (await threads.list(state="paused")).threads] == ["idle"]
    await threads.set_state("idle", "active")
    await threads.add_message("idle", hello)
    clock.advance(1800)
    assert await threads.apply_policies() == 3
    assert {each.id: each.state for each in (await threads.list()).threads} == {
        "plain": "active",
        "idle": "paused",
        "old": "archived",
        "full": "ended",
    }


async def test_metadata_that_do_not_fit_are_refused_and_the_stored_ones_stay(threads: Threads) -> None:
    await threads.create(id="t", metadata={"a": "x" * 9_000})
    with pytest.raises(InvalidInput, match="would have 18015 bytes as JSON; at most 16384 are allowed: remove a key"):
        await threads.update("t", metadata={"b": "y" * 9_000})
    assert list((await threads.get("t")).metadata) == ["a"]
    assert list((await threads.update("t", metadata={"a": None, "b": "y" * 9_000})).metadata) == ["b"]


async def test_messages_that_were_deleted_one_by_one_stay_deleted(threads: Threads) -> None:
    roles = ("user", "assistant")
    given = [{"role": roles[n % 2], "content": f"text {n}", "id": f"m{n}"} for n in range(48)]
    await threads.create(id="t", metadata={"mine": 1})
    await threads.append_many("t", given)
    for n in range(1, 48, 2):
        assert (await threads.delete_messages("t", [f"m{n}"])).success
    thread = await threads.get("t")
    assert [row.id for row in (await threads.get_messages("t")).messages] == [f"m{n}" for n in range(0, 48, 2)]
    assert (thread.metadata["mine"], len(thread.hidden) <= MAX_HIDDEN_PARTS) == (1, True)
    first = await threads.search("text")
    rest = await threads.search(MessageSearch(text="text", after=first.next))
    assert ((await threads.stats("t")).message_count, len(first.hits), rest.next) == (24, 20, "")
    found = [hit.message.id for hit in (*first.hits, *rest.hits)]
    assert sorted(found) == sorted(f"m{n}" for n in range(0, 48, 2))
    with pytest.raises(InvalidInput, match=r"'thread.hidden' of the metadata is reserved"):
        await threads.update("t", metadata={"thread.hidden": None})
    await threads.create(id="full", metadata={"mine": "x" * 16_340})
    await threads.append_many("full", given)
    with pytest.raises(InvalidInput, match="the metadata of session 'full' would have"):
        await threads.delete_messages("full", ["m0"])
    assert (await threads.stats("full")).message_count == 48


async def test_the_context_of_a_thread_is_part_of_its_metadata(threads: Threads) -> None:
    item = ActionItem(id="1", description="Order a valve", priority="high", assignee="kim", due="2026-02-01")
    context = ThreadContext(
        topic="pumps",
        facts=("The pump is broken.",),
        open_questions=("Which one?",),
        tags=("water",),
        action_items=(item, ActionItem(id="2", description="Call", completed=True)),
        preferences={"language": "de"},
    )
    await threads.create(id="t", metadata={"mine": 1})
    assert (await threads.get("t")).context == ThreadContext()
    changed = await threads.set_context("t", context)
    assert (changed.context, changed.metadata["mine"]) == (context, 1)
    stats = await threads.stats("t")
    assert (stats.topic, stats.open_action_items, stats.completed_action_items) == ("pumps", 1, 1)
    assert (await threads.set_context("t", ThreadContext())).metadata == {"mine": 1}
    broken = await threads.update("t", metadata={"thread.context": "no object", "thread.policy": [1]})
    assert (broken.context, broken.policy) == (ThreadContext(), None)


async def test_messages_are_added_once_in_one_transaction_and_listed(
    threads: Threads, store: Store, runtime: Runtime
) -> None:
    await threads.create(id="t", agent_id="helper")
    messages: list[NewMessage | dict[str, Any]] = [
        NewMessage(role="user", content="My pump is broken.", id="u1", metadata={"channel": "mail"}),
        NewMessage(role="assistant", content="Which one?", id="a1", metadata={"rank": 1}),
        NewMessage(role="user", content="The blue one.", id="u2", ts="2026-01-31T12:00:00.250Z"),
        CALL,
        RESULT,
        NewMessage(role="assistant", content="It is the valve."),
    ]
    before = await store.sessions.find(SessionId("t"))
    added = await threads.append_many("t", messages)
    assert [each.added for each in added] == [True] * 6
    assert [each.id for each in added[:4]] == ["u1", "a1", "u2", "a2"]
    assert added[5].id.startswith("msg")
    page = await threads.get_messages("t")
    assert shown(page.messages) == [
        ("user", "My pump is broken."),
        ("assistant", "Which one?"),
        ("user", "The blue one."),
        ("assistant", "Let me look."),
        ("tool", "A valve."),
        ("assistant", "It is the valve."),
    ]
    assert page.messages[2].ts == "2026-01-31T12:00:00.250Z"
    assert before is not None
    assert before.head < page.messages[0].seq
    again = await threads.append_many("t", [*messages[:5], NewMessage(role="user", content="Thanks.", id="u3")])
    assert [each.added for each in again] == [False] * 5 + [True]
    assert (await threads.add_message("t", messages[0])).added is False
    twice = await threads.append_many("t", [NewMessage(role="user", content="x", id="same")] * 2)
    assert [each.added for each in twice] == [True, False]
    stats = await threads.stats("t")
    assert (stats.message_count, stats.user_message_count, stats.assistant_message_count) == (8, 4, 3)
    assert stats.size_bytes > 0
    assert (await threads.get("t")).title == "My pump is broken."
    session = await runtime.open(vaka.Agent("helper"), id="t")
    assert [type(message).__name__ for message in await session.messages()][-4:] == [
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
        "UserMessage",
    ]


async def test_messages_are_filtered_before_they_are_ordered_and_limited(threads: Threads) -> None:
    await threads.create(id="t")
    times = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 7)]
    words = ("Apple", "banana", "APPLE pie", "Grüße", "apple", "end")
    messages: list[dict[str, Any]] = []
    for n, (text, ts) in enumerate(zip(words, times, strict=True)):
        role, even = ("assistant", False) if n % 2 else ("user", True)
        messages.append({"role": role, "content": text, "ts": ts, "metadata": {"n": n, "even": even}})
    await threads.append_many("t", messages)

    async def texts(**chosen: Any) -> list[str]:
        limits = {name: chosen.pop(name) for name in ("limit", "reverse") if name in chosen}
        page = await threads.get_messages("t", MessageQuery(filter=MessageFilter(**chosen), **limits))
        return [row.text for row in page.messages]

    assert await texts(role="USER") == ["Apple", "APPLE pie", "apple"]
    assert await texts(since=times[1], until=times[3]) == ["banana", "APPLE pie", "Grüße"]
    assert await texts(keywords=("PIE", "grüße")) == ["APPLE pie", "Grüße"]
    assert await texts(metadata={"even": False}) == ["banana", "Grüße", "end"]
    assert await texts(metadata={"even": True, "n": 4}) == ["apple"]
    assert await texts(keywords=("apple",), reverse=True, limit=2) == ["apple", "APPLE pie"]
    assert await texts(keywords=("%", "'; drop table", "\\")) == []
    page = await threads.get_messages("t", MessageQuery(limit=2, include_content=False))
    assert shown(page.messages) == [("user", ""), ("assistant", "")]
    assert page.has_more
    await threads.add_message("t", {"role": "user", "content": "late"})
    second = await threads.get_messages("t", MessageQuery(limit=2, cursor=page.next))
    assert [row.text for row in second.messages] == ["APPLE pie", "Grüße"]
    back = await threads.get_messages("t", MessageQuery(limit=2, cursor=second.prev))
    assert [row.text for row in back.messages] == ["Apple", "banana"]


async def test_messages_are_found_in_all_threads_and_in_those_of_an_owner(threads: Threads) -> None:
    await threads.create(id="kims", resource_id="kim", agent_id="helper")
    await threads.create(id="lees", resource_id="lee", agent_id="other")
    await threads.append_many("kims", [{"role": "user", "content": "Die Grüße kamen an."}])
    await threads.append_many(
        "lees", [{"role": "user", "content": "明天的会议取消了"}, {"role": "assistant", "content": "会議は中止です"}]
    )
    assert [hit.message.session for hit in (await threads.search("grusse")).hits] == ["kims"]
    hits = (await threads.search("会议")).hits
    assert {hit.message.session for hit in hits} == {"lees"}
    assert len(hits) == 2, "the simplified and the traditional spelling are one word"
    assert [hit.message.role for hit in (await threads.search("中止")).hits] == ["assistant"]
    assert (await threads.search("会议", resource_id="kim")).hits == ()
    with pytest.raises(InvalidInput, match="name an owner"):
        await threads.search("会议", resource_id="")
    found = await threads.search(MessageSearch(text="会议", agent="other", session="lees"), resource_id="lee")
    assert {hit.snippet[slice(*hit.matches[0])] for hit in found.hits} == {"会议", "会議"}
    assert (await threads.search("\"unclosed AND ( -x* NEAR/3 :'")).hits == ()


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([{"role": "system", "content": "x"}], "message 2 cannot be read"),
        ([{"role": "user", "content": "x"}, {"role": "user"}], "message 3 of role 'user' is empty"),
        ([{"role": "user", "content": "x", "id": "apr_1"}], "reserved prefix"),
        ([{"role": "user", "content": "x", "id": "a\nb"}], "must be printable"),
        ([{"role": "user", "content": "x", "id": "x" * 201}], "at most 200"),
        ([{"role": "user", "content": "x", "tool_calls": CALL["tool_calls"]}], "only an answer"),
        ([{"role": "user", "content": "x", "tool_call_id": "c1"}], "must not have a tool_call_id"),
        ([{"role": "tool", "content": "x"}], "must have a tool_call_id"),
        ([{**RESULT, "id": "mine"}], "known by its call"),
        ([RESULT], "which no answer directly before it has made"),
        ([CALL], "has no result"),
        ([CALL, {"role": "user", "content": "x"}, RESULT], "has no result"),
        ([{**CALL, "tool_calls": CALL["tool_calls"] * 2}], "two with the same id"),
        ([{"role": "user", "content": "x", "ts": "yesterday"}], "must be RFC 3339"),
        ([{"role": "user", "content": "x", "other": 1}], "unknown field"),
    ],
)
async def test_messages_that_cannot_be_used_add_nothing(messages: list[Any], error: str) -> None:
    async with vaka.Runtime(store=MemoryStore(), environment=Environment(ids=IDS)) as runtime:
        threads = runtime.threads
        await threads.create(id="t")
        with pytest.raises(InvalidInput, match=error):
            await threads.append_many("t", [{"role": "user", "content": "first"}, *messages])
        assert (await threads.get_messages("t")).messages == ()


async def test_secrets_and_large_texts_are_stored_as_in_any_session(store: Store, clock: FakeClock) -> None:
    async with vaka.Runtime(
        store=store, environment=Environment(ids=IDS, clock=clock), storage=Storage(secrets=["hunter2hunter2"])
    ) as runtime:
        threads = runtime.threads
        await threads.create(id="t")
        long = "word " * 20_000
        await threads.append_many(
            "t",
            [
                {"role": "user", "content": "The key is hunter2hunter2."},
                {"role": "assistant", "content": long},
            ],
        )
        first, second = (await threads.get_messages("t")).messages
        assert "hunter2" not in first.text
        assert second.text.startswith("word word")
        messages = await (await runtime.open(vaka.Agent("helper"), id="t")).messages()
        assert isinstance(messages[1], AssistantMessage)
        assert messages[1].text == long


async def test_namespaces_have_their_own_threads(store: Store) -> None:
    async with (
        vaka.Runtime(store=store.with_namespace("a"), environment=Environment(ids=IDS)) as one,
        vaka.Runtime(store=store.with_namespace("b"), environment=Environment(ids=IDS)) as two,
    ):
        await one.threads.create(id="t", resource_id="kim")
        await one.threads.add_message("t", {"role": "user", "content": "secret plan"})
        with pytest.raises(NotFound):
            await two.threads.get("t")
        assert (await two.threads.list(resource_id="kim")).threads == ()
        assert (await two.threads.search("secret")).hits == ()
        await two.threads.create(id="t")
        assert (await two.threads.stats("t")).message_count == 0


async def test_deleted_messages_are_gone_from_the_conversation_lists_and_searches(
    threads: Threads, runtime: Runtime, store: Store
) -> None:
    await threads.create(id="t", agent_id="helper", metadata={"mine": 1})
    await threads.append_many(
        "t",
        [
            {"role": "user", "content": "My pump is broken.", "id": "u1", "metadata": {"channel": "mail"}},
            {"role": "assistant", "content": "Which one?", "id": "a1"},
            {"role": "user", "content": "Secret one.", "id": "u2"},
            CALL,
            RESULT,
            {"role": "assistant", "content": "It is the valve.", "id": "a3"},
        ],
    )
    done = await threads.delete_messages("t", ["u2", "missing", "a1"])
    assert (done.affected_count, done.success, done.error_message) == (2, False, "there is no message 'missing'")
    rest = [
        ("user", "My pump is broken."),
        ("assistant", "Let me look."),
        ("tool", "A valve."),
        ("assistant", "It is the valve."),
    ]
    page = await threads.get_messages("t")
    assert shown(page.messages) == rest
    assert (page.messages[0].id, page.messages[0].metadata) == ("u1", {"channel": "mail"})
    assert (await threads.search("secret")).hits == ()
    hits = (await threads.search("valve")).hits
    assert {hit.message.seq for hit in hits} == {row.seq for row in page.messages[2:]}
    stats = await threads.stats("t")
    assert (stats.message_count, stats.user_message_count, stats.tool_message_count) == (4, 1, 1)
    session = await runtime.open(vaka.Agent("helper"), id="t")
    assert [text for message in await session.messages() for text in texts_of(message)] == [text for _, text in rest]
    for reverse in (False, True):
        found, cursor = list[str](), ""
        while True:
            part = await threads.get_messages("t", MessageQuery(limit=1, cursor=cursor, reverse=reverse))
            found += [row.text for row in part.messages]
            cursor = part.next
            if not cursor:
                break
        assert found == [text for _, text in (reversed(rest) if reverse else rest)]
        before = await threads.get_messages("t", MessageQuery(limit=3, cursor=part.prev, reverse=reverse))
        assert [row.text for row in before.messages] == found[:3]
    again = await threads.delete_messages("t", [page.messages[2].id, "u1"])
    assert (again.affected_count, again.success) == (2, True)
    assert shown((await threads.get_messages("t")).messages) == [
        ("assistant", "Let me look."),
        ("tool", "This result was deleted."),
        ("assistant", "It is the valve."),
    ]
    assert (await threads.delete_messages("t", ["u1"])).affected_count == 0
    assert (await threads.add_message("t", {"role": "user", "content": "again", "id": "u1"})).added is False
    assert (await threads.stats("t")).message_count == 3
    assert (await threads.get("t")).metadata["mine"] == 1
    assert await store.reindex() == 1
    assert len((await threads.get_messages("t")).messages) == 3
    copy = await threads.import_lines([line async for line in threads.export("t")], id="copy")
    assert (await threads.get_messages(copy.id)).messages[0].text == "Let me look."


def texts_of(message: Message) -> list[str]:
    if isinstance(message, ToolMessage):
        return [result.text for result in message.results]
    return ["".join(part.text for part in message.content if isinstance(part, Text))]


async def test_an_erased_thread_can_be_listed_and_deleted_but_not_changed(threads: Threads, runtime: Runtime) -> None:
    await threads.create(id="t", resource_id="kim", metadata={"a": 1})
    await threads.append_many("t", [{"role": "user", "content": "My secret.", "id": "u"}, CALL, RESULT])
    await threads.delete_messages("t", ["u"])
    await runtime.erase(owner="kim")
    erased = await threads.get("t")
    assert (erased.title, erased.resource_id, erased.metadata) == ("", "", {})
    assert (await threads.get_messages("t")).messages == ()
    assert (await threads.search("secret")).hits == ()
    assert [line async for line in threads.export("t")][1:] == []
    with pytest.raises(InvalidInput, match="was erased"):
        await threads.add_message("t", {"role": "user", "content": "x"})
    for refused in (
        threads.update("t", title="x"),
        threads.set_state("t", "archived"),
        threads.delete_messages("t", ["u"]),
    ):
        with pytest.raises(VakaError, match="was erased"):
            await refused
    await threads.delete("t")
    assert (await threads.list()).threads == ()
