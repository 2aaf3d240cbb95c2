"""Checkpoints: names of positions of a session that it can return to."""

from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.session.snapshot import reopen
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation
from vaka.server.kit.pages import Page
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import find_session
from vaka.server.rest.sessions import RewoundSession, rewind_and_describe

MAX_LABEL_CHARS = 100


class SaveCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name for the current position. A name that exists moves here."""

    label: str


class RestoreCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session returns to a checkpoint, as for a rewind."""

    interrupt: bool = False
    files: bool = False
    force: bool = False


class CheckpointDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint."""

    label: str
    cursor: str
    ts: str


async def list_checkpoints(service: AgentService, request: Request) -> Response:
    """Reads the folded state of the session, and the event of each checkpoint."""
    runtime, info = await find_session(service, request)
    state, data = (await reopen(runtime.store, info.id)).state, list[CheckpointDocument]()
    for label, seq in sorted(state.checkpoints.items(), key=lambda item: item[1]):
        async with aclosing(runtime.store.events.read(info.id, after=seq - 1, upto=seq)) as events:
            data += [CheckpointDocument(label=label, cursor=event.id, ts=event.ts) async for event in events]
    return json_response(Page(data=data))


async def save_checkpoint(service: AgentService, request: Request) -> Response:
    _, info = await find_session(service, request)
    label = (await read_json(request, SaveCheckpoint)).label
    if not 0 < len(label) <= MAX_LABEL_CHARS or not label.isprintable() or label[0].isdigit() or "/" in label:
        detail = f"a label has 1 to {MAX_LABEL_CHARS} printable characters, no / and does not begin with a digit"
        raise Problem(422, "invalid_body", detail, errors=[{"field": "label", "message": detail}])
    session = await service.open_session(principal_of(request), info.id)
    cursor = await session.checkpoint(label)
    runtime = await service.runtime_of(principal_of(request))
    async with aclosing(runtime.store.events.read(info.id, after=cursor.seq - 1, upto=cursor.seq)) as events:
        [event] = [event async for event in events]
    return json_response(CheckpointDocument(label=label, cursor=event.id, ts=event.ts), 201)


async def restore_checkpoint(service: AgentService, request: Request) -> Response:
    runtime, info = await find_session(service, request)
    body = await read_json(request, RestoreCheckpoint, empty=RestoreCheckpoint())
    label = request.path_params["label"]
    if label not in (await reopen(runtime.store, info.id)).state.checkpoints:
        raise not_found(f"checkpoint {label!r} in session {info.id!r}")
    options = {"interrupt": body.interrupt, "files": body.files, "force": body.force}
    return await rewind_and_describe(runtime, info.id, label, **options)


OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions/{session}/checkpoints",
        scope="runs:read",
        handler=list_checkpoints,
        summary="List checkpoints",
        result=Page[CheckpointDocument],
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/checkpoints",
        scope="runs:write",
        handler=save_checkpoint,
        summary="Name the current position",
        body=SaveCheckpoint,
        result=CheckpointDocument,
        status=201,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/checkpoints/{label}/restore",
        scope="runs:write",
        handler=restore_checkpoint,
        summary="Return to a checkpoint",
        body=RestoreCheckpoint,
        result=RewoundSession,
    ),
)
