"""Edits of threads by several processes, and of threads with many messages."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

import vaka
from tests.threads.test_thread_turns import Answers
from tests.threads.test_threads import CALL, RESULT, texts_of
from vaka.config.options import Models
from vaka.core.ports.messages import MessageQuery
from vaka.core.ports.store import Store
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.errors import Busy, TurnError
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, fail, say
from vaka.threads.deletion import MAX_HIDDEN_PARTS
from vaka.threads.thread import AddedMessage, ThreadPolicy


async def test_processes_add_messages_to_one_thread_at_the_same_time(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(3)]
    runtimes = [vaka.Runtime(store=each) for each in stores]
    await runtimes[0].threads.create(id="t")
    await asyncio.gather(
        *(
            each.threads.add_message("t", {"role": "user", "content": f"{n}", "id": f"{n % 20}"})
            for n in range(40)
            for each in runtimes
        )
    )
    assert (await runtimes[0].threads.stats("t")).message_count == 20
    held = await stores[0].events.claim(SessionId("t"))
    with pytest.raises(Busy):
        await runtimes[1].threads.set_state("t", "paused")
    await stores[0].events.release(SessionId("t"), held)
    assert (await runtimes[1].threads.set_state("t", "paused")).state == "paused"
    for each in runtimes:
        await each.close()
    for store in stores:
        await store.close()


class CountedEvents:
    """An event store that counts the events that are read."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.count = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._inner.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.count += 1
                yield event

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        self.count += len(seqs)
        return cast("Sequence[Event]", await self._inner.select(session, seqs, digest=digest))


async def test_an_edit_of_a_long_thread_does_not_read_its_conversation(every_store: Store) -> None:
    store = every_store
    texts = [f"message {n}" for n in range(2000)]
    async with vaka.Runtime(store=store) as runtime:
        await runtime.threads.create(id="t", agent_id="helper")
        for begun in range(0, 2000, 100):
            part = [{"role": "user", "content": text} for text in texts[begun : begun + 100]]
            await runtime.threads.append_many("t", part)
    counted = CountedEvents(store.events)
    cast("Any", store).events = counted
    async with vaka.Runtime(store=store) as runtime:
        counts: list[int] = []
        for number in range(3):
            texts.append(f"late {number}")
            await runtime.threads.add_message("t", {"role": "user", "content": texts[-1]})
            await runtime.threads.update("t", title=f"title {number}")
            counts.append(counted.count)
        assert counts[0] < 2000  # events after the last snapshot; each message is three events
        assert counts[1] == counts[2] == counts[0]
        texts += [f"many {n}" for n in range(300)]
        await runtime.threads.append_many("t", [{"role": "user", "content": text} for text in texts[-300:]])
    async with vaka.Runtime(store=store) as runtime:
        counted.count = 0
        await runtime.threads.update("t", title="read from the last snapshot")
        assert counted.count < 600
        session = await runtime.open(vaka.Agent("helper", model=ScriptedModel(say("Yes."))), id="t")
        assert [text for message in await session.messages() for text in texts_of(message)] == texts
        await session.run("All of it?")
        await runtime.threads.add_message("t", {"role": "user", "content": "And more."})
        copy = await session.fork()
        for each in (session, copy):
            read = [text for message in await each.messages() for text in texts_of(message)]
            assert read == [*texts, "All of it?", "Yes.", "And more."]


async def test_an_edit_follows_the_turns_of_another_process(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)]
    child = vaka.Agent("child", model=ScriptedModel(agents={"child": [say("From the child.")]}), description="Knows.")
    lines = (call("child", prompt="Ask."), say("One."), say("A summary of the conversation."), say("Two."))
    agent = vaka.Agent("helper", model=ScriptedModel(*lines), tools=[child])
    async with vaka.Runtime(store=stores[0]) as writer:
        await writer.threads.create(id="t")
    async with vaka.Runtime(store=stores[0]) as editor, vaka.Runtime(store=stores[1]) as other:
        await editor.threads.add_message("t", {"role": "user", "content": "Before."})
        session = await other.open(agent, id="t")
        await session.run("Go.")
        await session.compact()
        await editor.threads.add_message("t", {"role": "user", "content": "Between."})
        place = await session.checkpoint("here")
        await session.run("Rewound.")
        await session.rewind(place)
        await editor.threads.add_message("t", {"role": "user", "content": "After."})
        shown = [text for message in await session.messages() for text in texts_of(message)]
        assert shown[-2:] == ["Between.", "After."]
        assert "Rewound." not in shown
    for each in stores:
        await each.close()


async def test_a_thread_takes_no_message_after_its_limit_however_many_are_added_at_once(every_store: Store) -> None:
    async with vaka.Runtime(store=every_store) as runtime:
        threads = runtime.threads
        await threads.create(id="t", policy=ThreadPolicy(max_messages=5, auto_archive=True))
        messages = [{"role": "user", "content": "Hi.", "id": f"k{number}"} for number in range(12)]
        added = await asyncio.gather(*(threads.add_message("t", each) for each in messages), return_exceptions=True)
        known = [each.id for each in added if isinstance(each, AddedMessage)]
        assert (len(known), {str(each) for each in added if isinstance(each, Exception)}) == (
            5,
            {"'t' is archived and takes no messages; begin another"},
        )
        assert {row.id for row in (await threads.get_messages("t")).messages} == set(known)
        again = await threads.add_message("t", {"role": "user", "content": "Hi.", "id": known[-1]})
        assert not again.added  # a client that did not get the reply asks again
        await threads.create(id="old", policy=ThreadPolicy(max_duration=0))
        assert sorted(await asyncio.gather(*(threads.apply_policies() for _ in range(4)))) == [0, 0, 0, 1]


