"""The routes of A2A: JSON-RPC at ``/a2a/{agent}``, HTTP+JSON below ``/a2a/{agent}/v1``, and the cards of the agents."""

import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka import __version__
from vaka.agents.react import Agent, tool_name_of
from vaka.core.types.errors import VakaError
from vaka.server.a2a.errors import A2A_JSON, rest_error, rest_problem, rpc_error, rpc_problem
from vaka.server.a2a.tasks import A2aTasks, ListParams, SendParams, TaskParams, TaskUpdates
from vaka.server.kit.bodies import decode_json, json_response, read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import Handler, guard_route, principal_of, require_scope
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, problem_of
from vaka.server.kit.service import AgentService
from vaka.server.sse import EventStream, wait_while_connected
from vaka.views.a2a import agent_card
from vaka.views.a2a.card import PROTOCOL_VERSION
from vaka.views.a2a.content import JsonObject

VERSION_HEADER = "A2A-Version"
CARD_PATH = "/.well-known/agent-card.json"

P = TypeVar("P")
Frame: TypeAlias = Callable[[JsonObject], JsonObject]
"""Returns a stream response in the form of a binding."""

_PUSH_METHODS = (
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)
_WRITING_METHODS = ("SendMessage", "SendStreamingMessage", "CancelTask")


class _RpcRequest(msgspec.Struct, frozen=True):
    jsonrpc: str = ""
    method: str = ""
    id: Any = None
    params: Any = None


def door(service: AgentService) -> Door:
    """Return the routes of A2A."""
    server, guard = _A2aServer(service), service.guard
    rest = "/a2a/{agent}/v1"
    push: dict[str, tuple[str, Handler]] = dict.fromkeys(("GET", "POST", "DELETE"), ("runs:read", server.refuse_push))
    streams: dict[str, tuple[str, Handler]] = dict.fromkeys(("GET", "POST"), ("runs:read", server.subscribe))
    routes = [
        guard_route(guard, "/a2a/{agent}", {"POST": ("runs:read", server.call)}, rpc_problem),
        guard_route(guard, rest + "/message:send", {"POST": ("runs:write", server.send)}, rest_problem),
        guard_route(guard, rest + "/message:stream", {"POST": ("runs:write", server.stream)}, rest_problem),
        guard_route(guard, rest + "/tasks/{task}:cancel", {"POST": ("runs:write", server.cancel)}, rest_problem),
        guard_route(guard, rest + "/tasks/{task}:subscribe", streams, rest_problem),
        guard_route(guard, rest + "/tasks/{task}/pushNotificationConfigs", push, rest_problem),
        guard_route(guard, rest + "/tasks/{task}/pushNotificationConfigs/{config}", push, rest_problem),
        guard_route(guard, rest + "/tasks/{task}", {"GET": ("runs:read", server.get)}, rest_problem),
        guard_route(guard, rest + "/tasks", {"GET": ("runs:read", server.list_tasks)}, rest_problem),
        guard_route(guard, rest + "/extendedAgentCard", {"GET": ("runs:read", server.extended_card)}, rest_problem),
        guard_route(guard, "/a2a/{agent}" + CARD_PATH, {"GET": ("", server.card)}, rest_problem),
        guard_route(guard, CARD_PATH, {"GET": ("", server.card)}, rest_problem),
    ]
    return Door(routes)


