"""The agents that the server offers, and the caller's own rights."""

from typing import Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from vaka.server.kit.bodies import json_response
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import Page, PageLimit, page_limit
from vaka.server.kit.principal import DEBUG, OPERATOR, SCOPES
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.rest.tools import ToolDocument, tool_document


class ListAgents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of the agents, in the order of the server; the default agent comes first."""

    limit: PageLimit = 50
    cursor: str = ""
    """The name of the last agent of the page before."""


class AgentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, as the server would run it now."""

    name: str
    description: str = ""
    kind: str = "agent"
    """``agent`` for the loop of model and tools; ``luau``, ``match`` and others for agents of another kind."""
    model: str = ""
    tools: tuple[ToolDocument, ...] = ()
    source: str = "code"
    """``file`` for an agent that a definition describes, ``code`` for another."""
    error: str | UnsetType = UNSET
    """Why it cannot be used; the reason itself only for callers with the scope ``debug`` or ``operator``."""


class AgentNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of all agents."""

    data: list[str]


class CallerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of the request."""

    id: str
    namespace: str
    scopes: list[str]


@runtime_checkable
class ReloadableAgents(Protocol):
    """Agents that are read from files."""

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        ...


def describe_agent(service: AgentService, name: str) -> AgentDocument:
    """Return the document of an agent. Raises a ``Problem`` if the agent does not exist or cannot be built."""
    agent, tools = service.find_tools(name)
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "name", "")
    return AgentDocument(
        name=agent.name,
        description=agent.description,
        model=model,
        kind=type(agent).__name__.removesuffix("Agent").lower() or "agent",
        tools=tuple(tool_document(spec, [agent.name]) for spec in tools),
        source="code" if agent.origin is None else "file",
    )


def _describe(service: AgentService, name: str, *, with_reason: bool) -> AgentDocument:
    """Return the document of an agent, which says that it cannot be used if that is so."""
    try:
        return describe_agent(service, name)
    except Problem as problem:
        return AgentDocument(name=name, error=str(problem.__cause__ if with_reason else problem))


async def list_agents(service: AgentService, request: Request) -> Response:
    query = read_query(request, ListAgents)
    names, limit = list(service.agents), page_limit(query.limit)
    start = names.index(query.cursor) + 1 if query.cursor in names else 0
    page = names[start : start + limit]
    more = start + limit < len(names)
    with_reason = principal_of(request).may(DEBUG)
    data = [_describe(service, name, with_reason=with_reason) for name in page]
    return json_response(Page(data=data, next_cursor=page[-1] if more else None, has_more=more))


async def get_agent(service: AgentService, request: Request) -> Response:
    return json_response(describe_agent(service, request.path_params["agent"]))


async def reload_agents(service: AgentService, request: Request) -> Response:
    """Reads changed definitions now instead of at the next turn; turns that run keep what they have."""
    if isinstance(service.agents, ReloadableAgents):
        service.agents.refresh()
    return json_response(AgentNames(data=list(service.agents)))


async def get_caller(service: AgentService, request: Request) -> Response:
    principal = principal_of(request)
    scopes = [scope for scope in SCOPES if principal.may(scope)]
    return json_response(CallerDocument(id=principal.id, namespace=principal.namespace, scopes=scopes))


OPERATIONS = (
    Operation(
        method="GET",
        path="/agents",
        scope="runs:read",
        handler=list_agents,
        summary="List agents",
        query=ListAgents,
        result=Page[AgentDocument],
    ),
    Operation(
        method="POST",
        path="/agents/reload",
        scope=OPERATOR,
        handler=reload_agents,
        summary="Read changed definitions of agents",
        result=AgentNames,
    ),
    Operation(
        method="GET",
        path="/agents/{agent}",
        scope="runs:read",
        handler=get_agent,
        summary="Get an agent",
        result=AgentDocument,
    ),
    Operation(
        method="GET",
        path="/me",
        scope="",
        handler=get_caller,
        summary="Get the caller and its scopes",
        result=CallerDocument,
    ),
)
