"""Send a request to a provider and read its event stream or body; every failure is a ModelError with secrets redacted."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

import httpx2
import msgspec

from vaka.core.types.errors import BadRequest, ModelError, ModelUnavailable, StreamCut
from vaka.models.transport import errors, sse
from vaka.models.transport.http1 import Http1Transport

MAX_ERROR_BODY = 1024 * 1024
"""Bytes that are read of an answer that is no stream."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes that an answer may have that comes in one piece."""
CONNECT_SECONDS = 15.0
USER_AGENT = "vaka"
FRAMING_HEADERS = frozenset({"content-length", "transfer-encoding"})
"""Headers that say where a request ends: who could set them could hide a second one in it."""

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_URL_USERINFO = re.compile(r"//[^/]*@")
_FORBIDDEN_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What ends a header, or what nobody writes into one."""
_MIN_SECRET = 6
"""A shorter value would be found in ordinary words."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is and who asks. Its key is never shown."""

    base_url: str
    key: str = ""
    headers: Mapping[str, str] = {}
    """Sent with every request, such as those of a gateway."""
    query: Mapping[str, str] = {}
    limits: sse.StreamLimits = sse.StreamLimits()

    def __repr__(self) -> str:
        return f"Account(base_url={_URL_USERINFO.sub('//***@', self.base_url)!r}, key={'…' if self.key else ''!r})"


class ConnectionPool:
    """Connections, shared by models; made when the first of them asks, anew for another event loop."""

    def __init__(self, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self._clients: dict[bool, httpx2.AsyncClient] = {}
        """For what is elsewhere, and for what is on this machine where the environment has a proxy for the others."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def client(self) -> httpx2.AsyncClient:
        """The client of the running loop."""
        return self.client_for(local=False)

    def client_for(self, *, local: bool) -> httpx2.AsyncClient:
        """The client of the running loop; a server that is ``here``, on this machine, is asked without a proxy."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._clients, self._loop = {}, loop
        if local not in self._clients:
            proxied = self._transport is None and bool(getproxies())
            if local and not proxied:
                return self.client_for(local=False)
            self._clients[local] = httpx2.AsyncClient(
                transport=self._transport or (None if proxied and not local else Http1Transport()),
                follow_redirects=False,
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0),
            )
        return self._clients[local]

    async def close(self) -> None:
        """Close the connections; the next request makes new ones."""
        clients, self._clients = self._clients, {}
        if self._loop is asyncio.get_running_loop():
            for client in clients.values():
                await client.aclose()


