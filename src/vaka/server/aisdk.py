"""The AI SDK: ``POST /ai-sdk/{agent}`` answers chats of ``useChat`` with a UI message stream, version 1.

A chat is a session, and a message of the assistant is a turn. The client sends its whole history; of it only the
messages after the last answer are read, and of the last answer what the user has decided. A turn goes on when its
client leaves, and ``GET /ai-sdk/{agent}/{chatId}/stream`` streams it again from its beginning.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.agents.routing import routers_of
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.control import InputAdded
from vaka.core.types.ids import Cursor, parse_session_id
from vaka.core.types.progress import TurnStarted
from vaka.runtime.session import Session
from vaka.server.answer_start import AnswerStart, open_answer
from vaka.server.chat_turns import (
    REFUSED_REQUESTS,
    ChatTurn,
    encode_turn,
    enter_chat,
    message_of,
    open_turn,
    rewritten_key,
)
from vaka.server.kit.bodies import read_bytes
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route, principal_of
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found, problem_response
from vaka.server.kit.service import AgentService
from vaka.server.rest.turn_log import TurnRecord, list_turns, read_backwards
from vaka.server.sse import EventStream
from vaka.tools.client_tool import ClientTool
from vaka.views.aisdk import DONE, UiStreamEncoder, to_sse
from vaka.views.aisdk_input import UiChatRequest, parse_ui_chat_request
from vaka.views.chat_input import ChatInput

STREAM_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
TURNS_PER_PAGE = 20


def door(service: AgentService) -> Door:
    """Return the routes of the AI SDK."""
    chats = _Chats(service)
    stream = {
        "GET": ("runs:read", chats.resume_stream),
        "DELETE": ("runs:write", chats.stop_stream),
    }
    return Door(
        [
            guard_route(service.guard, "/ai-sdk/{agent}", {"POST": ("runs:write", chats.send_messages)}),
            guard_route(service.guard, "/ai-sdk/{agent}/{chat}/stream", stream, problem_response),
        ]
    )


class _Chats:
    def __init__(self, service: AgentService) -> None:
        self._service = service

    async def send_messages(self, request: Request) -> EventStream:
        """Answer new messages, decisions and results of tools; or write an answer anew."""
        service = self._service
        principal = principal_of(request)
        given = parse_ui_chat_request(await read_bytes(request))
        service.streams.require_room(principal)
        agent = service.find_agent(request.path_params["agent"])
        session = await enter_chat(service, principal, agent, given)
        chat = msgspec.structs.replace(given, inputs=await self._rewrite(principal, session, given))
        turn = await open_turn(service, principal, session, chat, while_waiting="interrupt")
        return await self._stream(principal, turn, given)

    async def resume_stream(self, request: Request) -> ASGIApp:
        """Stream the unfinished turn of a chat from its beginning; an answer without a body if there is none."""
        service, principal = self._service, principal_of(request)
        session = await self._find_running(request)
        if session is None:
            return Response(status_code=204)
        turn = await open_turn(service, principal, session, ChatInput(), while_waiting="reject")
        return await self._stream(principal, turn)

    async def stop_stream(self, request: Request) -> Response:
        """Stop the unfinished turn of a chat, if there is one."""
        session = await self._find_running(request)
        if session is not None:
            await self._service.stop_turn(principal_of(request), session, note="stopped by the user")
        return Response(status_code=204)

    async def _find_running(self, request: Request) -> Session[Any] | None:
        """Return the session of a chat that has an unfinished turn."""
        service, principal = self._service, principal_of(request)
        agent, chat = service.find_agent(request.path_params["agent"]), request.path_params["chat"]
        runtime = await service.runtime_of(principal)
        info = await runtime.store.sessions.find(parse_session_id(chat))
        if info is None or not info.turn or not principal.may_see(info):
            return None
        return await service.open_session(principal, chat, agent=agent.name)

    async def _stream(self, principal: Principal, turn: ChatTurn, given: UiChatRequest | None = None) -> EventStream:
        async def leave() -> None:
            await self._service.leave_turn(principal, turn.session, turn.events)

        agent = turn.session.agent
        names = [tool.spec.name for tool in agent.tools if isinstance(tool, ClientTool)]
        known = given.known_calls if given is not None else ()
        encoder = UiStreamEncoder(known_calls=known, client_tools=names, routers=routers_of(agent))
        start = AnswerStart(REFUSED_REQUESTS)
        frames = _with_end(await open_answer(encode_turn(turn, encoder, to_sse, _error_chunks, start), start))
        on_disconnect = leave if given is not None and given.stops_on_disconnect else None
        return EventStream(frames, self._service.streams, headers=STREAM_HEADERS, on_disconnect=on_disconnect)

    async def _rewrite(
        self, principal: Principal, session: Session[Any], given: UiChatRequest
    ) -> tuple[InputAdded, ...]:
        """Return the inputs of a request; for a message that is edited or answered anew, rewind to before it first."""
        regenerates = given.trigger == "regenerate-message"
        if not given.inputs:
            if regenerates:
                raise Problem(400, "nothing_new", "to write an answer anew, the last message must be one of the user")
            return ()
        message = given.inputs[-1]
        if not regenerates and given.message_id != message.key:
            return given.inputs
        runtime = await self._service.runtime_of(principal)
        info = await self._service.find_session(principal, session.id)
        record = await _find_answer(runtime.store, info, message.key)
        if record is None:
            return given.inputs
        replaced = given.message_id if given.message_id not in ("", message.key) else record.id
        key = rewritten_key(message.key, replaced)
        if record.id == replaced:
            earlier = await _rewind_before(session, runtime.store, record)
            message = earlier if regenerates else message
        elif record.key != key:
            raise not_found(f"answer {replaced[:80]!r} to message {message.key[:80]!r}")
        return (msgspec.structs.replace(message, key=key),)


async def _rewind_before(session: Session[Any], store: Store, record: TurnRecord) -> InputAdded:
    """Rewind to before the input of a turn and return the input; withdraw it if it has waited for other turns."""
    has_waited = False
    async with aclosing(read_backwards(store, session.id, record.first_seq - 1)) as spans:
        async for span in spans:
            for event in reversed(span):
                body = event.data
                if isinstance(body, InputAdded) and body.key == record.key:
                    target = record.first_seq if has_waited else event.seq
                    await session.rewind(Cursor(0, target - 1), interrupt=True)
                    if has_waited:
                        await session.withdraw(record.key)
                    return body
                has_waited = has_waited or bool(event.turn)
    raise not_found(f"input of turn {record.id!r}")


async def _find_answer(store: Store, info: SessionInfo, message: str) -> TurnRecord | None:
    """Return the last turn that answers a message of the user."""
    before, is_last_page = 0, False
    while not is_last_page:
        records, before = await list_turns(store, info, before, TURNS_PER_PAGE)
        is_last_page = not before
        for record in records:
            started = record.events[0].data
            inputs = started.inputs if isinstance(started, TurnStarted) else ()
            if any(message in (key, message_of(key)) for key in inputs):
                return record
    return None


async def _with_end(frames: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(frames):
        async for frame in frames:
            yield frame
    yield DONE


def _error_chunks(reason: str) -> list[dict[str, Any]]:
    return [{"type": "error", "errorText": reason}]
