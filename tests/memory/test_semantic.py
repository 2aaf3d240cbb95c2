"""Semantic memory: adding, searching, changing, lineage, revocation and pruning, in memory and in SQLite."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.store import Store
from vaka.core.ports.vectors import VectorRecord
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput, ModelError, NotFound
from vaka.core.types.ids import JSON
from vaka.memory.memory_record import Memory
from vaka.memory.memory_scope import memory_scope
from vaka.memory.provenance import DAY
from vaka.memory.semantic import EQUAL_TEXTS, MAX_TEXT_CHARS, MemorySource, ScopedMemory
from vaka.models.embedders import HashingEmbedder
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock

USER = MemorySource(type="user_input", name="session/1", is_explicit=True)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "vaka.db", durability="process")
    yield store
    await store.close()


class OtherEmbedder:
    """An embedder whose vectors have another length."""

    name = "other"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


def open_memory(store: Store, clock: FakeClock | None = None, user: str = "ann") -> ScopedMemory:
    return ScopedMemory(store, HashingEmbedder(256), memory_scope(user=user), clock=clock or FakeClock())


async def texts(memory: ScopedMemory) -> list[str]:
    return sorted([one.text async for one in memory.scan()])


async def test_a_text_is_found_by_its_words_with_its_provenance(store: Store) -> None:
    memory = open_memory(store)
    boat = await memory.add("Ann sails a red canoe.", USER, tags=["boats"], metadata={"year": 2024})
    await memory.add("The meeting is on Tuesday.", MemorySource(type="tool_output", name="calendar"))
    await memory.add("安娜喜欢吃苹果")
    found = await memory.search("Which canoe does Ann sail?", top_k=1)
    assert [(one.memory.text, one.tier, one.confidence) for one in found] == [(boat.text, "high", 0.9)]
    assert found[0].relevance == found[0].similarity * 0.9
    assert found[0].memory.metadata == {"year": 2024}
    assert type(found[0].memory.metadata["year"]) is type(found[0].memory.provenance.version) is int
    assert [one.memory.text for one in await memory.search("苹果", top_k=1)] == ["安娜喜欢吃苹果"]
    by_tool = await memory.search_by_source_type("When is the canoe meeting?", "tool_output")
    assert [one.memory.text for one in by_tool] == ["The meeting is on Tuesday."]
    assert [one.memory.id for one in await memory.search("canoe", filter={"tags": "boats", "year": 2024})] == [boat.id]
    assert await memory.search("canoe", filter={"year": 1999}) == []
    assert [one.id for one in await memory.page(limit=1, filter={"sources": "session/1"})] == [boat.id]


async def test_results_are_sorted_by_similarity_times_confidence_and_filtered_by_confidence(store: Store) -> None:
    clock = FakeClock()
    memory = open_memory(store, clock)
    near = await memory.add("the harbour opens at nine", MemorySource(confidence=0.3))
    far = await memory.add("the harbour opens at nine in summer", MemorySource(confidence=1.0))
    assert [one.memory.id for one in await memory.search("the harbour opens at nine", top_k=2)] == [far.id, near.id]
    sure = await memory.search("the harbour opens at nine", top_k=1, min_confidence=0.5)
    assert [one.memory.id for one in sure] == [far.id]
    clock.advance(90 * DAY)
    assert await memory.search("the harbour opens at nine", min_confidence=0.5) == []
    for number in range(40):
        await memory.add(f"the harbour opens at {number}", MemorySource(confidence=0.1))
    last = await memory.add("when will the harbour open", MemorySource(confidence=0.9))
    found = await memory.search("the harbour opens at nine", top_k=1, min_confidence=0.5)
    assert [one.memory.id for one in found] == [last.id]


async def test_reading_records_the_use_and_leaves_age_and_base_confidence(store: Store) -> None:
    clock = FakeClock()
    memory = open_memory(store, clock)
    made = await memory.add("Ann likes tea", USER)
    clock.advance(30 * DAY)
    first = await memory.search("tea")
    clock.advance(60)
    second = await memory.search("tea")
    assert first[0].confidence == pytest.approx(0.45)
    assert second[0].confidence == pytest.approx(0.45 + 0.03, abs=1e-4)
    stored = await open_memory(store, clock).get(made.id)
    assert stored.provenance == msgspec.structs.replace(made.provenance, last_accessed_at=clock.time() - 60)
    assert stored.revision == 2
    clock.advance(DAY)
    await memory.search("tea", mark=False)
    assert (await memory.get(made.id)).revision == 2


async def test_equal_words_corroborate_and_a_key_adds_once(store: Store) -> None:
    memory = open_memory(store)
    made = await memory.add("Ann likes  TEA", MemorySource(name="session/1"), key="call/1")
    assert await memory.add("Ann likes  TEA", MemorySource(name="session/1"), key="call/1") == made
    again = await memory.add("ann likes tea", MemorySource(name="session/2", type="user_input", is_explicit=True))
    assert (again.id, again.sources) == (made.id, ("session/1", "session/2"))
    assert (again.provenance.corroboration_count, again.provenance.is_explicit) == (1, True)
    assert await memory.add("ann likes tea", MemorySource(name="session/2")) == again
    assert await memory.add("ann likes tea") == again
    more = await memory.corroborate(made.id, "session/3")
    assert (more.provenance.corroboration_count, more.provenance.confidence) == (2, 0.6)
    both = await asyncio.gather(*(memory.corroborate(made.id, f"s/{number}") for number in range(5)))
    assert (await memory.get(made.id)).provenance.corroboration_count == 7
    assert {one.id for one in both} == {made.id}
    assert await texts(memory) == ["Ann likes  TEA"]


async def test_a_memory_is_changed_and_found_by_its_new_text(store: Store) -> None:
    clock = FakeClock()
    memory = open_memory(store, clock)
    made = await memory.add("Ann lives in Hilo", USER, metadata={"a": 1, "b": 2}, tags=["home"])
    clock.advance(DAY)
    moved = await memory.update(made.id, "Ann lives in Kona", source="session/9", key="call/2", is_explicit=False)
    assert await memory.update(made.id, "Ann lives in Oslo", key="call/2") == moved
    assert (moved.provenance.updated_at, moved.sources) == (clock.time(), ("session/1", "session/9"))
    assert not moved.provenance.is_explicit
    assert (await memory.search("Kona"))[0].memory.text == "Ann lives in Kona"
    merged = await memory.update_metadata(made.id, {"a": None, "c": [3]}, tags=["home", "city"])
    assert (merged.metadata, merged.provenance.tags) == ({"b": 2, "c": [3]}, ("home", "city"))
    assert await open_memory(store, clock).get(made.id) == merged


async def test_secrets_are_redacted_before_they_are_stored(store: Store, tmp_path: Path) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLQ"
    memory = open_memory(store)
    made = await memory.add(f"the key is {secret}", MemorySource(name=secret), metadata={"k": secret}, tags=[secret])
    changed = await memory.update(made.id, f"now {secret} is used", source=f"file {secret}")
    stored = await memory.vectors_of([made.id])
    assert secret not in repr((made, changed, await memory.get(made.id), await memory.page()))
    assert stored[made.id] == pytest.approx((await memory.embed([changed.text]))[0], abs=1e-6)
    if isinstance(store, SqliteStore):
        await store.close()
        assert all(secret.encode() not in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


async def test_lineage_is_stored_and_deleting_remakes_what_remains(store: Store) -> None:
    memory = open_memory(store)
    a = await memory.add("Ann owns a canoe", MemorySource(name="s1"))
    b = await memory.add("Ann owns a kayak", MemorySource(name="s2"))
    both = await memory.add("Ann owns two boats", derived_from=[a.id, b.id, a.id])
    top = await memory.add("Ann is a sailor", derived_from=[both.id])
    only_a = await memory.add("The canoe of Ann is red", derived_from=[a.id])
    assert both.sources == top.sources == ("s1", "s2")
    again = open_memory(store)
    derived = [one.id for one in await again.get_derived(a.id)]
    assert set(derived) == {both.id, top.id, only_a.id}
    assert derived.index(both.id) < derived.index(top.id)
    assert {one.id for one in await again.get_by_source("s2")} == {b.id, both.id, top.id}
    stats = await again.stats()
    assert (stats.memories, stats.derived, stats.depth, stats.by_tier) == (5, 3, 2, {"medium": 5})
    removal = await again.delete(a.id)
    assert set(removal.deleted) == {a.id, only_a.id}
    assert await texts(again) == ["Ann owns a kayak"] * 3
    remade = await again.get(both.id)
    assert (remade.derived_from, remade.sources, remade.text) == ((b.id,), ("s2",), "Ann owns a kayak")
    assert (await again.delete(top.id)).deleted == (top.id,)
    with pytest.raises(NotFound):
        await again.delete(top.id)


async def test_revoking_a_source_removes_its_memories_and_descendants(store: Store) -> None:
    memory = open_memory(store)
    secret = await memory.add("The safe has the number 1234", MemorySource(name="leak"))
    shared = await memory.add("The office is in Hilo", MemorySource(name="leak"))
    await memory.add("the office is in Hilo", MemorySource(name="web"))
    other = await memory.add("The office has a garden", MemorySource(name="web"))
    mixed = await memory.add("The office with the safe has a garden", derived_from=[secret.id, other.id])
    derived = await memory.add("The number of the safe is short", derived_from=[secret.id])
    last = await memory.add("Somewhere there is a short number", derived_from=[derived.id])
    asked: list[Sequence[str]] = []

    async def regenerate(parts: Sequence[str]) -> str:
        asked.append(parts)
        return f"Summary: {' '.join(parts)}"

    removal = await memory.revoke_data_source("leak", regenerate=regenerate)
    assert set(removal.deleted) == {secret.id, derived.id, last.id}
    assert asked == []
    left = await open_memory(store).load_all()
    assert {one.text for one in left.values()} == {"The office is in Hilo", "The office has a garden"}
    assert (left[shared.id].sources, left[shared.id].provenance.corroboration_count) == (("web",), 0)
    assert (left[mixed.id].text, left[mixed.id].sources) == ("The office has a garden", ("web",))
    assert all("leak" not in one.sources for one in left.values())
    third = await memory.add("The office has a pond", MemorySource(name="map"))
    fourth = await memory.add("The office has a roof", MemorySource(name="photo"))
    await memory.add("The office has many things", derived_from=[other.id, third.id, fourth.id])
    await memory.revoke_data_source("photo", regenerate=regenerate)
    assert asked == [["The office has a garden", "The office has a pond"]]
    assert "Summary: The office has a garden The office has a pond" in await texts(memory)
    assert (await memory.revoke_data_source("unknown")).deleted == ()
    with pytest.raises(InvalidInput, match="source"):
        await memory.revoke_data_source("")


class BusyMemory(ScopedMemory):
    """A memory of which another process changes one while it is scanned."""

    async def scan(self, filter: Mapping[str, JSON] | None = None) -> AsyncGenerator[Memory]:
        async for memory in super().scan(filter):
            yield memory
            if memory.text == "used":
                await self.update_metadata(memory.id, {"seen": True})


async def test_a_memory_that_is_changed_meanwhile_is_not_pruned(store: Store) -> None:
    clock = FakeClock()
    memory = BusyMemory(store, HashingEmbedder(256), memory_scope(user="ann"), clock=clock)
    await memory.add("used")
    await memory.add("old")
    clock.advance(100 * DAY)
    assert len(await memory.prune()) == 1
    assert await texts(memory) == ["used"]


class SlowMemory(ScopedMemory):
    """A memory in which another process makes a memory from one that is about to be deleted."""

    async def get(self, id: str) -> Memory:
        memory = await super().get(id)
        if not memory.has_derived:
            await open_memory(self.store).add("Ann can go out to sea", derived_from=[id])
        return memory


async def test_what_is_made_from_a_memory_while_that_is_deleted_goes_with_it(store: Store) -> None:
    made = await open_memory(store).add("Ann has a canoe")
    memory = SlowMemory(store, HashingEmbedder(256), memory_scope(user="ann"), clock=FakeClock())
    assert len((await memory.delete(made.id)).deleted) == 2
    assert await texts(memory) == []


async def test_a_long_query_is_cut_and_an_empty_one_refused(store: Store) -> None:
    memory = open_memory(store)
    await memory.add("tea " * 100)
    assert len(await memory.search("tea " * MAX_TEXT_CHARS)) == 1
    with pytest.raises(InvalidInput, match="the query is empty"):
        await memory.search(" ")


async def test_memories_that_lost_their_confidence_are_pruned(store: Store) -> None:
    clock = FakeClock()
    memory = open_memory(store, clock)
    await memory.add("an implicit remark", MemorySource(type="tool_output", name="t"))
    await memory.add("an explicit wish", USER)
    await memory.add("a given fact", MemorySource(type="bootstrapped"))
    clock.advance(45 * DAY)
    assert len(await memory.prune()) == 1
    assert await texts(memory) == ["a given fact", "an explicit wish"]
    clock.advance(900 * DAY)
    assert len(await memory.prune()) == 1
    assert await memory.prune() == []
    assert await texts(memory) == ["a given fact"]


async def test_users_and_namespaces_cannot_reach_the_memories_of_others(store: Store) -> None:
    ann, bob = open_memory(store), open_memory(store, user="bob")
    made = await ann.add("Ann likes tea", USER)
    tenant = open_memory(store.with_namespace("tenant"))
    for stranger in (bob, tenant, open_memory(store, user="ann/projects/x"), open_memory(store, user="an")):
        assert await stranger.search("tea") == []
        for work in (
            stranger.get(made.id),
            stranger.update(made.id, "x"),
            stranger.delete(made.id),
            stranger.corroborate(made.id, "s"),
            stranger.update_metadata(made.id, {}),
            stranger.get_derived(made.id),
            stranger.add("x", derived_from=[made.id]),
        ):
            with pytest.raises(NotFound):
                await work
    assert await store.vectors.erase(memory_scope(user="bob")) == 0
    assert await store.vectors.erase(memory_scope(user="ann")) == 1
    assert await ann.search("tea") == []


def test_a_scope_needs_its_ids_and_different_ids_stay_different() -> None:
    assert memory_scope("user", user="ann") == "users/ann"
    assert memory_scope("project", project="p") == "projects/p"
    assert memory_scope("project", user="u", project="p") == "users/u/projects/p"
    assert memory_scope("resource", user="u", project="p", resource="r") == "users/u/projects/p/resources/r"
    assert memory_scope("resource", resource="r") == "resources/r"
    assert memory_scope("global", user="u") == ""
    for bad in ("user", "project", "resource", "planet"):
        with pytest.raises(InvalidInput):
            memory_scope(bad)  # type: ignore[arg-type]  # as untyped callers may
    ids = ["a", "A", "a/b", "a%2f;b", "a%2fb", "..", "é", "\ud800", "x" * 300, "x" * 301, "users/a", "a\x00"]
    scopes = {memory_scope(user=id) for id in ids}
    assert len(scopes) == len(ids)
    assert all(scope.count("/") == 1 and len(scope.encode()) < 250 for scope in scopes)


async def test_an_embedder_of_another_kind_is_refused_and_nothing_is_lost(store: Store) -> None:
    memory = open_memory(store)
    await memory.add("Ann likes tea")
    other = ScopedMemory(store, OtherEmbedder(), memory.scope, clock=FakeClock())
    for work in (other.add("x"), other.search("x")):
        with pytest.raises(ConfigError, match="made with the embedder 'hashing/256', not 'other'"):
            await work
    elsewhere = ScopedMemory(store, OtherEmbedder(), memory.scope, clock=FakeClock(), collection="others")
    await elsewhere.add("x")
    assert [one.memory.text for one in await elsewhere.search("y")] == ["x"]
    assert await texts(memory) == ["Ann likes tea"]


class DownEmbedder:
    """An embedder that raises an error of its library."""

    name = "down"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        raise ValueError("no connection")


async def test_an_embedder_that_stored_no_memory_does_not_exclude_others(store: Store) -> None:
    scope = memory_scope(user="ann")
    down = ScopedMemory(store, DownEmbedder(), scope, clock=FakeClock())
    for work in (down.search("x"), down.add("x")):
        with pytest.raises(ModelError, match="the embedder failed: ValueError: no connection"):
            await work
    assert await ScopedMemory(store, OtherEmbedder(), scope, clock=FakeClock()).search("x") == []
    memory = open_memory(store)
    await memory.add("Ann likes tea")
    with pytest.raises(ConfigError, match="made with the embedder 'hashing/256', not 'down'"):
        await down.search("x")


async def test_half_a_character_is_replaced_in_texts_and_refused_in_names(store: Store) -> None:
    memory = open_memory(store)
    made = await memory.add("tea \ud83d")
    assert made.text == (await memory.get(made.id)).text == "tea \N{REPLACEMENT CHARACTER}"
    with pytest.raises(InvalidInput, match="must be text"):
        await memory.add("coffee", MemorySource(name="\ud83d"))


async def test_bad_input_is_refused_with_advice(store: Store) -> None:
    memory = open_memory(store)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: memory.add(""),
        lambda: memory.add("  \n"),
        lambda: memory.add("x" * (MAX_TEXT_CHARS + 1)),
        lambda: memory.add("x", MemorySource(confidence=1.5)),
        lambda: memory.add("x", MemorySource(type="x")),  # type: ignore[arg-type]  # as untyped callers may
        lambda: memory.add("x", metadata={"x": object()}),
        lambda: memory.search(""),
        lambda: memory.search("x", top_k=0),
        lambda: memory.search_by_source_type("x", "rumour"),  # type: ignore[arg-type]  # as untyped callers may
        lambda: memory.get("unknown"),
        lambda: memory.get("x" * 400),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            await call()
    assert await texts(memory) == []


async def test_a_damaged_memory_is_named_and_can_be_deleted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    memory = open_memory(store)
    good, bad = await memory.add("Ann likes tea"), await memory.add("Bob likes coffee")
    await store.vectors.upsert(memory.collection, memory.scope, [VectorRecord(id="odd", vector=(1.0,) * 256)])
    with pytest.raises(Corrupt, match="'odd'"):
        await memory.get("odd")
    await store.vectors.delete(memory.collection, memory.scope, ["odd"])
    for column in ("text", "vector"):
        with closing(sqlite3.connect(tmp_path / "vaka.db", isolation_level=None)) as connection:
            value = "Bob likes tea" if column == "text" else b"\0" * 1024
            connection.execute(f"update vectors set {column} = ? where id = ?", (value, bad.id))
    for read in (memory.get(bad.id), open_memory(SqliteStore(tmp_path / "vaka.db")).search("tea")):
        with pytest.raises(Corrupt, match=bad.id):
            await read
    await store.vectors.delete(memory.collection, memory.scope, [bad.id])
    assert [one.memory.id for one in await memory.search("tea")] == [good.id]
    await store.close()


async def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)]
    clock = FakeClock()
    one, other = (open_memory(store, clock) for store in stores)
    both = await asyncio.gather(one.add("Ann likes tea", key="call/1"), other.add("Ann likes tea", key="call/1"))
    assert both[0].id == both[1].id
    parent = (await one.add("Ann has a canoe", MemorySource(name="s1"))).id
    made, *_ = await asyncio.gather(
        one.add("Ann can go out to sea", derived_from=[parent]),
        *(other.corroborate(parent, f"s/{number}") for number in range(3)),
    )
    stored = await other.get(parent)
    assert (stored.has_derived, stored.provenance.corroboration_count) == (True, 3)
    clock.advance(DAY)
    _, _, removal = await asyncio.gather(
        other.update_metadata(parent, {"colour": "red"}), other.search("canoe"), one.revoke_data_source("s1")
    )
    assert removal.deleted == ()
    stored = await other.get(parent)
    assert (stored.metadata, "s1" in stored.sources) == ({"colour": "red"}, False)
    assert "s1" not in (await one.get(made.id)).sources
    for store in stores:
        await store.close()


async def test_equal_words_that_are_added_at_the_same_moment_are_stored_once(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(4)]
    memories = [open_memory(store) for store in stores]
    for text in ("Ann likes tea", "Bo likes coffee", "Ann likes tea"):
        added = await asyncio.gather(
            *(
                memory.add(text, MemorySource(name=f"session/{number}"), key=f"{text}/{number}")
                for number, memory in enumerate(memories)
            )
        )
        assert len({one.id for one in added}) == 1
        stored = await memories[0].get(added[0].id)
        assert sorted(stored.sources) == [f"session/{number}" for number in range(4)]
    assert await texts(memories[0]) == ["Ann likes tea", "Bo likes coffee"]
    for store in stores:
        await store.close()


async def test_words_of_a_memory_that_was_changed_or_merged_are_stored_again(store: Store) -> None:
    memory = open_memory(store)
    first = await memory.add("Ann likes tea", key="call/1")
    await memory.update(first.id, "Ann likes coffee")
    assert (await memory.add("Ann likes tea", key="call/1")).text == "Ann likes coffee"  # the call runs again
    second = await memory.add("ann likes TEA", key="call/2")
    assert (second.id != first.id, second.text) == (True, "ann likes TEA")
    assert (await memory.add("Ann likes tea")).id == second.id
    for number in range(EQUAL_TEXTS + 1):
        await memory.update(second.id, f"Ann likes number {number}")
        second = await memory.add("Ann likes tea")
    assert len(await texts(memory)) == EQUAL_TEXTS + 3


async def test_thousands_of_memories_are_read_in_pages(store: Store) -> None:
    clock = FakeClock()
    memory = open_memory(store, clock)
    records = [
        VectorRecord(
            id=f"mem_{number:04}",
            vector=(1.0, number),
            metadata={
                "provenance": {
                    "source_type": "agent",
                    "confidence": 0.6,
                    "created_at": clock.time(),
                    "updated_at": clock.time(),
                }
            },
        )
        for number in range(600)
    ]
    await store.vectors.upsert(memory.collection, memory.scope, records)
    assert [one.id async for one in memory.scan()] == [record.id for record in records]
    clock.advance(90 * DAY)
    assert len(await memory.prune()) == 600
    assert await memory.load_all() == {}


async def test_an_embedder_that_returns_too_few_vectors_is_an_error() -> None:
    class Careless:
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return []

    memory = ScopedMemory(MemoryStore(), Careless(), "users/ann", clock=FakeClock())
    with pytest.raises(InvalidInput, match="0 vectors for 1 texts"):
        await memory.add("x")


async def test_two_searches_at_the_same_time_record_one_use_and_overwrite_nothing(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)]
    clock = FakeClock()
    one, other = (open_memory(store, clock) for store in stores)
    ids = [(await one.add(text)).id for text in ("Ann likes tea", "Ann likes green tea")]
    for memory in (one, other):
        assert len(await memory.search("tea", mark=False)) == 2
    await asyncio.gather(one.search("tea"), other.search("tea"), other.corroborate(ids[0], "s/2"))
    stored = [await one.get(id) for id in ids]
    assert [memory.provenance.last_accessed_at for memory in stored] == [clock.time()] * 2
    assert (stored[0].sources, stored[0].provenance.corroboration_count) == (("s/2",), 1)
    for store in stores:
        await store.close()
