"""OpenAI's Chat Completions API: agents as models.

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
from vaka.core.types.message import AssistantMessage, ToolCall, as_content
from vaka.server.answer_start import open_answer
from vaka.server.conversations import Conversations, session_header, stop_on_disconnect
from vaka.server.kit.bodies import json_response, read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route, principal_of
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import problem_of, problem_of_failure
from vaka.server.kit.service import AgentService
from vaka.server.model_list import model_routes
from vaka.server.openai_errors import error_object, error_response
from vaka.server.request_answers import AnswerEncoding, RequestAnswer
from vaka.server.sse import EventStream, wait_while_connected
from vaka.views.failures import make_failure
from vaka.views.openai import DONE, ChatEncoder, ChatObject, join_chunks, to_sse
from vaka.views.openai_requests import ChatRequest, parse_chat_request


def door(service: AgentService) -> Door:
    """Return the routes of Chat Completions and of the list of models."""
    chat = ChatCompletions(service)
    handlers = {"POST": ("runs:write", chat.create)}
    route = guard_route(service.guard, "/v1/chat/completions", handlers, error_response)
    return Door([route, *model_routes(service, error_response)])


class ChatCompletions:
    """Answers requests of Chat Completions."""

    def __init__(self, service: AgentService) -> None:
        self._service, self._conversations = service, Conversations(service)

    async def create(self, request: Request) -> ASGIApp:
        """Return a completion, or the stream of its chunks."""
        principal, given = principal_of(request), parse_chat_request(await read_bytes(request))
        given = msgspec.structs.replace(given, key=request.headers.get("idempotency-key", ""))
        if given.stream:
            self._service.streams.require_room(principal)
        answer = await self._conversations.start(principal, given)
        headers = session_header(answer.session.id)
        include_usage = given.include_usage or not given.stream
        encoder = ChatEncoder(routers=routers_of(answer.session.agent), model=given.model, include_usage=include_usage)
        encoding = AnswerEncoding(answer.place, encoder)
        chunks = self._encode(principal, given, answer, encoding)
        if given.stream:
            leave = stop_on_disconnect(self._service, request, answer)
            frames = _write_frames(await open_answer(chunks, encoding.start))
            return EventStream(frames, self._service.streams, headers=headers, opening=b"", on_disconnect=leave)
        leave = stop_on_disconnect(self._service, request, answer)
        return await wait_while_connected(request, _join(chunks, encoding, headers), leave)

    async def _encode(
        self, principal: Principal, given: ChatRequest, answer: RequestAnswer, encoding: AnswerEncoding
    ) -> AsyncGenerator[list[ChatObject]]:
        """Yield the chunks; the conversation is stored before the last ones."""
        texts: list[str] = []
        calls: list[ToolCall] = []
        async with aclosing(answer.encode(encoding, live=given.stream)) as batches:
            async for chunks in batches:
                for choice in (choice for chunk in chunks for choice in chunk.get("choices", ())):
                    texts.append(choice["delta"].get("content", ""))
                    calls += [
                        ToolCall(id=CallId(made["id"]), name=made["function"]["name"])
                        for made in choice["delta"].get("tool_calls", ())
                    ]
                    if choice["finish_reason"] is not None:
                        content = as_content("".join(texts))
                        said = AssistantMessage(id=MessageId(""), content=content, calls=tuple(calls))
                        await self._conversations.remember(principal, given, answer, said)
                yield chunks


async def _write_frames(batches: AsyncGenerator[list[ChatObject]]) -> AsyncGenerator[bytes]:
    """Yield the frames; a stream that ends early ends with an error, or clients would take it for complete."""
    try:
        async with aclosing(batches) as opened:
            async for chunks in opened:
                yield b"".join(map(to_sse, chunks))
                if any("error" in chunk for chunk in chunks):
                    return
    except VakaError as error:
        yield to_sse({"error": error_object(problem_of(error))})
        return
    yield DONE


async def _join(
    batches: AsyncGenerator[list[ChatObject]], encoding: AnswerEncoding, headers: Mapping[str, str]
) -> Response:
    async with aclosing(batches) as opened:
        chunks = [chunk async for batch in opened for chunk in batch]
    completion = join_chunks(chunks)
    if "error" in completion:
        error = completion["error"]
        raise encoding.start.problem or problem_of_failure(make_failure(error["code"], error["message"]))
    return json_response(completion, headers=headers)
