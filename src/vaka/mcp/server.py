"""A server of the protocol: tools that run turns, decisions of a person by elicitation, transcripts as resources."""

import asyncio
import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import anyio
import mcp_types as types
import msgspec
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette

from vaka.core.ports.store import PendingDecision
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.message import Audio, Content, Document, Image, Part, Text, text_of
from vaka.core.types.tool import ToolSpec
from vaka.mcp.elicitation import DecisionForm, DecisionForms, DecisionPort, parse_answer
from vaka.mcp.transcripts import TEMPLATE, TranscriptResources

MAX_LINE_BYTES = 10 * 1024 * 1024
"""Bytes of one message on stdin; a longer one is answered with an error."""
TOOLS_TTL_MS = 60_000
"""How long a client may keep the list of tools, which is the same for the whole life of a server."""
_RESOURCE_NOT_FOUND = -32002
"""The code of an unknown resource up to 2025-11-25; later versions use the code of invalid parameters."""
_TEXT_TYPES = ("application/json", "application/xml", "application/yaml")

Context: TypeAlias = ServerRequestContext[Any, Any]
Report: TypeAlias = Callable[[str], Awaitable[None]]
"""Sends a line of progress to the client, if it has asked for progress."""


class ToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool. The same ``key`` again is the same call, which then goes on where it has stopped."""

    key: str
    arguments: Mapping[str, Any] = {}
    session: str = ""
    """The session of a call that goes on."""
    seen: int = 0
    """The last event of the session that was reported as progress."""


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How far a call has come: it has its result, or ``decisions`` of a person are needed first."""

    session: str
    content: Content = ()
    value: Mapping[str, Any] | None = None
    """The result as data."""
    failed: bool = False
    decisions: tuple[PendingDecision, ...] = ()
    seen: int = 0


class ServedTool(Protocol):
    """A tool that a server offers."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def continues(self) -> bool:
        """Whether a later call with ``session_id`` goes on where this one waits for a person."""
        ...

    async def run(self, run: ToolRun, report: Report) -> ToolOutcome:
        """Run the call to its end, or to where a person must decide. Raises ``VakaError`` for arguments it refuses.

        A cancelled call stops what it has started.
        """
        ...

    def abandon(self, run: ToolRun) -> None:
        """Stop a call that waits for a person."""
        ...


class _CallState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a client sends back when it repeats a call with the answers of a person."""

    key: str
    session: str
    seen: int
    asked: tuple[str, ...]


class ToolServer:
    """Answers the requests of clients about tools and transcripts."""

    def __init__(
        self,
        tools: Sequence[ServedTool],
        decisions: DecisionPort,
        transcripts: TranscriptResources,
        elicitation: DecisionForms,
        describe_error: Callable[[VakaError], str] = str,
    ) -> None:
        """``describe_error`` returns what a client may know of an error.

        Raises ``InvalidInput`` when two tools have the same name.
        """
        self._tools: dict[str, ServedTool] = {}
        for tool in tools:
            if self._tools.setdefault(tool.spec.name, tool) is not tool:
                raise InvalidInput(f"two tools of the server are named {tool.spec.name!r}; rename one of them")
        self._decisions = decisions
        self._transcripts = transcripts
        self._elicitation = elicitation
        self._describe_error = describe_error

    def build(self, name: str, version: str, instructions: str = "") -> "Server[dict[str, Any]]":
        """Return the server of the SDK, which speaks all versions of the protocol on any transport."""
        server: Server[dict[str, Any]] = Server(
            name,
            version=version,
            instructions=instructions or None,
            cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_TTL_MS)},
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=self._read_resource,
        )
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=name))
        return server

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.spec.parameters

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(tool.spec) for tool in self._tools.values()])

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}")
        call = _ToolCall(ctx, tool, self._decisions, self._elicitation)
        try:
            return await call.run(params)
        except VakaError as error:
            return _error_result(self._describe_error(error))

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        try:
            page = await self._transcripts.list(params.cursor or "" if params is not None else "")
        except InvalidInput as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        except VakaError as error:
            raise MCPError(types.INTERNAL_ERROR, self._describe_error(error)) from error
        return types.ListResourcesResult(
            resources=[types.Resource(**fields) for fields in page.resources], next_cursor=page.next or None
        )

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            text = await self._transcripts.read(params.uri)
        except VakaError as error:
            raise MCPError(types.INTERNAL_ERROR, self._describe_error(error)) from error
        if text is None:
            code = types.INVALID_PARAMS if _is_modern(ctx) else _RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": params.uri[:1000]})
        contents = types.TextResourceContents(uri=params.uri, mime_type="text/markdown", text=text)
        return types.ReadResourceResult(contents=[contents])


