"""MCP over HTTP at ``/mcp``: each agent is a tool ``ask_<agent>``, in every version of the protocol."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeAlias

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, Asked
from vaka.core.types.decision_text import text_of_decision
from vaka.core.types.errors import Busy
from vaka.mcp.elicitation import DecisionForms, DecisionPort
from vaka.mcp.served_agents import INSTRUCTIONS, ServedAgent, ServedTurns
from vaka.mcp.server import ServedTool, ToolServer
from vaka.mcp.serving import ServableAgent, ServingRuntime
from vaka.mcp.transcripts import TranscriptResources
from vaka.server.kit.bodies import read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import PRINCIPAL_KEY, GuardedApp
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, describe_failure, problem_of, problem_response
from vaka.server.kit.service import AgentService

MAX_CALLERS = 500
"""The most callers with protocol sessions at the same time; the caller with the oldest request is dropped first."""
MAX_SESSIONS = 1000
"""The most protocol sessions of one caller in a process; a session ends after 30 minutes without a request."""

CallerId: TypeAlias = tuple[str, str, str, frozenset[str], bool]


def door(service: AgentService) -> Door:
    """Return the route of the protocol, and what holds the sessions of its clients."""
    endpoint = McpEndpoint(service)
    scopes = {"GET": "runs:write", "POST": "runs:write", "DELETE": "runs:write"}
    return Door([Route("/mcp", GuardedApp(service.guard, endpoint, scopes, problem_response))], endpoint.run)


class CallerRuntime(ServingRuntime, DecisionPort, Protocol):
    """The runtime of one caller."""


class McpEndpoint:
    """Gives each caller a server of its own, so that no session of the protocol is visible to two callers."""

    def __init__(self, service: AgentService) -> None:
        self._service = service
        self._callers: OrderedDict[CallerId, _CallerServer] = OrderedDict()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """End the servers of all callers when the application ends."""
        try:
            yield
        finally:
            await asyncio.gather(*(caller.close() for caller in self._callers.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[PRINCIPAL_KEY]
        request = _McpRequest(principal, is_feed=scope["method"] == "GET")
        streams = self._service.streams
        streams.add(request)
        try:
            manager = await self._find_manager(principal)
            scopes = sorted(principal.scopes)
            token = AccessToken(token=principal.key, client_id=principal.key, scopes=scopes, subject=principal.id)
            if scope["method"] == "POST":
                receive = _replay_body(await read_bytes(Request(scope, receive)), receive)
            await request.run(manager, {**scope, "user": AuthenticatedUser(token)}, receive, send)
        finally:
            streams.remove(request)

    async def _find_manager(self, principal: Principal) -> StreamableHTTPSessionManager:
        runtime = await self._service.runtime_of(principal)
        id = (principal.namespace, principal.id, principal.key, principal.scopes, principal.own_sessions_only)
        if id not in self._callers:
            agents = [
                ServableAgent(name=agent.name, description=agent.description, open=partial(runtime.open, agent))
                for agent in self._service.usable_agents()
            ]
            transcripts = TranscriptResources(
                runtime.store, runtime.options.workspace.tool_folder, owner=principal.visible_owner
            )
            self._callers[id] = _CallerServer(self._service, principal, runtime, agents, transcripts)
        self._callers.move_to_end(id)
        if len(self._callers) > MAX_CALLERS:
            _, oldest = self._callers.popitem(last=False)
            await oldest.close()
        return await asyncio.shield(self._callers[id].started)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body that was read, then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


class _McpRequest:
    """A request that is answered, counted among the open streams.

    The feed of a GET ends when the server stops or its credential does; the answer to a call does not.
    """

    def __init__(self, principal: Principal, *, is_feed: bool) -> None:
        self.principal: Principal | None = principal
        self.resumable = is_feed
        self._answering: asyncio.Task[None] | None = None
        self._cut = False

    def cut(self) -> None:
        if self.resumable:
            self._cut = True
            if self._answering is not None:
                self._answering.cancel()

    def expire(self) -> None:
        self.cut()

    async def run(self, manager: StreamableHTTPSessionManager, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        if not self.resumable:
            await manager.handle_request(scope, receive, send)
            return
        started = ended = False

        async def watch(message: Message) -> None:
            nonlocal started, ended
            started = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        self._answering = answering = asyncio.create_task(manager.handle_request(scope, receive, watch))
        if self._cut:
            answering.cancel()
        try:
            await asyncio.wait([answering])
        finally:
            answering.cancel()
            await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()
        elif not started:
            raise Problem(503, "draining", "the server ends this stream; try again", headers={"Retry-After": "1"})
        elif not ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _CallerServer:
    """The server of one caller, in a task of its own until it is closed."""

    def __init__(
        self,
        service: AgentService,
        principal: Principal,
        runtime: CallerRuntime,
        agents: Sequence[ServableAgent],
        transcripts: TranscriptResources,
    ) -> None:
        """Raises ``InvalidInput`` for agents whose tools would have the same name."""

        def admit(session: str) -> None:
            try:
                service.admit_turn(principal, session)
            except Problem as problem:
                raise Busy(problem.detail) from problem

        turns = ServedTurns(
            runtime,
            _hint,
            describe_failure,
            owner=principal.id,
            own_only=principal.own_sessions_only,
            admit=admit,
        )
        tools: list[ServedTool] = [ServedAgent(turns, agent) for agent in agents]
        forms = DecisionForms(describe=_describe, hint=_hint, enabled=principal.may("approvals:write"))
        tool_server = ToolServer(tools, runtime, transcripts, forms, lambda error: problem_of(error).detail)
        server = tool_server.build("vaka", service.version, INSTRUCTIONS)
        manager = StreamableHTTPSessionManager(
            server,
            max_request_body_size=service.settings.max_body_bytes,
            stateless=service.settings.workers > 1,  # the next request of a session may reach another process
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the guard has checked
            max_sessions=MAX_SESSIONS,
        )
        self.started: asyncio.Future[StreamableHTTPSessionManager] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(manager, turns))

    async def _run(self, manager: StreamableHTTPSessionManager, turns: ServedTurns) -> None:
        async with manager.run():
            self.started.set_result(manager)
            await self._closing.wait()
        await turns.close()

    async def close(self) -> None:
        """End the sessions of the protocol; turns go on."""
        self._closing.set()
        await self._task


def _describe(body: ApprovalRequested) -> str:
    """Return the whole call that a person approves."""
    text = text_of_decision(body)
    arguments = msgspec.json.format(msgspec.json.encode(body.call.arguments), indent=2).decode()
    return "\n".join([text.title, " · ".join(text.facts), arguments, *text.details])


def _hint(row: PendingDecision) -> str:
    """Return an open decision in one line, with the request that takes it."""
    assert isinstance(row.event.data, Asked)  # noqa: S101  # a decision is an approval or a question
    line = text_of_decision(row.event.data).line
    shown = line if len(line) <= 200 else f"{line[:200]}…"
    return f"{shown} Decide it in the console, or with POST /api/v1/approvals/{row.id}/resolve"