class _A2aServer:
    def __init__(self, service: AgentService) -> None:
        self._service, self._tasks = service, A2aTasks(service)

    def _agent_of(self, request: Request) -> Agent:
        return self._service.find_agent(request.path_params.get("agent", ""))

    # --------------------------------------------------------------------------------------------------------- JSON-RPC

    async def call(self, request: Request) -> ASGIApp:
        """Answer a request of JSON-RPC; errors of the protocol are responses with status 200."""
        agent, id = self._agent_of(request), None
        try:
            given = _read_rpc(await read_bytes(request))
            id = given.id
            _check_version(request)
            principal = principal_of(request)
            if given.method in _WRITING_METHODS:
                require_scope(principal, "runs:write")
            updates = await self._open_stream(principal, agent, given)
            if updates is not None:
                return self._event_stream(agent, updates, lambda result: _rpc_result(id, result), id)
            return json_response(_rpc_result(id, await self._call_method(request, principal, agent, given)))
        except (Problem, VakaError) as error:
            return json_response(rpc_error(problem_of(error), id))

    async def _open_stream(self, principal: Principal, agent: Agent, given: _RpcRequest) -> TaskUpdates | None:
        """Return the updates that a method streams; ``None`` for a method that has one result."""
        if given.method == "SendStreamingMessage":
            self._service.streams.require_room(principal)
            return await self._tasks.send(principal, agent, _convert(given.params, SendParams))
        if given.method == "SubscribeToTask":
            return await self._tasks.subscribe(principal, agent, _convert(given.params, TaskParams).id)
        return None

    async def _call_method(
        self, request: Request, principal: Principal, agent: Agent, given: _RpcRequest
    ) -> JsonObject:
        match given.method:
            case "SendMessage":
                params = _convert(given.params, SendParams)
                return {"task": await self._send_and_wait(request, agent, params)}
            case "GetTask":
                return await self._tasks.get(principal, agent, _convert(given.params, TaskParams))
            case "ListTasks":
                return await self._tasks.list_page(principal, agent, _convert(given.params, ListParams))
            case "CancelTask":
                return await self._tasks.cancel(principal, agent, _convert(given.params, TaskParams))
            case "GetExtendedAgentCard":
                return self._make_card(request, agent, extended=True)
            case method if method in _PUSH_METHODS:
                raise _no_push()
            case method:
                raise Problem(404, "method_not_found", f"there is no method {method[:80]!r}")

    # -------------------------------------------------------------------------------------------------------- HTTP+JSON

    async def send(self, request: Request) -> Response:
        """Answer ``message:send``."""
        agent, params = self._agent_of(request), await _read_body(request, SendParams)
        return _a2a_response({"task": await self._send_and_wait(request, agent, params)})

    async def _send_and_wait(self, request: Request, agent: Agent, params: SendParams) -> JsonObject:
        """Give a message to a task and return the task when it has ended or waits, while the client is there."""
        principal = principal_of(request)
        updates = await self._tasks.send(principal, agent, params)
        return await wait_while_connected(request, self._tasks.wait(principal, agent, updates, params))

    async def stream(self, request: Request) -> ASGIApp:
        """Answer ``message:stream``."""
        agent, params = self._agent_of(request), await _read_body(request, SendParams)
        self._service.streams.require_room(principal_of(request))
        updates = await self._tasks.send(principal_of(request), agent, params)
        return self._event_stream(agent, updates, lambda result: result)

    async def subscribe(self, request: Request) -> ASGIApp:
        """Answer ``tasks/{task}:subscribe``."""
        _check_version(request)
        agent = self._agent_of(request)
        updates = await self._tasks.subscribe(principal_of(request), agent, request.path_params["task"])
        return self._event_stream(agent, updates, lambda result: result)

    async def get(self, request: Request) -> Response:
        """Answer ``tasks/{task}``."""
        params = _read_query(request, TaskParams, id=request.path_params["task"])
        return _a2a_response(await self._tasks.get(principal_of(request), self._agent_of(request), params))

    async def cancel(self, request: Request) -> Response:
        """Answer ``tasks/{task}:cancel``."""
        _check_version(request)
        params = TaskParams(request.path_params["task"])
        return _a2a_response(await self._tasks.cancel(principal_of(request), self._agent_of(request), params))

    async def list_tasks(self, request: Request) -> Response:
        """Answer ``tasks``."""
        params = _read_query(request, ListParams)
        return _a2a_response(await self._tasks.list_page(principal_of(request), self._agent_of(request), params))

    async def refuse_push(self, request: Request) -> Response:
        """Answer every request about push notifications."""
        raise _no_push()

    def _event_stream(self, agent: Agent, updates: TaskUpdates, frame: Frame, id: Any = None) -> EventStream:
        async def frames() -> AsyncGenerator[bytes]:
            try:
                async with aclosing(self._tasks.stream(agent, updates)) as batches:
                    async for batch in batches:
                        yield b"".join(b"data: %b\n\n" % msgspec.json.encode(frame(each)) for each in batch)
            except VakaError as error:
                problem = problem_of(error)
                is_rpc = "jsonrpc" in frame({})
                body = rpc_error(problem, id) if is_rpc else rest_error(problem)
                yield (b"" if is_rpc else b"event: error\n") + b"data: %b\n\n" % msgspec.json.encode(body)

        return EventStream(frames(), self._service.streams)

    # ------------------------------------------------------------------------------------------------------------ cards

    async def card(self, request: Request) -> Response:
        """Return the card of an agent, or that the client has the current one."""
        body = msgspec.json.encode(self._make_card(request, self._agent_of(request)))
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "private, max-age=0, must-revalidate"}
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(body, 200, headers, "application/json")

    async def extended_card(self, request: Request) -> Response:
        """Return the card of an agent with its tools."""
        _check_version(request)
        return _a2a_response(self._make_card(request, self._agent_of(request), extended=True))

    def _make_card(self, request: Request, agent: Agent, *, extended: bool = False) -> JsonObject:
        base = self._service.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")
        address = f"{base}/a2a/{quote(agent.name, safe='')}"
        details: JsonObject = {
            "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": True},
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        }
        interfaces = {"JSONRPC": address, "HTTP+JSON": f"{address}/v1"}
        card = agent_card(agent, interfaces, version=__version__, details=details)
        if extended:
            names = [tool_name_of(tool) for tool in agent.tools]
            card["skills"] += [{"id": name, "name": name, "description": name, "tags": ["tool"]} for name in names]
        return card


