"""HTTP tools of definitions: a request whose URL and body are made from the arguments, and whose answer is JSON."""

import base64
import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args
from urllib.parse import quote, urlencode

import msgspec

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.net import NetRequest, NetResponse
from vaka.core.ports.tool import ToolContext
from vaka.core.session.redaction import MIN_SECRET_LENGTH, Secrets
from vaka.core.types.errors import ConfigError, InvalidInput, NetworkTooLarge, VakaError
from vaka.core.types.ids import JSON
from vaka.core.types.keywords import suggest_keywords
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.genx.kinds.jq import MAX_SECONDS, JqProgram, format_output
from vaka.tools.arguments import ArgumentReader
from vaka.tools.function import ToolReturn, failed_result, normalize_output, sanitize_name
from vaka.tools.schema.json_types import is_array

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
AUTH_TYPES = ("bearer", "basic")
DEFAULT_TIMEOUT = 30.0
MAX_TIMEOUT = 300.0
MAX_RESPONSE_MB = 64.0
MAX_SHOWN_CHARS = 2000
"""Characters of the body in the error for an answer that is not a success."""
REDIRECTS = 5

_MIB = 1024**2
_TEMPLATE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")


class HttpTool:
    """A tool that sends one HTTP request; implements ``Tool``.

    ``{name}`` in the path or query of ``endpoint`` is replaced by that argument, percent-encoded: an argument changes
    neither the host nor the number of path segments. ``query`` has more query parameters; a parameter is left
    out if its argument is missing. ``$NAME`` and ``${NAME}`` in ``endpoint``, ``query``, header values and ``auth`` are
    replaced by ``variables``, by default the variables of the runtime's scripts, and ``$$`` is a dollar sign. The
    values of variables and of ``auth`` are redacted in results and errors.

    The body is the first result of ``req_body_jq`` for the arguments. Without it the body is the arguments as JSON;
    GET and DELETE requests then have no body, and arguments that ``endpoint`` does not name become query parameters.
    The result is the JSON of the answer, or the first result of ``resp_body_jq`` for it.

    ``auth``: ``{"type": "bearer", "token": …}``, or ``{"type": "basic"}`` with ``username`` and ``password``, or with
    both as ``token`` ``user:password``. ``params`` is the JSON Schema of the arguments, or only its properties.
    ``effect`` is ``read`` for GET and ``once`` for other methods; an ``idempotent`` tool sends the key of the call as
    ``Idempotency-Key``.
    """

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        name: str,
        *,
        endpoint: str,
        description: str = "",
        method: str = "GET",
        params: dict[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Mapping[str, str] | None = None,
        req_body_jq: str = "",
        resp_body_jq: str = "",
        max_response_size_mb: float = 1.0,
        timeout: float = DEFAULT_TIMEOUT,
        effect: Effect | None = None,
        layer: str = "code",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``InvalidInput`` for an invalid option, ``ConfigError`` if jq is needed and not installed."""
        if not name:
            raise InvalidInput("http tool: name is required")
        if not endpoint:
            raise InvalidInput(f"tool {name}: endpoint is required")
        _check_options(name, method, effect, timeout, max_response_size_mb)
        _check_template(name, endpoint)
        self.name = name
        self._endpoint = endpoint
        self._method = method or "GET"
        self._timeout = timeout
        self._headers, self._auth = dict(headers or {}), _check_auth(name, auth)
        self._max_bytes = int(max_response_size_mb * _MIB)
        self._query, self.variables = dict(query or {}), variables
        self._body_program = JqProgram(req_body_jq) if req_body_jq else None
        self._result_program = JqProgram(resp_body_jq) if resp_body_jq else None
        self.spec = ToolSpec(
            name=sanitize_name(name),
            description=description or f"Send a {method or 'GET'} request: {name}.",
            parameters=parameter_schema(name, params),
            effect=effect or ("read" if method in ("", "GET") else "once"),
            timeout=timeout + 3 * MAX_SECONDS,
            layer=layer,
        )
        self._reader = ArgumentReader(self.spec.parameters)

    def bind(self, services: AgentServices) -> "HttpTool":
        """Return the tool with the variables that scripts of a runtime may read, unless it has its own."""
        if self.variables is not None:
            return self
        bound = copy.copy(self)
        bound.variables = services.env
        return bound

    def __repr__(self) -> str:
        return f"HttpTool({self.name!r})"

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments that the model wrote, or what is wrong with them."""
        return self._reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        """Send the request and return the answer as data; everything else is a failed result."""
        network = context.world.network
        if network is None:
            raise ConfigError("this runtime gives tools no network, so no request can be sent")
        secrets = Secrets()
        try:
            request = await self._build_request(context, arguments, secrets)
            try:
                response = await network.send(request)
            except NetworkTooLarge as error:
                raise InvalidInput(f"response too large: {error} (max_response_size_mb)") from error
            value = await self._read_response(response)
        except VakaError as error:
            return failed_result(context.call, secrets.redact_data(str(error)))
        return normalize_output(secrets.redact_data(value))

    async def _build_request(self, context: ToolContext, arguments: dict[str, Any], secrets: Secrets) -> NetRequest:
        expand = _Variables(self.variables or {}, self.name, secrets)
        headers = {key: expand.text(value, f"the header {key!r}") for key, value in self._headers.items()}
        carries_variables = any(_VARIABLE.search(value) for value in self._headers.values())
        names = {key.lower() for key in headers}
        if self._auth:
            headers["Authorization"] = _authorization(self._auth, expand, secrets)
        if self.spec.effect == "idempotent" and "idempotency-key" not in names:
            headers["Idempotency-Key"] = context.key
        url, used = expand_endpoint(self._endpoint, arguments, expand)
        query, in_query = _expand_query(self._query, arguments, expand)
        url, used = _add_query(url, query), used | in_query
        body = b""
        if self._body_program is not None:
            body = format_output(await self._body_program.first(arguments)).encode()
        elif self._method not in ("GET", "DELETE"):
            body = msgspec.json.encode(arguments)
        else:
            url = _add_query(url, {key: value for key, value in arguments.items() if key not in used})
        if body and "content-type" not in names:
            headers["Content-Type"] = "application/json"
        return NetRequest(
            url=url,
            method=self._method,
            headers=tuple(headers.items()),
            body=body,
            timeout=self._timeout,
            # A network forwards headers to other hosts unless their names show that they are secret.
            max_bytes=self._max_bytes,
            redirects=0 if carries_variables else REDIRECTS,
        )

    async def _read_response(self, response: NetResponse) -> JSON:
        """Return the result. Raises ``InvalidInput`` for an answer that is not a success, or is not JSON."""
        text = response.body.decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            shown = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
            if 300 <= response.status < 400:
                shown = f"a redirect; it is not followed with headers that hold variables. {shown}".strip()
            raise InvalidInput(f"http status {response.status}: {shown}")
        value: JSON = None  # an answer without a body, such as 204
        if text.strip():
            try:
                value = msgspec.json.decode(response.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise InvalidInput(f"decode response: the body is not JSON ({reason}): {text[:200]}") from error
        return await self._result_program.first(value) if self._result_program is not None else value


class _Variables:
    """The variables of one call; every value that is used is a secret from then on."""

    def __init__(self, values: Mapping[str, str], tool: str, secrets: Secrets) -> None:
        self._values = values
        self._tool = tool
        self._secrets = secrets

    def value(self, name: str, where: str) -> str:
        """Return a variable. Raises ``ConfigError`` if it is not set."""
        if name not in self._values:
            raise ConfigError(f"tool {self._tool}: the variable ${name} in {where} is not set or not allowed")
        value = self._values[name]
        if "://" not in value:  # an address is not a secret, and answers contain it in links
            add_secrets(self._secrets, value, quote(value, safe=""))
        return value

    def text(self, template: str, where: str) -> str:
        """Return a text with its variables replaced."""

        def replace(found: re.Match[str]) -> str:
            return "$" if found[0] == "$$" else self.value(found[1] or found[2], where)

        return _VARIABLE.sub(replace, template)


def add_secrets(secrets: Secrets, *values: str) -> None:
    """Register values to be redacted; short ones occur in ordinary text and are not."""
    for value in values:
        if len(value) >= MIN_SECRET_LENGTH:
            secrets.add(value)


def expand_endpoint(endpoint: str, arguments: Mapping[str, Any], variables: _Variables) -> tuple[str, set[str]]:
    """Return the URL of a call, and the arguments it contains.

    A query parameter whose argument is missing is left out; in the path it raises ``InvalidInput``, as do arguments
    that are empty, ``.`` or ``..``: they would change the path.
    """
    used: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if not found[3]:
            return variables.value(found[1] or found[2], "endpoint")
        used.add(found[3])
        return _argument_text(arguments.get(found[3]))

    def expand_segment(segment: str) -> str:
        text, names = _TEMPLATE.sub(replace, segment), _argument_names(segment)
        if names and text in ("", ".", ".."):
            raise InvalidInput(f"the argument {names[0]!r} is part of the path of the request; it cannot be {text!r}")
        return text

    base, _, query = endpoint.partition("#")[0].partition("?")
    url = "/".join(map(expand_segment, base.split("/")))
    kept = [pair for pair in query.split("&") if all(arguments.get(name) is not None for name in _argument_names(pair))]
    pairs = "&".join(_TEMPLATE.sub(replace, pair) for pair in kept)
    return (f"{url}?{pairs}" if pairs else url), used


def _expand_query(
    query: Mapping[str, str], arguments: Mapping[str, Any], variables: _Variables
) -> tuple[dict[str, Any], set[str]]:
    """Return the query parameters of a call, and the arguments they contain; ``{name}`` alone may be a list."""
    values: dict[str, Any] = {}
    for key, template in query.items():
        names = _argument_names(template)
        if any(arguments.get(name) is None for name in names):
            continue
        if template == f"{{{''.join(names)}}}":
            values[key] = arguments[names[0]]
            continue
        values[key] = _TEMPLATE.sub(
            lambda found: format_output(arguments[found[3]]) if found[3] else variables.text(found[0], "query"),
            template,
        )
    return values, {name for template in query.values() for name in _argument_names(template)}


def _argument_names(template: str) -> list[str]:
    return [found[3] for found in _TEMPLATE.finditer(template) if found[3]]


def _argument_text(value: Any) -> str:
    """Return an argument percent-encoded; the items of a list are joined by commas."""
    return ",".join(quote(format_output(item), safe="") for item in _items_of(value))


def _items_of(value: Any) -> Sequence[Any]:
    return value if is_array(value) else () if value is None else (value,)


def _add_query(url: str, arguments: Mapping[str, Any]) -> str:
    pairs = [(name, format_output(item)) for name, value in arguments.items() for item in _items_of(value)]
    if not pairs:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs, safe='', quote_via=quote)}"


