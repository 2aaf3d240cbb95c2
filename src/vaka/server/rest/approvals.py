"""Open decisions of all sessions: list and resolve them, follow their number, and give results of client tools."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.core.ports.store import PendingDecision, SessionInfo, SessionQuery
from vaka.core.types.control import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    Asked,
    QuestionAnswered,
    QuestionAsked,
    key_of,
)
from vaka.core.types.decision_text import kind_of_decision
from vaka.core.types.errors import VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON
from vaka.runtime.options import ApprovalAnswer
from vaka.runtime.remembered_rules import RememberedRule
from vaka.runtime.runtime import Runtime
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query, wants_stream
from vaka.server.kit.pages import Page, PageLimit, page_limit
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import find_session
from vaka.server.rest.documents import DecisionDocument
from vaka.server.rest.open_decisions import describe_decisions
from vaka.server.rest.turn_log import read_backwards
from vaka.server.sse import EventStream

SEARCHED_SESSIONS, SEARCHED_SPANS = 20, 2
"""Where a decision that is not open any more is searched for: the sessions, and the spans of events of each."""


class ListApprovals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which open decisions to list; the oldest comes first."""

    session: str = ""
    agent: str = ""
    tool: str = ""
    kind: Literal["", "approval", "question", "result"] = ""
    """``result``: calls that wait for the client that offers the tool; by default only what a person decides."""
    limit: PageLimit = 50
    cursor: str = ""


class RememberDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an approval counts. ``rule`` may replace the suggested rule.

    ``project`` and ``user``: for all sessions of the owner of this one, in the tenant; ``project`` only while tools
    work in the same folder.
    """

    scope: Literal["session", "project", "user"]
    rule: str = ""


class ResolveApproval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision."""

    decision: Literal["approve", "edit", "reject", "answer"]
    edited_args: dict[str, Any] | None = None
    """The arguments that replace the arguments of the call; only with ``edit``."""
    answer: Any | UnsetType = UNSET
    """The answer to a question; only with ``answer``."""
    message: str = ""
    """The reason for a rejection, which the model reads."""
    remember: RememberDecision | None = None


class ResolvedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The event of the decision that counts, the first one."""

    id: str
    event: dict[str, Any]


class DecisionCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of open decisions."""

    count: int


class ListRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner of the rules. Another owner than the caller needs the scope ``admin``."""

    owner: str = ""


class CallResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a call that the client has run."""

    result: Any
    failed: bool = False


class _VisibleSessions:
    """Looks up the sessions of decisions, each once, and only sessions that the caller may see."""

    def __init__(self, runtime: Runtime, principal: Principal) -> None:
        self._runtime, self._principal = runtime, principal
        self._known: dict[str, SessionInfo | None] = {}

    async def find(self, row: PendingDecision) -> SessionInfo | None:
        if row.session not in self._known:
            info = await self._runtime.store.sessions.find(row.session)
            hidden = info is not None and not self._principal.may_see(info)
            self._known[row.session] = None if hidden else info
        return self._known[row.session]

    async def select(self, rows: Iterable[PendingDecision], query: ListApprovals) -> list[PendingDecision]:
        """Return the decisions that the caller may see and the query selects; reads sessions only if it has to."""
        rows = [row for row in rows if _selects(query, row)]
        if not query.agent and not self._principal.own_sessions_only:
            return rows
        found = [(row, await self.find(row)) for row in rows]
        return [row for row, info in found if info is not None and query.agent in ("", _agent_of(row) or info.agent)]

    async def describe(self, rows: Sequence[PendingDecision]) -> list[DecisionDocument]:
        documents: list[DecisionDocument] = []
        for row in rows:
            info = await self.find(row)
            documents += await describe_decisions(self._runtime.store, [row], agent=info.agent if info else "")
        return documents


def _selects(query: ListApprovals, row: PendingDecision) -> bool:
    body = row.event.data
    tool = body.call.name if isinstance(body, ApprovalRequested) else ""
    # A call that waits for a client stays open when the client has left; no person can decide it.
    kinds = (query.kind,) if query.kind else ("approval", "question")
    kind = kind_of_decision(body) if isinstance(body, Asked) else ""
    return query.session in ("", row.session) and query.tool in ("", tool) and kind in kinds


def _agent_of(row: PendingDecision) -> str:
    return row.event.data.agent if isinstance(row.event.data, ApprovalRequested) else ""


