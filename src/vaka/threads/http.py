"""Threads: search all of them, add messages to one, count them, and change its state."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.ports.messages import MessageSearch, SearchHit
from vaka.core.ports.store import ThreadState
from vaka.core.types.errors import InvalidInput
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import Page, PageLimit, page_limit
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import SessionDocument, describe_session, find_session, read_info
from vaka.threads.stats import ThreadStats
from vaka.threads.thread import AddedMessage, DeletedMessages, NewMessage, check_transition


class SearchThreads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to search for: all words, ``"a phrase"``, ``begin*``, and ``-word`` that must not occur."""

    q: str
    session: str = ""
    owner: str = ""
    resource_id: str = ""
    """Another name of ``owner``."""
    agent: str = ""
    role: str = ""
    since: str = ""
    until: str = ""
    limit: PageLimit = 20
    cursor: str = ""


class HitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found, best first."""

    session: str
    id: str
    role: str
    turn: str
    cursor: str
    """The event of the message."""
    ts: str
    path: tuple[str, ...]
    name: str
    snippet: str
    """The part of its text around the words that were found."""
    matches: list[list[int]]
    """Where they are in the snippet: offsets of the first character and of the one after the last."""
    score: float


class AddMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to add in one transaction. A message with an id that the thread already has is not added."""

    messages: list[NewMessage]


class DeleteMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages to delete, by their ids."""

    ids: list[str]


class SetState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next state of a thread."""

    state: ThreadState
    version: int | None = None
    """The version that the thread must have; with another one the answer is 409."""


class OwnerQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner that the session must have; with another one the answer is 404."""

    resource_id: str = ""


def _hit_document(hit: SearchHit) -> HitDocument:
    row = hit.message
    return HitDocument(
        session=row.session,
        id=row.id,
        role=row.role,
        turn=row.turn,
        cursor=row.cursor,
        ts=row.ts,
        path=row.path,
        name=row.name,
        snippet=hit.snippet,
        matches=[list(match) for match in hit.matches],
        score=hit.score,
    )


async def search_threads(service: AgentService, request: Request) -> Response:
    """Searches the index of the caller's tenant; a caller that sees only its own sessions finds only those."""
    query, principal = read_query(request, SearchThreads), principal_of(request)
    owners = {each for each in (query.owner, query.resource_id, principal.visible_owner) if each}
    if len(owners) > 1:
        return json_response(Page[HitDocument](data=[]))
    runtime = await service.runtime_of(principal)
    search = MessageSearch(
        text=query.q,
        session=query.session,
        owner=next(iter(owners), ""),
        agent=query.agent,
        role=query.role,
        since=query.since,
        until=query.until,
        limit=page_limit(query.limit),
        after=query.cursor,
    )
    if not query.q.strip():
        raise Problem(422, "invalid_query", "q is empty; give a text to search for", errors=[{"field": "q"}])
    page = await runtime.threads.search(search)
    data = [_hit_document(hit) for hit in page.hits]
    return json_response(Page(data=data, next_cursor=page.next or None, has_more=bool(page.next)))


async def add_messages(service: AgentService, request: Request) -> Response:
    """Adds all messages or none."""
    runtime, info = await find_session(service, request)
    body = await read_json(request, AddMessages)
    added = await runtime.threads.append_many(info.id, body.messages)
    return json_response(Page(data=list(added)), 201)


async def delete_messages(service: AgentService, request: Request) -> Response:
    """Rewinds the conversation to before the first of them; the others follow again."""
    runtime, info = await find_session(service, request)
    body: DeleteMessages = await read_json(request, DeleteMessages)
    return json_response(await runtime.threads.delete_messages(info.id, body.ids))


async def count_messages(service: AgentService, request: Request) -> Response:
    read_query(request, OwnerQuery)
    runtime, info = await find_session(service, request)
    return json_response(await runtime.threads.stats(info.id))


async def set_state(service: AgentService, request: Request) -> Response:
    """Answers 409 for a transition that does not exist."""
    runtime, info = await find_session(service, request)
    body: SetState = await read_json(request, SetState)
    try:
        check_transition(info.id, info.state, body.state)
    except InvalidInput as error:
        raise Problem(409, "state", str(error)) from error
    await runtime.threads.set_state(info.id, body.state, version=body.version, by=principal_of(request).id)
    return describe_session(await read_info(runtime, info.id))


_PATH = "/sessions/{session}"
_ADDED: Any = Page[AddedMessage]

OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions/search",
        scope="runs:read",
        handler=search_threads,
        summary="Search the messages of all sessions",
        query=SearchThreads,
        result=Page[HitDocument],
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/messages",
        scope="runs:write",
        handler=add_messages,
        summary="Add messages without running a turn",
        body=AddMessages,
        result=_ADDED,
        status=201,
        idempotent=True,
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/messages",
        scope="runs:write",
        handler=delete_messages,
        summary="Delete messages from the conversation",
        body=DeleteMessages,
        result=DeletedMessages,
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/messages/stats",
        scope="runs:read",
        handler=count_messages,
        summary="Count the messages of a session",
        query=OwnerQuery,
        result=ThreadStats,
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/state",
        scope="runs:write",
        handler=set_state,
        summary="Change the state of a thread",
        body=SetState,
        result=SessionDocument,
    ),
)
