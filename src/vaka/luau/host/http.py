"""``ctx.http``: requests over the network, each a call of a tool where there are rules for tools."""

import base64
import binascii
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from vaka.core.loop.nest import Request
from vaka.core.ports.net import Headers, NetRequest, NetResponse, Network
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.content import Text
from vaka.core.types.errors import InvalidInput, NetworkError, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import Arguments, Effect, Problem, ToolSpec
from vaka.luau.host.arguments import table
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction

SECONDS = 30.0
MOST_SECONDS = 120.0
READING = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READING | {"POST", "PUT", "PATCH", "DELETE"}

READ, SEND, KEYED = "http", "http_send", "http_send_keyed"
"""The tools: what only reads, what changes something, and what may be sent again under its key."""

_Scalar = str | int | float | bool


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request as a script makes it."""

    url: str
    method: str = "GET"
    query: dict[str, _Scalar | list[_Scalar]] = {}
    headers: dict[str, _Scalar | list[_Scalar]] = {}
    body: str = ""
    body_base64: str = ""
    timeout: float = SECONDS
    max_bytes: int | None = None
    redirects: int | None = None
    idempotency_key: str = ""

    @property
    def tool(self) -> str:
        """The tool that sends it."""
        if self.method in READING:
            return READ
        return KEYED if self.idempotency_key else SEND


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "method": {"type": "string", "enum": sorted(METHODS)},
        "query": {"type": "object"},
        "headers": {"type": "object"},
        "body": {"type": "string"},
        "body_base64": {"type": "string", "description": "A body that is no text."},
        "timeout": {"type": "number", "description": "Seconds for all of it."},
        "max_bytes": {"type": "integer"},
        "redirects": {"type": "integer"},
        "idempotency_key": {"type": "string"},
    },
    "required": ["url"],
    "additionalProperties": False,
}


class HttpTool:
    """Sends a request; implements ``Tool``."""

    def __init__(self, network: Network, name: str, description: str, effect: Effect, layer: str = "code") -> None:
        self._network = network
        self._spec = ToolSpec(
            name=name, description=description, parameters=_PARAMETERS, effect=effect, layer=layer,
            timeout=MOST_SECONDS + 5, poll=True,
        )  # fmt: skip

    @property
    def spec(self) -> ToolSpec:
        """The tool as rules and people see it."""
        return self._spec

    def parse(self, raw: str | dict[str, Any]) -> Arguments | Problem:
        """Return the request ``raw`` stands for, or what is wrong with it."""
        try:
            given = msgspec.json.decode(raw) if isinstance(raw, str) else raw
            wanted = wanted_of(given)
        except (msgspec.DecodeError, ScriptError) as error:
            return Problem(str(error))
        if wanted.tool != self._spec.name:
            return Problem(f"{wanted.method} requests like this one are sent by {wanted.tool!r}")
        return Arguments(msgspec.to_builtins(wanted))

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult | JSON:
        """Send it; any status is an answer."""
        try:
            return await send(self._network, wanted_of(arguments))
        except ScriptError as error:
            return ToolResult(call=context.call, failed=True, reason="error", content=(Text(text=str(error)),))


def http_tools(network: Network, layer: str = "code") -> dict[str, Tool]:
    """Return the tools by which scripts send requests, by name: to be among those a ``Nest`` may call."""
    tools = (
        HttpTool(network, READ, "Ask a server for something.", "read", layer),
        HttpTool(network, SEND, "Send something to a server.", "once", layer),
        HttpTool(network, KEYED, "Send something to a server that knows it by its key.", "idempotent", layer),
    )
    return {tool.spec.name: tool for tool in tools}


def http_functions(parts: Parts) -> Functions:
    """``http``: a request as a table, and its answer as one."""
    network = parts.network
    if network is None:
        return {"http": missing("http", "this script has no network")}

    async def http(request: Request, spec: JSON) -> JSON:
        wanted = wanted_of(spec)
        if parts.nest is None:
            return await send(network, wanted)
        return await parts.nest.invoke(request, wanted.tool, msgspec.to_builtins(wanted))

    return {"http": HostFunction(http, asks=True)}


def wanted_of(given: JSON) -> Wanted:
    """Return a script's table as a request; raise ``ScriptError`` for one that makes no sense."""
    fields = table(given, "http: a request")
    if isinstance(fields.get("body"), bytes):
        fields["body_base64"] = base64.b64encode(fields.pop("body")).decode()
    for name in ("query", "headers"):
        if name in fields:
            fields[name] = table(fields[name], f"http: {name}")
    try:
        wanted = msgspec.convert(fields, Wanted)
        base64.b64decode(wanted.body_base64, validate=True)
    except (msgspec.ValidationError, binascii.Error) as error:
        raise ScriptError(f"http: {_words(error)}") from None
    if wanted.method not in METHODS:
        raise ScriptError(f"http: method must be one of {', '.join(sorted(METHODS))}, not {wanted.method!r}")
    if not 0 < wanted.timeout <= MOST_SECONDS:
        raise ScriptError(f"http: timeout must be more than 0 and at most {MOST_SECONDS:g} seconds")
    if (wanted.max_bytes or 0) < 0 or (wanted.redirects or 0) < 0:
        raise ScriptError("http: max_bytes and redirects must not be negative")
    return wanted