async def list_approvals(service: AgentService, request: Request) -> ASGIApp:
    """Reads the index of open decisions; a feed does so twice a second for all its readers together."""
    query, principal = read_query(request, ListApprovals), principal_of(request)
    runtime = await service.runtime_of(principal)
    if wants_stream(request):
        frames = _feed_frames(service, runtime, principal, query)
        return EventStream(frames, service.streams, resumable=True)
    limit, sessions = page_limit(query.limit), _VisibleSessions(runtime, principal)
    rows = sorted(await sessions.select(await runtime.decisions(), query), key=_position_of)
    rows = [row for row in rows if _position_of(row) > query.cursor]
    more = len(rows) > limit
    data = await sessions.describe(rows[:limit])
    return json_response(Page(data=data, next_cursor=_position_of(rows[limit - 1]) if more else None, has_more=more))


def _position_of(row: PendingDecision) -> str:
    return f"{row.event.ts}_{row.id}"


async def _feed_frames(
    service: AgentService, runtime: Runtime, principal: Principal, query: ListApprovals
) -> AsyncGenerator[bytes]:
    """Yield a frame with the number and the ids of open decisions, now and after each change."""
    sent: list[str] | None = None
    try:
        async with aclosing(service.decision_feed.follow(runtime)) as changes:
            async for rows in changes:
                ids: list[str] = [row.id for row in await _VisibleSessions(runtime, principal).select(rows, query)]
                if ids != sent:
                    sent = ids
                    data = msgspec.json.encode({"count": len(ids), "ids": ids})
                    yield b"event: approvals.changed\ndata: " + data + b"\n\n"
    except VakaError:  # the store is not available: the client connects again
        return


async def count_approvals(service: AgentService, request: Request) -> Response:
    query, principal = read_query(request, ListApprovals), principal_of(request)
    runtime = await service.runtime_of(principal)
    rows = await _VisibleSessions(runtime, principal).select(await runtime.decisions(), query)
    return json_response(DecisionCount(count=len(rows)))


async def get_approval(service: AgentService, request: Request) -> Response:
    principal = principal_of(request)
    row = await service.find_decision(principal, request.path_params["approval"])
    [document] = await _VisibleSessions(await service.runtime_of(principal), principal).describe([row])
    return json_response(document)


async def resolve_approval(service: AgentService, request: Request) -> Response:
    """Decides; the first decision counts, and another one after it is a conflict."""
    body, id = await read_json(request, ResolveApproval), request.path_params["approval"]
    return _respond(id, await settle(service, principal_of(request), id, body))


async def settle(service: AgentService, principal: Principal, id: str, body: ResolveApproval) -> Event:
    """Make a decision and return its event. Raises a ``Problem``: 404, or 409 if another decision was made before."""
    runtime = await service.runtime_of(principal)
    row = next(iter(await runtime.decisions(id=id)), None)
    if row is None or not await service.may_see(principal, row.session):
        event = await _find_settlement(service, principal, id)
    else:
        event = await _decide(service, principal, row, body)
        service.decision_feed.poke(runtime)
    _require_same(body, event)
    return event


async def _find_settlement(service: AgentService, principal: Principal, id: str) -> Event:
    """Return the event that has decided, searched for at the ends of the logs that changed last."""
    store = (await service.runtime_of(principal)).store
    for info in (await store.sessions.list(SessionQuery(limit=SEARCHED_SESSIONS))).sessions:
        async with aclosing(read_backwards(store, info.id, info.head)) as spans:
            searched = 0
            async for span in spans:
                found = next((event for event in span if _settles(event, id)), None)
                if found is not None and await service.may_see(principal, found.session):
                    return found
                searched += 1
                if searched == SEARCHED_SPANS:
                    break
    raise not_found(f"decision {id!r}")


def _settles(event: Event, id: str) -> bool:
    """Return whether an event has decided; inputs have keys, too."""
    return isinstance(event.data, ApprovalResolved | ApprovalExpired | QuestionAnswered) and key_of(event.data) == id