async def test_a_turn_that_fails_is_neither_listed_nor_counted_nor_found(every_store: Store) -> None:
    lines = [fail(400, "no"), call("fly"), fail(400, "no"), say("Yes."), fail(400, "no"), say("Still.")]
    agent = vaka.Agent("helper", model=Answers(*lines))
    async with vaka.Runtime(store=every_store, models=Models(retries=0)) as runtime:
        threads = runtime.threads
        await threads.create(id="t", metadata={"mine": 1})
        for prompt in ("orphan?", "orphan?", "Fly!"):  # the second call gets the outcome of the first one
            with pytest.raises(TurnError):
                await threads.generate_with_memory(agent, "t", prompt, key=prompt)
        await threads.generate_with_memory(agent, "t", "Kept?")
        with pytest.raises(TurnError):
            await threads.generate_with_memory(agent, "t", "orphan again?")
        await threads.update("t", title="Later")
        await threads.generate_with_memory(agent, "t", "And?")
        said = ["Kept?", "Yes.", "And?", "Still."]
        assert [row.text for row in (await threads.get_messages("t")).messages] == said
        stats = await threads.stats("t")
        assert (stats.message_count, stats.user_message_count, stats.tool_message_count) == (4, 2, 0)
        assert (await threads.search("orphan")).hits == (await threads.search("fly")).hits == ()
        thread = await threads.get("t")
        assert (thread.title, thread.metadata["mine"], len(thread.hidden)) == ("Later", 1, 2)
        session = await runtime.open(agent, id="t")
        assert [text for message in await session.messages() for text in texts_of(message)] == said


async def test_turns_that_fail_between_others_stay_hidden_however_many_they_are() -> None:
    count = 2 * MAX_HIDDEN_PARTS + 3
    lines = [line for n in range(count) for line in (fail(400, "no"), say(f"a{n}"))]
    agent = vaka.Agent("helper", model=Answers(*lines))
    async with vaka.Runtime(store="memory:", models=Models(retries=0)) as runtime:
        threads = runtime.threads
        await threads.create(id="t")
        for n in range(count):
            with pytest.raises(TurnError):
                await threads.generate_with_memory(agent, "t", f"orphan {n}")
            await threads.generate_with_memory(agent, "t", f"q{n}")
        rows = (await threads.get_messages("t", MessageQuery(limit=200))).messages
        assert [row.text for row in rows] == [f"{who}{n}" for n in range(count) for who in "qa"]
        assert (await threads.stats("t")).message_count == 2 * count
        assert len((await threads.get("t")).hidden) <= MAX_HIDDEN_PARTS


async def test_a_turn_that_fails_in_a_thread_with_full_metadata_is_at_least_rewound() -> None:
    agent = vaka.Agent("helper", model=Answers(fail(400, "no"), say("Yes.")))
    async with vaka.Runtime(store="memory:", models=Models(retries=0)) as runtime:
        await runtime.threads.create(id="t", metadata={"mine": "x" * 16_360})
        with pytest.raises(TurnError, match="no"):
            await runtime.threads.generate_with_memory(agent, "t", "orphan?")
        await runtime.threads.generate_with_memory(agent, "t", "Kept?")
        session = await runtime.open(agent, id="t")
        assert [text for message in await session.messages() for text in texts_of(message)] == ["Kept?", "Yes."]


async def test_the_result_of_a_call_is_deleted_by_the_id_that_adding_it_returned(every_store: Store) -> None:
    second = {"role": "assistant", "id": "a3", "tool_calls": [{"id": c, "name": "search"} for c in ("c1", "c2")]}
    results = [{"role": "tool", "content": f"Found {c}.", "tool_call_id": c} for c in ("c2", "c1")]
    given: list[Any] = [{"role": "user", "content": "Hi.", "id": "u1"}, CALL, RESULT, second, *results]
    async with vaka.Runtime(store=every_store) as runtime:
        threads = runtime.threads
        await threads.create(id="t")
        added = await threads.append_many("t", [*given, *given[1:3]])
        assert [each.added for each in added] == [True] * 6 + [False] * 2
        assert (added[7].id, len({each.id for each in added[:6]})) == (added[2].id, 6)
        rows = {row.id: row.text for row in (await threads.get_messages("t")).messages}
        assert [rows[added[n].id] for n in (2, 4, 5)] == ["A valve.", "Found c2.", "Found c1."]
        again = await threads.append_many("t", given)
        assert [(each.id, each.added) for each in again] == [(each.id, False) for each in added[:6]]
        assert (await threads.delete_messages("t", [added[4].id, added[5].id])).success
        assert not any(each.added for each in await threads.append_many("t", given))
        assert [row.text for row in (await threads.get_messages("t")).messages] == [
            "Hi.",
            "Let me look.",
            "A valve.",
            "",
            *["This result was deleted."] * 2,
        ]


async def test_the_statistics_of_a_thread_end_with_its_last_message_that_is_not_deleted(every_store: Store) -> None:
    times = [f"2036-01-0{day}T00:00:00.000Z" for day in range(1, 5)]
    given = [{"role": "user", "content": "x", "id": f"m{n}", "ts": ts} for n, ts in enumerate(times)]
    async with vaka.Runtime(store=every_store) as runtime:
        await runtime.threads.create(id="t")
        await runtime.threads.append_many("t", given)
        whole = await runtime.threads.stats("t")
        await runtime.threads.delete_messages("t", ["m3", "m1"])
        rest = await runtime.threads.stats("t")
        assert (whole.last_message_at, rest.last_message_at) == (times[3], times[2])
        assert whole.duration - rest.duration == 86400
        await runtime.threads.delete_messages("t", ["m0", "m2"])
        empty = await runtime.threads.stats("t")
        assert (empty.message_count, empty.last_message_at, empty.duration) == (0, "", 0.0)