def _authorization(auth: Mapping[str, str], variables: _Variables, secrets: Secrets) -> str:
    values = {key: variables.text(value, f"auth.{key}") for key, value in auth.items() if key != "type"}
    if auth["type"] == "bearer":
        add_secrets(secrets, values["token"])
        return f"Bearer {values['token']}"
    pair = values.get("token") or f"{values.get('username', '')}:{values.get('password', '')}"
    encoded = base64.b64encode(pair.encode()).decode()
    add_secrets(secrets, pair, pair.partition(":")[2], encoded)
    return f"Basic {encoded}"


def _check_auth(name: str, auth: Mapping[str, str] | None) -> Mapping[str, str]:
    if not auth:
        return {}
    kind = auth.get("type", "")
    if kind not in AUTH_TYPES:
        raise InvalidInput(f"tool {name}: invalid HTTP auth type {kind!r}; expected one of {', '.join(AUTH_TYPES)}")
    if kind == "bearer" and not auth.get("token"):
        raise InvalidInput(f"tool {name}: auth: token is required for bearer authentication")
    if kind == "basic" and not (auth.get("username") or ":" in auth.get("token", "") or "$" in auth.get("token", "")):
        raise InvalidInput(
            f"tool {name}: auth: username and password, or token 'user:password', are required for basic authentication"
        )
    return {key: value for key, value in auth.items() if value}


