"""AG-UI: ``POST /agui/{agent}`` runs an agent for a client of the Agent User Interaction Protocol, version 1.0.

A thread is a session, and a run is a turn or the part of one between two interrupts. The client sends its whole
history; of it only the messages after the last answer are read. A run whose client leaves is stopped, unless the client
asks with ``forwardedProps: {"onDisconnect": "continue"}`` that it goes on.
"""

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from vaka import __version__
from vaka.agents.react import Agent
from vaka.agents.routing import routers_of
from vaka.core.types.ids import JSON
from vaka.server.answer_start import AnswerStart, open_answer
from vaka.server.chat_turns import REFUSED_REQUESTS, encode_turn, enter_chat, open_turn
from vaka.server.kit.bodies import json_response, read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route, principal_of
from vaka.server.kit.problems import Problem, problem_response
from vaka.server.kit.service import AgentService
from vaka.server.sse import EventStream
from vaka.views.agui import PROTOCOL_VERSION, AguiEncoder, to_sse
from vaka.views.agui_input import parse_agui_input
from vaka.views.state_values import is_application_value


def door(service: AgentService) -> Door:
    """Return the routes of AG-UI."""

    async def run(request: Request) -> EventStream:
        principal, given = principal_of(request), parse_agui_input(await read_bytes(request))
        service.streams.require_room(principal)
        agent = service.find_agent(request.path_params["agent"])
        session = await enter_chat(service, principal, agent, given)
        turn = await open_turn(service, principal, session, given, while_waiting="reject")
        state = _merge_state(given.state, await session.state_values())
        answered = [result.call for result in given.results]
        encoder = AguiEncoder(run_id=given.run_id, state=state, answered=answered, routers=routers_of(agent))

        async def leave() -> None:
            await service.leave_turn(principal, session, turn.events)

        def make_error(reason: str) -> list[dict[str, Any]]:
            ids = {"threadId": given.session, "runId": given.run_id, "protocolVersion": PROTOCOL_VERSION}
            error = {"type": "RUN_ERROR", "message": reason, "code": "not_started"}
            return [{"type": "RUN_STARTED", **ids}, error]

        start = AnswerStart(REFUSED_REQUESTS)
        frames = await open_answer(encode_turn(turn, encoder, to_sse, make_error, start), start)
        return EventStream(frames, service.streams, on_disconnect=leave if given.stops_on_disconnect else None)

    async def describe(request: Request) -> Response:
        return json_response(_capabilities_of(service.find_agent(request.path_params["agent"])))

    return Door(
        [
            guard_route(service.guard, "/agui/{agent}", {"POST": ("runs:write", run)}, _json_error),
            guard_route(service.guard, "/agui/{agent}/capabilities", {"GET": ("runs:read", describe)}, _json_error),
        ]
    )


def _json_error(problem: Problem, request_id: str) -> Response:
    """Return a problem as ``application/json``: the client gives the body to its caller only in that type."""
    response = problem_response(problem, request_id)
    response.headers["content-type"] = "application/json"
    return response


def _merge_state(given: JSON, values: dict[str, JSON]) -> JSON:
    """Return the state from which a run starts: the client's state with the values that tools have set."""
    shown = {key: value for key, value in values.items() if is_application_value(key)}
    if given is None or isinstance(given, dict):
        return {**cast("dict[str, Any]", given or {}), **shown} or None
    return given


def _capabilities_of(agent: Agent) -> dict[str, Any]:
    """Return the ``AgentCapabilities`` of an agent."""
    return {
        "identity": {"name": agent.name, "type": "vaka", "description": agent.description, "version": __version__},
        "transport": {"streaming": True, "websocket": False, "httpBinary": False, "resumable": False},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": True},
        "output": {"structuredOutput": agent.output is not None},
        "state": {"snapshots": True, "deltas": True, "persistentState": True},
        "multiAgent": {"supported": True, "delegation": True},
        "reasoning": {"supported": True, "streaming": True, "encrypted": False},
        "multimodal": {"input": {"image": True, "audio": True, "pdf": True, "file": True, "video": False}},
        "execution": {} if agent.limits.max_steps is None else {"maxIterations": agent.limits.max_steps},
        "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True, "approveWithEdits": True},
    }
