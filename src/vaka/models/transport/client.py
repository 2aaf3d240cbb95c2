"""Models behind HTTP: send a request to a provider and decode its answer; errors are redacted ModelErrors."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec

from vaka.core.ports.model import Chunk, Prompt
from vaka.core.types.errors import BadRequest, ModelError, ModelUnavailable, StreamCut
from vaka.models.compatibility import HistoryAdapter, Media
from vaka.models.prefixes import Comparison
from vaka.models.request_items import encode_body
from vaka.models.transport import errors, sse
from vaka.models.transport.pool import BodyReader, ConnectionPool

MAX_ERROR_BODY = 1024 * 1024
"""Bytes that are read of an answer that is not a stream."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes of an answer that is read at once, at most."""
USER_AGENT = "vaka"
FRAMING_HEADERS = frozenset({"content-length", "transfer-encoding"})
"""Headers that delimit a request: a caller who sets them could smuggle a second request."""

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_URL_USERINFO = re.compile(r"//[^/]*@")
_FORBIDDEN_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Line breaks and control characters."""
_MIN_SECRET = 6
"""A shorter value could be part of an ordinary word."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a provider and the key for it. ``repr`` hides the key."""

    base_url: str
    key: str = ""
    headers: Mapping[str, str] = {}
    """Headers of every request, for example for a gateway."""
    query: Mapping[str, str] = {}
    limits: sse.StreamLimits = sse.StreamLimits()

    def __repr__(self) -> str:
        return f"Account(base_url={_URL_USERINFO.sub('//***@', self.base_url)!r}, key={'…' if self.key else ''!r})"


