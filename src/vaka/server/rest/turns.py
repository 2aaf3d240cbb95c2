"""Turns of a session: start, list, wait for, steer and cancel them."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.agents.react import Agent
from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import Closed, ConfigError, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.server.kit.bodies import json_response, read_json
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query, wants_stream
from vaka.server.kit.pages import LogCursor, Page, PageLimit, page_limit, page_position
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService, PromptInput, refuse_blobs, require_model
from vaka.server.kit.sessions import find_session, read_info, session_address
from vaka.server.rest.documents import InputPart, TurnDocument
from vaka.server.rest.events import end_frame
from vaka.server.rest.formats import EncodeEvents, StreamFormat, make_encoder
from vaka.server.rest.idempotency import read_key
from vaka.server.rest.turn_log import TurnRecord, describe_ended, describe_turn, find_turn, list_turns, record_of
from vaka.server.sse import EventStream, wait_while_connected
from vaka.server.turn_events import TurnEvents

_log = logging.getLogger("vaka.server")

MAX_WAIT = 600.0
"""Seconds that a request waits for a turn at most."""


class ClientToolSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool that the client runs; ``parameters`` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class CreateTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input of a turn, and how it is answered."""

    input: str | list[InputPart]
    agent: str = ""
    """The agent of the session; a session that does not exist is then created."""
    if_not_exists: Literal["create", "reject"] = "create"
    model: str = ""
    options: dict[str, Any] = {}
    """Options of the model for this turn."""
    on_conflict: Literal["reject", "enqueue", "interrupt", "rollback", "steer"] = "enqueue"
    """What to do while another turn runs."""
    on_disconnect: Literal["continue", "cancel"] = "continue"
    """What to do with the turn when the client leaves before its end."""
    stream: bool = False
    background: bool = False
    client_tools: list[ClientToolSpec] = []


class StreamTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the events of a turn are sent."""

    format: StreamFormat = "vaka"


class ListTurns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which turns to list; the newest comes first."""

    limit: PageLimit = 20
    cursor: LogCursor = ""


class CancelTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a turn is stopped."""

    note: str = ""


class SteerTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input that joins the running turn."""

    input: str | list[InputPart]


class WaitForTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_WAIT})] = 60.0


async def create_turn(service: AgentService, request: Request) -> ASGIApp:
    query, body = read_query(request, StreamTurn), await read_json(request, CreateTurn)
    principal, key = principal_of(request), read_key(request)
    stream = body.stream or (wants_stream(request) and not body.background)
    if stream:
        service.streams.require_room(principal)
    client_tools = body.client_tools
    tools = [(each.name, each.description, each.parameters) for each in client_tools] if client_tools else ()
    session = await service.open_for_turn(
        principal,
        request.path_params["session"],
        agent=body.agent,
        tools=tools,
        begin=body.if_not_exists != "reject",
    )
    if not body.model:
        require_model(await service.runtime_of(principal), session.agent)
    content: str | list[Any] = body.input
    prompt = PromptInput(prompt=content, on_busy=body.on_conflict, key=key, model=body.model, options=body.options)
    events = await service.start_turn(principal, session, prompt, until_waiting=not stream)
    leave = partial(service.leave_turn, principal, session, events) if body.on_disconnect == "cancel" else None
    if stream:
        frames = turn_frames(events, make_encoder(query.format, session.id, session.agent.name))
        headers = {"content-location": _turn_address(session.id, events.key)}
        return EventStream(frames, service.streams, headers=headers, on_disconnect=leave)
    if body.background:
        async with events:
            while not events.ended and not await events.next_batch():
                continue
        return await _respond(service, principal, session, events.key, 202)
    runtime = await service.runtime_of(principal)
    stored = await wait_while_connected(request, _read_turn(runtime, events), leave)
    record = record_of(stored) if events.ended else None
    if record is None:
        return await _respond(service, principal, session, events.key)
    document = await describe_ended(runtime.store, session.id, record, session.agent)
    return json_response(document, 200, {"Location": _turn_address(session.id, record.id)})


