"""What every store promises, as tests: subclass ``StoreContract`` and give it your store.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]: ...

        @pytest.fixture
        async def other(self, store: Store) -> AsyncIterator[Store]:
            '''A second handle on the same data and namespace, as another process has it.'''

A store that keeps bytes outside of the process also takes ``ChainContract``, with a fixture ``tamper``.
"""

from vaka.testing.stores.blobs import BlobsContract, SnapshotsContract
from vaka.testing.stores.claims import ClaimsContract
from vaka.testing.stores.events import ChainContract, LogContract
from vaka.testing.stores.live import LiveContract
from vaka.testing.stores.offers import OffersContract
from vaka.testing.stores.pen import Pen
from vaka.testing.stores.sessions import SessionsContract
from vaka.testing.stores.values import KeyValueContract
from vaka.testing.stores.wait import WaitContract


class EventStoreContract(ClaimsContract, LogContract, OffersContract, WaitContract):
    """What the logs promise."""


class StoreContract(
    EventStoreContract, SessionsContract, SnapshotsContract, BlobsContract, KeyValueContract, LiveContract
):
    """Everything a store promises."""


__all__ = [
    "BlobsContract",
    "ChainContract",
    "EventStoreContract",
    "KeyValueContract",
    "LiveContract",
    "Pen",
    "SessionsContract",
    "SnapshotsContract",
    "StoreContract",
]
