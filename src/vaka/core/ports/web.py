"""The sockets of what looks things up on the web."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from vaka.core.ports.net import Network


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a search has found."""

    title: str
    url: str
    snippet: str = ""


class Search(Protocol):
    """Someone who finds pages."""

    async def find(self, query: str, network: Network) -> Sequence[Found]:
        """Return what there is on ``query``, best first, asking over ``network`` alone.

        Raises ``NetworkError`` when nobody answers, and ``NotFound`` when the answer cannot be read.
        """
        ...
