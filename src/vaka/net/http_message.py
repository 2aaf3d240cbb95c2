"""HTTP messages without I/O: header fields of a request, the request after a redirect, decompression of a body."""

import re
import zlib
from collections.abc import Iterator
from typing import Protocol

import msgspec

from vaka.core.ports.net import Headers, NetHead, NetRequest
from vaka.core.types.errors import InvalidInput, NetworkError
from vaka.net.url import ParsedURL

ACCEPT_ENCODING = "gzip, deflate"
"""The codings that can be decompressed."""

_CHUNK_BYTES = 64 * 1024


class _ZlibStream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Decompressor:
    """Undoes the coding of a body: none, gzip with any number of members, deflate with or without the zlib header."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._stream: _ZlibStream | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for ``data``, in chunks of limited size."""
        if not self.coding:
            yield data
            return
        more = False
        while data or more:
            stream = self._stream_for(data)
            try:
                chunk = stream.decompress(data, _CHUNK_BYTES)
            except zlib.error as error:
                raise NetworkError(f"the body is not valid {self.coding}: {error}", reason="encoding") from error
            # After a full chunk there may be more output although all input is consumed.
            more = len(chunk) == _CHUNK_BYTES and not stream.eof
            data = stream.unused_data if stream.eof else stream.unconsumed_tail
            if chunk:
                yield chunk

    def finish(self) -> None:
        """Raise ``NetworkError`` unless the body is complete; a body without a coding ends where the transport says."""
        if self._stream is not None and not self._stream.eof:
            raise NetworkError(f"the {self.coding} body ends too early", reason="cut")

    def _stream_for(self, data: bytes) -> "_ZlibStream":
        if self._stream is None or (self._stream.eof and self.coding == "gzip"):
            self._stream = zlib.decompressobj(self._window_bits(data))
        elif self._stream.eof:
            raise NetworkError(f"the {self.coding} body goes on after its end", reason="encoding")
        return self._stream

    def _window_bits(self, data: bytes) -> int:
        if self.coding == "gzip":
            return 16 + zlib.MAX_WBITS
        # Many servers send deflate without the zlib header. The first byte of that header names method 8.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


def make_decompressor(codings: tuple[str, ...]) -> Decompressor:
    """Return the decompressor for the ``Content-Encoding`` headers of a response; at most one coding is supported."""
    names = [name.strip().lower() for coding in codings for name in coding.split(",")]
    applied = [name.removeprefix("x-") for name in names if name not in ("", "identity")]
    if not applied:
        return Decompressor("")
    if len(applied) > 1 or applied[0] not in ("gzip", "deflate"):
        raise NetworkError(f"the body is packed as {', '.join(names)!r}; expected {ACCEPT_ENCODING}", reason="encoding")
    return Decompressor(applied[0])


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")

_FORBIDDEN_METHODS = frozenset(("CONNECT", "TRACE", "TRACK"))

# These headers decide where a message ends and which host gets it; only the connector sets them.
_CONNECTOR_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect")
)

_SECRET_HEADER = re.compile(r"cookie|auth|token|secret|api-?key|password|credential|signature", re.IGNORECASE)

_REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))

_METHODS_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


def check_request(request: NetRequest) -> None:
    """Raise ``InvalidInput`` for a request that cannot be sent as it is."""
    if not _METHOD.fullmatch(request.method) or request.method in _FORBIDDEN_METHODS:
        raise InvalidInput(f"{request.method!r} is not a method to send; expected one such as 'GET' or 'POST'")
    for name, value in request.headers:
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidInput(f"{name!r} is not the name of a header")
        if name.lower() in _CONNECTOR_HEADERS or name.lower().startswith("proxy-"):
            raise InvalidInput(f"the header {name!r} is set by the connector and cannot be given")
        if not _HEADER_VALUE.fullmatch(value):
            raise InvalidInput(f"the value of the header {name!r} contains characters that cannot be sent")
    for field, smallest in (("timeout", 0.001), ("max_bytes", 0), ("redirects", 0)):
        value = getattr(request, field)
        if not value >= smallest:
            raise InvalidInput(f"{field} is {value!r}; expected at least {smallest}")


def header_fields_of(request: NetRequest, target: ParsedURL, user_agent: str) -> list[tuple[bytes, bytes]]:
    present = {name.lower() for name, _ in request.headers}
    defaults = (("Accept", "*/*"), ("Accept-Encoding", ACCEPT_ENCODING), ("User-Agent", user_agent))
    sent = [("Host", target.authority), *request.headers]
    sent += [(name, value) for name, value in defaults if name.lower() not in present]
    if request.body or request.method in _METHODS_WITH_BODY:
        sent.append(("Content-Length", str(len(request.body))))
    return [(name.encode("ascii"), value.strip(" \t").encode("latin-1")) for name, value in sent]


def redirect_location_of(head: NetHead) -> str | None:
    """Return the location of a redirect, ``None`` for any other response."""
    locations = set(head.header_values("location")) if head.status in _REDIRECT_STATUSES else set[str]()
    if len(locations) > 1:
        raise NetworkError(f"the redirect names {len(locations)} locations", reason="protocol")
    return _decode_location(locations.pop()) if locations else None


def build_redirected_request(request: NetRequest, status: int, source: ParsedURL, target: ParsedURL) -> NetRequest:
    """Return the request to send after a redirect, as browsers do; another origin gets no secret headers."""
    headers = request.headers
    if source.origin != target.origin:
        headers = _drop_headers(headers, _SECRET_HEADER)
    request = msgspec.structs.replace(request, url=target.url, headers=headers, redirects=request.redirects - 1)
    to_get = request.method == "POST" if status in (301, 302) else status == 303 and request.method != "HEAD"
    if not to_get:
        return request
    headers = _drop_headers(headers, re.compile(r"content-", re.IGNORECASE))
    return msgspec.structs.replace(request, method="GET", body=b"", headers=headers)


def _decode_location(value: str) -> str:
    # Headers are decoded as Latin-1; servers that do not percent-encode a location send UTF-8.
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value


def _drop_headers(headers: Headers, names: re.Pattern[str]) -> Headers:
    return tuple(field for field in headers if not names.search(field[0]))
