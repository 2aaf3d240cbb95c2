"""How files are stored in a key-value store, and how invalid records are handled."""

import hashlib

import pytest

from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import Corrupt, FileChanged
from vaka.core.types.ids import JSON, Digest
from vaka.files.kv import PART_BYTES, KeyValueFiles
from vaka.stores.memory import MemoryStore


class CountingStore:
    """A key-value store that records which values were read."""

    def __init__(self, inner: KeyValueStore) -> None:
        self.inner = inner
        self.requested_keys: list[str] = []

    async def get(self, key: str) -> JSON:
        self.requested_keys.append(key)
        return await self.inner.get(key)

    async def put(self, key: str, value: JSON) -> None:
        await self.inner.put(key, value)

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        return await self.inner.put_if_absent(key, value)

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        return await self.inner.compare_and_set(key, old, new, expires=expires)

    async def keys(self, prefix: str = "") -> list[str]:
        return list(await self.inner.keys(prefix))


@pytest.fixture
def values() -> CountingStore:
    return CountingStore(MemoryStore().values)


async def test_only_the_parts_of_a_range_are_loaded(values: CountingStore) -> None:
    files, data = KeyValueFiles(values), bytes(range(256)) * (PART_BYTES // 64)
    await files.write("big", data)
    values.requested_keys.clear()
    assert (await files.read("big", start=PART_BYTES + 5, size=10)).data == data[PART_BYTES + 5 : PART_BYTES + 15]
    assert [key.rpartition("/")[2] for key in values.requested_keys] == ["big", "1"]


async def test_the_parts_of_replaced_and_deleted_files_are_removed(values: CountingStore) -> None:
    files = KeyValueFiles(values)
    for data in (b"x" * (PART_BYTES * 3), b"y" * (PART_BYTES * 2), b"small", b"z" * (PART_BYTES + 1)):
        await files.write("file", data)
    assert len(await values.keys("files/d/")) == 2
    await files.delete("file")
    assert await values.keys() == []


async def test_parts_left_by_a_crash_are_removed(values: CountingStore) -> None:
    files = KeyValueFiles(values)
    await files.write("file", b"z" * (PART_BYTES + 1))
    await values.put("files/d/0123/0", "left")
    await values.put("files/d/0123/1", "behind")
    assert await files.remove_unused_parts() == 2
    assert (await files.read("file")).info.size == PART_BYTES + 1
    assert await files.remove_unused_parts() == 0


async def test_two_trees_in_one_store_are_separate(values: CountingStore) -> None:
    one, other = KeyValueFiles(values, prefix="one/"), KeyValueFiles(values, prefix="one/n/")
    await one.write("a", b"1")
    await other.write("a", b"2")
    assert (await one.read("a")).data == b"1"


@pytest.mark.parametrize(
    "stored",
    [
        "text",
        {"size": "x"},
        {"size": 1, "modified": 1, "digest": "d", "data": "not base64!"},
        {"size": PART_BYTES * 2, "modified": 1, "digest": "d", "parts": 2, "id": "gone"},
        {"size": 1, "modified": 1, "digest": "d", "data": 7},
    ],
)
async def test_invalid_records_are_corrupt(values: CountingStore, stored: JSON) -> None:
    await values.put("files/n/file", stored)
    with pytest.raises(Corrupt, match="file 'file'"):
        await KeyValueFiles(values).read("file")


async def test_writers_of_two_processes_do_not_overwrite_what_they_have_not_read() -> None:
    store = MemoryStore()
    ours, theirs = (KeyValueFiles(handle.values) for handle in (store, store.open_handle()))
    await ours.write("note", b"one")
    read = await theirs.read("note")
    known = Digest(hashlib.sha256(read.data).hexdigest())

    class Late(CountingStore):
        """Another process writes just before the first change."""

        async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
            if "raced" not in self.requested_keys:
                self.requested_keys.append("raced")
                await ours.write("note", b"two" * PART_BYTES)
            return await self.inner.compare_and_set(key, old, new, expires=expires)

    for digest in (known, None):
        if digest is None:
            await ours.delete("note")
        with pytest.raises(FileChanged):
            await KeyValueFiles(Late(store.values)).write("note", b"x" * (PART_BYTES + 1), known=digest, new=not digest)
        assert (await ours.read("note")).data == b"two" * PART_BYTES
        assert len(await store.values.keys("files/d/")) == 3
    await KeyValueFiles(Late(store.values)).write("note", b"last")
    assert (await ours.read("note")).data == b"last"
    await KeyValueFiles(Late(store.values)).delete("note")
    assert await store.values.keys() == []


async def test_a_folder_is_erased_with_its_parts_and_its_damaged_files() -> None:
    values = MemoryStore().values
    files = KeyValueFiles(values)
    for path in ("a/small.md", "a/b/large.md", "ab/other.md"):
        await files.write(path, b"x" * (1 if "small" in path else PART_BYTES + 1))
    await values.put("files/n/a/damaged.md", {"size": "large"})
    keys = await values.keys()
    assert await files.erase("a", dry_run=True) == 3
    assert await values.keys() == keys
    assert await files.erase("a") == 3
    assert [key for key in await values.keys() if key.startswith("files/n/")] == ["files/n/ab/other.md"]
    assert len(await values.keys()) == 3
    assert (await files.read("ab/other.md")).data == b"x" * (PART_BYTES + 1)
    assert await files.erase("a") == 0


async def test_parts_that_killed_writers_have_left_are_erased_with_their_folder() -> None:
    values = MemoryStore().values
    files = KeyValueFiles(values)
    for path in ("a/100%/large.md", "ab/large.md"):
        await files.write(path, b"x" * (PART_BYTES + 1))
    for key in await values.keys("files/n/"):  # as after a kill: the parts are stored before the record
        await values.put(key, None)
    assert len(await values.keys()) == 4
    assert await files.erase("a", dry_run=True) == 0
    assert await files.erase("a") == 0
    assert [key[:11] for key in await values.keys()] == ["files/d/ab/"] * 2
    assert await files.remove_unused_parts() == 2
