"""Middleware that gives agents the tools, resources and prompts of MCP servers."""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, cast

from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.feature_middleware import FeatureMiddleware, OwnedByRuntime
from vaka.core.ports.feature_middleware import MiddlewareServices
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.session.redaction import MIN_SECRET_LENGTH
from vaka.core.types.errors import ConfigError, InvalidInput, McpError
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, SessionId, digest_of
from vaka.core.types.message import Content, Text, ToolCall, ToolResult
from vaka.core.types.monitor import Logged, McpChanged
from vaka.core.types.tool import Ask, InvalidArguments, ParsedArguments, ToolSpec
from vaka.matching.mcp_names import tool_name
from vaka.mcp.client import McpConnection, McpStatus
from vaka.mcp.definition import McpServer, parse_servers
from vaka.mcp.running_call import TOOL_TIMEOUT, CallHandlers, ask_person
from vaka.mcp.sandboxed_servers import sandboxed_servers
from vaka.mcp.stdio import StartServer, process_starter
from vaka.mcp.stored_logins import open_stored_logins
from vaka.mcp.tools import ListedTool, McpTool, read_content, read_resource, select_tools

PIN_PREFIX = "mcp.pins/"
"""The keys of the store under which the digests of the tools of each server are."""

WAITING_SHARE = 0.8
"""The share of the time limit of a middleware that may be spent with waiting for servers."""
MAX_SESSIONS = 10_000
"""So many sessions are remembered with what their logs have of servers."""
_ServerView: TypeAlias = tuple[str, dict[str, str]]
"""The state of a server, and the digests of its tools by name."""
_Snapshot: TypeAlias = dict[str, _ServerView]
_ABSENT: _ServerView = ("idle", {})
_SECRET_NAMES = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "clientsecret", "privatekey")
)
_PROMPT_LINE = re.compile(r"/(mcp__[\w.-]+)(?:\s+(.*))?\s*", re.DOTALL)


class ServerConnections(OwnedByRuntime):
    """The connections to servers."""

    def __init__(self, connections: Iterable[McpConnection]) -> None:
        self._connections = tuple(connections)
        self._ended: list[McpConnection] = []
        """Connections of servers that were replaced, which may still be closing."""

    async def close(self) -> None:
        """End all connections and the processes of the servers."""
        await asyncio.gather(*(connection.aclose() for connection in (*self._connections, *self._ended)))


