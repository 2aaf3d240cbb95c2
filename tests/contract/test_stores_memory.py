"""The store contract for the memory store."""

from collections.abc import AsyncIterator

import pytest

from vaka.core.ports.store import Store
from vaka.stores.memory import MemoryStore
from vaka.testing.stores import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = MemoryStore()
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, store: MemoryStore) -> AsyncIterator[Store]:
        other = store.open_handle()
        yield other
        await other.close()
