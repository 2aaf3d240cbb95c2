"""The session that a request names, and its document."""

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.ports.store import SessionInfo, SessionStatus
from vaka.core.types.hidden_messages import HIDDEN_KEY
from vaka.core.types.ids import SessionId
from vaka.runtime.runtime import Runtime
from vaka.server.kit.bodies import json_response
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import PREFIX
from vaka.server.kit.problems import not_found
from vaka.server.kit.service import AgentService


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A session, from its row in the index."""

    id: str
    agent: str
    title: str
    status: SessionStatus
    owner: str
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    state: str
    """Its state as a thread: active, paused, ended, terminated or archived."""
    version: int
    """Rises when title, owner, tags, metadata or state change."""
    created: str
    updated: str
    cursor: str
    """The last event: the position to follow it from."""
    turn: str
    """The unfinished turn, if there is one."""
    inputs: int
    """The number of inputs that no turn has taken yet."""
    pending: int
    """The number of open decisions."""
    origin: str
    folder: str


def cursor_of(info: SessionInfo) -> str:
    """Return the cursor of the last event of a session."""
    return f"{info.epoch}.{info.head}"


def session_document(info: SessionInfo) -> SessionDocument:
    metadata = {key: value for key, value in info.metadata.items() if key != HIDDEN_KEY}
    return SessionDocument(
        id=info.id,
        agent=info.agent,
        title=info.title,
        status=info.status,
        owner=info.owner,
        tags=info.tags,
        metadata=metadata,
        state=info.state,
        version=info.version,
        created=info.created,
        updated=info.updated,
        cursor=cursor_of(info),
        turn=info.turn,
        inputs=info.inputs,
        pending=info.pending,
        origin=info.origin,
        folder=info.folder,
    )


async def find_session(service: AgentService, request: Request) -> tuple[Runtime, SessionInfo]:
    """Return the runtime and the index row of the session in the address. Raises a ``Problem`` with status 404."""
    principal = principal_of(request)
    info = await service.find_session(principal, request.path_params["session"])
    if request.query_params.get("resource_id", info.owner) != info.owner:
        raise not_found(f"session {info.id!r}")
    return await service.runtime_of(principal), info


async def read_info(runtime: Runtime, session: str) -> SessionInfo:
    """Return the index row of a session after a change."""
    info = await runtime.store.sessions.find(SessionId(session))
    if info is None:
        raise not_found(f"session {session!r} any more")
    return info


def describe_session(info: SessionInfo, status: int = 200) -> Response:
    headers = {"ETag": f'"{cursor_of(info)}"'}
    if status == 201:
        headers["Location"] = session_address(info.id)
    return json_response(session_document(info), status, headers)


def session_address(id: str) -> str:
    """Return the path of a session."""
    return f"{PREFIX}/sessions/{quote(id, safe='')}"
