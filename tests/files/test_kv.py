"""How files lie in a key-value store, and what becomes of what lies there wrongly."""

import pytest

from vaka.core.ports.store import KeyValue
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import JSON
from vaka.files.kv import PART, KeyValueFiles
from vaka.stores.memory import MemoryStore


class Counting:
    """A key-value store that remembers which values were asked for."""

    def __init__(self, inner: KeyValue) -> None:
        self.inner = inner
        self.got: list[str] = []

    async def get(self, key: str) -> JSON:
        self.got.append(key)
        return await self.inner.get(key)

    async def put(self, key: str, value: JSON) -> None:
        await self.inner.put(key, value)

    async def keys(self, prefix: str = "") -> list[str]:
        return list(await self.inner.keys(prefix))


@pytest.fixture
def values() -> Counting:
    return Counting(MemoryStore().values)


async def test_only_the_parts_of_a_range_are_loaded(values: Counting) -> None:
    files, data = KeyValueFiles(values), bytes(range(256)) * (PART // 64)
    await files.write("big", data)
    values.got.clear()
    assert (await files.read("big", start=PART + 5, size=10)).data == data[PART + 5 : PART + 15]
    assert [key.rpartition("/")[2] for key in values.got] == ["big", "1"]


async def test_parts_of_what_was_replaced_or_deleted_go(values: Counting) -> None:
    files = KeyValueFiles(values)
    for data in (b"x" * (PART * 3), b"y" * (PART * 2), b"small", b"z" * (PART + 1)):
        await files.write("file", data)
    assert len(await values.keys("files/d/")) == 2
    await files.delete("file")
    assert await values.keys() == []


async def test_parts_that_a_crash_left_are_swept(values: Counting) -> None:
    files = KeyValueFiles(values)
    await files.write("file", b"z" * (PART + 1))
    await values.put("files/d/0123/0", "left")
    await values.put("files/d/0123/1", "behind")
    assert await files.sweep() == 2
    assert (await files.read("file")).info.size == PART + 1
    assert await files.sweep() == 0


async def test_two_trees_in_one_store_do_not_meet(values: Counting) -> None:
    one, other = KeyValueFiles(values, prefix="one/"), KeyValueFiles(values, prefix="one/n/")
    await one.write("a", b"1")
    await other.write("a", b"2")
    assert (await one.read("a")).data == b"1"


@pytest.mark.parametrize(
    "stored", ["text", {"size": "x"}, {"size": 1, "modified": 1, "digest": "d", "data": "not base64!"},
               {"size": PART * 2, "modified": 1, "digest": "d", "parts": 2, "id": "gone"},
               {"size": 1, "modified": 1, "digest": "d", "data": 7}],
)  # fmt: skip
async def test_what_was_not_written_by_us_is_corrupt(values: Counting, stored: JSON) -> None:
    await values.put("files/n/file", stored)
    with pytest.raises(Corrupt, match="file 'file'"):
        await KeyValueFiles(values).read("file")
