"""The tools of the agents: list them, and call one under the rules that hold for the agent."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from vaka.agents.react import Agent
from vaka.core.loop.blobs import restore_content
from vaka.core.types.message import Content, ToolResult
from vaka.core.types.progress import GIVEN_CALLS, ToolCompleted, ToolFailed
from vaka.core.types.tool import ToolSpec
from vaka.models.given_calls import CALLS_OPTION
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import Page, PageLimit, page_limit
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService, PromptInput
from vaka.server.rest.documents import DecisionDocument
from vaka.server.rest.open_decisions import describe_decisions
from vaka.server.sse import wait_while_connected
from vaka.server.turn_events import TurnEvents

MCP_PREFIX = "mcp__"
CallStatus: TypeAlias = Literal["completed", "failed", "denied", "waiting"]


class ListTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tools to list: the tools of one agent, or of all agents."""

    agent: str = ""
    limit: PageLimit = 200
    cursor: str = ""
    """The name of the last tool of the page before."""


class GetTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tool to return: the tool of one agent, or of the first agent that has it."""

    agent: str = ""


class ToolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as models see it."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str
    source: str
    """Where the tool comes from: ``code``, ``builtin`` or another layer."""
    agents: tuple[str, ...]
    """The agents that have it."""


class ExecuteTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call; ``agent`` is the agent whose rules hold."""

    agent: str = ""
    arguments: dict[str, Any] = {}


class ToolCallDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a tool call. While it waits for a person, ``decision`` is the open decision."""

    session: str
    """The session whose log has the call."""
    turn: str
    call: str
    status: CallStatus
    content: Content = ()
    value: Any = None
    failed: bool = False
    reason: str = ""
    decision: DecisionDocument | UnsetType = UNSET


def tool_document(spec: ToolSpec, agents: list[str]) -> ToolDocument:
    return ToolDocument(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        effect=spec.effect,
        source=spec.layer,
        agents=tuple(agents),
    )


def _read_agents(service: AgentService, name: str) -> Iterator[tuple[Agent, Sequence[ToolSpec]]]:
    """Yield an agent, or all agents that can be built, each with its tools."""
    for each in [name] if name else list(service.agents):
        try:
            yield service.find_tools(each)
        except Problem:
            if name:
                raise


def _list_specs(service: AgentService, name: str) -> dict[str, tuple[ToolSpec, list[str]]]:
    """Return the tools of an agent, or of all agents that can be built, each with the names of its agents."""
    found: dict[str, tuple[ToolSpec, list[str]]] = {}
    for agent, specs in _read_agents(service, name):
        for spec in specs:
            found.setdefault(spec.name, (spec, []))[1].append(agent.name)
    return found


async def list_tools(service: AgentService, request: Request) -> Response:
    query = read_query(request, ListTools)
    found, limit = _list_specs(service, query.agent), page_limit(query.limit)
    names = sorted(name for name in found if name > query.cursor)
    more = len(names) > limit
    data = [tool_document(*found[name]) for name in names[:limit]]
    return json_response(Page(data=data, next_cursor=names[limit - 1] if more else None, has_more=more))


async def get_tool(service: AgentService, request: Request) -> Response:
    name, query = request.path_params["tool"], read_query(request, GetTool)
    found = _list_specs(service, query.agent).get(name)
    if found is None:
        raise not_found(f"tool {name!r}")
    return json_response(tool_document(*found))


def _caller_of(service: AgentService, name: str, tool: str) -> Agent:
    """Return an agent without its model, with the tool and the rules for it. Raises a ``Problem`` (404)."""
    having = (agent for agent, specs in _read_agents(service, name) if any(spec.name == tool for spec in specs))
    agent = next(having, None)
    if agent is None and not tool.startswith(MCP_PREFIX):  # servers list their tools when a turn runs
        raise not_found(f"tool {tool!r}" + (f" of agent {name!r}" if name else ""))
    agent = agent or service.find_agent(name)
    return Agent(agent.name, tools=agent.tools, middleware=agent.middleware, limits=agent.limits)


async def execute_tool(service: AgentService, request: Request) -> Response:
    """Makes the call in a session of its own. Returns when it has a result or waits for a decision."""
    body, principal = await read_json(request, ExecuteTool, empty=ExecuteTool()), principal_of(request)
    name, runtime = request.path_params["tool"], await service.runtime_of(principal)
    agent = _caller_of(service, body.agent, name)
    session = await runtime.open(agent, id=runtime.env.ids.new_id("ses_tool"))
    await session.update(title=f"Call of {name}"[:200], owner=principal.id, tags=["tool-call"], by=principal.id)
    calls = [{"name": name, "arguments": body.arguments}]
    prompt = PromptInput(prompt=f"Call of {name}", model=GIVEN_CALLS, options={CALLS_OPTION: calls})
    events = await service.start_turn(principal, session, prompt, until_waiting=True)
    result = await wait_while_connected(request, _read_result(events))
    if result is not None:
        content = await restore_content(runtime.store.blobs, result.content)
        document = ToolCallDocument(
            session=session.id,
            turn=events.turn,
            call=result.call,
            status=_status_of(result),
            content=content,
            value=result.value,
            failed=result.failed,
            reason=result.reason,
        )
        return json_response(document)
    rows = await runtime.decisions(session.id)
    if not rows:
        raise Problem(500, "no_result", f"the call of {name} has no result; see session {session.id!r}")
    (decision,) = await describe_decisions(runtime.store, rows[:1], agent=agent.name)
    call = "" if decision.call is UNSET else decision.call.id
    return json_response(
        ToolCallDocument(session=session.id, turn=events.turn, call=call, status="waiting", decision=decision)
    )


async def _read_result(events: TurnEvents) -> ToolResult | None:
    """Return the result of the only call of a turn; ``None`` if it waits for a decision."""
    result: ToolResult | None = None
    async with events:
        async for event in events:
            if isinstance(event.data, ToolCompleted | ToolFailed) and not event.path:
                result = event.data.result
    return result


def _status_of(result: ToolResult) -> CallStatus:
    if result.reason in ("denied", "expired"):
        return "denied"
    return "failed" if result.failed else "completed"


OPERATIONS = (
    Operation(
        method="GET",
        path="/tools",
        scope="runs:read",
        handler=list_tools,
        summary="List tools",
        query=ListTools,
        result=Page[ToolDocument],
    ),
    Operation(
        method="GET",
        path="/tools/{tool}",
        scope="runs:read",
        handler=get_tool,
        summary="Get a tool",
        query=GetTool,
        result=ToolDocument,
    ),
    Operation(
        method="POST",
        path="/tools/{tool}/execute",
        scope="tools:execute",
        handler=execute_tool,
        summary="Call a tool under the rules of an agent",
        body=ExecuteTool,
        result=ToolCallDocument,
    ),
)