def _turn_address(session: str, name: str) -> str:
    return f"{session_address(session)}/turns/{quote(name, safe='')}"


async def turn_frames(events: TurnEvents, encode: EncodeEvents) -> AsyncGenerator[bytes]:
    """Yield the frames of a turn to its end; the last is ``stream.end``. Without it, the client has to attach again."""
    ts = ""
    async with events:
        while not events.ended:
            try:
                batch = await events.next_batch()
            except VakaError as error:
                if not isinstance(error, Closed):
                    _log.warning("a stream of session %s has ended early: %s", events.session, error)
                return
            if not batch and events.waiting:
                return
            ts = batch[-1].ts if batch else ts
            if batch and (frames := encode(batch)):
                yield frames
    yield end_frame(events.session, "turn_ended", ts)


async def _read_turn(runtime: Runtime, turn: TurnEvents) -> list[Event]:
    """Read a turn until it has ended or waits for a decision that is still open, not for an earlier decision.

    Returns its events that are in the log.
    """
    stored: list[Event] = []
    async with turn:
        read = True
        while read and not turn.ended:
            read = False
            async for event in turn:
                read = True
                if event.seq and event.turn == turn.turn:
                    stored.append(event)
            if turn.waiting and await runtime.decisions(turn.session):
                break
    return stored


async def _respond(
    service: AgentService, principal: Principal, session: Session[Any], name: str, status: int = 200
) -> Response:
    runtime = await service.runtime_of(principal)
    info = await read_info(runtime, session.id)
    record = await _find(runtime, info, name)
    document = await describe_turn(runtime.store, info, record, _agent_of(service, info))
    return json_response(document, status, {"Location": _turn_address(info.id, record.id or record.key)})


async def _find(runtime: Runtime, info: SessionInfo, name: str) -> TurnRecord:
    record = await find_turn(runtime.store, info, name)
    if record is None:
        raise not_found(f"turn {name!r} in session {info.id!r}")
    return record


def _agent_of(service: AgentService, info: SessionInfo) -> Agent | None:
    """Return the agent of a session, which parses the output of its turns; ``None`` if it cannot be used any more."""
    try:
        return service.agents.get(info.agent)
    except ConfigError:
        return None


def _turn_name(info: SessionInfo, name: str) -> str:
    """Return the id or key of a turn in an address, where ``current`` is the unfinished one."""
    if name != "current":
        return name
    if not info.turn:
        raise Problem(409, "no_turn", f"session {info.id!r} has no unfinished turn")
    return info.turn


async def read_turns(service: AgentService, request: Request) -> Response:
    """Reads the log from its end back to the last turn of the page."""
    runtime, info = await find_session(service, request)
    query = read_query(request, ListTurns)
    before = page_position(info, query.cursor)
    records, next = await list_turns(runtime.store, info, before, page_limit(query.limit))
    agent = _agent_of(service, info)
    data = [await describe_turn(runtime.store, info, record, agent) for record in records]
    cursor = f"{info.epoch}.{next}" if next else None
    return json_response(Page(data=data, next_cursor=cursor, has_more=bool(next)))


async def get_turn(service: AgentService, request: Request) -> ASGIApp:
    """Reads the log from its end back to the start of the turn; a stream then follows the turn from there."""
    runtime, info = await find_session(service, request)
    record = await _find(runtime, info, _turn_name(info, request.path_params["turn"]))
    if not wants_stream(request):
        return json_response(await describe_turn(runtime.store, info, record, _agent_of(service, info)))
    query, principal = read_query(request, StreamTurn), principal_of(request)
    after = Cursor.parse(request.headers.get("last-event-id")) if record.id else Cursor()
    start = record.first_seq - 1
    if 0 < after.seq < record.input_seq:  # the stream was cut before the input of the turn
        start = record.input_seq - 1
    if after.seq < start or after.epoch not in (0, info.epoch):
        after = Cursor(info.epoch, start)
    session = await service.open_session(principal, info.id)
    events = await service.attach_turn(principal, session, turn=record.id, key=record.key, after=after)
    frames = turn_frames(events, make_encoder(query.format, info.id, info.agent))
    return EventStream(frames, service.streams, resumable=True)