class _ToolCall:
    """One request to call a tool: rounds of work and of decisions, until there is a result."""

    def __init__(self, ctx: Context, tool: ServedTool, decisions: DecisionPort, elicitation: DecisionForms) -> None:
        self._ctx = ctx
        self._tool = tool
        self._decisions = decisions
        self._elicitation = elicitation
        self._progress = 0

    async def run(self, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
        run = ToolRun(key=f"mcp_{secrets.token_hex(12)}", arguments=params.arguments or {})
        if params.request_state is not None:
            state = msgspec.json.decode(params.request_state, type=_CallState)
            run = msgspec.structs.replace(run, key=state.key, session=state.session, seen=state.seen)
            answers = {id: answer for id, answer in (params.input_responses or {}).items() if id in state.asked}
            if dismissed := await self._settle(await self._open_decisions(state), answers):
                return self._waiting_result(run, dismissed)
        while True:
            outcome = await self._tool.run(run, self._report)
            if not outcome.decisions:
                return _result_of(outcome)
            run = msgspec.structs.replace(run, session=outcome.session, seen=outcome.seen)
            asked, forms = outcome.decisions, self._forms_of(outcome.decisions)
            if forms is None:
                return self._waiting_result(run, asked)
            if _is_modern(self._ctx):
                return _input_required(run, forms)
            given = await self._elicit(run, forms)
            if dismissed := await self._settle(asked, given):
                return self._waiting_result(run, dismissed)

    def _forms_of(self, asked: Sequence[PendingDecision]) -> dict[str, DecisionForm] | None:
        """Return the forms of decisions, ``None`` unless all of them can be asked here."""
        if not _can_elicit(self._ctx):
            return None
        forms: dict[str, DecisionForm] = {
            row.id: form for row in asked if (form := self._elicitation.form_of(row)) is not None
        }
        return forms if len(forms) == len(asked) else None

    async def _report(self, text: str) -> None:
        self._progress += 1
        await self._ctx.session.report_progress(self._progress, None, text)

    async def _open_decisions(self, state: _CallState) -> Sequence[PendingDecision]:
        return [row for row in await self._decisions.decisions(state.session) if row.id in state.asked]

    async def _settle(
        self, asked: Sequence[PendingDecision], answers: Mapping[str, object]
    ) -> Sequence[PendingDecision]:
        """Write the answers of the person; return the decisions that the person has dismissed.

        A decision without an answer, or with an answer in another form, stays open and is asked again.
        """
        info = self._ctx.session.client_params
        by = f"mcp:{info.client_info.name}"[:200] if info is not None else "mcp"
        dismissed: list[PendingDecision] = []
        for row in asked:
            answer = answers.get(row.id)
            if not isinstance(answer, types.ElicitResult):
                continue
            if answer.action == "cancel":
                dismissed.append(row)
            elif (given := parse_answer(row, answer.action, answer.content)) is not None:
                await given.write(self._decisions, by)
        return dismissed

    async def _elicit(self, run: ToolRun, forms: Mapping[str, DecisionForm]) -> dict[str, types.ElicitResult]:
        try:
            return {
                id: await self._ctx.session.elicit_form(form.message, form.schema, self._ctx.request_id)
                for id, form in forms.items()
            }
        except anyio.get_cancelled_exc_class():
            self._tool.abandon(run)
            raise

    def _waiting_result(self, run: ToolRun, rows: Sequence[PendingDecision]) -> types.CallToolResult:
        """Return the result of a call that needs a person who cannot be asked here, or has not decided."""
        lines = [self._elicitation.hint(row) for row in rows]
        listed = "\n".join(f"- {line}" for line in lines)
        if not self._tool.continues:
            self._tool.abandon(run)
            return _error_result(f"The call was not made, since a person must decide first:\n{listed}")
        value = {"answer": "", "session_id": run.session, "turn": "", "stop": "waiting", "waiting_for": lines}
        return _error_result(
            f"A person must decide before this goes on:\n{listed}\nThen call this tool again with session_id "
            f"{run.session!r} and an empty prompt.",
            value,
        )


def _input_required(run: ToolRun, forms: Mapping[str, DecisionForm]) -> types.InputRequiredResult:
    requests: types.InputRequests = {}
    for id, form in forms.items():
        params = types.ElicitRequestFormParams(message=form.message, requested_schema=form.schema)
        requests[id] = types.ElicitRequest(params=params)
    state = _CallState(key=run.key, session=run.session, seen=run.seen, asked=tuple(forms))
    return types.InputRequiredResult(input_requests=requests, request_state=msgspec.json.encode(state).decode())


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _can_elicit(ctx: Context) -> bool:
    """Return whether the client shows forms to a person; a client that names no mode means forms."""
    capabilities = ctx.session.client_capabilities
    mode = capabilities.elicitation if capabilities is not None else None
    if mode is None or (mode.form is None and mode.url is not None):
        return False
    return _is_modern(ctx) or ctx.session.can_send_request


def _describe_tool(spec: ToolSpec) -> types.Tool:
    """Return a tool as clients see it. A result that is not an object has no schema in the protocol."""
    reads, output = spec.effect == "read", spec.output
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema=spec.parameters,
        output_schema=output if output is not None and output.get("type") == "object" else None,
        annotations=types.ToolAnnotations(
            read_only_hint=reads, idempotent_hint=reads or spec.effect == "idempotent", destructive_hint=not reads
        ),
    )


