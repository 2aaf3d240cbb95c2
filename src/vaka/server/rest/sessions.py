"""Sessions: create, list, describe, fork, rewind, compact, close, export and delete them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vaka.core.ports.store import SessionInfo, SessionQuery, SessionStatus, Store, ThreadState
from vaka.core.types.ids import SessionId
from vaka.runtime import session_edits
from vaka.runtime.file_rewind import FileRewind
from vaka.runtime.runtime import Runtime
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.identifiers import check_id
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import Page, PageLimit, page_limit, parse_metadata
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import (
    SessionDocument,
    cursor_of,
    describe_session,
    find_session,
    read_info,
    session_document,
)
from vaka.server.rest.idempotency import derive_id, is_replay
from vaka.server.rest.turn_log import find_turn
from vaka.server.sse import wait_while_connected

EXPORT_BATCH = 65_536
"""Bytes that are sent at a time."""


class ListSessions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to list; the last changed session comes first."""

    agent: str = ""
    status: SessionStatus | None = None
    tag: str = ""
    owner: str = ""
    resource_id: str = ""
    """Another name of ``owner``."""
    state: ThreadState | None = None
    metadata: str = ""
    """Keys and values that their metadata have, as a JSON object."""
    q: str = ""
    """A part of the title."""
    origin: str = ""
    """The session that they were forked from."""
    limit: PageLimit = 50
    cursor: str = ""


class CreateSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new session."""

    id: str = ""
    agent: str = ""
    title: str | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    resource_id: str = ""
    """The owner; default: the caller. A caller that sees only its own sessions may not name another one."""


class UpdateSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a session. A key of ``metadata`` with the value null is removed."""

    title: str | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    version: int | None = None
    """The version that the session must have; with another one the answer is 409."""


class ForkSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a copy of a session ends; default: at its end."""

    at: str = ""
    """A cursor, or the label of a checkpoint."""
    turn: str = ""
    """The id of the last turn of the copy."""
    id: str = ""
    title: str | None = None


class RewindSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a session continues."""

    to: str
    """A cursor, or the label of a checkpoint."""
    interrupt: bool = False
    """Stop a running turn first."""
    files: bool = False
    """Restore the files that tools have changed since."""
    force: bool = False
    """Restore also files that another program has changed since."""


class RewoundSession(SessionDocument, frozen=True, kw_only=True):
    """A session after a rewind."""

    files: FileRewind | None = None
    """The effect on the files, if they were restored."""


class CompactSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the older messages of a session are summarized."""

    instructions: str = ""
    """Content that the summary must keep."""
    interrupt: bool = False
    """Stop a running turn first."""


class CompactionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction."""

    session: str
    compacted: bool
    """``false``: there was nothing to leave out, a hook or middleware has skipped it, or no model wrote a summary."""
    before: int
    """The tokens of the context before, as estimated."""
    after: int
    summary: str = ""
    """The summary that the model sees from now on in place of older messages."""
    cursor: str = ""
    """The position of ``context.compacted``."""
    skipped: str = ""
    """Why it was skipped."""


class CloseSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session is closed."""

    reason: str = ""


async def rewind_and_describe(
    runtime: Runtime, session: SessionId, to: str, *, interrupt: bool, files: bool, force: bool
) -> Response:
    """Rewind a session, and return it with the effect on its files."""
    effect: FileRewind | None = None
    if files:
        effect = await runtime.rewind_files(session, to, interrupt=interrupt, force=force)
    else:
        await runtime.rewind(session, to, interrupt=interrupt)
    info = await read_info(runtime, session)
    document = RewoundSession(**msgspec.structs.asdict(session_document(info)), files=effect)
    return json_response(document, headers={"ETag": f'"{cursor_of(info)}"'})


async def list_sessions(service: AgentService, request: Request) -> Response:
    """Reads one page of the index."""
    query, principal = read_query(request, ListSessions), principal_of(request)
    owner = query.owner or query.resource_id
    if query.resource_id not in ("", owner):
        return json_response(Page[SessionDocument](data=[]))
    if principal.own_sessions_only:
        if owner not in ("", principal.id):
            return json_response(Page[SessionDocument](data=[]))
        owner = principal.id
    runtime = await service.runtime_of(principal)
    selected = SessionQuery(
        agent=query.agent,
        status=query.status,
        tag=query.tag,
        owner=owner,
        text=query.q,
        origin=query.origin,
        state=query.state or "",
        metadata=parse_metadata(query.metadata),
        limit=page_limit(query.limit),
        after=query.cursor,
    )
    page = await runtime.store.sessions.list(selected)
    data = [session_document(info) for info in page.sessions]
    return json_response(Page(data=data, next_cursor=page.next or None, has_more=bool(page.next)))


async def create_session(service: AgentService, request: Request) -> Response:
    body, principal = await read_json(request, CreateSession, empty=CreateSession()), principal_of(request)
    runtime, id = await service.runtime_of(principal), body.id or derive_id(request, "ses")
    if id:
        check_id(id)
    known = await runtime.store.sessions.find(SessionId(id)) if id and is_replay(request) else None
    if known is not None and known.owner == (body.resource_id or principal.id):
        return describe_session(known, 201)
    if principal.own_sessions_only and body.resource_id not in ("", principal.id):
        raise Problem(403, "forbidden", "a caller that sees only its own sessions creates no session for another owner")
    session = await service.create_session(
        principal,
        agent=body.agent,
        id=id,
        title=body.title,
        tags=body.tags,
        metadata=body.metadata,
        owner=body.resource_id,
    )
    return describe_session(await read_info(runtime, session.id), 201)


async def get_session(service: AgentService, request: Request) -> Response:
    _, info = await find_session(service, request)
    if request.headers.get("if-none-match") == f'"{cursor_of(info)}"':
        return Response(status_code=304, headers={"ETag": f'"{cursor_of(info)}"'})
    return describe_session(info)


async def update_session(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    body = await read_json(request, UpdateSession)
    expected = request.headers.get("if-match", "*")
    if expected not in ("*", f'"{cursor_of(info)}"'):
        raise Problem(412, "changed", f"session {info.id!r} has changed since; its ETag is {cursor_of(info)!r}")
    by = principal_of(request).id
    await runtime.update_session(
        info.id, title=body.title, tags=body.tags, metadata=body.metadata, by=by, version=body.version
    )
    return describe_session(await read_info(runtime, info.id))


async def delete_session(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    await session_edits.delete_session(runtime.store, info.id)
    runtime.hub.end_followers(info.id)
    service.usage_of(runtime).forget(info.id)
    return Response(status_code=204)


async def fork_session(service: AgentService, request: Request) -> Response:
    """Copies the events of the session up to a position."""
    runtime, info = await find_session(service, request)
    body, principal = await read_json(request, ForkSession, empty=ForkSession()), principal_of(request)
    if body.at and body.turn:
        raise Problem(422, "invalid_body", "give `at` or `turn`, not both", errors=[{"field": "turn"}])
    at = await _end_of_turn(runtime.store, info, body.turn) if body.turn else body.at or None
    new = SessionId(body.id or derive_id(request, "ses_fork") or runtime.env.ids.new_id("ses_fork"))
    check_id(new)
    known = await runtime.store.sessions.find(new)
    if known is None:
        await runtime.fork(info.id, at=at, id=new)
    elif not is_replay(request) or known.origin != info.id:
        raise Problem(409, "exists", f"there is a session {new!r} already; choose another id")
    await runtime.update_session(new, title=body.title, owner=principal.id, by=principal.id)
    return describe_session(await read_info(runtime, new), 201)


async def _end_of_turn(store: Store, info: SessionInfo, turn: str) -> str:
    record = await find_turn(store, info, turn)
    if record is None or not record.id:
        raise not_found(f"turn {turn!r} in session {info.id!r}")
    return record.events[-1].id


async def rewind_session(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    body = await read_json(request, RewindSession)
    options = {"interrupt": body.interrupt, "files": body.files, "force": body.force}
    return await rewind_and_describe(runtime, info.id, body.to, **options)


async def compact_session(service: AgentService, request: Request) -> Response:
    """Returns when a model has written the summary. The messages stay in the log."""
    _, info = await find_session(service, request)
    body = await read_json(request, CompactSession, empty=CompactSession())
    session = await service.open_session(principal_of(request), info.id)
    done = await wait_while_connected(request, session.compact(body.instructions, interrupt=body.interrupt))
    document = CompactionDocument(
        session=info.id,
        compacted=done.event is not None,
        before=done.before,
        after=done.after,
        summary=done.summary,
        cursor=done.event.id if done.event is not None else "",
        skipped=done.skipped,
    )
    return json_response(document)


async def close_session(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    body = await read_json(request, CloseSession, empty=CloseSession())
    await (await service.open_session(principal_of(request), info.id)).close(body.reason)
    return describe_session(await read_info(runtime, info.id))


async def export_session(service: AgentService, request: Request) -> Response:
    """Sends the stored bytes of the events, one line each, as they are read."""
    runtime, info = await find_session(service, request)
    return StreamingResponse(_read_lines(runtime.store, info.id), media_type="application/x-ndjson")


async def _read_lines(store: Store, session: SessionId) -> AsyncGenerator[bytes]:
    lines, size = list[bytes](), 0
    async with aclosing(store.events.read(session)) as events:
        async for event in events:
            lines.append(event.stored + b"\n")
            size += len(event.stored)
            if size >= EXPORT_BATCH:
                yield b"".join(lines)
                lines, size = [], 0
    yield b"".join(lines)


OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions",
        scope="runs:read",
        handler=list_sessions,
        summary="List sessions",
        query=ListSessions,
        result=Page[SessionDocument],
    ),
    Operation(
        method="POST",
        path="/sessions",
        scope="runs:write",
        handler=create_session,
        summary="Create a session",
        body=CreateSession,
        result=SessionDocument,
        status=201,
        idempotent=True,
    ),
    Operation(
        method="GET",
        path="/sessions/{session}",
        scope="runs:read",
        handler=get_session,
        summary="Get a session",
        result=SessionDocument,
    ),
    Operation(
        method="PATCH",
        path="/sessions/{session}",
        scope="runs:write",
        handler=update_session,
        summary="Change title, tags or metadata of a session",
        body=UpdateSession,
        result=SessionDocument,
    ),
    Operation(
        method="DELETE",
        path="/sessions/{session}",
        scope="runs:write",
        handler=delete_session,
        summary="Delete a session and its log",
        status=204,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/fork",
        scope="runs:write",
        handler=fork_session,
        summary="Copy a session up to a position",
        body=ForkSession,
        result=SessionDocument,
        status=201,
        idempotent=True,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/rewind",
        scope="runs:write",
        handler=rewind_session,
        summary="Continue a session from an earlier position",
        body=RewindSession,
        result=RewoundSession,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/compact",
        scope="runs:write",
        handler=compact_session,
        summary="Summarize the older messages of a session",
        body=CompactSession,
        result=CompactionDocument,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/close",
        scope="runs:write",
        handler=close_session,
        summary="Close a session",
        body=CloseSession,
        result=SessionDocument,
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/export",
        scope="runs:read",
        handler=export_session,
        summary="Export the log of a session as JSON lines",
        media_type="application/x-ndjson",
    ),
)
