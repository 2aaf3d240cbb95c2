"""MCP over HTTP at ``/mcp``: each agent is a tool ``ask_<agent>``, in every version of the protocol."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vaka import __version__
from vaka.agents.react import Agent
from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.mcp.elicitation import DecisionForms
from vaka.mcp.server import ServedTool, ToolServer
from vaka.mcp.transcripts import TranscriptResources
from vaka.runtime.served_agents import ServedAgent, ServedTurns
from vaka.server.guard import PRINCIPAL_KEY, Door, GuardedApp
from vaka.server.principal import Principal
from vaka.server.problems import Problem, problem_response
from vaka.server.service import AgentService

_log = logging.getLogger("vaka.server")

MAX_CALLERS = 500
"""Callers whose sessions of the protocol are held at the same time; the one that came least recently is let go."""
INSTRUCTIONS = (
    "Each tool ask_NAME gives a prompt to an agent and returns its answer and a session_id; give the session_id to the "
    "next call to continue that conversation. Transcripts are the resources session://ID/transcript."
)

CallerId: TypeAlias = tuple[str, str, str, frozenset[str], bool]


def door(service: AgentService) -> Door:
    """Return the route of the protocol, and what holds the sessions of its clients."""
    endpoint = McpEndpoint(service)
    scopes = {"GET": "runs:write", "POST": "runs:write", "DELETE": "runs:write"}
    return Door([Route("/mcp", GuardedApp(service.guard, endpoint, scopes, problem_response))], endpoint.run)


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
        manager = await self._find_manager(principal)
        scopes = sorted(principal.scopes)
        token = AccessToken(token=principal.key, client_id=principal.key, scopes=scopes, subject=principal.id)
        await manager.handle_request({**scope, "user": AuthenticatedUser(token)}, receive, send)

    async def _find_manager(self, principal: Principal) -> StreamableHTTPSessionManager:
        id = (principal.namespace, principal.id, principal.key, principal.scopes, principal.own_sessions_only)
        if id not in self._callers:
            self._callers[id] = _CallerServer(self._service, principal)
        self._callers.move_to_end(id)
        if len(self._callers) > MAX_CALLERS:
            _, oldest = self._callers.popitem(last=False)
            await oldest.close()
        return await self._callers[id].started


class _CallerServer:
    """The server of one caller, in a task of its own until it is closed."""

    def __init__(self, service: AgentService, principal: Principal) -> None:
        self.started: asyncio.Future[StreamableHTTPSessionManager] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(service, principal))

    async def _run(self, service: AgentService, principal: Principal) -> None:
        runtime = await service.runtime_of(principal)
        turns = ServedTurns(runtime, _hint, owner=principal.id, own_only=principal.own_sessions_only)
        tools: list[ServedTool] = [ServedAgent(turns, agent) for agent in _usable_agents(service)]
        transcripts = TranscriptResources(
            runtime.store, runtime.options.workspace.tool_folder, owner=principal.visible_owner
        )
        forms = DecisionForms(describe=_describe, hint=_hint, enabled=principal.may("approvals:write"))
        server = ToolServer(tools, runtime, transcripts, forms).build("vaka", __version__, INSTRUCTIONS)
        manager = StreamableHTTPSessionManager(
            server,
            max_request_body_size=service.settings.max_body_bytes,
            stateless=service.settings.workers > 1,  # the process that has a session is not the one that is asked next
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the guard has checked
        )
        async with manager.run():
            self.started.set_result(manager)
            await self._closing.wait()
        await turns.close()

    async def close(self) -> None:
        """End the sessions of the protocol; turns go on."""
        self._closing.set()
        await self._task


def _usable_agents(service: AgentService) -> Iterator[Agent]:
    """Yield the agents that can be used; the definition of another one has an error, which the log names."""
    for name in service.agents:
        try:
            yield service.find_agent(name)
        except Problem as problem:
            _log.warning("agent %s is not offered to MCP clients: %s", name, problem)


def _describe(body: ApprovalRequested) -> str:
    """Return the whole call that a person approves."""
    arguments = msgspec.json.format(msgspec.json.encode(body.call.arguments), indent=2).decode()
    lines = [f"May {body.call.name} run?", arguments, body.reason, f"rule: {body.rule}" if body.rule else ""]
    return "\n".join(line for line in lines if line)


def _hint(row: PendingDecision) -> str:
    """Return an open decision in one line, with the request that takes it."""
    body: Any = row.event.data
    text = body.text if isinstance(body, QuestionAsked) else body.call.name
    return f"{text[:200]} (decide it in the console, or with POST /api/v1/approvals/{row.id}/resolve)"
