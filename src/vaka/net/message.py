"""What is sent: a request as bytes, and the request that follows a redirect. Pure."""

import re

import msgspec

from vaka.core.ports.net import Headers, NetHead, NetRequest
from vaka.core.types.errors import InvalidInput, NetworkError
from vaka.net.unpack import ACCEPTED
from vaka.net.url import Target

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_FORBIDDEN_METHODS = frozenset(("CONNECT", "TRACE", "TRACK"))
# Whoever sets these decides where a message ends or whom it is for; that is the connector's to say.
_OURS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect")
)
_SECRET = re.compile(r"cookie|auth|token|secret|api-?key|password|credential|signature", re.IGNORECASE)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


def check(request: NetRequest) -> None:
    """Raise ``InvalidInput`` when a request could not be sent as it is."""
    if not _METHOD.fullmatch(request.method) or request.method in _FORBIDDEN_METHODS:
        raise InvalidInput(f"{request.method!r} is not a method to send; expected one such as 'GET' or 'POST'")
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            raise InvalidInput(f"{name!r} is not the name of a header")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise InvalidInput(f"the header {name!r} is set by the connector and cannot be given")
        if not _VALUE.fullmatch(value):
            raise InvalidInput(f"the value of the header {name!r} contains characters that cannot be sent")
    for field, smallest in (("timeout", 0.001), ("max_bytes", 0), ("redirects", 0)):
        value = getattr(request, field)
        if not value >= smallest:
            raise InvalidInput(f"{field} is {value!r}; expected at least {smallest}")


def fields(request: NetRequest, target: Target, agent: str) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a request, as sent."""
    given = {name.lower() for name, _ in request.headers}
    defaults = (("Accept", "*/*"), ("Accept-Encoding", ACCEPTED), ("User-Agent", agent))
    sent = [("Host", target.authority), *request.headers]
    sent += [(name, value) for name, value in defaults if name.lower() not in given]
    if request.body or request.method in _WITH_BODY:
        sent.append(("Content-Length", str(len(request.body))))
    return [(name.encode("ascii"), value.strip(" \t").encode("latin-1")) for name, value in sent]


def location(head: NetHead) -> str | None:
    """Return where an answer sends us on to, ``None`` when it does not."""
    found = set(head.header_values("location")) if head.status in _REDIRECTS else set[str]()
    if len(found) > 1:
        raise NetworkError(f"the redirect names {len(found)} places to go to", reason="protocol")
    return _text(found.pop()) if found else None


def redirected(request: NetRequest, status: int, source: Target, target: Target) -> NetRequest:
    """Return the request to send after a redirect: as browsers do it, and without secrets for a stranger."""
    headers = request.headers
    if source.origin != target.origin:
        headers = _without(headers, _SECRET)
    request = msgspec.structs.replace(request, url=target.url, headers=headers, redirects=request.redirects - 1)
    to_get = request.method == "POST" if status in (301, 302) else status == 303 and request.method != "HEAD"
    if not to_get:
        return request
    headers = _without(headers, re.compile(r"content-", re.IGNORECASE))
    return msgspec.structs.replace(request, method="GET", body=b"", headers=headers)


def _text(value: str) -> str:
    # Headers are read as Latin-1; servers that do not encode an address mean UTF-8.
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value


def _without(headers: Headers, names: re.Pattern[str]) -> Headers:
    return tuple(field for field in headers if not names.search(field[0]))