class McpTools(ServerConnections, FeatureMiddleware, ToolSource):
    """Connects to servers before the first model call, and offers what they have."""

    admits_steering = True

    def __init__(
        self,
        servers: Sequence[McpServer],
        connect: Callable[[McpServer], McpConnection],
        services: MiddlewareServices,
    ) -> None:
        super().__init__(connect(server) for server in servers)
        self._connect_server, self._values = connect, services.values
        self._services = services
        self._replacements = 0
        self._revision = (-1, 0)
        self._listed: dict[tuple[str, str], McpTool] = {}
        self._tools: tuple[Tool, ...] = ()
        self._changed: dict[str, McpTool] = {}
        """The tools, by name, with a description that changed since it was first seen."""
        self._notes: list[str] = []
        self._known_notes: set[str] = set()
        self._snapshot: _Snapshot = {}
        self._reported: dict[SessionId, _Snapshot] = {}
        """The snapshot that each session has in its log, the session that was active last at the end."""
        self._loading = asyncio.Lock()
        self._resource_tools = (
            _ResourceTool(LIST_RESOURCES, services, self._list_resources),
            _ResourceTool(READ_RESOURCE, services, self._read_resource),
        )

    @property
    def name(self) -> str:
        return "mcp"

    def status(self) -> tuple[McpStatus, ...]:
        """The state of each connection."""
        return tuple(connection.status for connection in self._connections)

    def secrets(self) -> Iterable[str]:
        """Yield the values of variables and headers that are secrets, for redaction."""
        for connection in self._connections:
            server = connection.server
            for name, value in (*server.env.items(), *server.headers.items(), *server.oauth.items()):
                scheme, _, credentials = value.partition(" ")
                secret = credentials if scheme.lower() in ("bearer", "basic", "token") else value
                if len(secret) >= MIN_SECRET_LENGTH and (
                    name.lower() in _SECRET_NAMES or self._services.is_secret(name, value)
                ):
                    yield secret

    def replace(self, value: object) -> None:
        """Close the connections of servers that are gone, refused or changed; keep the connections of the others."""
        servers = read_servers(value)
        known = {connection.server.name: connection for connection in self._connections}
        connections = tuple(
            connection
            if (connection := known.get(server.name)) is not None and connection.server == server
            else self._connect_server(server)
            for server in servers
        )
        if connections == self._connections:
            return
        self._ended = [connection for connection in self._ended if not connection.has_ended]
        refusals = {server.name: server.refusal for server in servers}
        for connection in self._connections:
            if connection not in connections:
                name = connection.server.name
                gone = "its definition has changed" if name in refusals else "it is not configured any more"
                connection.end(refusals.get(name) or gone)
                self._ended.append(connection)
        self._connections = connections
        self._replacements += 1

    async def tools_for_step(self, turn: Turn) -> Sequence[Tool]:
        await self._connect(turn)
        while self._revision != self._current_revision:
            async with self._loading:
                await self._load_tools()
        self._report(turn)
        return self._tools

    async def _connect(self, turn: Turn) -> None:
        """Start what has not started, all at once; wait for the first attempt of each, and for what was ready."""
        connections = self._connections  # they may be replaced while this waits
        for connection in connections:
            connection.begin()
        waiting = [connection.start() for connection in connections if connection.is_awaited]
        stale = [connection.refresh() for connection in connections if connection.is_stale]
        if waiting or stale:
            limit = turn.limits.middleware_timeout
            with suppress(TimeoutError):  # what is slow follows with a later model call
                async with asyncio.timeout(limit * WAITING_SHARE if limit is not None else None):
                    await asyncio.gather(*waiting, *stale)
        for connection in connections:
            if connection.server.required and connection.state not in ("ready", "closed"):
                name, why = connection.server.name, connection.reason or connection.state
                raise McpError(f"the MCP server {name!r} is required, and not available: {why}")

    @property
    def _current_revision(self) -> tuple[int, int]:
        return self._replacements, sum(connection.revision for connection in self._connections)

    async def _load_tools(self) -> None:
        """Make tools of what the servers list; a tool that is listed unchanged stays the same object."""
        revision = self._current_revision
        if revision == self._revision:
            return
        found: dict[tuple[str, str], McpTool] = {}
        names: set[str] = set()
        for connection in self._connections:
            listed, notes = select_tools(connection.server, connection.tools)
            made = [self._make_tool(connection, item, names, notes) for item in listed]
            tools = [one for one in made if one is not None]
            found |= {(connection.server.name, one.listed.name): one for one in tools}
            await self._check_pins(connection.server, tools)
            self._notes += [note for note in notes if note not in self._known_notes]
            self._known_notes.update(notes)
        self._listed, self._revision = found, revision
        self._take_snapshot()
        resources = self._resource_tools if any(connection.has_resources for connection in self._connections) else ()
        self._tools = (*found.values(), *resources)

    def _make_tool(
        self, connection: McpConnection, item: ListedTool, names: set[str], notes: list[str]
    ) -> McpTool | None:
        """Return the tool for a listed one: the known one if it did not change, none for a schema that is not one."""
        server = connection.server.name
        name = tool_name(server, item.name, names)
        known = self._listed.get((server, item.name))
        if known is None or known.caller is not connection or known.listed != item or known.spec.name != name:
            try:
                self._services.check_schema(item.parameters)
            except InvalidInput as error:
                notes.append(f"the tool {item.name!r} of the MCP server {server!r} is left out: {error}")
                return None
            known = McpTool(connection, item, name, self._services.argument_parser)
        names.add(name)
        return known

    async def _check_pins(self, server: McpServer, tools: Sequence[McpTool]) -> None:
        """Remember the tools that are seen for the first time, and mark those that have changed since."""
        pins = await self._read_pins(server)
        new = {item.listed.name: item.listed.digest for item in tools if item.listed.name not in pins}
        if new:
            await self._values.put(_pin_key(server), {**pins, **new})
        for item in tools:
            item.may_ask, item.find_model = _may_ask, _model_of
            if pins.get(item.listed.name, item.listed.digest) == item.listed.digest:
                self._changed.pop(item.spec.name, None)
            else:
                self._changed[item.spec.name] = item
                item.before_call = partial(self._pin, server, item)

    async def _read_pins(self, server: McpServer) -> dict[str, str]:
        pins = await self._values.get(_pin_key(server))
        return cast("dict[str, str]", pins) if isinstance(pins, dict) else {}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Ask:
        """Ask about a tool whose description has changed since it was seen first, or approved last."""
        changed = self._changed.get(call.name)
        if changed is None or getattr(turn.env.policy, "mode", "") == "bypassPermissions":
            return call
        listed = changed.listed
        why = f"the MCP server has changed the description or the parameters of {call.name}; it now says: "
        text = " ".join(listed.description.split())[:500]
        return Ask(reason=f"{why}{text}", rule=f"mcp:changed:{listed.digest[:12]}", scopes=("once",))

    async def _pin(self, server: McpServer, changed: McpTool) -> None:
        """Remember the changed description of a tool that was allowed to run."""
        changed.before_call = None
        self._changed.pop(changed.spec.name, None)
        pins = await self._read_pins(server)
        await self._values.put(_pin_key(server), {**pins, changed.listed.name: changed.listed.digest})

    def _report(self, turn: Turn) -> None:
        """Write to the log of a session what it has not seen yet of the states and tools of servers."""
        before = self._reported.get(turn.session)
        if before is self._snapshot:
            return
        for note in self._notes:
            turn.log.defer(turn.scope, Logged(level="warning", message=note))
        self._notes = []
        for server, view in (before or {}).items():
            if view[0] == "ready" and self._snapshot.get(server, _ABSENT)[0] == "idle":
                reasons = [connection.reason for connection in self._connections if connection.server.name == server]
                detail: JSON = {"reason": next(iter(reasons), "it is not configured any more")}
                turn.log.defer(turn.scope, McpChanged(server=server, change="closed", detail=detail))
        for connection in self._connections:
            server = connection.server.name
            seen, now = (before or {}).get(server), self._snapshot[server]
            if seen != now:
                for event in _describe_change(connection, seen, now):
                    turn.log.defer(turn.scope, event)
        self._reported.pop(turn.session, None)
        self._reported[turn.session] = self._snapshot
        if len(self._reported) > MAX_SESSIONS:
            del self._reported[next(iter(self._reported))]

    def _take_snapshot(self) -> None:
        tools: dict[str, dict[str, str]] = {connection.server.name: {} for connection in self._connections}
        for (server, _), item in self._listed.items():
            tools.setdefault(server, {})[item.spec.name] = item.listed.digest
        views = {c.server.name: (c.state, tools[c.server.name]) for c in self._connections}
        before = self._snapshot  # a server that connects again is as it was before
        self._snapshot = {
            name: before.get(name, view) if view[0] == "connecting" else view for name, view in views.items()
        }

    # ------------------------------------------------------------------------------------------- resources and prompts

    async def _list_resources(self, context: ToolContext, server: str = "") -> JSON:
        chosen = [self._find_server(server)] if server else [c for c in self._connections if c.has_resources]
        return [
            {"server": connection.server.name, **resource}
            for connection in chosen
            for resource in await connection.request(lambda session: session.list_resources(), repeat=True)
        ]

    async def _read_resource(self, context: ToolContext, server: str, uri: str) -> ToolResult:
        connection = self._find_server(server)
        handlers = CallHandlers(ask=lambda asked: ask_person(context, server, asked))
        raw = await connection.request(lambda session: session.read_resource(uri, handlers), repeat=True)
        return ToolResult(call=context.call, content=read_resource(raw))

    def _find_server(self, name: str) -> McpConnection:
        for connection in self._connections:
            if connection.server.name == name:
                return connection
        known = ", ".join(connection.server.name for connection in self._connections)
        raise InvalidInput(f"there is no MCP server {name!r}; there are: {known}")

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Replace a prompt that begins with ``/mcp__SERVER__PROMPT`` by the text of the server."""
        first = content[0] if content and not turn.path else None
        match = _PROMPT_LINE.fullmatch(first.text.strip()) if isinstance(first, Text) else None
        if match is None:
            return content
        await self._connect(turn)
        for connection in self._connections:
            prefix = connection.server.tool_prefix
            if connection.has_prompts and match[1].startswith(prefix):
                found = await self._find_prompt(connection, match[1].removeprefix(prefix), match[2] or "")
                return (*found, *content[1:]) if found else content
        return content

    async def _find_prompt(self, connection: McpConnection, name: str, arguments: str) -> Content:
        limit = connection.server.tool_timeout or TOOL_TIMEOUT
        try:
            async with asyncio.timeout(limit):
                return await _read_prompt(connection, name, arguments)
        except TimeoutError:
            server = connection.server.name
            raise McpError(f"the MCP server {server!r} sent no prompt {name!r} within {limit:g} s") from None


async def _read_prompt(connection: McpConnection, name: str, arguments: str) -> Content:
    """Return the content of a prompt with the words as its arguments, ``()`` when there is no such prompt."""
    prompts = await connection.request(lambda session: session.list_prompts(), repeat=True)
    server = connection.server.name
    prompt = next(
        (p for p in prompts if tool_name(server, p["name"]) == f"{connection.server.tool_prefix}{name}"), None
    )
    if prompt is None:
        return ()
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    names = [argument["name"] for argument in prompt.get("arguments", [])]
    if len(words) > len(names) > 0:
        words[len(names) - 1 :] = [" ".join(words[len(names) - 1 :])]
    given = dict(zip(names, words, strict=False))
    missing = [a["name"] for a in prompt.get("arguments", []) if a.get("required") and a["name"] not in given]
    if missing:
        raise InvalidInput(f"the prompt {name!r} of {server!r} needs: {', '.join(missing)}")
    raw = await connection.request(
        lambda session: session.get_prompt(prompt["name"], given, CallHandlers()), repeat=True
    )
    return read_content([message.get("content") for message in raw.get("messages", [])])


def _describe_change(connection: McpConnection, seen: "_ServerView | None", now: "_ServerView") -> list[Body]:
    server, (state, tools) = connection.server.name, now
    if state in ("idle", "connecting"):
        return []
    if state != "ready":
        text = f"the MCP server {server!r} is not available: {connection.reason}"
        failed = McpChanged(server=server, change=state, detail={"reason": connection.reason})
        return [failed, Logged(level="warning", message=text)]
    if seen is None or seen[0] != "ready":
        detail: dict[str, JSON] = {"protocol": connection.status.protocol, "tools": sorted(tools)}
        return [McpChanged(server=server, change="ready", detail=detail)]
    old = seen[1]
    both = tools.keys() & old.keys()
    changes: dict[str, JSON] = {
        "added": sorted(tools.keys() - old.keys()),
        "removed": sorted(old.keys() - tools.keys()),
        "changed": sorted(name for name in both if tools[name] != old[name]),
        "tools": sorted(tools),
    }
    return [McpChanged(server=server, change="tools", detail=changes)]


def _model_of(context: ToolContext) -> Model:
    return cast("CallContext", context).owner_turn.recipe.model


def _may_ask(context: ToolContext) -> bool:
    """Whether a server may ask the person now: not if the call could not go on with the answer later."""
    turn = cast("CallContext", context).owner_turn
    effect = turn.tools[cast("CallContext", context).open_call.call.name].spec.effect
    return turn.env.ask == "wait" or (turn.env.ask == "suspend" and effect != "once")


def _pin_key(server: McpServer) -> str:
    return f"{PIN_PREFIX}{server.name}/{digest_of(server.origin)[:16]}"


LIST_RESOURCES = ToolSpec(
    name="ListMcpResources",
    description="List the resources of MCP servers: texts, data and files that ReadMcpResource reads.",
    parameters={
        "type": "object",
        "properties": {
            "server": {"type": "string", "description": "The name of one server; empty for all.", "default": ""}
        },
        "additionalProperties": False,
    },
    output={"type": "array", "items": {"type": "object", "additionalProperties": True}},
    effect="read",
    layer="mcp",
)
READ_RESOURCE = ToolSpec(
    name="ReadMcpResource",
    description="Read a resource of an MCP server.",
    parameters={
        "type": "object",
        "properties": {"server": {"type": "string"}, "uri": {"type": "string"}},
        "required": ["server", "uri"],
        "additionalProperties": False,
    },
    effect="read",
    layer="mcp",
)


class _ResourceTool:
    """A tool of the layer of servers, which rules treat as theirs."""

    def __init__(
        self, spec: ToolSpec, services: MiddlewareServices, function: Callable[..., Awaitable[ToolResult | JSON]]
    ) -> None:
        self.spec, self._function = spec, function
        self._parse = services.argument_parser(spec.parameters)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._parse(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> "ToolResult | JSON":
        return await self._function(context, **arguments)


def read_servers(given: object) -> tuple[McpServer, ...]:
    """Return the servers of ``Project.mcp``: a document as in ``.mcp.json``, or a list of servers and documents.

    Raises ``ConfigError`` for a definition that is not usable.
    """
    items = [*cast("Sequence[object]", given)] if isinstance(given, list | tuple) else [given]
    servers = [item for item in items if isinstance(item, McpServer)]
    for document in items:
        if isinstance(document, McpServer):
            continue
        parsed = parse_servers(document, environment=os.environ)
        refused = [f"{server.name}: {server.refusal}" for server in parsed.servers if server.refusal]
        if refused or not parsed.servers:
            raise ConfigError(f"mcp: {'; '.join(refused or parsed.problems) or 'it defines no server'}")
        servers += parsed.servers
    names = [server.name for server in servers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"mcp: there are two servers named {twice[0]!r}")
    by_prefix: dict[str, str] = {}
    for server in servers:
        other = by_prefix.setdefault(server.tool_prefix, server.name) if server.approved else server.name
        if other != server.name:
            raise ConfigError(f"mcp: {other!r} and {server.name!r} would have tools with the same names; rename one")
    return tuple(servers)


def connect_servers(given: object, services: MiddlewareServices) -> McpTools:
    """Return the middleware for servers: their processes start outside of the sandbox, unless settings say otherwise.

    Raises ``ConfigError`` for a definition that is not usable.
    """
    start = server_starter(services)
    logins = open_stored_logins(services.open_keys, services.add_secret)
    return McpTools(read_servers(given), lambda server: McpConnection(server, start, logins=logins), services)


def server_starter(services: MiddlewareServices) -> StartServer:
    """Return what starts the processes of servers."""
    if services.uses_sandbox("mcp"):
        return sandboxed_servers(services.start_in_sandbox, services.folder)
    return process_starter(services.program_environment, services.folder)
