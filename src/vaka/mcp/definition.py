"""MCP servers as ``.mcp.json``, settings, plugins and specification strings define them."""

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import replace_surrogates
from vaka.matching.mcp_names import MAX_PART
from vaka.matching.mcp_names import tool_part as tool_part
from vaka.mcp.references import expand_references

Transport = Literal["stdio", "http", "sse"]

CONNECT_TIMEOUT = 10.0
"""Seconds that a server has to answer the first request."""

_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "command": "stdio",
    "http": "http",
    "https": "http",
    "streamable": "http",
    "streamablehttp": "http",
    "stream": "http",
    "json": "http",
    "remote": "http",
    "sse": "sse",
    "httpsse": "sse",
}
"""The values of ``type``, in lower case and without punctuation."""

_SPELLINGS: Mapping[str, str] = {
    "type": "type",
    "transport": "type",
    "transportType": "type",
    "command": "command",
    "args": "args",
    "arguments": "args",
    "env": "env",
    "environment": "env",
    "cwd": "cwd",
    "workingDirectory": "cwd",
    "url": "url",
    "serverUrl": "url",
    "httpUrl": "url",
    "headers": "headers",
    "http_headers": "headers",
    "timeout": "timeout",
    "timeoutSeconds": "timeoutSeconds",
    "startup_timeout_sec": "timeoutSeconds",
    "toolTimeoutSeconds": "toolTimeoutSeconds",
    "tool_timeout_sec": "toolTimeoutSeconds",
    "enabledTools": "enabledTools",
    "includeTools": "enabledTools",
    "tools": "enabledTools",
    "disabledTools": "disabledTools",
    "excludeTools": "disabledTools",
    "required": "required",
    "sampling": "sampling",
    "disabled": "disabled",
    "enabled": "enabled",
    "oauth": "oauth",
}
"""The keys of an entry, as this and other programs spell them, with the names used below."""

_WITHOUT_EFFECT: Mapping[str, str] = {
    "autoApprove": "write permission rules such as mcp__NAME__TOOL",
    "alwaysAllow": "write permission rules such as mcp__NAME__TOOL",
    "trust": "write permission rules such as mcp__NAME__TOOL",
    "envFile": "write the variables into env",
    "bearer_token_env_var": "write Authorization into headers, with ${NAME}",  # nosec B105  # advice
    "headersHelper": "write the headers into headers",
    "inputs": "use variables of the environment, ${NAME}",
}
"""Keys of other programs that change nothing here, with what to write instead."""

_REMARKS = frozenset(
    (
        "name",
        "description",
        "comment",
        "note",
        "notes",
        "title",
        "version",
        "icon",
        "icons",
        "gallery",
        "metadata",
        "alwaysLoad",
        "instructions",
        "category",
        "tags",
        "homepage",
        "documentation",
        "author",
        "license",
    )
)
"""Keys that only describe a server."""

