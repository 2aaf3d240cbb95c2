"""The network port: requests, responses, verdicts on addresses, and web search."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order; a name may occur more than once."""


class NetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for, and how much patience and room there is for the answer."""

    url: str
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    timeout: float = 30.0
    """Seconds for all of it: names, connections, redirects and the whole answer."""
    max_bytes: int = 8 * 1024 * 1024
    """Most bytes of the answer's body, as sent and as unpacked."""
    redirects: int = 5
    """How many redirects to follow; with 0 the redirect itself is the answer."""


class NetHead(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without its body. Names of headers are in lower case."""

    status: int
    headers: Headers = ()
    url: str = ""
    """Where the answer came from, after redirects."""

    def header(self, name: str, default: str = "") -> str:
        """Return a header's values, joined by commas, whatever the case of its name; ``default`` if there is none."""
        return ", ".join(self.header_values(name)) or default

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return every value of a header, in order: cookies, for example, must not be joined."""
        wanted = name.lower()
        return tuple(value for key, value in self.headers if key.lower() == wanted)


class NetResponse(NetHead, frozen=True, kw_only=True):
    """A whole answer, unpacked."""

    body: bytes = b""


class NetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say of an address. ``reason`` is empty when it is allowed, else one stable word."""

    url: str = ""
    """The address as it would be dialed, empty when it cannot be read."""
    host: str = ""
    port: int = 0
    reason: str = ""
    message: str = ""

    @property
    def allowed(self) -> bool:
        """Whether a request may be sent there, as far as one can say without looking the name up."""
        return not self.reason


class NetStream(Protocol):
    """An answer whose body is still arriving."""

    @property
    def head(self) -> NetHead:
        """Status, headers and address."""
        ...

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the unpacked body as it arrives, once; a body that was cut or is too large ends in an error."""
        ...


class Network(Protocol):
    """Sends requests to where the rules allow and to nowhere else.

    Each name is looked up once, every address it has is judged, and the connection goes to an address that was judged;
    the same holds for each redirect. Whatever the status, an answer is an answer; ``NetworkError`` is raised when there
    is none, and ``InvalidInput`` when the request makes no sense.
    """

    def decide(self, url: str) -> NetVerdict:
        """Say whether ``url`` may be asked, and why not. Looks nothing up and dials nobody."""
        ...

    async def send(self, request: NetRequest) -> NetResponse:
        """Send a request and return the whole answer."""
        ...

    def stream(self, request: NetRequest) -> AbstractAsyncContextManager[NetStream]:
        """Send a request and hand over the answer as it arrives; leaving the context ends it."""
        ...


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a search has found."""

    title: str
    url: str
    snippet: str = ""


class SearchEngine(Protocol):
    """Someone who finds pages."""

    async def find(self, query: str, network: Network) -> Sequence[SearchResult]:
        """Return what there is on ``query``, best first, asking over ``network`` alone.

        Raises ``NetworkError`` when nobody answers, and ``NotFound`` when the answer cannot be read.
        """
        ...
