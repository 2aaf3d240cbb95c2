"""A session with an MCP server, on the library ``mcp``: transports, both protocol eras, requests and questions.

Only a program that uses a server imports this file: the library takes most of a second to load.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, TypeAdapter, ValidationError

from vaka.core.loop.stop import TurnStopped
from vaka.core.types.errors import McpError, VakaError
from vaka.core.types.ids import MessageId
from vaka.core.types.message import AssistantMessage, UserMessage
from vaka.mcp.definition import McpServer
from vaka.mcp.logins import LoginStore, describe_refusal
from vaka.mcp.message_streams import MAX_MESSAGE_BYTES, message_streams
from vaka.mcp.oauth import StoredLoginAuth, make_auth
from vaka.mcp.repair import RepairingDispatcher
from vaka.mcp.running_call import CallHandlers, Elicitation, SamplingRequest
from vaka.mcp.stdio import ServerLog, StartServer
from vaka.mcp.tools import ListedTool, SessionExpired, SessionLost, check_schemas, read_content

MAX_PAGES = 100
MAX_ROUNDS = 10
"""How often a server may ask for input within one request."""
CLOSE_SECONDS = 5.0
"""How long the end of a session may take on the network."""
PROBE_SECONDS = 3.0
"""How long a server may take to answer the question for its protocol, before it is taken for an older one."""
STATE_PAUSE_SECONDS = 0.1
LISTEN_SECONDS, LONGEST_LISTEN_SECONDS = 5.0, 300.0
"""How long no announcements are received after a server has ended their stream; each time twice as long."""

_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_LOST = ("Connection closed", "SSE stream")
_current_call: ContextVar["CallHandlers | None"] = ContextVar("vaka_mcp_call", default=None)
_R = TypeVar("_R")
_Page = TypeVar("_Page", bound=types.PaginatedResult)


class SessionRun:
    """The life of one session, from the connection to its end; ``run`` is the only task that enters and leaves it."""

    def __init__(self, server: McpServer, start: StartServer, log: ServerLog, logins: LoginStore | None = None) -> None:
        self.server = server
        self._start = start
        self.log = log
        self._logins = logins
        self._scope = anyio.CancelScope()
        self._end = asyncio.Event()
        self.http_status = 0
        """The status of the last message that the server refused, 0 if it took the last one."""
        self.expired = False
        self.opened = False

    def close(self) -> None:
        """Make ``run`` end the session, or give up the connection."""
        self._end.set()
        if not self.opened:
            self._scope.cancel()

    async def run(self, opened: Callable[["McpSession"], None]) -> None:
        """Connect, report the session, and stay until it is lost or closed. Raises what went wrong."""
        kinds = ("http", "sse") if self.server.transport == "http" else (self.server.transport,)
        first: BaseException | None = None
        for kind in kinds:
            self._scope = anyio.CancelScope(deadline=anyio.current_time() + self.server.connect_timeout)
            try:
                with self._scope:
                    await self._run_over(kind, opened)
                    return
            except BaseExceptionGroup as group:
                error = _first_error(group)
            except (MCPError, httpx2.HTTPError, McpError, OSError) as failure:
                error = failure
            else:
                if self.opened or self._end.is_set():
                    return  # the end took too long, or the connection was given up
                error = McpError(f"no connection within {self.server.connect_timeout:g} s")
            first = first or error
            if self.opened or not isinstance(error, MCPError):
                break
        raise first or McpError("no transport")

    async def _run_over(self, kind: str, opened: Callable[["McpSession"], None]) -> None:
        async with AsyncExitStack() as stack:
            read, write = await stack.enter_async_context(self._open_transport(kind))
            session = McpSession(self)
            client = await stack.enter_async_context(session.make_client(read, write))
            await negotiate(client, min(PROBE_SECONDS, self.server.connect_timeout / 2))
            await session.load(client)
            self._scope.deadline = math.inf
            self.opened = True
            opened(session)
            group = await stack.enter_async_context(anyio.create_task_group())
            group.start_soon(session.watch)
            await self._end.wait()
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS
            group.cancel_scope.cancel()

    def _open_transport(self, kind: str) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        if kind == "stdio":
            return self._stdio_streams()
        return self._http_streams(kind)

    @asynccontextmanager
    async def _http_streams(self, kind: str) -> AsyncGenerator[tuple[Any, Any]]:
        timeout = httpx2.Timeout(self.server.connect_timeout, read=None)

        def make_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = timeout,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            hooks = {"response": [self._see_response]}
            return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

        headers, auth = dict(self.server.headers), make_auth(self.server, self._logins)
        if isinstance(auth, StoredLoginAuth):
            await auth.load()  # here, and not only with the first request, an error says what is wrong
        if kind == "sse":
            async with sse_client(
                self.server.url,
                headers=headers,
                auth=auth,
                httpx_client_factory=make_client,
                timeout=self.server.connect_timeout,
                sse_read_timeout=cast("float", None),
            ) as streams:
                yield streams
            return
        async with (
            make_client(headers, auth=auth) as client,
            streamable_http_client(
                self.server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams

    async def _see_response(self, response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            await _read_bounded(response)
        if response.request.method == "POST" or (response.status_code == 401 and not self.opened):
            self.http_status = response.status_code if response.status_code >= 400 else 0
            self.expired |= response.status_code == 404 and "mcp-session-id" in response.request.headers

    @asynccontextmanager
    async def _stdio_streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        process = self._start(self.server, self.log)
        streams = await process.__aenter__()
        try:
            async with message_streams(streams, self.log, self._end.set) as both:
                yield both
        finally:
            with anyio.CancelScope(shield=True):
                await process.__aexit__(None, None, None)


async def negotiate(session: ClientSession, patience: float) -> None:
    """Agree on a protocol version: by ``server/discover`` (2026-07-28), else by the handshake of earlier versions."""
    try:
        with anyio.fail_after(patience):
            await session.discover()
            return
    except (MCPError, RuntimeError, ValidationError, TimeoutError):
        pass
    try:
        await session.initialize()
    except ValidationError as error:
        raise _describe_invalid(error) from error
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()  # the first question was answered too late, and decided the era


class McpSession:
    """An open session: what the server has, and requests to it. Any task may call its methods."""

    def __init__(self, run: SessionRun) -> None:
        self._run = run
        self._client, self._dispatcher = cast("ClientSession", None), cast("RepairingDispatcher", None)
        self._running: list[CallHandlers] = []
        self.protocol = ""
        self.software = ""
        """The name and version that the server gives itself."""
        self.instructions = ""
        self.tools: tuple[ListedTool, ...] = ()
        self.stale = False
        """Whether the server has announced other tools."""
        self.has_resources = self.has_prompts = False

    def make_client(self, read: Any, write: Any) -> ClientSession:
        """Return the session of the library, to be entered; this object answers what the server asks."""
        self._dispatcher = RepairingDispatcher(read, write)
        return ClientSession(
            dispatcher=self._dispatcher,
            elicitation_callback=self._elicit,
            message_handler=self._see_message,
            sampling_callback=self._sample if self._run.server.sampling else None,
            logging_callback=self._see_log,
            client_info=types.Implementation(name="vaka", version="0.1.0"),
        )

    async def load(self, client: ClientSession) -> None:
        """Read what the server has, after the negotiation."""
        self._client = client
        self.protocol, self.instructions = client.protocol_version or "", client.instructions or ""
        self.software = f"{client.server_info.name} {client.server_info.version}"[:200] if client.server_info else ""
        capabilities = client.server_capabilities
        self.has_resources = capabilities is not None and capabilities.resources is not None
        self.has_prompts = capabilities is not None and capabilities.prompts is not None
        if capabilities is None or capabilities.tools is not None:
            await self.list_tools()

    async def watch(self) -> None:
        """Receive the announcements of other tools; servers of earlier eras send them without being asked."""
        pause = LISTEN_SECONDS
        while True:
            with suppress(SubscriptionLost):
                try:
                    async with listen(self._client, tools_list_changed=True) as events:
                        async for _ in events:
                            self.stale = True
                except (ListenNotSupportedError, MCPError, TimeoutError):
                    return
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_LISTEN_SECONDS)
            self.stale = True  # what was announced in between is unknown

    async def list_tools(self) -> None:
        """Read the list of tools again."""
        self.stale = False
        self._dispatcher.faults.clear()
        found = [_listed_tool(tool) async for page in self._pages(self._client.list_tools) for tool in page.tools]
        faults = self._dispatcher.faults
        kept = [tool for tool in found if tool.name not in faults]
        self.tools = (*kept, *(ListedTool(name=name, fault=fault) for name, fault in faults.items()))

    async def call_tool(self, name: str, arguments: dict[str, Any], handlers: CallHandlers) -> dict[str, Any]:
        """Call a tool and return its result as the server sent it."""

        def request(responses: "types.InputResponses | None", state: str | None) -> types.CallToolRequest:
            return types.CallToolRequest(
                params=types.CallToolRequestParams(
                    name=name, arguments=arguments, input_responses=responses, request_state=state
                )
            )

        return await self._request_rounds(request, handlers)

    async def list_resources(self) -> list[dict[str, Any]]:
        """Return the resources and the templates of resources."""
        found = [_dump(item) async for page in self._pages(self._client.list_resources) for item in page.resources]
        with suppress(McpError):  # a server need not have templates
            async for templates in self._pages(self._client.list_resource_templates):
                found += [_dump(item) for item in templates.resource_templates]
        return found

    async def read_resource(self, uri: str, handlers: CallHandlers) -> dict[str, Any]:
        def request(responses: "types.InputResponses | None", state: str | None) -> types.ReadResourceRequest:
            return types.ReadResourceRequest(
                params=types.ReadResourceRequestParams(uri=uri, input_responses=responses, request_state=state)
            )

        return await self._request_rounds(request, handlers)

    async def list_prompts(self) -> list[dict[str, Any]]:
        return [_dump(item) async for page in self._pages(self._client.list_prompts) for item in page.prompts]

    async def _pages(self, request: "Callable[..., Awaitable[_Page]]") -> AsyncGenerator[_Page]:
        """Yield the pages of a list; a server that names a page for the second time has no more."""
        cursor: str | None = None
        seen: set[str | None] = {None}
        while len(seen) < MAX_PAGES:
            page = await self._guard(request(params=types.PaginatedRequestParams(cursor=cursor)))
            yield page
            cursor = page.next_cursor
            if cursor in seen:
                return
            seen.add(cursor)

    async def get_prompt(self, name: str, arguments: dict[str, str], handlers: CallHandlers) -> dict[str, Any]:
        def request(responses: "types.InputResponses | None", state: str | None) -> types.GetPromptRequest:
            return types.GetPromptRequest(
                params=types.GetPromptRequestParams(
                    name=name, arguments=arguments, input_responses=responses, request_state=state
                )
            )

        return await self._request_rounds(request, handlers)

    async def _request_rounds(
        self, request: "Callable[[types.InputResponses | None, str | None], Any]", handlers: CallHandlers
    ) -> dict[str, Any]:
        """Send a request, and again with answers as long as the server needs input (2026-07-28)."""
        responses: types.InputResponses | None = None
        state: str | None = None
        listed = False
        token = _current_call.set(handlers)
        self._running.append(handlers)
        try:
            for _ in range(MAX_ROUNDS):
                try:
                    sent = self._client.send_request(
                        request(responses, state), _RAW, progress_callback=handlers.report_progress
                    )
                    raw = cast("dict[str, Any]", await self._guard(sent))
                except _StaleHeaders:
                    if listed:
                        raise
                    listed = True
                    await self.list_tools()
                    continue
                if raw.get("resultType") != "input_required":
                    return raw
                asked = types.InputRequiredResult.model_validate(raw, by_name=False)
                responses, state = await self._answer(asked), asked.request_state
        finally:
            self._running.remove(handlers)
            _current_call.reset(token)
        raise McpError(f"the server asked for input {MAX_ROUNDS} times without a result")

    async def _answer(self, asked: types.InputRequiredResult) -> "types.InputResponses | None":
        if not asked.input_requests:
            await asyncio.sleep(STATE_PAUSE_SECONDS)
            return None
        responses: types.InputResponses = {}
        for key, request in asked.input_requests.items():
            context = ClientRequestContext(session=self._client, request_id=key)
            response = await self._client.dispatch_input_request(context, request)
            if isinstance(response, types.ErrorData):
                raise McpError(f"the server needs what is not offered: {response.message}")
            responses[key] = response
        return responses

    async def _guard(self, work: Awaitable[_R]) -> _R:
        """Await a request; an error of the library becomes one of ours."""
        try:
            return await work
        except MCPError as error:
            if error.code == types.HEADER_MISMATCH:
                raise _StaleHeaders(error.message) from error
            if self._run.expired:
                raise SessionExpired("the server has ended the session") from error
            if error.code == types.CONNECTION_CLOSED and error.message.startswith(_LOST):
                raise SessionLost(self._why_lost()) from error
            if self._run.http_status == 401:
                raise McpError(describe_refusal(self._run.server, 401)) from error
            status = f"HTTP {self._run.http_status}: " if self._run.http_status else ""
            raise McpError(status + (error.message or f"error {error.code}")) from error
        except ValidationError as error:
            raise _describe_invalid(error) from error

    def _why_lost(self) -> str:
        line = self._run.log.last_line
        return f"the connection ended{f' ({line})' if line else ''}"

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Have a person asked by the call that this question belongs to; without one, decline."""
        handlers = self._find_caller()
        if handlers is None or handlers.ask is None:
            return types.ElicitResult(action="decline")
        if isinstance(params, types.ElicitRequestURLParams):
            question = Elicitation(message=params.message, url=params.url)
        else:
            schema = params.model_dump(by_alias=True, mode="json", exclude_none=True)["requestedSchema"]
            question = Elicitation(message=params.message, schema=schema)
        answers = await handlers.ask(question)
        if answers is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=None if question.url else answers)

    def _find_caller(self) -> CallHandlers | None:
        """Return the call that a request of the server belongs to.

        Older protocols do not name the call: it is a call of the only session that is calling.
        """
        alone = len({handlers.session for handlers in self._running}) == 1
        return _current_call.get() or (self._running[0] if alone else None)

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Have the model of the calling agent asked."""
        handlers = self._find_caller()
        if handlers is None or handlers.sample is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="no call is running that could pay for this")
        try:
            text = await handlers.sample(_read_sampling(params))
        except (VakaError, TurnStopped) as error:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
        content = types.TextContent(text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="vaka", stop_reason="endTurn")

    async def _see_message(self, message: "types.ServerNotification | Exception") -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.stale = True

    async def _see_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._run.log.write(f"{params.level}: {params.data}\n".encode("utf-8", "replace"))


class _StaleHeaders(McpError, code="mcp_headers"):
    """The list of tools is older than the server's: it rejects the headers of a call."""


