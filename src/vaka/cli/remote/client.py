"""A client of the native API: requests, and streams of events that go on after a lost connection."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from vaka.cli.kit.errors import UsageError
from vaka.core.types.control import StreamEnd
from vaka.core.types.decode import decode
from vaka.core.types.errors import (
    AuthenticationFailed,
    Busy,
    InvalidInput,
    NotFound,
    StreamCut,
    Unavailable,
    VakaError,
)
from vaka.core.types.event import Event
from vaka.models.transport.sse import SSEParser, StreamLimits

PREFIX = "/api/v1"
SILENCE_SECONDS = 30.0
"""The server sends a comment every ten seconds; after so many without one the connection counts as lost."""
CONNECT_SECONDS = 15.0
FIRST_DELAY, LAST_DELAY = 0.25, 10.0
"""Seconds before the second attempt to connect again, and at most; the first one is made at once."""
MAX_ATTEMPTS = 4
"""Attempts of a request that may be repeated."""
_ENDLESS = StreamLimits(total_bytes=1 << 62)


class ServerClient:
    """One server and the key for it. Use it with ``async with``."""

    def __init__(self, url: str, key: str = "", *, on_lost: Callable[[str], None] = lambda text: None) -> None:
        """``on_lost`` is called with a note when a connection was lost and is made again."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise UsageError(f"--server {url}: expected an address such as http://127.0.0.1:8321")
        if parts.password or parts.username:
            raise UsageError("--server: give the key as VAKA_API_KEY or with --api-key-file, not in the address")
        self.url, self.on_lost = url.rstrip("/").removesuffix(PREFIX), on_lost
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx2.AsyncClient(
            base_url=self.url + PREFIX,
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            trust_env=not _is_loopback(parts.hostname or ""),  # a proxy cannot reach this machine
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **query: Any) -> Any:
        """Return the document at a path. Raises ``VakaError``."""
        return await self._request("GET", path, {}, params={name: value for name, value in query.items() if value})

    async def delete(self, path: str) -> None:
        """Delete what is at a path. Raises ``VakaError``."""
        await self._request("DELETE", path, {}, repeats=False)

    async def post(self, path: str, body: Mapping[str, Any], *, key: str = "") -> Any:
        """Send a document; with a ``key`` it is safe to send it again, which is done after a lost connection."""
        headers = {"Idempotency-Key": key} if key else {}
        return await self._request("POST", path, headers, repeats=bool(key), content=msgspec.json.encode(body))

    async def _request(
        self, method: str, path: str, headers: dict[str, str], *, repeats: bool = True, **body: Any
    ) -> Any:
        delays, attempts = _Delays(), MAX_ATTEMPTS if repeats else 1
        while True:
            try:
                answer = await self._http.request(method, path, headers=headers, **body)
            except httpx2.TransportError as error:
                attempts -= 1
                if not attempts or isinstance(error, httpx2.ConnectError):
                    problem = str(error) or type(error).__name__
                    hint = "does `vaka serve` run there?"
                    raise Unavailable(f"the server {self.url} cannot be reached: {problem}; {hint}") from error
                await delays.wait()
            else:
                if not answer.is_success:
                    raise problem_of(answer.status_code, answer.content)
                return self._read_document(answer.content) if answer.content else None

    def _read_document(self, content: bytes) -> Any:
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"{self.url} does not answer as a server of vaka does: {error}") from error

    async def follow(self, path: str, *, after: str = "", ends: bool = True) -> AsyncGenerator[Event]:
        """Yield the events of a stream after a cursor; a lost connection is made again at the last event.

        With ``ends`` the stream has an end of its own, otherwise the server only closes it to be connected again.
        """
        cursor, delays = after, _Delays()
        while True:
            try:
                async with self._open_stream(path, cursor) as response:
                    async for event in _read_events(response):
                        delays.reset()
                        if isinstance(event.data, StreamEnd):
                            if ends:
                                return
                            break
                        cursor = event.id if event.seq else cursor
                        yield event
                problem = "the server has closed the connection"
            except (httpx2.TransportError, StreamCut, Unavailable) as error:
                problem = str(error) or type(error).__name__
            if delays.seconds:
                self.on_lost(f"connecting to {self.url} again: {problem}")
            await delays.wait()

    @asynccontextmanager
    async def _open_stream(self, path: str, cursor: str) -> AsyncGenerator[httpx2.Response]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": cursor} if cursor else {})
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if not response.is_success:
                raise problem_of(response.status_code, await response.aread())
            yield response


class _Delays:
    """The time before each further attempt: none, then longer and longer."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def reset(self) -> None:
        self.seconds = 0.0

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)
        self.seconds = min(max(self.seconds * 2, FIRST_DELAY), LAST_DELAY)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _read_events(response: httpx2.Response) -> AsyncGenerator[Event]:
    parser = SSEParser(_ENDLESS)
    async for piece in response.aiter_bytes():
        for frame in parser.feed(piece):
            yield decode(frame.data)


def problem_of(status: int, body: bytes) -> VakaError:
    """Return the error that a response describes (RFC 9457), with the exit code that a local one has."""
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        document = {}
    detail = str(document.get("detail") or f"the server answers with status {status}")
    match status:
        case 401:
            return AuthenticationFailed(f"{detail}; give a key of the server as VAKA_API_KEY or with --api-key-file")
        case 403:
            return AuthenticationFailed(detail)
        case 404:
            return NotFound(detail)
        case 409:
            return NotFound(detail) if document.get("code") == "already_decided" else Busy(detail)
        case 429 | 502 | 503 | 504:
            return Unavailable(detail)
        case _:
            return InvalidInput(detail) if status < 500 else VakaError(detail)


def address_of(session: str, *rest: str) -> str:
    """Return the path of a session, or of a part of it."""
    return "/".join(["/sessions", *(quote(part, safe="") for part in (session, *rest))])
