"""Anthropic's Messages API: agents as models.

A request continues the session whose conversation it repeats; see ``conversations``.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.agents.routing import routers_of
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, ToolCall, ToolMessage, UserMessage, as_content
from vaka.core.types.tokens import estimate_message_tokens, estimate_text_tokens
from vaka.server.answer_start import open_answer
from vaka.server.conversations import Conversations, session_header, stop_on_disconnect
from vaka.server.kit.bodies import json_response, read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route, principal_of
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, problem_of
from vaka.server.kit.service import AgentService
from vaka.server.message_threads import ERROR_CODES, MessageThreads
from vaka.server.model_list import model_routes
from vaka.server.request_answers import AnswerEncoding, RequestAnswer
from vaka.server.sse import EventStream, wait_while_connected
from vaka.views.anthropic_messages import (
    MessageEvent,
    MessagesEncoder,
    error_event,
    error_type_of,
    join_message,
    to_sse,
)
from vaka.views.anthropic_requests import MessagesRequest, parse_messages_request


def error_response(problem: Problem, request_id: str) -> Response:
    """Return a problem in the form that Anthropic's clients read."""
    event = error_event(error_type_of(problem.status), problem.detail)
    if problem.code in ERROR_CODES:
        event["error"]["details"] = {"error_code": problem.code}
    body = {**event, "request_id": request_id}
    return json_response(body, problem.status, problem.headers)


def door(service: AgentService) -> Door:
    """Return the routes of the Messages API and of the list of models."""
    messages, guard = Messages(service), service.guard
    return Door(
        [
            guard_route(guard, "/v1/messages", {"POST": ("runs:write", messages.create)}, error_response),
            guard_route(
                guard, "/v1/messages/count_tokens", {"POST": ("runs:read", messages.count_tokens)}, error_response
            ),
            *model_routes(service, error_response),
        ]
    )


class Messages:
    """Answers requests of the Messages API."""

    def __init__(self, service: AgentService) -> None:
        self._service, self._conversations = service, Conversations(service)
        self._threads = MessageThreads(service, self._conversations)

    async def create(self, request: Request) -> ASGIApp:
        """Return a message, or the stream of its events."""
        principal, given = principal_of(request), parse_messages_request(await read_bytes(request))
        if given.stream:
            self._service.streams.require_room(principal)
        given, answer = await self._threads.start(principal, given, request.headers.get("idempotency-key", ""))
        headers = session_header(answer.session.id)
        routers = routers_of(answer.session.agent)
        encoder = MessagesEncoder(routers=routers, model=given.model, thinking=given.thinking)
        encoding = AnswerEncoding(answer.place, encoder)
        batches = self._encode(principal, given, answer, encoding)
        if given.stream:
            leave = stop_on_disconnect(self._service, request, answer)
            frames = _write_frames(await open_answer(batches, encoding.start))
            return EventStream(frames, self._service.streams, headers=headers, opening=b"", on_disconnect=leave)
        leave = stop_on_disconnect(self._service, request, answer)
        return await wait_while_connected(request, _join(batches, encoding, headers), leave)

    async def count_tokens(self, request: Request) -> ASGIApp:
        """Return an estimate of the tokens of a request; the agent's own instructions and tools are not counted."""
        given = parse_messages_request(await read_bytes(request))
        self._conversations.find_model(given.model)
        messages = [*given.history, ToolMessage(results=given.results), UserMessage(content=given.content)]
        texts = len(given.instructions) + (len(msgspec.json.encode(given.tools)) if given.tools else 0)
        return json_response({"input_tokens": estimate_message_tokens(messages) + estimate_text_tokens(texts)})

    async def _encode(
        self, principal: Principal, given: MessagesRequest, answer: RequestAnswer, encoding: AnswerEncoding
    ) -> AsyncGenerator[list[MessageEvent]]:
        """Yield the events; the conversation is stored before the last ones."""
        seen: list[MessageEvent] = []
        async with aclosing(answer.encode(encoding, live=given.stream)) as batches:
            async for events in batches:
                seen += events
                if events[-1]["type"] == "message_stop":
                    await self._conversations.remember(principal, given, answer, _message_of(seen))
                    if given.holds_thread:
                        await self._threads.remember(principal, given, answer, join_message(seen)["id"])
                yield events


def _message_of(events: list[MessageEvent]) -> AssistantMessage:
    """Return a message as the client sends it back."""
    content = join_message(events)["content"]
    texts = [block["text"] for block in content if block["type"] == "text"]
    calls = [ToolCall(id=CallId(block["id"]), name=block["name"]) for block in content if block["type"] == "tool_use"]
    return AssistantMessage(id=MessageId(""), content=as_content("".join(texts)), calls=tuple(calls))


async def _write_frames(batches: AsyncGenerator[list[MessageEvent]]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(batches) as opened:
            async for events in opened:
                yield b"".join(map(to_sse, events))
    except VakaError as error:
        problem = problem_of(error)
        yield to_sse(error_event(error_type_of(problem.status), problem.detail))


async def _join(
    batches: AsyncGenerator[list[MessageEvent]], encoding: AnswerEncoding, headers: Mapping[str, str]
) -> Response:
    async with aclosing(batches) as opened:
        events = [event async for batch in opened for event in batch]
    message = join_message(events)
    if message.get("type") != "message":
        detail = message["error"]["message"] if message else "the input was withdrawn"
        raise encoding.start.problem or Problem(409, "turn_failed", detail, headers={"x-should-retry": "false"})
    return json_response(message, headers=headers)
