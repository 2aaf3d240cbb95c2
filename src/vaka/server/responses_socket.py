"""The WebSocket of OpenAI's Responses API: requests and steering inputs in, events of responses out."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.message import Content
from vaka.server.kit.bodies import check_json, decode_json
from vaka.server.kit.guard import principal_of, request_id_of
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, problem_before_login, problem_of
from vaka.server.kit.service import PromptInput
from vaka.server.openai_errors import error_object, error_response
from vaka.server.request_answers import AnswerPlace, RequestAnswer
from vaka.server.socket_protocol import admit_large_messages
from vaka.server.stored_responses import OpenResponse, Responses
from vaka.server.turn_events import TurnEvents
from vaka.views.openai_requests import convert_field
from vaka.views.responses_requests import parse_responses_request

MAX_LANES = 16
"""Lanes of one connection, whose responses run at the same time."""
MAX_WAITING = 64
"""The most requests of one lane that wait for the previous request."""
CLOSE_RESTART, CLOSE_POLICY = 1012, 1008


class _SteerFrame(msgspec.Struct, frozen=True):
    previous_response_id: str
    input: Any


class Steering:
    """An input that was accepted to steer a response."""

    def __init__(self, id: str, response: str, answer: RequestAnswer) -> None:
        self.id = id
        self.response = response
        self.answer = answer

    @property
    def document(self) -> dict[str, str]:
        return {"id": self.id, "previous_response_id": self.response}


class Lane:
    """The requests with one ``stream_id``, one after another."""

    def __init__(self, stream_id: str | None) -> None:
        self.fields = {} if stream_id is None else {"stream_id": stream_id}
        self.requests: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(MAX_WAITING)
        self.open: OpenResponse | None = None
        """The response that is being sent."""
        self.steering: Steering | None = None
        """The input that was accepted for it."""
        self.number = 0
        """The last sequence number that was sent."""


class ResponsesSocket:
    """The ASGI application of the socket: one connection for each client that is let in."""

    def __init__(self, responses: Responses) -> None:
        self._responses, self._guard = responses, responses.service.guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            await self._guard.admit(socket, "runs:write", changes=True)
        except (Problem, VakaError) as error:
            problem = problem_before_login(error)
            await socket.send_denial_response(error_response(problem, request_id_of(socket)))
            return
        admit_large_messages(scope)
        await socket.accept()
        await SocketConnection(self._responses, socket).run()


class SocketConnection:
    """One client."""

    resumable = True

    def __init__(self, responses: Responses, socket: WebSocket) -> None:
        self._responses = responses
        self._service = responses.service
        self._socket = socket
        self.principal: Principal = principal_of(socket)
        self._lanes: dict[str | None, Lane] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._reason = (CLOSE_RESTART, "the server stops; connect again")

    def cut(self) -> None:
        """Begin to close the connection because the server stops. The turns go on."""
        self._stopping.set()

    def expire(self) -> None:
        """Begin to close the connection because the credential does not work any more."""
        self._reason = (CLOSE_POLICY, "the credential does not work any more")
        self._stopping.set()

    async def run(self) -> None:
        """Serve the client until one side ends the connection."""
        try:
            self._service.streams.add(self)
        except Problem as problem:
            await self._socket.close(CLOSE_POLICY if problem.status == 429 else CLOSE_RESTART, problem.detail)
            return
        reader, stopping = asyncio.create_task(self._read_frames()), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([reader, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._service.streams.remove(self)
            tasks = [reader, stopping, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if reader.cancelled():
            await self._socket.close(*self._reason)
        else:
            reader.result()

    # ------------------------------------------------------------------------------------------------------------- read

    async def _read_frames(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
            except WebSocketDisconnect:
                return
            if message["type"] == "websocket.disconnect":
                return
            stream_id: str | None = None
            try:
                data = message.get("bytes") or (message.get("text") or "").encode()
                check_json(data)
                frame = decode_json(data, dict[str, Any])
                stream_id = frame["stream_id"] if isinstance(frame.get("stream_id"), str) else None
                await self._take_frame(frame, stream_id)
            except (Problem, VakaError) as error:
                await self._send_error(error, {} if stream_id is None else {"stream_id": stream_id})

    async def _take_frame(self, frame: dict[str, Any], stream_id: str | None) -> None:
        kind = frame.get("type")
        self._service.guard.limiter.count_request(self.principal)
        if kind == "response.steer":
            await self._steer(frame)
        elif kind == "response.create":
            self._add_request(self._find_lane(stream_id), frame)
        else:
            raise InvalidInput(f"the type of a frame is 'response.create' or 'response.steer', not {kind!r:.60}")

    def _find_lane(self, stream_id: str | None) -> Lane:
        lane = self._lanes.get(stream_id)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                raise Problem(429, "too_many_lanes", f"a connection has at most {MAX_LANES} values of stream_id")
            lane = self._lanes[stream_id] = Lane(stream_id)
            self._tasks.append(asyncio.create_task(self._serve_lane(lane)))
        return lane

    def _add_request(self, lane: Lane, frame: Mapping[str, Any]) -> None:
        if lane.requests.full():
            raise Problem(429, "too_many_requests", f"{MAX_WAITING} requests wait; wait for a response to end")
        lane.requests.put_nowait(frame)

    # ------------------------------------------------------------------------------------------------------------- send

    async def _send(self, lane: Lane, event: Mapping[str, Any]) -> None:
        lane.number = event.get("sequence_number", lane.number)
        await self._socket.send_text(msgspec.json.encode({**event, **lane.fields}).decode())

    async def _send_error(self, error: Problem | VakaError, fields: Mapping[str, str]) -> None:
        problem = problem_of(error)
        event = {"type": "error", "status": problem.status, "error": error_object(problem), **fields}
        await self._socket.send_text(msgspec.json.encode(event).decode())

    async def _serve_lane(self, lane: Lane) -> None:
        while True:
            frame = await lane.requests.get()
            try:
                lane.open = await self._responses.open(self.principal, frame)
                while lane.open is not None:
                    ended = lane.open
                    await self._send_response(lane, ended)
                    lane.open = None  # from here on it cannot be steered
                    lane.open = await self._open_successor(lane, ended)
            except (Problem, VakaError) as error:
                lane.open = lane.steering = None
                await self._send_error(error, lane.fields)

    async def _send_response(self, lane: Lane, opened: OpenResponse) -> None:
        async with aclosing(self._responses.read(self.principal, opened)) as batches:
            async for events in batches:
                for event in events:
                    await self._send(lane, event)

    # -------------------------------------------------------------------------------------------------------- steering

    async def _steer(self, frame: Mapping[str, Any]) -> None:
        given = convert_field("response.steer", frame, _SteerFrame)
        lane = next((each for each in self._lanes.values() if _sends(each, given.previous_response_id)), None)
        if lane is None or lane.open is None:
            await self._refuse(lane, given, "response_not_found", "the response is not running on this connection")
            return
        try:
            content = _parse_steering(given.input)
        except InvalidInput as error:
            await self._refuse(lane, given, "invalid_input", str(error))
            return
        if lane.steering is not None:
            await self._refuse(lane, given, "too_many_pending_steers", "another input waits for the response")
            return
        lane.steering = await self._submit(lane.open, content)
        accepted = {"type": "response.steer.accepted", "sequence_number": lane.number}
        await self._send(lane, {**accepted, "steer": lane.steering.document})

    async def _submit(self, opened: OpenResponse, content: Content) -> Steering:
        """Give the turn of a response another input; the response ends when the turn takes it."""
        service, session = self._service, opened.answer.session
        runtime = await service.runtime_of(self.principal)
        key, head = runtime.env.ids.new_id("steer"), opened.answer.place.start
        opened.encoding.steers[key] = opened.encoder.steer
        input = PromptInput(prompt=content, on_busy="steer", key=key)
        events: TurnEvents = await service.start_turn(self.principal, session, input, until_waiting=True)
        place = AnswerPlace(session=session.id, key=key, start=head)
        if opened.is_stored:
            await self._responses.save(self.principal, msgspec.structs.replace(opened.stored, steered=key))
        return Steering(key, opened.stored.id, RequestAnswer(session, events, place, runtime.store.blobs))

    async def _open_successor(self, lane: Lane, ended: OpenResponse) -> OpenResponse | None:
        """Return the response that goes on with the input that steered one, if there is one."""
        steering, lane.steering = lane.steering, None
        if steering is None:
            return None
        turn = ended.answer.events
        if turn.waiting and not turn.ended:
            pending = {"type": "response.steer.pending", "sequence_number": lane.number, "steer": steering.document}
            needed = _required_input(ended.document)
            await self._send(lane, {**pending, "reason": "waiting_for_required_input", "required_input": needed})
            return None
        return await self._responses.open_successor(self.principal, ended, steering.answer)

    async def _refuse(self, lane: Lane | None, given: _SteerFrame, code: str, message: str) -> None:
        event = {
            "type": "response.steer.failed",
            "sequence_number": 0 if lane is None else lane.number,
            "steer": {"input": given.input, "previous_response_id": given.previous_response_id},
            "error": {"type": "invalid_request_error", "code": code, "message": message},
        }
        await self._send(lane or Lane(None), event)


def _sends(lane: Lane, response: str) -> bool:
    return lane.open is not None and lane.open.stored.id == response


def _parse_steering(input: Any) -> Content:
    """Return an input that has messages of the user alone. Raises ``InvalidInput``."""
    given = parse_responses_request({"model": "steered", "input": input})
    if given.results or given.decisions or given.history or given.instructions:
        raise InvalidInput("an input that steers a response has messages of the user alone")
    return given.content


def _required_input(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items that a response waits for, without their results."""
    needed: list[dict[str, Any]] = []
    for item in response["output"]:
        if item["type"] == "function_call":
            needed.append({"type": "function_call_output", "call_id": item["call_id"], "name": item["name"]})
        elif item["type"] == "mcp_approval_request":
            needed.append({"type": "mcp_approval_response", "approval_request_id": item["id"]})
    return needed