class ProviderClient:
    """One account at one provider."""

    def __init__(self, account: Account, headers: Mapping[str, str], http: ConnectionPool | None = None) -> None:
        self._account, self._owns_http = account, http is None
        self.http = http or ConnectionPool()
        self._base_url = account.base_url.rstrip("/") + "/"
        self._is_local = _is_loopback(self._base_url)
        self._headers = {"content-type": "application/json", "user-agent": USER_AGENT, **headers, **account.headers}

    async def close(self) -> None:
        """Close the connections, unless they are somebody else's."""
        if self._owns_http:
            await self.http.close()

    @contextmanager
    def redact_errors(self, headers: Mapping[str, str]) -> Generator[None]:
        """Keep keys out of the errors of whoever reads an answer, of a request that had these ``headers`` too."""
        try:
            yield
        except ModelError as error:
            self._redact_error(error, {**self._headers, **headers})
            raise

    async def stream_events(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[sse.ServerSentEvent]:
        """Send ``body`` and yield the events of the answer. Raises ``ModelError`` and nothing else.

        Whether the last event was the one that ends an answer is for the caller to see.
        """
        response = await self._send(path, body, {"accept": "text/event-stream", **(headers or {})})
        try:
            if response.status_code != 200:
                raise await self._error_of_response(response)
            async with _open_body(response) as source:
                head = await self._read_first_bytes(source)
                if head.removeprefix(sse.BOM).lstrip().startswith((b"{", b"[")):  # whatever the headers say it is
                    raise await self._error_of_non_stream(response, head, source)
                chunks = _prepend(head, source)
                async with aclosing(sse.read_events(chunks, limits=self._account.limits, strict=True)) as items:
                    async for item in items:
                        yield item
        except httpx2.DecodingError as error:
            raise StreamCut(f"the answer of {self._host} could not be unpacked: {self._redact(str(error))}") from error
        except httpx2.TransportError as error:
            raise StreamCut(
                f"the connection to {self._host} broke: {self._redact(_describe_exception(error))}"
            ) from error
        finally:
            with suppress(httpx2.TransportError):
                await response.aclose()

    async def post(self, path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> bytes:
        """Send ``body`` and return the answer in one piece. Raises ``ModelError`` and nothing else."""
        response = await self._send(path, body, {"accept": "application/json", **(headers or {})})
        try:
            if response.status_code != 200:
                raise await self._error_of_response(response)
            return await self._read_body(response, MAX_BODY, strict=True)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise StreamCut(
                f"the connection to {self._host} broke: {self._redact(_describe_exception(error))}"
            ) from error
        finally:
            with suppress(httpx2.TransportError):
                await response.aclose()

    async def _send(self, path: str, body: Any, headers: Mapping[str, str]) -> httpx2.Response:
        try:
            _check_headers({**self._headers, **headers})
            client = self.http.client_for(local=self._is_local)
            request = client.build_request(
                "POST", self._base_url + path, content=msgspec.json.encode(body), headers={**self._headers, **headers},
                params=dict(self._account.query) or None, # an empty query would take away that of the path
            )  # fmt: skip
            if (request.url.port or 1) > 65535:
                raise ValueError(f"there is no port {request.url.port}")  # told as the others are
        except (httpx2.InvalidURL, UnicodeEncodeError, ValueError, TypeError, RecursionError) as error:
            raise BadRequest(f"the request to {self._host} cannot be written: {self._redact(str(error))}") from error
        except ImportError as error:
            why = "the environment names a SOCKS proxy, for which the package 'socksio' must be installed"
            raise BadRequest(f"{self._host} cannot be asked: {why}") from error
        except OSError as error:
            names = "the proxy or the SSL_CERT_FILE of the environment cannot be used"
            raise BadRequest(
                f"{self._host} cannot be asked: {names}: {self._redact(_describe_exception(error))}"
            ) from error
        try:
            async with asyncio.timeout(self._account.limits.idle_seconds):
                return await client.send(request, stream=True)
        except TimeoutError:
            silence = f"{self._account.limits.idle_seconds:g} seconds"
            raise ModelUnavailable(f"{self._host} sent nothing for {silence}") from None
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            raise BadRequest(
                f"{self._host} cannot be asked like this: {self._redact(_describe_exception(error))}"
            ) from error
        except httpx2.TransportError as error:
            raise ModelUnavailable(f"cannot reach {self._host}: {self._redact(_describe_exception(error))}") from error

    async def _error_of_response(self, response: httpx2.Response) -> ModelError:
        body = await self._read_body(response, MAX_ERROR_BODY)
        error = errors.error_from_response(response.status_code, response.headers, body)
        return self._redact_error(error, response.request.headers)

    async def _read_first_bytes(self, source: AsyncIterator[bytes]) -> bytes:
        """Return the first bytes that come; none at all when nothing does."""
        seconds = self._account.limits.idle_seconds
        try:
            async with asyncio.timeout(seconds):
                async for chunk in source:
                    if chunk:
                        return chunk
        except TimeoutError:
            raise StreamCut(f"the model sent nothing for {seconds:g} seconds") from None
        return b""

    async def _error_of_non_stream(
        self, response: httpx2.Response, first: bytes, rest: AsyncIterator[bytes]
    ) -> ModelError:
        body = await self._read_limited(_prepend(first, rest), MAX_ERROR_BODY)
        said = errors.parse_error_body(body)
        if said.message and (said.kinds or b'"error"' in body[:200]):
            return self._redact_error(errors.to_model_error(said), response.request.headers)
        return StreamCut(f"expected an event stream, got {sse.describe_body(body)}")

    async def _read_body(self, response: httpx2.Response, limit: int, *, strict: bool = False) -> bytes:
        """Return the body up to ``most`` bytes; of one that stalls or breaks, what came."""
        return await self._read_limited(response.aiter_bytes(), limit, strict=strict)

    async def _read_limited(self, source: AsyncGenerator[bytes], limit: int, *, strict: bool = False) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._account.limits.idle_seconds), aclosing(source) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > limit:
                        break
        except TimeoutError:
            if strict:
                raise ModelUnavailable(f"{self._host} did not finish its answer in time") from None
        except (httpx2.TransportError, httpx2.DecodingError):
            if strict:
                raise
        if strict and len(body) > limit:
            raise StreamCut(f"the answer of {self._host} is larger than the {limit} bytes it may have")
        return bytes(body[:limit])

    @property
    def _host(self) -> str:
        try:
            return httpx2.URL(self._base_url).host or self._base_url
        except httpx2.InvalidURL:
            return repr(self._base_url)

    def _redact(self, text: str, *secrets: str) -> str:
        for secret in filter(None, (self._account.key, *secrets)):
            text = text.replace(secret, "[redacted]")
        return sse.redact_secrets(text)

    def _redact_error(self, error: ModelError, sent: Mapping[str, str]) -> ModelError:
        """A provider may repeat what it was given."""
        given = [value for name, value in sent.items() if _SECRET_HEADER.search(name)]
        given += [value.rpartition(" ")[2] for value in given]  # of a token, what comes after Bearer
        given.append(unquote(urlsplit(self._base_url).password or ""))
        known = sorted({secret for secret in given if len(secret) >= _MIN_SECRET}, key=len, reverse=True)
        error.args = tuple(self._redact(str(word), *known) for word in error.args)
        return error


@asynccontextmanager
async def _open_body(response: httpx2.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The body as it arrives; nothing is unpacked that was not packed."""
    packed = response.headers.get("content-encoding", "identity") != "identity"
    source = (response.aiter_bytes() if packed else cast("AsyncIterator[bytes]", response.stream)).__aiter__()
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


async def _prepend(first: bytes, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for chunk in source:
        yield chunk


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for headers that cannot be sent; their values, which may be keys, are not told."""
    if FRAMING_HEADERS & {name.lower() for name in headers}:
        raise ValueError(f"the headers {' and '.join(sorted(FRAMING_HEADERS))} are not anyone's to set")
    wrong = next((name for name, value in headers.items() if _FORBIDDEN_IN_HEADER.search(value)), None)
    if wrong is not None:
        raise ValueError(f"the header {wrong!r} holds a character that none can have, such as a line break")


def _is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _describe_exception(error: Exception) -> str:
    return str(error) or type(error).__name__