async def wait_for_turn(service: AgentService, request: Request) -> Response:
    """Returns when the turn has ended or waits for a decision, or after the timeout."""
    runtime, info = await find_session(service, request)
    timeout, principal = read_query(request, WaitForTurn).timeout, principal_of(request)
    if not 0 <= timeout <= MAX_WAIT:
        raise Problem(422, "invalid_query", f"timeout must be 0 to {MAX_WAIT:g} seconds", errors=[{"field": "timeout"}])
    record = await _find(runtime, info, _turn_name(info, request.path_params["turn"]))
    if not record.id or record.id == info.turn:
        session = await service.open_session(principal, info.id)
        after = Cursor(info.epoch, record.first_seq - 1)
        events = await service.attach_turn(
            principal, session, turn=record.id, key=record.key, after=after, until_waiting=True
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await wait_while_connected(request, _read_turn(runtime, events))
        info = await read_info(runtime, info.id)
        record = await _find(runtime, info, record.id or record.key)
    return json_response(await describe_turn(runtime.store, info, record, _agent_of(service, info)))


async def cancel_turn(service: AgentService, request: Request) -> Response:
    """Asks the running turn to stop, or takes a queued input back. A turn that has ended stays as it is."""
    runtime, info = await find_session(service, request)
    body, principal = await read_json(request, CancelTurn, empty=CancelTurn()), principal_of(request)
    record = await _find(runtime, info, _turn_name(info, request.path_params["turn"]))
    session = await service.open_session(principal, info.id)
    if not record.withdrawn:
        await service.stop_turn(principal, session, turn=record.id, key=record.key, note=body.note)
    return await _respond(service, principal, session, record.id or record.key, 202)


async def steer_turn(service: AgentService, request: Request) -> Response:
    """Adds an input to the running turn, which reads it in its next step."""
    _, info = await find_session(service, request)
    body, principal = await read_json(request, SteerTurn), principal_of(request)
    name = request.path_params["turn"]
    if not info.turn or name not in ("current", info.turn):
        raise Problem(409, "no_turn", f"session {info.id!r} does not run turn {name!r}; start one")
    content: str | list[Any] = body.input
    refuse_blobs(content)
    session = await service.open_session(principal, info.id)
    await session.send(content, on_busy="steer", key=read_key(request))
    return await _respond(service, principal, session, info.turn, 202)


OPERATIONS = (
    Operation(
        method="POST",
        path="/sessions/{session}/turns",
        scope="runs:write",
        handler=create_turn,
        summary="Start a turn",
        query=StreamTurn,
        body=CreateTurn,
        result=TurnDocument,
        streams=True,
        idempotent=True,
        other_statuses=(202,),
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/turns",
        scope="runs:read",
        handler=read_turns,
        summary="List turns",
        query=ListTurns,
        result=Page[TurnDocument],
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/turns/{turn}",
        scope="runs:read",
        handler=get_turn,
        summary="Get or follow a turn",
        query=StreamTurn,
        result=TurnDocument,
        streams=True,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/turns/{turn}/wait",
        scope="runs:read",
        handler=wait_for_turn,
        summary="Wait until a turn ends or needs a decision",
        query=WaitForTurn,
        result=TurnDocument,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/turns/{turn}/cancel",
        scope="runs:write",
        handler=cancel_turn,
        summary="Stop a turn",
        body=CancelTurn,
        result=TurnDocument,
        status=202,
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/turns/{turn}/steer",
        scope="runs:write",
        handler=steer_turn,
        summary="Add an input to the running turn",
        body=SteerTurn,
        result=TurnDocument,
        status=202,
    ),
)
