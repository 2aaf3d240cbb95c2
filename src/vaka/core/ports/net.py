"""The network port: requests, responses, verdicts on addresses, and web search."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order; a name may occur more than once."""


class NetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, with limits on the time and size of its answer."""

    url: str
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    timeout: float = 30.0
    """Seconds for everything: name lookups, connections, redirects and the whole answer."""
    max_bytes: int = 8 * 1024 * 1024
    """The largest body of an answer, both as sent and unpacked."""
    redirects: int = 5
    """The number of redirects to follow; with 0 the redirect itself is the answer."""


class NetHead(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without its body. Names of headers are in lower case."""

    status: int
    headers: Headers = ()
    url: str = ""
    """The URL of the answer, after redirects."""

    def header(self, name: str, default: str = "") -> str:
        """Return the values of a header, joined by commas, or ``default``; the case of its name does not matter."""
        return ", ".join(self.header_values(name)) or default

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return every value of a header in order; cookies, for example, must not be joined."""
        wanted = name.lower()
        return tuple(value for key, value in self.headers if key.lower() == wanted)


class NetResponse(NetHead, frozen=True, kw_only=True):
    """A whole answer, unpacked."""

    body: bytes = b""


class NetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of the network rules on a URL. ``reason`` is empty when it is allowed, else one stable word."""

    url: str = ""
    """The normalized URL, empty when it cannot be parsed."""
    host: str = ""
    port: int = 0
    reason: str = ""
    message: str = ""

    @property
    def allowed(self) -> bool:
        """Whether a request may be sent, as far as is known without a name lookup."""
        return not self.reason


class NetStream(Protocol):
    """An answer whose body is still arriving."""

    @property
    def head(self) -> NetHead: ...

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the unpacked body as it arrives; only once. A body that is cut off or too large ends in an error."""
        ...


class Network(Protocol):
    """Sends requests that the network rules allow.

    Each name is looked up once, all its addresses are checked, and the connection goes to a checked address; the same
    holds for each redirect. An answer of any status is returned; ``NetworkError`` is raised when there is no answer,
    and ``InvalidInput`` when the request is not valid.
    """

    def decide(self, url: str) -> NetVerdict:
        """Return the verdict on ``url``, without a name lookup or a connection."""
        ...

    async def send(self, request: NetRequest) -> NetResponse:
        """Send a request and return the whole answer."""
        ...

    def stream(self, request: NetRequest) -> AbstractAsyncContextManager[NetStream]:
        """Send a request and yield the answer while it arrives; leaving the context closes it."""
        ...


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    url: str
    snippet: str = ""


class SearchEngine(Protocol):
    """A web search engine."""

    async def find(self, query: str, network: Network) -> Sequence[SearchResult]:
        """Return the results for ``query``, best first; every request goes through ``network``.

        Raises ``NetworkError`` when there is no answer, and ``NotFound`` when the answer cannot be parsed.
        """
        ...
