"""The files contract for files in a key-value store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vaka.core.ports.files import Files
from vaka.files.kv import KeyValueFiles
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.files import FilesContract


class TestMemoryValues(FilesContract):
    @pytest.fixture
    async def files(self) -> AsyncIterator[Files]:
        store = MemoryStore()
        yield KeyValueFiles(store.values)
        await store.close()


class TestSqliteValues(FilesContract):
    @pytest.fixture
    async def files(self, tmp_path: Path) -> AsyncIterator[Files]:
        store = SqliteStore(tmp_path / "vaka.db", durability="process")
        yield KeyValueFiles(store.values, prefix="notes/of 100%/")
        await store.close()
