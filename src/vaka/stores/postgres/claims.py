"""The claims of this process: leases that the server's clock ends and that we renew."""

import math
import sys
import time
from uuid import UUID, uuid4

from vaka.core.ports.store import SessionInfo
from vaka.core.types.ids import Term
from vaka.stores.postgres.text import Place

MARGIN = 0.1
"""The part of a lease we do not count on."""

if sys.platform == "linux":

    def clock() -> float:
        """Seconds that never go back and also pass while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    clock = time.monotonic


class Claim:
    """The right to write one session, as far as this process knows."""

    __slots__ = ("info", "owner", "place", "renewed", "term", "tried")

    def __init__(self, place: Place, info: SessionInfo, term: Term, owner: UUID, renewed: float = math.inf) -> None:
        self.place, self.info, self.term, self.owner = place, info, term, owner
        self.renewed = renewed
        """When we sent what last renewed it. Never ending for a session that does not exist yet: there is no lease."""
        self.tried = renewed < math.inf
        """Whether the server may know of it."""

    def held(self, lease: float) -> bool:
        """Tell whether the server surely still counts the lease."""
        return clock() < self.renewed + lease * (1 - MARGIN)


def new_owner() -> UUID:
    """Return the name of a claim nobody has made before."""
    return uuid4()
