"""``Guard``: the one way into every route. It authenticates the caller, checks scopes and limits, and shapes errors."""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vaka.core.types.errors import VakaError
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, problem_before_login, problem_of, problem_response
from vaka.server.settings import ServerSettings

ErrorShape: TypeAlias = Callable[[Problem, str], ASGIApp]
"""Makes the response for a problem and a request id, in the form that the clients of a protocol read."""
Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]

_log = logging.getLogger("vaka.server")

COOKIE = "vaka_console"
CONSOLE_HEADER = "x-vaka-console"
PRINCIPAL_KEY, REQUEST_ID_KEY = "vaka.principal", "vaka.request_id"
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/]+))(?::[0-9]{1,5})?", re.ASCII)
"""An address of IPv6 in brackets, or another name, and a port."""
_PORT = re.compile(r":[0-9]+\Z", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a request."""

    token: str = ""
    kind: str = "none"
    """``bearer``, ``cookie``, ``ticket`` or ``none``. An API key in ``x-api-key`` is a ``bearer``, too."""
    origin: str = ""
    address: str = ""
    """The address of the client."""
    changes: bool = False
    """Whether the request may change something; a cookie then counts only with the header of the console."""
    console_header: bool = False


class Authenticator(Protocol):
    """Finds the principal of a request."""

    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the caller. Raises a ``Problem`` with status 401, or 429 after too many failures."""
        ...

    async def is_valid(self, principal: Principal) -> bool:
        """Return whether the credential of a caller still works, for streams that outlast a request."""
        ...


class Limiter(Protocol):
    """Counts the requests of callers."""

    def count_request(self, principal: Principal) -> Mapping[str, str]:
        """Count one request and return the headers that describe the limit. Raises a ``Problem`` with status 429."""
        ...


def principal_of(connection: HTTPConnection) -> Principal:
    """Return the caller of a request that has passed the guard."""
    principal: Principal = connection.scope[PRINCIPAL_KEY]
    return principal


def require_scope(principal: Principal, scope: str, action: str = "this") -> None:
    """Raise a ``Problem`` (403) for a caller without a scope; ``action`` says what needs it."""
    if not principal.may(scope):
        hint = f"`vaka keys create --scope {scope}` makes a key with it"
        detail = f"{action} needs the scope {scope}, which the credential does not have; {hint}"
        raise Problem(403, "forbidden", detail)


def request_id_of(connection: HTTPConnection) -> str:
    """Return the id of a request: its own ``X-Request-Id``, or a new one."""
    known: str | None = connection.scope.get(REQUEST_ID_KEY)
    if known is None:
        given = connection.headers.get("x-request-id", "")
        known = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        connection.scope[REQUEST_ID_KEY] = known
    return known


def cookie_name(connection: HTTPConnection) -> str:
    """Return the name of the console's cookie. It has the port: a browser sends a cookie to all ports of a host."""
    host = connection.headers.get("host", "")
    port = host.rpartition(":")[2] if not host.endswith("]") else ""
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _host_name_of(host: str) -> str:
    """Return the name in a ``Host`` header, without the port; a header that is not valid is returned as it is."""
    host = host.strip().lower()
    match = _HOST.fullmatch(host)
    return match[1] or match[2] if match is not None else host


def read_credentials(connection: HTTPConnection, *, changes: bool, tickets: bool = False) -> Credentials:
    """Return what a request shows to prove its caller; a ticket in the address counts only where ``tickets`` says."""
    headers, client = connection.headers, connection.client
    scheme, _, token = headers.get("authorization", "").partition(" ")
    kind, token = ("bearer", token.strip()) if scheme.lower() == "bearer" else ("bearer", headers.get("x-api-key", ""))
    if not token and tickets:
        kind, token = "ticket", connection.query_params.get("ticket", "")
    if not token and "cookie" in headers:
        kind, token = "cookie", connection.cookies.get(cookie_name(connection), "")
    return Credentials(
        token=token,
        kind=kind if token else "none",
        origin=headers.get("origin", ""),
        address=client.host if client is not None else "",
        changes=changes,
        console_header=headers.get(CONSOLE_HEADER) == "1",
    )


class Guard:
    """Admits the callers of one server."""

    def __init__(self, settings: ServerSettings, authenticator: Authenticator, limiter: Limiter) -> None:
        self.settings = settings
        self.authenticator = authenticator
        self.limiter = limiter
        public = urlsplit(settings.public_url.lower())
        self._hosts = frozenset([*settings.hosts, *([public.hostname] if public.hostname else [])])
        self._public_origin = f"{public.scheme}://{public.netloc}" if public.netloc else ""

    def is_https(self, connection: HTTPConnection) -> bool:
        """Return whether the browser has used https: to this process, or to a proxy at the public address."""
        scheme, _, public = self._public_origin.partition("://")
        host = connection.headers.get("host", "").lower()
        at_proxy = host in (public, _PORT.sub("", public))  # some proxies leave the port out
        return connection.url.scheme == "https" or (scheme == "https" and at_proxy)

    def check_host(self, connection: HTTPConnection) -> None:
        """Refuse a name that is not this server's: a page of another site may have been bound to its address."""
        given = connection.headers.getlist("host")
        if len(given) > 1:  # a proxy may have read another one
            raise Problem(400, "bad_host", "a request has one Host header")
        host = _host_name_of(given[0]) if given else ""
        if not {"*", host} & self._hosts:
            hint = "start it with --allow-hostname, or add the name to hosts of [server]"
            raise Problem(421, "bad_host", f"this server does not answer for host {host[:200]!r}; {hint}")

    def check_origin(self, connection: HTTPConnection) -> None:
        """Refuse a page of an origin that is neither the server's own nor an allowed one."""
        origin = connection.headers.get("origin")
        if origin is None or origin in self.settings.origins or "*" in self.settings.origins:
            return
        host = connection.headers.get("host", "").lower()
        if origin.lower() not in (f"http://{host}", f"https://{host}", self._public_origin):
            hint = "start it with --origin, or add the address to origins of [server]"
            raise Problem(403, "bad_origin", f"origin {origin[:200]!r} may not call this server; {hint}")

    async def admit(self, connection: HTTPConnection, scope: str, *, changes: bool) -> Mapping[str, str]:
        """Admit a request with a scope: set its principal and return headers for the response. Raises ``Problem``."""
        principal = await self.authenticator.authenticate(read_credentials(connection, changes=changes))
        connection.scope[PRINCIPAL_KEY] = principal
        headers = self.limiter.count_request(principal)
        require_scope(principal, scope)
        return headers


class GuardedApp:
    """An ASGI application behind the guard. ``scopes`` has the scope that each method needs; others are 405."""

    def __init__(self, guard: Guard, app: ASGIApp, scopes: Mapping[str, str], errors: ErrorShape) -> None:
        self._guard = guard
        self._app = app
        self.scopes = dict(scopes)
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        request_id = request_id_of(connection)
        extra = {"x-request-id": request_id}
        started: Message | None = None

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = message = _replace_headers(message, extra)
            await send(message)

        try:
            method: str = scope["method"]
            needed = self.scopes.get("GET" if method == "HEAD" else method)
            if needed is None:
                allow = {"Allow": ", ".join(self.scopes)}
                raise Problem(
                    405, "method_not_allowed", f"{method} is not possible here, only {allow['Allow']}", headers=allow
                )
            extra |= await self._guard.admit(connection, needed, changes=method not in ("GET", "HEAD"))
            await self._app(scope, receive, send_with_headers)
        except (Problem, VakaError) as error:
            if started is not None:
                raise
            find_problem = problem_of if PRINCIPAL_KEY in scope else problem_before_login
            await self._errors(find_problem(error), request_id)(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the server stops, and the request has had its time
            if started is None:
                problem = Problem(503, "draining", "the server is stopping; try again", headers={"Retry-After": "1"})
                await self._errors(problem, request_id)(scope, receive, send_with_headers)
            elif _is_event_stream(started):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                raise


class _HandlerApp:
    """Calls the handler of a request's method and sends what it returns."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers["GET" if scope["method"] == "HEAD" else scope["method"]]
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)


def guard_route(
    guard: Guard, path: str, handlers: Mapping[str, tuple[str, Handler]], errors: ErrorShape = problem_response
) -> Route:
    """Return a route: ``handlers`` has the needed scope and the handler of each method."""
    scopes = {method: scope for method, (scope, _) in handlers.items()}
    app = _HandlerApp({method: handler for method, (_, handler) in handlers.items()})
    return Route(path, GuardedApp(guard, app, scopes, errors))


class RequestLimits:
    """The outermost application: checks host and origin, and bounds the size and time of request bodies."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            self._guard.check_host(connection)
            self._guard.check_origin(connection)
            self._check_body(connection)
        except Problem as problem:
            await self._refuse(problem, connection, receive, send)
            return
        limited = self._limit_receive(receive) if scope["type"] == "http" else receive
        await self._app(scope, limited, send)

    async def _refuse(self, problem: Problem, connection: HTTPConnection, receive: Receive, send: Send) -> None:
        """Answer a request; a WebSocket gets a 403 before its upgrade."""
        if connection.scope["type"] == "http":
            await problem_response(problem, request_id_of(connection))(connection.scope, receive, send)
            return
        _log.info("a WebSocket was refused: %s", problem.detail)
        await receive()  # websocket.connect
        await send({"type": "websocket.close"})

    def _check_body(self, connection: HTTPConnection) -> None:
        length, limit = connection.headers.get("content-length", "0"), self._guard.settings.max_body_bytes
        if not length.isdecimal() or int(length[:20]) > limit:
            raise Problem(413, "body_too_large", f"the body may have {limit} bytes")
        coding = connection.headers.get("transfer-encoding", "chunked")
        if coding.lower() != "chunked":
            raise Problem(501, "unknown_coding", f"the transfer coding {coding[:40]!r} is not supported, only chunked")

    def _limit_receive(self, receive: Receive) -> Receive:
        limit = self._guard.settings.max_body_bytes
        seen = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + self._guard.settings.body_timeout

        async def receive_limited() -> Message:
            nonlocal seen, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "body_timeout", "the body of the request did not arrive in time") from None
            seen += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body", False)
            if seen > limit:
                raise Problem(413, "body_too_large", f"the body may have {limit} bytes")
            return message

        return receive_limited


def _replace_headers(start: Message, extra: Mapping[str, str]) -> Message:
    """Return the start of a response with headers in place of its own of the same names."""
    added = dict[bytes, bytes]()
    for given, text in extra.items():
        added[given.lower().encode("latin-1")] = text.encode("latin-1")
    headers = list[tuple[bytes, bytes]]()
    for header in start.get("headers", ()):
        if header[0] not in added:
            headers.append(header)
    return {**start, "headers": [*headers, *added.items()]}


def _is_event_stream(start: Message) -> bool:
    """Return whether a response has a mark for its end, so that its client sees that it was cut off."""
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start["headers"])