async def _decide(service: AgentService, principal: Principal, row: PendingDecision, body: ResolveApproval) -> Event:
    is_question = isinstance(row.event.data, QuestionAsked)
    if is_question != (body.decision == "answer"):
        expected = "answer" if is_question else "approve, edit or reject"
        errors = [{"field": "decision", "message": f"expected {expected}"}]
        raise Problem(422, "invalid_body", f"decision {row.id!r} needs {expected}", errors=errors)
    if is_question:
        if body.answer is UNSET:
            raise Problem(422, "invalid_body", "give an answer", errors=[{"field": "answer"}])
        answer: JSON = body.answer
        return await service.answer(principal, row.id, answer)
    if (body.decision == "edit") != (body.edited_args is not None):
        raise Problem(422, "invalid_body", "edited_args belong to an edit", errors=[{"field": "edited_args"}])
    details = ApprovalAnswer(message=body.message, edit=body.edited_args)
    if body.remember is not None:
        details["scope"], details["rule"] = body.remember.scope, body.remember.rule
    return await service.resolve(principal, row.id, approve=body.decision != "reject", **details)


def _require_same(body: ResolveApproval, event: Event) -> None:
    """Raise a ``Problem`` (409) if another decision than the requested decision counts."""
    match event.data:
        case ApprovalResolved(decision=decision, edit=edit):
            same = decision == ("reject" if body.decision == "reject" else "approve") and edit == body.edited_args
        case QuestionAnswered(answer=answer):
            same = body.decision == "answer" and answer == body.answer
        case _:
            same = False
    if not same:
        detail = f"it was decided before, or has expired: see event {event.id} ({event.type}) of {event.session!r}"
        raise Problem(409, "already_decided", detail)


def _respond(id: str, event: Event) -> Response:
    return json_response({"id": id, "event": msgspec.Raw(event.to_json())})


async def answer_client_call(service: AgentService, request: Request) -> Response:
    _, info = await find_session(service, request)
    body, principal = await read_json(request, CallResult), principal_of(request)
    call = request.path_params["call"]
    return _respond(call, await service.answer_call(principal, info.id, call, body.result, failed=body.failed))


async def _owner_of_rules(service: AgentService, request: Request) -> tuple[Runtime, str]:
    query, principal = read_query(request, ListRules), principal_of(request)
    owner = query.owner or principal.id
    if owner != principal.id and (principal.own_sessions_only or not principal.may("admin")):
        raise Problem(403, "forbidden", "the rules of another owner need the scope admin")
    return await service.runtime_of(principal), owner


async def list_rules(service: AgentService, request: Request) -> Response:
    """Lists what approvals for the project or the user have granted to an owner."""
    runtime, owner = await _owner_of_rules(service, request)
    return json_response(Page(data=list(await runtime.keep_rules_in_store().list(owner))))


async def remove_rule(service: AgentService, request: Request) -> Response:
    """Removes a rule; sessions in which it was granted keep it until they end."""
    runtime, owner = await _owner_of_rules(service, request)
    if not await runtime.keep_rules_in_store().remove(owner, request.path_params["rule"]):
        raise not_found(f"rule {request.path_params['rule'][:80]!r}")
    return Response(status_code=204)


OPERATIONS = (
    Operation(
        method="GET",
        path="/rules",
        scope="runs:read",
        handler=list_rules,
        summary="List remembered rules",
        query=ListRules,
        result=Page[RememberedRule],
    ),
    Operation(
        method="DELETE",
        path="/rules/{rule}",
        scope="approvals:write",
        handler=remove_rule,
        summary="Remove a remembered rule",
        query=ListRules,
        status=204,
    ),
    Operation(
        method="GET",
        path="/approvals",
        scope="runs:read",
        handler=list_approvals,
        summary="List or follow open approvals and questions",
        query=ListApprovals,
        result=Page[DecisionDocument],
        streams=True,
    ),
    Operation(
        method="GET",
        path="/approvals/count",
        scope="runs:read",
        handler=count_approvals,
        summary="Count open approvals and questions",
        query=ListApprovals,
        result=DecisionCount,
    ),
    Operation(
        method="GET",
        path="/approvals/{approval}",
        scope="runs:read",
        handler=get_approval,
        summary="Get an open approval or question",
        result=DecisionDocument,
    ),
    Operation(
        method="POST",
        path="/approvals/{approval}/resolve",
        scope="approvals:write",
        handler=resolve_approval,
        summary="Decide an approval, or answer a question",
        body=ResolveApproval,
        result=ResolvedDecision,
        idempotent=True,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/calls/{call}/result",
        scope="runs:write",
        handler=answer_client_call,
        summary="Give the result of a tool call that the client runs",
        body=CallResult,
        result=ResolvedDecision,
    ),
)
