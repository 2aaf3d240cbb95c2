"""Traces of turns: time, tokens, cost and errors of each model call and tool call."""

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.ports.store import SessionQuery
from vaka.runtime.traces import list_traces, read_session_trace, read_trace
from vaka.server.kit.bodies import json_response
from vaka.server.kit.door import Door
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, operation_routes, read_query
from vaka.server.kit.pages import Page, PageLimit, page_limit
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import find_session
from vaka.views.otlp import to_otlp
from vaka.views.trace import TraceDocument, TraceSummary

DEFAULT_PAGE = 20


class ListTraces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which traces to list: all traces of a session, or the last trace of each session."""

    session: str = ""
    limit: PageLimit = DEFAULT_PAGE
    cursor: str = ""


class GetTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of a trace: our JSON, or the JSON of the OpenTelemetry protocol."""

    format: Literal["json", "otlp"] = "json"


class OtlpTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace as an export request of the OpenTelemetry protocol, with ``format=otlp``."""

    resource_spans: list[dict[str, Any]] = msgspec.field(name="resourceSpans")


async def list_all(service: AgentService, request: Request) -> Response:
    """Reads the logs from their ends, as far as the page goes."""
    query, principal = read_query(request, ListTraces), principal_of(request)
    runtime, limit = await service.runtime_of(principal), page_limit(query.limit)
    if query.session:
        if query.cursor and not query.cursor.isdigit():
            raise Problem(422, "invalid_query", "cursor must be the next_cursor of the page before")
        info = await service.find_session(principal, query.session)
        found, rest = await list_traces(runtime.store, info, int(query.cursor[:18] or 0), limit)
        return _page_of([trace.summarize() for trace in found], str(rest) if rest else "")
    owner = principal.visible_owner
    page = await runtime.store.sessions.list(SessionQuery(owner=owner, limit=limit, after=query.cursor))
    summaries: list[TraceSummary] = []
    for info in page.sessions:
        found, _ = await list_traces(runtime.store, info, 0, 1)
        summaries.extend(trace.summarize() for trace in found)
    return _page_of(summaries, page.next)


def _page_of(summaries: list[TraceSummary], rest: str) -> Response:
    return json_response(Page(data=summaries, next_cursor=rest or None, has_more=bool(rest)))


async def get_turn(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    trace = await read_trace(runtime.store, info, request.path_params["turn"])
    return _trace_response(request, trace.describe())


async def get_session(service: AgentService, request: Request) -> Response:
    """Reads the whole log."""
    runtime, info = await find_session(service, request)
    return _trace_response(request, await read_session_trace(runtime.store, info))


def _trace_response(request: Request, trace: TraceDocument) -> Response:
    return json_response(to_otlp(trace) if read_query(request, GetTrace).format == "otlp" else trace)


OPERATIONS = (
    Operation(
        method="GET",
        path="/traces",
        scope="runs:read",
        handler=list_all,
        summary="List traces, newest first",
        query=ListTraces,
        result=Page[TraceSummary],
    ),
    Operation(
        method="GET",
        path="/traces/{session}",
        scope="runs:read",
        handler=get_session,
        summary="Get all turns of a session as one trace",
        query=GetTrace,
        result=TraceDocument,
        other_results=(OtlpTrace,),
    ),
    Operation(
        method="GET",
        path="/traces/{session}/{turn}",
        scope="runs:read",
        handler=get_turn,
        summary="Get the trace of a turn",
        query=GetTrace,
        result=TraceDocument,
        other_results=(OtlpTrace,),
    ),
)


def door(service: AgentService) -> Door:
    """Return the routes of traces."""
    return Door(operation_routes(service, OPERATIONS))