async def send(network: Network, wanted: Wanted) -> JSON:
    """Send a request and return the answer as a script's host hands it over."""
    try:
        return _answer(await network.send(_request(wanted)))
    except (NetworkError, InvalidInput) as error:
        raise ScriptError(str(error)) from error


def _request(wanted: Wanted) -> NetRequest:
    body = base64.b64decode(wanted.body_base64) if wanted.body_base64 else wanted.body.encode()
    made = NetRequest(
        url=_with_query(wanted), method=wanted.method, headers=_headers(wanted), body=body, timeout=wanted.timeout
    )
    if wanted.max_bytes is not None:
        made = msgspec.structs.replace(made, max_bytes=wanted.max_bytes)
    if wanted.redirects is not None:
        made = msgspec.structs.replace(made, redirects=wanted.redirects)
    return made


def _with_query(wanted: Wanted) -> str:
    if not wanted.query:
        return wanted.url
    pairs = [(key, item) for key, value in sorted(wanted.query.items()) for item in _several(value)]
    url, mark, fragment = wanted.url.partition("#")
    query = urlencode(pairs, safe="", quote_via=quote)
    return f"{url}{'&' if '?' in url else '?'}{query}{mark}{fragment}"


def _headers(wanted: Wanted) -> Headers:
    pairs = [(name, item) for name, value in wanted.headers.items() for item in _several(value)]
    if wanted.idempotency_key:
        pairs.append(("Idempotency-Key", wanted.idempotency_key))
    return tuple(pairs)


def _several(value: _Scalar | list[_Scalar]) -> list[str]:
    return [_plain(item) for item in value] if isinstance(value, list) else [_plain(value)]


def _plain(value: _Scalar) -> str:
    """A value as people write it: ``true``, and no ``.0`` where there is nothing behind the point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _answer(response: NetResponse) -> JSON:
    headers: dict[str, JSON] = {}
    for name in dict.fromkeys(name.lower() for name, _ in response.headers):
        values = response.header_values(name)
        # Cookies hold commas of their own.
        headers[name] = list(values) if name == "set-cookie" and len(values) > 1 else ", ".join(values)
    answer: dict[str, JSON] = {"status": response.status, "headers": headers, "url": response.url}
    try:
        return answer | {"body": response.body.decode()}
    except UnicodeDecodeError:
        return answer | {"body_base64": base64.b64encode(response.body).decode()}


def _words(error: Exception) -> str:
    return str(error).replace("Object ", "the request ").replace("`$.", "`")