def _result_of(outcome: ToolOutcome) -> types.CallToolResult:
    value = None if outcome.value is None else dict(outcome.value)
    return types.CallToolResult(
        content=[_block_of(part) for part in outcome.content], structured_content=value, is_error=outcome.failed
    )


def _error_result(text: str, value: dict[str, Any] | None = None) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=text)]
    return types.CallToolResult(content=content, structured_content=value, is_error=True)


def _block_of(part: Part) -> types.ContentBlock:
    """Return a part of a result as a block of the protocol."""
    match part:
        case Image(data=data, media_type=media) if data:
            return types.ImageContent(data=data, mime_type=media)
        case Audio(data=data, media_type=media) if data:
            return types.AudioContent(data=data, mime_type=media)
        case Document(data=data) if data:
            return types.EmbeddedResource(resource=_resource_of(part))
        case Image(url=url) | Audio(url=url) | Document(url=url) if url:
            return types.ResourceLink(name=url, uri=url, mime_type=part.media_type or None)
        case Text(text=text):
            return types.TextContent(text=text)
        case _:
            return types.TextContent(text=text_of((part,)))


def _resource_of(document: Document) -> types.TextResourceContents | types.BlobResourceContents:
    name, media = document.name or "document", document.media_type
    uri = name if "://" in name else f"document:///{name}"
    if media.startswith("text/") or media in _TEXT_TYPES:
        try:
            text = base64.b64decode(document.data).decode()
        except (binascii.Error, UnicodeDecodeError):
            pass  # other bytes than its type says
        else:
            return types.TextResourceContents(uri=uri, mime_type=media, text=text)
    return types.BlobResourceContents(uri=uri, mime_type=media or None, blob=document.data)


async def _list_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        name="transcript",
        uri_template=TEMPLATE,
        mime_type="text/markdown",
        description="The conversation of a session, with the calls of its tools.",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


def http_app(server: "Server[Any]", *, path: str = "/mcp", host: str = "127.0.0.1") -> Starlette:
    """Return the ASGI application of a server, for an HTTP server that is bound to ``host``.

    On a loopback address it refuses requests whose Host or Origin names another machine. The application that mounts
    it runs its lifespan.
    """
    return server.streamable_http_app(streamable_http_path=path, host=host)


async def serve_lines(
    server: "Server[Any]",
    read: Callable[[int], Awaitable[tuple[bytes, int] | None]],
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Serve one client that sends a JSON message per line, until ``read`` returns ``None``.

    ``read`` returns a line, at most so many bytes of it, and its length; ``write`` adds the end of the line.
    """
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read_messages() -> None:
        async with to_server:
            while (taken := await read(MAX_LINE_BYTES)) is not None:
                line, length = taken
                if length > MAX_LINE_BYTES:
                    await to_server.send(InvalidInput(f"a message has {length} bytes, more than {MAX_LINE_BYTES}"))
                elif line.strip():
                    await to_server.send(_parse_message(line))

    async def write_messages() -> None:
        async with from_server:
            try:
                async for message in from_server:
                    await write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
            except OSError:  # the client has ended
                group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read_messages)
            group.start_soon(write_messages)
            await server.run(from_client, to_client, server.create_initialization_options())
            group.cancel_scope.cancel()
    except BaseExceptionGroup:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the SDK may fail in a closed stream while it is cancelled
            raise asyncio.CancelledError from None
        raise


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
