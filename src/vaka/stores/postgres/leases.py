"""The claims of this process: leases that expire by the server's clock and that the heartbeat renews."""

import math
import sys
import time
from uuid import UUID, uuid4

from vaka.core.ports.store import SessionInfo
from vaka.core.types.ids import Term
from vaka.stores.postgres.encoding import PostgresKey

LEASE_MARGIN = 0.1
"""The part of a lease we do not count on."""

if sys.platform == "linux":

    def boot_time() -> float:
        """Seconds that never go back and also pass while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    boot_time = time.monotonic


class Lease:
    """The right to write one session, as far as this process knows."""

    __slots__ = ("info", "owner", "place", "renewed", "term", "tried")

    def __init__(
        self, place: PostgresKey, info: SessionInfo, term: Term, owner: UUID, renewed: float = math.inf
    ) -> None:
        self.place, self.info, self.term, self.owner = place, info, term, owner
        self.renewed = renewed
        """When we sent what last renewed it. Never ending for a session that does not exist yet: there is no lease."""
        self.tried = renewed < math.inf
        """Whether the server may know of it."""

    def is_held(self, duration: float) -> bool:
        """Tell whether the server surely still counts the lease."""
        return boot_time() < self.renewed + duration * (1 - LEASE_MARGIN)


def new_owner_id() -> UUID:
    """Return the name of a claim nobody has made before."""
    return uuid4()