def _check_options(name: str, method: str, effect: str | None, timeout: float, megabytes: float) -> None:
    if method and method not in METHODS:
        raise InvalidInput(f"tool {name}: invalid HTTP method {method!r}; expected one of {', '.join(METHODS)}")
    if effect is not None and effect not in get_args(Effect):
        raise InvalidInput(f"tool {name}: effect {effect!r} must be one of {', '.join(get_args(Effect))}")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise InvalidInput(f"tool {name}: timeout must be more than 0 and at most {MAX_TIMEOUT:g} seconds")
    if not 0 < megabytes <= MAX_RESPONSE_MB:
        raise InvalidInput(
            f"tool {name}: max_response_size_mb must be more than 0 and at most {MAX_RESPONSE_MB:g}, got {megabytes!r}"
        )


def _check_template(name: str, endpoint: str) -> None:
    """Raise ``InvalidInput`` if an argument could be part of the scheme, host, user or port of a URL."""
    host = re.split(r"[/?#]", endpoint.partition("://")[2] or endpoint, maxsplit=1)[0]
    scheme = endpoint.partition("://")[0] if "://" in endpoint else ""
    if _argument_names(scheme) or _argument_names(host):
        raise InvalidInput(f"tool {name}: endpoint: an argument such as {{name}} may stand in the path and the query")
    if not scheme and not endpoint.startswith("$"):
        raise InvalidInput(f"tool {name}: endpoint {endpoint[:200]!r} must begin with https://, http:// or a variable")


def parameter_schema(name: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments; ``params`` may be only its properties, ``None`` allows all."""
    if params is None:
        return {"type": "object", "properties": {}, "additionalProperties": True}
    if params.get("type") == "object" or "$ref" in params or "anyOf" in params:
        return {"type": "object", "properties": {}, **params}
    for key, schema in params.items():
        if not isinstance(schema, dict):
            raise InvalidInput(f"tool {name}: params: {key!r} must be a JSON Schema, got {schema!r}")
    required = [key for key, schema in params.items() if "default" not in schema and not schema.get("optional")]
    properties = {
        key: {word: part for word, part in schema.items() if word != "optional"} for key, schema in params.items()
    }
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
