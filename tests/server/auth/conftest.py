"""Keys, tickets and an authenticator on a store in memory, with a clock that the test moves."""

import pytest

from vaka.server.auth.api_keys import ApiKeys
from vaka.server.auth.authenticator import CredentialAuthenticator
from vaka.server.auth.pepper import Pepper
from vaka.server.auth.tickets import Tickets
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def pepper() -> Pepper:
    return Pepper("a pepper of the tests")


@pytest.fixture
def keys(store: MemoryStore, pepper: Pepper, clock: FakeClock) -> ApiKeys:
    return ApiKeys(store.values, pepper, clock)


@pytest.fixture
def tickets(store: MemoryStore, pepper: Pepper, clock: FakeClock) -> Tickets:
    return Tickets(store.values, pepper, clock)


@pytest.fixture
def authenticator(keys: ApiKeys, tickets: Tickets, clock: FakeClock) -> CredentialAuthenticator:
    return CredentialAuthenticator(keys, tickets, clock)
