"""OpenAI's Responses API: agents as models."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp

from vaka.agents.routing import routers_of
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.server.answer_start import open_answer
from vaka.server.conversations import session_header, stop_on_disconnect
from vaka.server.kit.bodies import json_response, read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route, principal_of
from vaka.server.kit.service import AgentService
from vaka.server.openai_errors import error_response
from vaka.server.responses_socket import ResponsesSocket
from vaka.server.sse import EventStream, wait_while_connected
from vaka.server.stored_responses import Responses, encoder_of, encoding_of
from vaka.server.turn_events import TurnEvents
from vaka.views.responses import ResponseEvent, resume_after, to_sse


class ResponseRoutes:
    """The handlers of the routes."""

    def __init__(self, responses: Responses) -> None:
        self._responses, self._service = responses, responses.service

    async def create(self, request: Request) -> ASGIApp:
        """Create a response: as a stream, in the background, or when it is complete."""
        principal, body = principal_of(request), await read_bytes(request)
        key = request.headers.get("idempotency-key", "")
        opened = await self._responses.open(principal, body, key)
        headers = session_header(opened.answer.session.id)
        if opened.is_streamed:
            leave = stop_on_disconnect(self._service, request, opened.answer)
            frames = _write_frames(await open_answer(self._responses.read(principal, opened), opened.encoding.start))
            return EventStream(frames, self._service.streams, headers=headers, opening=b"", on_disconnect=leave)
        if opened.is_background:
            opened.is_read.set()
            return json_response(opened.document, headers=headers)
        leave = stop_on_disconnect(self._service, request, opened.answer)
        batches = self._responses.read(principal, opened, live=False)
        last = await wait_while_connected(request, _read_last(batches), leave)
        if last["response"]["status"] == "failed" and opened.encoding.start.problem is not None:
            raise opened.encoding.start.problem
        return json_response(last["response"], headers=headers)

    async def retrieve(self, request: Request) -> ASGIApp:
        """Return a response as it is now, or the events of it after a sequence number."""
        principal = principal_of(request)
        stored = await self._responses.find(principal, request.path_params["response"])
        state = await self._responses.describe(principal, stored)
        if request.query_params.get("stream") not in ("true", "1"):
            return json_response(state.document)
        after = _parse_number(request.query_params.get("starting_after", "-1"))
        if not state.is_open and after > state.last_number:
            raise InvalidInput(f"starting_after {after} is after the last event, which has number {state.last_number}")
        answer = await self._responses.conversations.follow(principal, stored.place)
        encoding = encoding_of(stored, encoder_of(stored, routers_of(answer.session.agent)))
        frames = _write_frames(_skip_numbers(answer.encode(encoding), after))
        headers = session_header(answer.session.id)
        return EventStream(frames, self._service.streams, headers=headers, opening=b"", resumable=True)

    async def cancel(self, request: Request) -> ASGIApp:
        """Stop the turn of a response, or withdraw its input, and return the response."""
        principal = principal_of(request)
        stored = await self._responses.find(principal, request.path_params["response"])
        state = await self._responses.describe(principal, stored)
        if state.collector.ended:
            return json_response(state.document)
        answer = await self._responses.conversations.follow(principal, stored.place)
        turn, key = state.collector.turn, answer.place.key
        await self._service.stop_turn(principal, answer.session, turn=turn, key=key, note="cancelled by the client")
        await wait_while_connected(request, _read_to_end(answer.events))
        return json_response((await self._responses.describe(principal, stored)).document)

    async def delete(self, request: Request) -> ASGIApp:
        """Forget a response. The session has its messages until it is deleted itself."""
        principal = principal_of(request)
        stored = await self._responses.find(principal, request.path_params["response"])
        await self._responses.forget(principal, stored)
        return json_response({"id": stored.id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> ASGIApp:
        """Return the items of the input of a response."""
        principal = principal_of(request)
        stored = await self._responses.find(principal, request.path_params["response"])
        items = [*await self._responses.input_messages(principal, stored), *stored.items]
        ends = {"first_id": items[0]["id"] if items else "", "last_id": items[-1]["id"] if items else ""}
        return json_response({"object": "list", "data": items, "has_more": False, **ends})


def door(service: AgentService) -> Door:
    """Return the routes of the Responses API."""
    responses = Responses(service)
    routes, guard = ResponseRoutes(responses), service.guard
    one = "/v1/responses/{response}"
    return Door(
        [
            guard_route(guard, "/v1/responses", {"POST": ("runs:write", routes.create)}, error_response),
            guard_route(
                guard,
                one,
                {"GET": ("runs:read", routes.retrieve), "DELETE": ("runs:write", routes.delete)},
                error_response,
            ),
            WebSocketRoute("/v1/responses", ResponsesSocket(responses)),
            guard_route(guard, f"{one}/cancel", {"POST": ("runs:write", routes.cancel)}, error_response),
            guard_route(guard, f"{one}/input_items", {"GET": ("runs:read", routes.list_input)}, error_response),
        ]
    )


async def _write_frames(batches: AsyncGenerator[list[ResponseEvent]]) -> AsyncGenerator[bytes]:
    number = 0
    try:
        async with aclosing(batches) as opened:
            async for events in opened:
                number = events[-1]["sequence_number"]
                yield b"".join(map(to_sse, events))
    except VakaError as error:  # the client reads the rest with starting_after
        fields = {"code": error.code, "message": str(error), "param": None}
        yield to_sse({"type": "error", "sequence_number": number, **fields})


async def _read_last(batches: AsyncGenerator[list[ResponseEvent]]) -> ResponseEvent:
    """Return the last event of a response."""
    async with aclosing(batches) as opened:
        return [events[-1] async for events in opened][-1]


async def _read_to_end(events: TurnEvents) -> None:
    async with events:
        async for _ in events:
            continue


async def _skip_numbers(
    batches: AsyncGenerator[list[ResponseEvent]], after: int
) -> AsyncGenerator[list[ResponseEvent]]:
    async with aclosing(batches) as opened:
        async for events in opened:
            rest = [*resume_after(events, after)]
            if rest:
                yield rest


def _parse_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"starting_after is the sequence number of an event, not {text[:40]!r}") from None
