"""The contract suite of stores: subclass ``StoreContract`` and give it your store.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]: ...

        @pytest.fixture
        async def other(self, store: Store) -> AsyncIterator[Store]:
            '''A second handle on the same data and namespace, as another process has it.'''

A store whose bytes other programs can change also takes ``ChainContract`` and ``ErasureChainContract``, with a fixture
``tamper``.
"""

from vaka.testing.stores.erasure import BlobErasureContract, ErasureChainContract, ErasureContract
from vaka.testing.stores.followers import LiveContract, OffersContract, WaitContract
from vaka.testing.stores.idle_appends import IdleAppendsContract
from vaka.testing.stores.logs import ChainContract, ClaimsContract, LogContract
from vaka.testing.stores.message_search import MessageSearchContract
from vaka.testing.stores.messages import MessageListContract
from vaka.testing.stores.sealed_events import EventSealer
from vaka.testing.stores.searched_words import SearchedWordsContract
from vaka.testing.stores.tables import BlobsContract, SessionsContract, SnapshotsContract
from vaka.testing.stores.values import KeyValueContract
from vaka.testing.stores.vectors import VectorsContract


class EventStoreContract(ClaimsContract, LogContract, IdleAppendsContract, OffersContract, WaitContract):
    """The contract of logs: claims, appends, reads, offers and waits."""


class StoreContract(
    EventStoreContract,
    SessionsContract,
    MessageListContract,
    MessageSearchContract,
    SearchedWordsContract,
    SnapshotsContract,
    BlobsContract,
    KeyValueContract,
    LiveContract,
    VectorsContract,
    ErasureContract,
    BlobErasureContract,
):
    """The contract of a whole store."""


__all__ = [
    "BlobErasureContract",
    "BlobsContract",
    "ChainContract",
    "ErasureChainContract",
    "ErasureContract",
    "EventSealer",
    "EventStoreContract",
    "KeyValueContract",
    "LiveContract",
    "MessageListContract",
    "MessageSearchContract",
    "SearchedWordsContract",
    "SessionsContract",
    "SnapshotsContract",
    "StoreContract",
    "VectorsContract",
]