async def _read_bounded(response: httpx2.Response) -> None:
    """Read the body of a response, or nothing if it is too large: the library reads without a limit."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_MESSAGE_BYTES:
            body[:] = b"a message that is too large"
            break
    setattr(response, "_content", bytes(body))  # noqa: B010  # what ``aread`` returns from now on


def _dump(item: BaseModel) -> dict[str, Any]:
    return item.model_dump(by_alias=True, mode="json", exclude_none=True)


def _listed_tool(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    listed = ListedTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        output=tool.output_schema,
        title=tool.title or (hints.title if hints and hints.title else ""),
        reads=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )
    return check_schemas(listed)


def _read_sampling(params: types.CreateMessageRequestParams) -> SamplingRequest:
    messages: list[UserMessage | AssistantMessage] = []
    for message in params.messages:
        blocks = [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in message.content_as_list]
        content = read_content(blocks)
        if message.role == "user":
            messages.append(UserMessage(content=content))
        else:
            messages.append(AssistantMessage(id=MessageId(""), content=content))
    return SamplingRequest(messages=tuple(messages), system=params.system_prompt or "", max_tokens=params.max_tokens)


def _describe_invalid(error: ValidationError) -> McpError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return McpError(f"the server sent what the protocol does not allow: {where}: {first['msg']}")


def _first_error(error: BaseException) -> BaseException:
    """Return the most specific error of a group: an error of the network before an error of the protocol."""
    leaves: list[BaseException] = []
    stack = [error]
    while stack:
        item = stack.pop()
        if isinstance(item, BaseExceptionGroup):
            stack += cast("tuple[BaseException, ...]", item.exceptions)
        else:
            leaves.append(item)
    return next((leaf for leaf in leaves if not isinstance(leaf, MCPError)), leaves[0])