_ADDRESS = re.compile(r"([A-Za-z][\w.-]*)(?:\+([\w-]*))?://(.*)", re.DOTALL)
_LOCAL_HOST = re.compile(r"(?:localhost|127\.|0\.0\.0\.0|\[::1?\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How one server is reached, and whether it may be started."""

    name: str
    """The name as it is written."""
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of its process in addition to the inherited variables."""
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: Mapping[str, str] = field(default_factory=dict[str, str])
    """How it gets an access token: the credentials of a program, or how a user logs in, and what else is set."""
    connect_timeout: float = CONNECT_TIMEOUT
    tool_timeout: float | None = None
    """Seconds that a call may take; ``None``: the limit of all tools."""
    enabled_tools: tuple[str, ...] = ()
    """The tools that are offered; empty for all."""
    disabled_tools: tuple[str, ...] = ()
    """Tools that are not offered, also when ``enabled_tools`` names them."""
    sampling: bool = False
    """Whether it may ask the model of the agent that calls it."""
    required: bool = False
    """An agent does not start without it."""
    origin: str = "given"
    """The file that defines it; ``"given"`` for code and flags."""
    refusal: str = ""
    """Why it is not started; empty for a server that may be."""
    written: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """Its entry before variables were replaced: what may be shown."""
    problems: tuple[str, ...] = field(default=(), compare=False)
    """The errors of its entry."""

    @property
    def approved(self) -> bool:
        """Whether it may be started."""
        return not self.refusal

    @property
    def tool_prefix(self) -> str:
        """The beginning of the names of its tools, ``mcp__NAME__``."""
        return f"mcp__{tool_part(self.name)}__"

    def refuse(self, reason: str) -> "McpServer":
        """Return the server with a reason why it is not started; an earlier reason stays."""
        return self if self.refusal else replace(self, refusal=reason)


@dataclass(frozen=True, slots=True)
class ParsedServers:
    """The servers of a document in their order, and the problems of the document and its servers."""

    servers: tuple[McpServer, ...] = ()
    problems: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """The problems of files that cannot be read."""


def parse_servers(
    document: object, *, origin: str = "given", environment: Mapping[str, str] | None = None
) -> ParsedServers:
    """Return every server that a document names. A server that cannot be started has a ``refusal``.

    A document is ``{"mcpServers": {…}}``, ``{"mcp": {"servers": {…}}}``, the map of servers itself, a list of
    entries with names, or specification strings such as ``stdio://command arguments`` and ``https://host/mcp``.
    ``environment`` has the values of ``${NAME}`` and ``${NAME:-default}``.
    """
    problems = list[str]()
    servers = list[McpServer]()
    taken = set[str]()
    for name, entry, reason in _find_entries(document, f"{origin}: ", problems):
        server = _EntryReader(name, origin, {} if environment is None else environment).read(entry)
        server = replace(server, name=_distinct(server.name, taken))
        taken.add(server.name)
        servers.append(server.refuse(reason) if reason else server)
        problems += server.problems
    return ParsedServers(tuple(servers), tuple(problems))


def _find_entries(document: object, where: str, problems: list[str]) -> Iterator[tuple[str, object, str]]:
    """Yield the name, the entry and the reason why it is not started (mostly none) of each server."""
    if isinstance(document, str | list):
        for entry in cast("list[object]", document) if isinstance(document, list) else [document]:
            yield _as_text((_as_table(entry) or {}).get("name")), entry, ""
        return
    table = _as_table(document)
    if table is None:
        if document is not None:
            problems.append(f"{where}expected an object with mcpServers")
        return
    wrapped = _wrapped_entries(table)
    if not wrapped:
        yield from _find_bare_entries(table, where, problems)
        return
    for entries in wrapped.values():
        if isinstance(entries, dict):
            named = cast("dict[str, object]", entries).items()
            yield from ((name, entry, "") for name, entry in named if not _is_remark(name, entry))
        else:
            yield from _find_entries(entries, where, problems)
    beside = {key: value for key, value in table.items() if key not in wrapped and not _is_remark(key, value)}
    yield from _find_strays(beside, where, problems)


def _find_strays(beside: Mapping[str, object], where: str, problems: list[str]) -> Iterator[tuple[str, object, str]]:
    """Yield the servers that stand beside the map of servers; report everything that does."""
    for key, value in beside.items():
        hint = "move it into mcpServers" if is_entry(value) else "it has no effect"
        problems.append(f"{where}{key!r} stands beside mcpServers; {hint}")
        if is_entry(value):
            yield key, value, "it stands beside mcpServers"


def _wrapped_entries(table: Mapping[str, object]) -> dict[str, object]:
    """Return the maps or lists of servers in a document, by their keys."""
    inner = _as_table(table.get("mcp")) or {}
    found = {"mcp": inner["servers"]} if "servers" in inner else {}
    found |= {"mcpServers": table["mcpServers"]} if "mcpServers" in table else {}
    others = [key for key in ("mcp_servers", "servers") if isinstance(table.get(key), dict | list)]
    return found | {key: table[key] for key in others if not is_entry(table[key])}


def _find_bare_entries(
    table: Mapping[str, object], where: str, problems: list[str]
) -> Iterator[tuple[str, object, str]]:
    """Yield the entries of a map of servers, or the map itself if it is an entry."""
    if isinstance(table.get("command"), str | list) or isinstance(table.get("url"), str):
        yield _as_text(table.get("name")), table, ""
        return
    for name, entry in table.items():
        if isinstance(entry, dict) or (isinstance(entry, str) and "://" in entry and name[:1] not in "$_"):
            yield name, entry, ""
        elif not _is_remark(name, entry):
            problems.append(f"{where}{name!r} is not the entry of a server")


def is_entry(value: object) -> bool:
    """Return whether a value looks like the entry of a server."""
    table = _as_table(value) or {}
    return isinstance(table.get("command"), str | list) or isinstance(table.get("url"), str)


def _is_remark(name: str, value: object) -> bool:
    return not isinstance(value, dict) and (name[:1] in ("$", "_", "/", "#") or name in _REMARKS)


class _EntryReader:
    """Reads the entry of one server."""

    def __init__(self, name: str, origin: str, environment: Mapping[str, str]) -> None:
        self._name = replace_surrogates(name)
        self._origin = origin
        self._environment = environment
        self._problems: list[str] = []
        self._refusal = ""

    def read(self, entry: object) -> McpServer:
        """Return the server; what is wrong becomes a problem, what prevents its start a refusal."""
        if isinstance(entry, str):
            entry = self._read_spec(entry)
        table = _as_table(entry)
        if table is None:
            self._refuse(f"its entry is {_kind_of(entry)}; expected an object with command or url")
            table = {}
        fields = self._name_fields(table)
        command, args = self._read_command(fields)
        url = self._read_url(fields)
        transport = self._choose_transport(fields, command, url)
        name = self._name or _default_name(command, args, url)
        server = McpServer(
            name=name,
            transport=transport,
            origin=self._origin,
            written=table,
            command=command if transport == "stdio" else "",
            args=args if transport == "stdio" else (),
            env=self._read_pairs("env", fields.get("env")),
            url="" if transport == "stdio" else url,
            cwd=self._expand_home(self._read_text(fields, "cwd")),
            headers=self._read_pairs("headers", fields.get("headers")),
            required=fields.get("required") is True,
            oauth=self._read_oauth(fields.get("oauth")),
            sampling=fields.get("sampling") is True,
            enabled_tools=self._read_tools(fields, "enabledTools"),
            disabled_tools=self._read_tools(fields, "disabledTools"),
            **self._read_timeouts(fields),
        )
        if fields.get("disabled") is True or fields.get("enabled") is False:
            self._refuse("its entry disables it", problem=False)
        self._check_name(name)
        problems = tuple(replace_surrogates(f"{self._origin}: {name}: {problem}") for problem in self._problems)
        return replace(server, refusal=replace_surrogates(self._refusal), problems=problems)

    def _name_fields(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields by their names; report the keys that are not known."""
        known = {_normalize(key): name for key, name in _SPELLINGS.items()}
        fields: dict[str, Any] = {}
        for key, value in _flatten(table):
            name = _SPELLINGS.get(key) or known.get(_normalize(key))
            if name is None:
                self._report_unknown(key, value)
                continue
            if key not in _SPELLINGS:
                self._problems.append(f"{key!r} is read as {name!r}")
            if fields.setdefault(name, value) != value:
                self._problems.append(f"{key!r} and another key both mean {name!r}; the first one counts")
        return {name: value for name, value in fields.items() if value is not None}

    def _report_unknown(self, key: str, value: object) -> None:
        if key in _WITHOUT_EFFECT:
            self._problems.append(f"{key!r} has no effect; {_WITHOUT_EFFECT[key]}")
        elif key not in _REMARKS and not _is_remark(key, value):
            near = find_near_names(key, _SPELLINGS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self._problems.append(f"{key!r} is not known and has no effect{hint}")

    def _read_spec(self, text: str) -> dict[str, Any]:
        """Return the entry that a specification string stands for."""
        match = _ADDRESS.match(text.strip())
        if match is None or match[1].lower() == "stdio":
            words = self._split(match[3] if match else text)
            return {"command": words[0], "args": words[1:]} if words else {}
        scheme = match[1].lower()
        hint = (match[2] or "").lower()
        rest = match[3]
        if scheme == "sse":
            return {"type": "sse", "url": f"https://{rest}"}
        kind = _TRANSPORTS.get(_normalize(hint or "http"))
        if scheme not in ("http", "https") or kind in (None, "stdio"):
            self._refuse(f"{text.partition('://')[0]}:// is not an address; expected stdio://, http(s):// or sse://")
        return {"type": kind or "http", "url": f"{scheme}://{rest}"}

    def _read_command(self, fields: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Return the program and its arguments."""
        command, args = fields.get("command"), self._read_args(fields.get("args"))
        if isinstance(command, list):
            words = self._read_args(cast("list[object]", command))
            return (words[0], (*words[1:], *args)) if words else ("", args)
        text = self._read_text(fields, "command").strip()
        first, _, rest = _as_text(command).strip().partition(" ")
        if rest and not args and (not re.search(r"[/\\]", first) or re.search(r"(?:^|\s)-", rest)):
            self._problems.append("the command has arguments in it, which belong into args")
            text, *more = (self._expand("command", word) for word in self._split(_as_text(command)))
            args = tuple(more)
        return self._expand_home(text), args

    def _read_args(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            self._problems.append("args is a text; expected a list")
            return tuple(self._expand("args", word) for word in self._split(value))
        if value is not None and not isinstance(value, list):
            self._problems.append(f"args is {_kind_of(value)}; expected a list")
            value = [value]
        items = cast("list[object]", value or [])
        if any(not isinstance(item, str) for item in items):
            self._problems.append("args has items that are not texts; they are written as texts")
        return tuple(self._expand("args", _as_text(item)) for item in items if item is not None)

    def _read_url(self, fields: Mapping[str, Any]) -> str:
        url = self._read_text(fields, "url").strip()
        match = _ADDRESS.match(url)
        if url.startswith("/"):
            self._refuse(f"the url {url!r} has no host")
        elif match is None and url and not self._refusal:
            url = f"{'http' if _LOCAL_HOST.match(url) else 'https'}://{url}"
            self._problems.append(f"the url has no scheme; {url.partition(':')[0]}:// is assumed")
        elif match is not None and (match[2] is not None or match[1].lower() not in ("http", "https")):
            self._refuse(f"the url begins with {url.partition('://')[0]}://; expected http:// or https://")
        return url

    def _choose_transport(self, fields: Mapping[str, Any], command: str, url: str) -> Transport:
        """Return the transport that fits the type and what the entry has."""
        kind = self._read_text(fields, "type")
        transport = _TRANSPORTS.get(_normalize(kind))
        if command and url and transport is None:
            self._problems.append("it has a command and a url; the command counts")
        if not command and not url:
            needed = {"stdio": "command", "http": "url", "sse": "url", None: "command and no url"}[transport]
            self._refuse(self._refusal or f"it has no {needed}")
            return transport or "stdio"
        fitting: Transport = "stdio" if command else "http"
        if kind and transport is None:
            if not command:
                self._refuse(f"the type {kind!r} is not supported; expected stdio, http or sse")
            else:
                self._problems.append(f"the type {kind!r} is not known; stdio is used, since it has a command")
        elif transport is not None and not (command if transport == "stdio" else url):
            missing = "command" if transport == "stdio" else "url"
            self._problems.append(f"its type is {transport}, but it has no {missing}; {fitting} is used")
            return fitting
        return transport or fitting

    def _read_pairs(self, key: str, value: object) -> dict[str, str]:
        """Return variables or headers: a map, or a list of ``NAME=value`` or ``Name: value``."""
        if isinstance(value, list):
            self._problems.append(f"{key} is a list; expected an object")
            pairs = [_as_text(item).partition("=" if key == "env" else ":") for item in cast("list[object]", value)]
            value = {name.strip(): text.strip() for name, _, text in pairs}
        table = _as_table(value)
        if table is None:
            if value is not None:
                self._problems.append(f"{key} is {_kind_of(value)}; expected an object")
            return {}
        for name, item in table.items():
            if item is None:
                self._problems.append(f"{key}.{name} is null and left out")
        present = {replace_surrogates(name): _as_text(item) for name, item in table.items() if item is not None}
        return {name: self._expand(f"{key}.{name}", text) for name, text in present.items()}

    def _read_oauth(self, value: object) -> dict[str, str]:
        table = _as_table(value)
        if table and isinstance(table.get("scopes"), list):
            value = {**table, "scopes": " ".join(map(str, table["scopes"]))}
        found = self._read_pairs("oauth", value)
        port = found.get("callbackPort", "1")
        if not (port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
            self._problems.append(f"oauth.callbackPort {found.pop('callbackPort')!r} is not a port, and has no effect")
        if "clientId" in found or ("clientSecret" not in found and "privateKey" not in found):
            return found
        self._problems.append("oauth needs clientId beside clientSecret or privateKey")
        return {}

    def _read_timeouts(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the time limits; ``timeout`` of other programs is in milliseconds and about calls."""
        connect = self._read_seconds(fields, "timeoutSeconds")
        call = self._read_seconds(fields, "toolTimeoutSeconds")
        other = self._read_seconds(fields, "timeout")
        if other is not None and other < 1000:
            self._problems.append(f"timeout {other:g} is read as seconds of a call; write toolTimeoutSeconds")
        elif other is not None:
            other /= 1000
        return {"connect_timeout": connect or CONNECT_TIMEOUT, "tool_timeout": call or other}

    def _read_seconds(self, fields: Mapping[str, Any], key: str) -> float | None:
        value = fields.get(key)
        try:
            number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            number = None
        if value is None or (number is not None and 0 <= number < float("inf")):
            return number or None
        self._problems.append(f"{key} {value!r} is not a number of zero or more; the default holds")
        return None

    def _read_tools(self, fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = fields.get(key)
        items = cast("list[object]", value if isinstance(value, list) else [] if value is None else [value])
        names = [item.strip() for item in items if isinstance(item, str) and item.strip()]
        if len(names) != len(items):
            self._problems.append(f"{key} has items that are not names of tools; they are left out")
        if value == [] and key == "enabledTools":
            self._problems.append("enabledTools is empty, so all tools are offered; remove it, or disable the server")
        return () if "*" in names and key == "enabledTools" else tuple(dict.fromkeys(names))

    def _read_text(self, fields: Mapping[str, Any], key: str) -> str:
        value = fields.get(key)
        if value is None or isinstance(value, list):
            return ""
        if not isinstance(value, str):
            self._refuse(f"its {key} is {_kind_of(value)}; expected a text")
            return ""
        return self._expand(key, value)

    def _check_name(self, name: str) -> None:
        part = tool_part(name)
        if part != name:
            why = "is too long" if len(name) > MAX_PART else "has characters that tools lack"
            self._problems.append(f"its tools are named mcp__{part}__…, since {name!r} {why}")

    def _split(self, text: str) -> list[str]:
        try:
            return shlex.split(text) or [""]
        except ValueError as error:
            self._problems.append(f"a command line cannot be split at its quotes ({error}); it is split at spaces")
            return text.split() or [""]

    def _expand_home(self, path: str) -> str:
        home = self._environment.get("HOME", "")
        return home + path[1:] if home and path.startswith("~/") else path

    def _expand(self, where: str, text: str) -> str:
        """Replace references; a variable that is not set keeps the server from starting."""
        expanded, missing, problem = expand_references(text, self._environment)
        for name in missing:
            self._refuse(f"the variable {name} of {where} is not set")
        if problem:
            self._problems.append(f"{where} {problem}")
        return expanded

    def _refuse(self, reason: str, *, problem: bool = True) -> None:
        self._refusal = self._refusal or reason
        if problem and reason not in self._problems:
            self._problems.append(reason)


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of an entry; a transport may be an object that has the type, the address and more."""
    for key, value in table.items():
        inner = _as_table(value) if key == "transport" else None
        yield from inner.items() if inner is not None else ((key, value),)


def _default_name(command: str, args: tuple[str, ...], url: str) -> str:
    """Return a name for a server that has none: its host, or its program."""
    if url:
        return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0] or "server"
    packages = [arg for arg in args if not arg.startswith("-")]
    program = re.split(r"[/\\]", command)[-1]
    return packages[0] if packages and program in ("npx", "uvx", "bunx", "pipx") else program or "server"


def _distinct(name: str, taken: set[str]) -> str:
    """Return a name that no other server of the document has."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in names if candidate not in taken)


def _normalize(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())


def _as_table(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _as_text(value: object) -> str:
    """Return a value as an environment variable has it: numbers and booleans as JSON writes them."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def _kind_of(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "NoneType": "null", "bool": "true or false", "str": "a text"}
    return names.get(type(value).__name__, "a number")
