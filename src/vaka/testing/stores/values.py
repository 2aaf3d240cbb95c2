"""Small values by name."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import pytest

from vaka.core.ports.store import Store
from vaka.core.types.errors import InvalidInput

HOSTILE = [
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
    """Names and JSON."""

    async def test_a_value_is_what_was_put_last(self, store: Store, other: Store) -> None:
        assert await store.values.get("a") is None
        for value in (1, 1.5, "x", "", True, False, 0, [], {}, [1, None, {"a": [True]}], "\x00é🛶", {"": None}):
            await store.values.put("a", value)
            got = await other.values.get("a")
            assert got == value
            assert type(got) is type(value)

    async def test_none_removes_it(self, store: Store, other: Store) -> None:
        await store.values.put("a", 1)
        await other.values.put("a", None)
        await other.values.put("never", None)
        assert await store.values.get("a") is None
        assert await store.values.keys() == []

    async def test_names_are_listed_by_prefix_and_sorted(self, store: Store) -> None:
        for key in ("b/2", "a", "b/1", "b", "c", "b\U0010ffff", "B/3", "b/é"):
            await store.values.put(key, key)
        assert await store.values.keys() == ["B/3", "a", "b", "b/1", "b/2", "b/é", "b\U0010ffff", "c"]
        assert await store.values.keys("b/") == ["b/1", "b/2", "b/é"]
        assert await store.values.keys("b") == ["b", "b/1", "b/2", "b/é", "b\U0010ffff"]
        assert await store.values.keys("z") == []

    async def test_hostile_names_are_only_names(self, store: Store) -> None:
        for key in HOSTILE:
            await store.values.put(key, key)
        assert [await store.values.get(key) for key in HOSTILE] == HOSTILE
        assert await store.values.keys() == sorted(HOSTILE)
        for key in HOSTILE:
            assert await store.values.keys(key) == sorted(name for name in HOSTILE if name.startswith(key))

    async def test_what_is_put_is_a_copy(self, store: Store) -> None:
        value = {"list": [1]}
        await store.values.put("a", value)
        value["list"].append(2)
        got = await store.values.get("a")
        got["list"].append(3)
        assert await store.values.get("a") == {"list": [1]}

    async def test_what_is_not_json_is_refused_and_leaves_the_old_value(self, store: Store) -> None:
        await store.values.put("a", 1)
        for value in (object(), {"x": object()}, "\ud800"):
            with pytest.raises(InvalidInput):
                await store.values.put("a", value)
        assert await store.values.get("a") == 1

    async def test_a_megabyte_fits(self, store: Store) -> None:
        await store.values.put("a", "x" * 1_000_000)
        assert await store.values.get("a") == "x" * 1_000_000

    async def test_namespaces_have_their_own_names(self, store: Store, other: Store) -> None:
        tenant = store.scoped("tenant")
        await store.values.put("a", "mine")
        await tenant.values.put("a", "theirs")
        await tenant.values.put("b", "theirs")
        assert await other.values.get("a") == "mine"
        assert await other.values.keys() == ["a"]
        assert await other.scoped("tenant").values.keys() == ["a", "b"]
