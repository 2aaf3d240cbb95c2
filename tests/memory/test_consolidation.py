"""Consolidation: groups of near memories, merging that keeps the originals, and the background session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.core.types.message import UserMessage, text_of
from vaka.core.types.monitor import ErrorReported
from vaka.memory import MemoryConsolidation, SemanticMemory
from vaka.memory.consolidation import find_groups, merge_memories, state_key
from vaka.memory.memory_scope import memory_scope
from vaka.memory.provenance import DAY
from vaka.memory.semantic import MemorySource, ScopedMemory
from vaka.models.embedders import HashingEmbedder
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say

TEA = ["Kim likes to drink green tea in the morning", "Kim likes to drink green tea in the mornings"]
BOATS = ["The old blue boat of Kim lies in the harbour of Hilo", "The old blue boat of Kim lies in the harbour of Kona"]
OTHERS = [f"{word} {word}s and {word}ing" for word in ("apple", "river", "window", "guitar", "pepper", "mountain")]


def memory_of(store: Store, clock: FakeClock | None = None) -> ScopedMemory:
    return ScopedMemory(store, HashingEmbedder(), memory_scope(user="kim"), clock=clock or FakeClock())


async def add_all(memory: ScopedMemory, *texts: str) -> list[str]:
    return [(await memory.add(text, MemorySource(name=f"s/{text[-4:]}"))).id for text in texts]


async def test_each_pair_of_near_memories_is_in_one_group() -> None:
    clock = FakeClock()
    memory = memory_of(MemoryStore(), clock)
    ids = await add_all(memory, *TEA, *BOATS, *OTHERS)
    groups: list[tuple[bool, set[str]]] = []
    after = ""
    while True:
        page = await find_groups(memory, after=after, limit=3)
        groups += [(group.redundant, {one.id for one in group.memories}) for group in page.groups]
        after = page.next
        if not after:
            break
    assert sorted(groups, key=lambda group: not group[0]) == [(True, set(ids[:2])), (False, set(ids[2:4]))]
    since = clock.time()
    assert (await find_groups(memory, since=since)).groups == ()
    clock.advance(60)
    (late,) = await add_all(memory, "Kim likes to drink green teas in the mornings")
    (group,) = (await find_groups(memory, since=since)).groups
    assert (group.redundant, {one.id for one in group.memories}) == (True, {late, ids[1]})


async def test_merging_keeps_the_originals_and_searches_find_the_new_memory() -> None:
    memory = memory_of(MemoryStore())
    first, second = await add_all(memory, *TEA)
    made = await merge_memories(memory, [first, second], "Kim drinks green tea every morning", key="call/1")
    assert await merge_memories(memory, [first, second], "something else", key="call/1") == made
    assert (made.derived_from, made.sources) == ((first, second), ("s/ning", "s/ings"))
    assert (made.provenance.corroboration_count, made.provenance.source_type) == (1, "agent")
    assert [one.memory.id for one in await memory.search("green tea in the morning")] == [made.id]
    assert [(await memory.get(id)).text for id in (first, second)] == TEA
    stats = await memory.stats()
    assert (stats.superseded, stats.derived, stats.depth) == (2, 1, 1)
    for ids, error in (([first, second], InvalidInput), ([made.id], InvalidInput), ([made.id, "mem_x"], NotFound)):
        with pytest.raises(error):
            await merge_memories(memory, ids, "x", key="call/2")
    again = await memory.add(TEA[0], MemorySource(name="s/9"))
    assert again.id not in {first, second}
    await memory.delete(again.id)
    await memory.delete(made.id)
    assert {one.memory.id for one in await memory.search("green tea in the morning")} == {first, second}


async def test_revoking_a_source_makes_a_merged_memory_again_without_it() -> None:
    memory = memory_of(MemoryStore())
    first, second = await add_all(memory, *TEA)
    made = await merge_memories(memory, [first, second], "Kim drinks green tea every morning", key="call/1")
    removal = await memory.revoke_data_source("s/ning")
    assert removal.deleted == (first,)
    left = await memory.get(made.id)
    assert (left.text, left.sources, left.derived_from) == (TEA[1], ("s/ings",), (second,))
    assert [one.memory.id for one in await memory.search("green tea")] == [made.id]


async def run_turn(store: MemoryStore, model: ScriptedModel, clock: FakeClock, session: str, **options: Any) -> None:
    memory = SemanticMemory(tools=())
    options = {"min_memories": 4, "batch_size": 3, **options}
    tidy = MemoryConsolidation(memory, model=model, **options)
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        opened = await rt.open(agent(ScriptedModel(say("Hello.")), middleware=[memory, tidy]), id=session)
        await opened.update(owner="kim")
        assert (await opened.run("Hi.")).text == "Hello."


async def test_a_model_merges_memories_in_a_session_of_its_own_once_a_day() -> None:
    store, clock = MemoryStore(), FakeClock(auto=True)
    memory = memory_of(store, clock)
    ids = await add_all(memory, *TEA, *BOATS, *OTHERS)
    known = dict(zip([*TEA, *BOATS, *OTHERS], ids, strict=True))
    pages: list[str] = []
    after = ""
    while True:  # the cursors that the tool will show
        page = await find_groups(memory, after=after, limit=3)
        after = page.next
        if page.groups:
            pages.append(after or "~")
        if not after:
            break
    model = ScriptedModel(
        call("memory_similar"),
        call("memory_merge", ids=[known[text] for text in TEA], text="Kim drinks green tea every morning"),
        call("memory_merge", ids=[known[text] for text in BOATS], text="The boat of Kim lies in Kona, before in Hilo"),
        call("memory_merge", ids=["mem_x", "mem_y"], text="x"),
        *(call("memory_similar", cursor=cursor) for cursor in pages),
        call("memory_similar", cursor="~"),
        say("done"),
    )
    await run_turn(store, model, clock, "one")
    await run_turn(store, model, clock, "two")
    (session,) = [
        info for info in (await store.sessions.list(SessionQuery())).sessions if info.agent == "consolidation"
    ]
    assert session.owner == "kim"
    results = list(results_by_call(await read_log(store, session.id)).values())
    assert results[0].text.startswith("These ")
    assert [result.failed for result in results[1:4]] == [False, False, True]
    assert results[-1].text == "There are no more groups."
    found = await memory.search("the boat of Kim", top_k=1)
    assert [one.memory.text for one in found] == ["The boat of Kim lies in Kona, before in Hilo"]
    assert len(await memory.load_all()) == len(ids) + 2
    state = await store.values.get(state_key(memory))
    assert state["finished_at"] == state["begun_at"] > 0
    later = ScriptedModel(say("nothing to do"))
    await store.erase([session.id])  # a later run is a session of its own
    clock.advance(DAY)
    await run_turn(store, later, clock, "three")
    (prompt,) = later.prompts
    (only,) = [one for one in prompt.messages if isinstance(one, UserMessage)]
    assert text_of(only.content).startswith("Tidy up the memories changed since ")


async def test_a_long_stretch_without_groups_is_looked_at_in_several_calls() -> None:
    store, clock = MemoryStore(), FakeClock(auto=True)
    memory = memory_of(store, clock)
    await add_all(memory, *(chr(0x4E00 + 100 * number) for number in range(30)))
    first = (await memory.page(limit=20))[-1].id
    model = ScriptedModel(call("memory_similar"), call("memory_similar", cursor=first), say("done"))
    await run_turn(store, model, clock, "s", batch_size=1, min_memories=2)
    (session,) = [info for info in (await store.sessions.list(SessionQuery())).sessions if info.id != "s"]
    one, last = results_by_call(await read_log(store, session.id)).values()
    assert one.text == f"There are no groups in this part.\n\ncursor: {first}"
    assert last.text == "There are no more groups."


async def test_few_memories_and_failures_leave_everything_as_it_is() -> None:
    store, clock = MemoryStore(), FakeClock(auto=True)
    memory, model = memory_of(store, clock), ScriptedModel()
    await add_all(memory, *TEA)
    await run_turn(store, model, clock, "few")
    assert model.prompts == []
    await add_all(memory, *BOATS)
    await store.values.put(state_key(memory), "damaged")
    await run_turn(store, model, clock, "failing")  # the script of the model is empty: its turn fails
    assert len(model.prompts) == 1
    assert sorted([one.text async for one in memory.scan()]) == sorted([*TEA, *BOATS])
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        tidy = MemoryConsolidation(SemanticMemory(), model=model, min_memories=2)
        opened = await rt.open(agent(ScriptedModel(say("Hello.")), middleware=[tidy]), id="ownerless")
        assert (await opened.run("Hi.")).text == "Hello."
    (error,) = [event.data for event in await read_log(store, "ownerless") if isinstance(event.data, ErrorReported)]
    assert "owner" in error.message
    wrong: list[dict[str, Any]] = [{"every": 0}, {"min_memories": 1}, {"batch_size": 0}, {"timeout": -1}]
    for options in wrong:
        with pytest.raises(ConfigError):
            MemoryConsolidation(SemanticMemory(), **options)


async def test_an_erased_owner_who_goes_on_gets_another_background_session() -> None:
    store, clock = MemoryStore(), FakeClock(auto=True)
    model = ScriptedModel(call("memory_similar", cursor="~"), say("done"))
    await add_all(memory_of(store, clock), *TEA, *BOATS)
    await run_turn(store, model, clock, "one")
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        await rt.erase(owner="kim")
    clock.advance(DAY)
    await add_all(memory_of(store, clock), *TEA, *BOATS)
    again = ScriptedModel(call("memory_similar", cursor="~"), say("done"))
    await run_turn(store, again, clock, "two")
    assert len(again.prompts) == 2


async def test_a_tier_that_the_runtime_does_not_have_is_the_model_of_the_agent() -> None:
    store, memory = MemoryStore(), SemanticMemory(tools=())
    await add_all(memory_of(store), *TEA)
    tidy = MemoryConsolidation(memory, min_memories=2)
    lines = {"consolidation": [call("memory_similar", cursor="~"), say("done")]}
    model = ScriptedModel(say("Hello."), agents=lines)
    async with runtime(store) as rt:
        opened = await rt.open(agent(model, middleware=[memory, tidy]), id="s")
        await opened.update(owner="kim")
        await opened.run("Hi.")
    assert len(model.prompts) == 3
    wrong = MemoryConsolidation(memory, model="no/such")
    async with runtime(store) as rt:
        with pytest.raises(vaka.VakaError, match="no/such"):
            await (await rt.open(agent(ScriptedModel(say("x")), middleware=[memory, wrong]), id="t")).run("Hi.")


async def test_of_two_merges_at_the_same_time_one_happens(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)]
    one, other = map(memory_of, stores)
    ids = await add_all(one, *TEA)
    for memory in (one, other):
        await memory.search("tea", mark=False)
    results = await asyncio.gather(
        *(merge_memories(memory, ids, "Kim drinks tea", key=f"call/{memory is one}") for memory in (one, other)),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == ["ConflictError", "Memory"]
    assert len([memory async for memory in other.scan() if not memory.superseded_by]) == 1
    for store in stores:
        await store.close()