def _no_push() -> Problem:
    return Problem(400, "push_not_supported", "this server sends no push notifications; stream or poll the task")


def _check_version(request: Request) -> None:
    """Refuse versions of the protocol other than 1; a request without a version is of 0.3, as the protocol says."""
    version = request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or "0.3"
    if version.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        detail = f"A2A version {version[:20]!r} is not supported; send {VERSION_HEADER}: {PROTOCOL_VERSION}"
        raise Problem(400, "version_not_supported", detail)


def _read_rpc(body: bytes) -> _RpcRequest:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", f"the body is not JSON: {str(error)[:200]}") from error
    try:
        request = msgspec.convert(decoded, _RpcRequest)
    except msgspec.ValidationError as error:
        raise Problem(400, "invalid_request", f"the body is not one request of JSON-RPC: {error}") from error
    if request.jsonrpc != "2.0" or isinstance(request.id, bool) or not isinstance(request.id, str | int | None):
        raise Problem(400, "invalid_request", "a request of JSON-RPC has jsonrpc '2.0' and a text or number as id")
    return request


def _convert(params: Any, type: type[P]) -> P:
    try:
        return msgspec.convert({} if params is None else params, type)
    except msgspec.ValidationError as error:
        raise Problem(400, "invalid_params", f"the parameters are not valid: {error}") from error


async def _read_body(request: Request, type: type[P]) -> P:
    _check_version(request)
    return decode_json(await read_bytes(request), type)


def _read_query(request: Request, type: type[P], **fields: str) -> P:
    _check_version(request)
    try:
        return msgspec.convert({**request.query_params, **fields}, type, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "invalid_params", f"the parameters are not valid: {error}") from error


def _rpc_result(id: Any, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _a2a_response(value: JsonObject) -> Response:
    return Response(msgspec.json.encode(value), 200, {VERSION_HEADER: PROTOCOL_VERSION}, A2A_JSON)
