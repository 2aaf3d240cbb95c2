"""Contract of key-value pairs."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio

import msgspec
import pytest

from vaka.core.ports.store import GcResult, Retention, Store
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.testing.stores.sealed_events import input_added, turn_events, write_session

HOSTILE_KEYS = [
    "'; drop table x; --",
    "%",
    "_",
    "a%b",
    "a_b",
    "aXb",
    "🛶",
    "é",
    "e\u0301",
    " ",
    "x" * 3000,
    "A",
    "a",
    "/",
    "..",
]


class KeyValueContract:
    """JSON values by key."""

    async def test_the_last_value_put_is_returned(self, store: Store, other: Store) -> None:
        assert await store.values.get("a") is None
        for value in (1, 1.5, "x", "", True, False, 0, [], {}, [1, None, {"a": [True]}], "\x00é🛶", {"": None}):
            await store.values.put("a", value)
            got = await other.values.get("a")
            assert got == value
            assert type(got) is type(value)

    async def test_putting_none_removes_a_value(self, store: Store, other: Store) -> None:
        await store.values.put("a", 1)
        await other.values.put("a", None)
        await other.values.put("never", None)
        assert await store.values.get("a") is None
        assert await store.values.keys() == []

    async def test_the_first_of_two_concurrent_writers_stores_an_absent_value(self, store: Store, other: Store) -> None:
        values = [{"writer": number} for number in range(8)]
        got = await asyncio.gather(
            *(handle.values.put_if_absent("a", value) for value, handle in zip(values, [store, other] * 4, strict=True))
        )
        assert got == [got[0]] * len(values)
        assert got[0] in values
        assert await other.values.get("a") == got[0]

    async def test_a_present_value_stays_and_is_returned(self, store: Store, other: Store) -> None:
        assert await store.values.put_if_absent("a", [1]) == [1]
        assert await other.values.put_if_absent("a", [2]) == [1]
        await other.values.put("a", None)
        assert await store.values.put_if_absent("a", False) is False
        assert await store.with_namespace("tenant").values.put_if_absent("a", 3) == 3
        for value in (None, object()):
            with pytest.raises(InvalidInput):
                await store.values.put_if_absent("b", value)
        assert await store.values.keys() == ["a"]

    async def test_a_value_is_replaced_only_if_it_is_the_expected_one(self, store: Store, other: Store) -> None:
        change = store.values.compare_and_set
        assert not await change("a", {"n": 0}, {"n": 1})
        assert await change("a", None, {"n": 1})
        assert not await change("a", None, {"n": 2})
        assert not await other.values.compare_and_set("a", {"n": 2}, {"n": 3})
        assert await other.values.compare_and_set("a", {"n": 1}, {"n": 2})
        assert await change("a", {"n": 1}, {"n": 2})  # as after an answer that was lost
        assert not await store.with_namespace("tenant").values.compare_and_set("a", {"n": 2}, {"n": 3})
        assert not await change("a", {"n": 1}, None)
        assert await store.values.get("a") == {"n": 2}
        assert await change("a", {"n": 2}, None)
        assert await change("a", None, None)
        assert await store.values.keys() == []
        with pytest.raises(InvalidInput):
            await change("a", None, object())

    async def test_no_change_of_concurrent_writers_is_lost(self, store: Store, other: Store) -> None:
        async def add(handle: Store, name: str) -> None:
            while True:
                old = await handle.values.get("names")
                if await handle.values.compare_and_set("names", old, [*(old or []), name]):
                    return

        names = [f"n{number}" for number in range(12)]
        await asyncio.gather(*(add(handle, name) for handle, name in zip([store, other] * 6, names, strict=True)))
        assert sorted(await store.values.get("names")) == sorted(names)

    async def test_expired_values_are_removed_by_gc_and_no_others(self, store: Store, other: Store) -> None:
        tenant = store.with_namespace("tenant")
        for handle in (store, tenant):
            for key, expires in (
                ("never", ""),
                ("soon", "2024-01-01T00:00:00.000Z"),
                ("late", "2025-01-01T00:00:00.000Z"),
            ):
                assert await handle.values.compare_and_set(key, None, "text", expires=expires)
            assert await handle.values.compare_and_set("put", None, 1, expires="2024-01-01T00:00:00.000Z")
            await handle.values.put("put", 2)
        due = Retention(expired_before="2024-06-01T00:00:00.000Z")
        assert await other.gc(Retention()) == GcResult()
        assert await other.gc(msgspec.structs.replace(due, dry_run=True)) == GcResult(values=1, bytes=6)
        assert await store.values.keys() == ["late", "never", "put", "soon"]
        assert await other.gc(due) == GcResult(values=1, bytes=6)
        assert await other.gc(due) == GcResult()
        assert await store.values.keys() == ["late", "never", "put"]
        assert await tenant.values.keys() == ["late", "never", "put", "soon"]

    async def test_keys_are_listed_by_prefix_and_sorted(self, store: Store) -> None:
        for key in ("b/2", "a", "b/1", "b", "c", "b\U0010ffff", "B/3", "b/é"):
            await store.values.put(key, key)
        assert await store.values.keys() == ["B/3", "a", "b", "b/1", "b/2", "b/é", "b\U0010ffff", "c"]
        assert await store.values.keys("b/") == ["b/1", "b/2", "b/é"]
        assert await store.values.keys("b") == ["b", "b/1", "b/2", "b/é", "b\U0010ffff"]
        assert await store.values.keys("z") == []

    async def test_hostile_keys_of_values_are_only_names(self, store: Store) -> None:
        for key in HOSTILE_KEYS:
            await store.values.put(key, key)
        assert [await store.values.get(key) for key in HOSTILE_KEYS] == HOSTILE_KEYS
        assert await store.values.keys() == sorted(HOSTILE_KEYS)
        for key in HOSTILE_KEYS:
            assert await store.values.keys(key) == sorted(name for name in HOSTILE_KEYS if name.startswith(key))

    async def test_a_value_is_stored_as_a_copy(self, store: Store) -> None:
        value = {"list": [1]}
        await store.values.put("a", value)
        value["list"].append(2)
        got = await store.values.get("a")
        got["list"].append(3)
        assert await store.values.get("a") == {"list": [1]}

    async def test_a_value_that_is_not_json_is_refused_and_leaves_the_old_one(self, store: Store) -> None:
        await store.values.put("a", 1)
        for value in (object(), {"x": object()}, "\ud800"):
            with pytest.raises(InvalidInput):
                await store.values.put("a", value)
        assert await store.values.get("a") == 1

    async def test_a_value_of_a_megabyte_is_stored(self, store: Store) -> None:
        await store.values.put("a", "x" * 1_000_000)
        assert await store.values.get("a") == "x" * 1_000_000

    async def test_namespaces_have_their_own_keys(self, store: Store, other: Store) -> None:
        tenant = store.with_namespace("tenant")
        await store.values.put("a", "mine")
        await tenant.values.put("a", "theirs")
        await tenant.values.put("b", "theirs")
        assert await other.values.get("a") == "mine"
        assert await other.values.keys() == ["a"]
        assert await other.with_namespace("tenant").values.keys() == ["a", "b"]

    async def test_the_values_of_a_session_go_with_it_and_no_others(self, store: Store) -> None:
        names = ["s", "s/1", "é", "%", "s" * 300]
        keys = {name: session_values_prefix(name) + "k" for name in names}
        for name in names[1:]:
            await write_session(store, name, input_added("x"), *turn_events())
        for handle in (store, store.with_namespace("tenant")):
            await write_session(handle, "s")
            for key in ("session/1/s", "session/s/k", *keys.values()):
                await handle.values.put(key, 1)
        await store.sessions.delete(SessionId("s"))
        left = {"session/1/s", "session/s/k", *(key for name, key in keys.items() if name != "s")}
        assert set(await store.values.keys()) == left
        await store.gc(Retention(idle_before="9999-01-01T00:00:00.000Z", dry_run=True))
        assert set(await store.values.keys()) == left
        await store.gc(Retention(idle_before="9999-01-01T00:00:00.000Z"))
        assert await store.values.keys() == ["session/1/s", "session/s/k"]
        assert len(await store.with_namespace("tenant").values.keys()) == 2 + len(names)
