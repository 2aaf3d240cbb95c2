"""``ctx.http``: requests over the network. In a session each request is a tool call, so that the policy applies."""

import base64
import binascii
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.ports.net import Headers, NetRequest, NetResponse, Network
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput, NetworkError, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.luau.protocol import HostFunction, HostFunctions, as_table
from vaka.luau.services import HostServices

DEFAULT_TIMEOUT = 30.0
MAX_TIMEOUT = 120.0
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READ_METHODS | {"POST", "PUT", "PATCH", "DELETE"}

READ_TOOL = "http"
SEND_TOOL = "http_send"
KEYED_SEND_TOOL = "http_send_keyed"
"""Tool names: requests that only read, requests that change something, and requests that an idempotency key makes
repeatable."""

_Scalar = str | int | float | bool


class ScriptHttpRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request, with the fields of a script's table."""

    url: str
    method: str = "GET"
    query: dict[str, _Scalar | list[_Scalar]] = {}
    headers: dict[str, _Scalar | list[_Scalar]] = {}
    body: str = ""
    body_base64: str = ""
    timeout: float = DEFAULT_TIMEOUT
    max_bytes: int | None = None
    redirects: int | None = None
    idempotency_key: str = ""

    @property
    def tool_name(self) -> str:
        if self.method in READ_METHODS:
            return READ_TOOL
        return KEYED_SEND_TOOL if self.idempotency_key else SEND_TOOL


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


class ScriptHttpTool:
    """Sends a request; implements ``Tool``."""

    def __init__(self, network: Network, name: str, description: str, effect: Effect, layer: str = "code") -> None:
        self._network = network
        self.spec = ToolSpec(
            name=name,
            description=description,
            parameters=_PARAMETERS,
            effect=effect,
            layer=layer,
            timeout=MAX_TIMEOUT + 5,
            poll=True,
        )

    def parse(self, raw: str | dict[str, Any]) -> ParsedArguments | InvalidArguments:
        """Return the request in ``raw``, or why it is invalid."""
        try:
            wanted = parse_request(msgspec.json.decode(raw) if isinstance(raw, str) else raw)
        except (msgspec.DecodeError, ScriptError) as error:
            return InvalidArguments(str(error))
        if wanted.tool_name != self.spec.name:
            return InvalidArguments(f"{wanted.method} requests like this one are sent by {wanted.tool_name!r}")
        return ParsedArguments(msgspec.to_builtins(wanted))

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult | JSON:
        """Send the request; a response of any status is a success."""
        try:
            return await send_request(self._network, parse_request(arguments))
        except ScriptError as error:
            return ToolResult(call=context.call, failed=True, reason="error", content=(Text(text=str(error)),))


def http_tools(network: Network, layer: str = "code") -> dict[str, Tool]:
    """Return the tools that send a script's requests, by name; they must be among those its journal can call."""
    tools = (
        ScriptHttpTool(network, READ_TOOL, "Ask a server for something.", "read", layer),
        ScriptHttpTool(network, SEND_TOOL, "Send something to a server.", "once", layer),
        ScriptHttpTool(
            network, KEYED_SEND_TOOL, "Send something to a server that knows it by its key.", "idempotent", layer
        ),
    )
    return {tool.spec.name: tool for tool in tools}


def http_functions(services: HostServices) -> HostFunctions:
    """``http``: sends a request given as a table and returns the response as a table."""

    async def http(request: ScriptRequest, spec: JSON) -> JSON:
        wanted = parse_request(spec)
        if services.journal is None:
            return await send_request(services.runtime.network, wanted)
        arguments, repeatable = msgspec.to_builtins(wanted), wanted.tool_name == READ_TOOL
        return await services.journal.call_tool(request, wanted.tool_name, arguments, repeatable=repeatable)

    return {"http": HostFunction(http, wants_request=True)}


def parse_request(value: JSON) -> ScriptHttpRequest:
    """Return the request of a script's table; raise ``ScriptError`` for an invalid one."""
    fields = as_table(value, "http: a request")
    if isinstance(fields.get("body"), bytes):
        fields["body_base64"] = base64.b64encode(fields.pop("body")).decode()
    for name in ("query", "headers"):
        if name in fields:
            fields[name] = as_table(fields[name], f"http: {name}")
    try:
        wanted = msgspec.convert(fields, ScriptHttpRequest)
        base64.b64decode(wanted.body_base64, validate=True)
    except (msgspec.ValidationError, binascii.Error) as error:
        raise ScriptError(f"http: {_validation_message(error)}") from None
    if wanted.method not in METHODS:
        raise ScriptError(f"http: method must be one of {', '.join(sorted(METHODS))}, not {wanted.method!r}")
    if not 0 < wanted.timeout <= MAX_TIMEOUT:
        raise ScriptError(f"http: timeout must be more than 0 and at most {MAX_TIMEOUT:g} seconds")
    if (wanted.max_bytes or 0) < 0 or (wanted.redirects or 0) < 0:
        raise ScriptError("http: max_bytes and redirects must not be negative")
    return wanted


async def send_request(network: Network, wanted: ScriptHttpRequest) -> JSON:
    """Send a request and return the response as a script's table; raise ``ScriptError`` if it fails."""
    try:
        return _response_table(await network.send(_net_request(wanted)))
    except (NetworkError, InvalidInput) as error:
        raise ScriptError(str(error)) from error


def _net_request(wanted: ScriptHttpRequest) -> NetRequest:
    body = base64.b64decode(wanted.body_base64) if wanted.body_base64 else wanted.body.encode()
    caps = {"max_bytes": wanted.max_bytes, "redirects": wanted.redirects}
    return NetRequest(
        url=_url_with_query(wanted),
        method=wanted.method,
        headers=_request_headers(wanted),
        body=body,
        timeout=wanted.timeout,
        **{name: cap for name, cap in caps.items() if cap is not None},
    )


def _url_with_query(wanted: ScriptHttpRequest) -> str:
    if not wanted.query:
        return wanted.url
    pairs = [(key, item) for key, value in sorted(wanted.query.items()) for item in _string_list(value)]
    url, mark, fragment = wanted.url.partition("#")
    query = urlencode(pairs, safe="", quote_via=quote)
    return f"{url}{'&' if '?' in url else '?'}{query}{mark}{fragment}"


def _request_headers(wanted: ScriptHttpRequest) -> Headers:
    pairs = [(name, item) for name, value in wanted.headers.items() for item in _string_list(value)]
    if wanted.idempotency_key:
        pairs.append(("Idempotency-Key", wanted.idempotency_key))
    return tuple(pairs)


def _string_list(value: _Scalar | list[_Scalar]) -> list[str]:
    return [_scalar_text(item) for item in value] if isinstance(value, list) else [_scalar_text(value)]


def _scalar_text(value: _Scalar) -> str:
    """Return a value as text: ``true`` for True, ``1`` for 1.0."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _response_table(response: NetResponse) -> JSON:
    headers: dict[str, JSON] = {}
    for name in dict.fromkeys(name.lower() for name, _ in response.headers):
        values = response.header_values(name)
        # A cookie may contain commas, so set-cookie headers are not joined.
        headers[name] = list(values) if name == "set-cookie" and len(values) > 1 else ", ".join(values)
    answer: dict[str, JSON] = {"status": response.status, "headers": headers, "url": response.url}
    try:
        return answer | {"body": response.body.decode()}
    except UnicodeDecodeError:
        return answer | {"body_base64": base64.b64encode(response.body).decode()}


def _validation_message(error: Exception) -> str:
    return str(error).replace("Object ", "the request ").replace("`$.", "`")