class ProviderClient:
    """One account at one provider."""

    def __init__(self, account: Account, headers: Mapping[str, str], http: ConnectionPool | None = None) -> None:
        self._account, self._owns_http = account, http is None
        self.http = http or ConnectionPool()
        self._base_url = account.base_url.rstrip("/") + "/"
        self._is_local = _is_loopback(self._base_url)
        self._headers = {"content-type": "application/json", "user-agent": USER_AGENT, **headers, **account.headers}

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        if self._owns_http:
            await self.http.close()

    @contextmanager
    def redact_errors(self, headers: Mapping[str, str]) -> Generator[None]:
        """Redact keys, also keys in the ``headers`` of a request, in errors raised within the block."""
        try:
            yield
        except ModelError as error:
            self._redact_error(error, {**self._headers, **headers})
            raise

    @asynccontextmanager
    async def open_events(
        self, path: str, body: dict[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncGenerator[sse.ServerSentEvent]]:
        """Send ``body`` and return the events of the answer. Within the context it raises only ``ModelError``.

        The caller checks whether the last event ends an answer.
        """
        response = await self._send(path, body, {"accept": "text/event-stream", **(headers or {})})
        source = BodyReader(response)
        complete = False
        try:
            if response.status_code != 200:
                raise await self._error_of_response(response, source)
            head = await self._read_first_bytes(source)
            if head.removeprefix(sse.BOM).lstrip().startswith((b"{", b"[")):  # JSON, despite its content type
                raise await self._error_of_non_stream(response, head, source)
            items = sse.read_events(source, first=head, limits=self._account.limits, strict=True)
            async with aclosing(items):
                yield items
            complete = True
        except httpx2.DecodingError as error:
            raise StreamCut(f"the answer of {self._host} could not be unpacked: {self._redact(str(error))}") from error
        except httpx2.TransportError as error:
            raise StreamCut(f"the connection to {self._host} broke: {self._describe(error)}") from error
        finally:
            if complete and not source.at_end:
                self.http.release(source)
            else:
                await source.close()

    async def post(self, path: str, body: dict[str, Any], *, headers: Mapping[str, str] | None = None) -> bytes:
        """Send ``body`` and return the body of the answer. Raises only ``ModelError``."""
        response = await self._send(path, body, {"accept": "application/json", **(headers or {})})
        source = BodyReader(response)
        try:
            if response.status_code != 200:
                raise await self._error_of_response(response, source)
            return await self._read_limited(source, MAX_BODY, strict=True)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise StreamCut(f"the connection to {self._host} broke: {self._describe(error)}") from error
        finally:
            await source.close()

    async def _send(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        try:
            _check_headers({**self._headers, **headers})
            client = self.http.client_for(local=self._is_local)
            request = client.build_request(
                "POST",
                self._base_url + path,
                content=encode_body(body),
                headers={**self._headers, **headers},
                params=dict(self._account.query) or None,  # an empty mapping would remove the query of the path
            )
            if (request.url.port or 1) > 65535:
                raise ValueError(f"there is no port {request.url.port}")
        except (httpx2.InvalidURL, UnicodeEncodeError, ValueError, TypeError, RecursionError) as error:
            raise BadRequest(f"the request to {self._host} cannot be written: {self._redact(str(error))}") from error
        except ImportError as error:
            reason = "the environment names a SOCKS proxy, for which the package 'socksio' must be installed"
            raise BadRequest(f"{self._host} cannot be asked: {reason}") from error
        except OSError as error:
            reason = "the proxy or the SSL_CERT_FILE of the environment cannot be used"
            raise BadRequest(f"{self._host} cannot be asked: {reason}: {self._describe(error)}") from error
        try:
            async with asyncio.timeout(self._account.limits.idle_seconds):
                return await client.send(request, stream=True)
        except TimeoutError:
            silence = f"{self._account.limits.idle_seconds:g} seconds"
            raise ModelUnavailable(f"{self._host} sent nothing for {silence}") from None
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            raise BadRequest(f"{self._host} cannot be asked like this: {self._describe(error)}") from error
        except httpx2.TransportError as error:
            raise ModelUnavailable(f"cannot reach {self._host}: {self._describe(error)}") from error

    async def _error_of_response(self, response: httpx2.Response, source: BodyReader) -> ModelError:
        body = await self._read_limited(source, MAX_ERROR_BODY)
        error = errors.error_from_response(response.status_code, response.headers, body)
        return self._redact_error(error, response.request.headers)

    async def _read_first_bytes(self, source: AsyncIterator[bytes]) -> bytes:
        """Return the first bytes of a body; none if it is empty."""
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
        report = errors.parse_error_body(body)
        if report.message and (report.kinds or b'"error"' in body[:200]):
            return self._redact_error(errors.to_model_error(report), response.request.headers)
        return StreamCut(f"expected an event stream, got {sse.describe_body(body)}")

    async def _read_limited(self, source: AsyncIterator[bytes], limit: int, *, strict: bool = False) -> bytes:
        """Return a body up to ``limit`` bytes; with ``strict`` a stalled, broken or longer one is an error."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._account.limits.idle_seconds):
                async for chunk in source:
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

    def _describe(self, error: Exception) -> str:
        return self._redact(str(error) or type(error).__name__)

    def _redact_error(self, error: ModelError, headers: Mapping[str, str]) -> ModelError:
        """Redact the secrets of a request: a provider may repeat them in its error."""
        values = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
        values += [value.rpartition(" ")[2] for value in values]  # the token after "Bearer"
        values.append(unquote(urlsplit(self._base_url).password or ""))
        secrets = sorted({value for value in values if len(value) >= _MIN_SECRET}, key=len, reverse=True)
        error.args = tuple(self._redact(str(argument), *secrets) for argument in error.args)
        return error


class StreamDecoder(Protocol):
    """Events of one answer go in, chunks come out; ``done`` after the event that ends an answer."""

    done: bool

    def feed(self, data: bytes, name: str = ...) -> Iterable[Chunk]: ...
    def end(self) -> Iterable[Chunk]: ...


class HttpRequestParts(NamedTuple):
    """The body and headers to send, and the decoder of the answer."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    decoder: StreamDecoder


class ProviderModel:
    """A model behind HTTP. A subclass writes the request for a prompt."""

    def __init__(
        self,
        name: str,
        account: Account,
        path: str,
        *,
        headers: Mapping[str, str],
        http: ConnectionPool | None,
        check_part: Callable[[Media], object],
    ) -> None:
        self.name = name
        self._path = path
        self._comparison = Comparison()
        self._history = HistoryAdapter(name, account.base_url, check_part, self._comparison)
        self._client = ProviderClient(account, headers, http)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        raise NotImplementedError

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError``: ``BadRequest`` before anything is sent for an invalid prompt."""
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        body, headers, decoder = self._write_request(prompt)
        self._comparison.clear()
        with self._client.redact_errors(headers):
            async with self._client.open_events(self._path, body, headers=headers) as events:
                async for event in events:
                    for chunk in decoder.feed(event.data, event.event):
                        yield self._history.tag_origin(chunk)
                    if decoder.done:
                        return
            for chunk in decoder.end():
                yield self._history.tag_origin(chunk)

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._client.close()


async def _prepend(first: bytes, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for chunk in source:
        yield chunk


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for headers that cannot be sent, without their values, which may be keys."""
    if FRAMING_HEADERS & {name.lower() for name in headers}:
        raise ValueError(f"the headers {' and '.join(sorted(FRAMING_HEADERS))} cannot be set")
    invalid = next((name for name, value in headers.items() if _FORBIDDEN_IN_HEADER.search(value)), None)
    if invalid is not None:
        raise ValueError(f"the header {invalid!r} has an invalid character, such as a line break")


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
