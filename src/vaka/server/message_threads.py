"""Threads of the Messages API: a request that continues a message sends only what is new.

What the first request said for all later ones, its tools and instructions, is a value of the session.
"""

from typing import Any, cast

import msgspec

from vaka.core.ports.values import session_values_prefix
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import digest_of, parse_session_id
from vaka.core.types.tool import ToolSpec
from vaka.runtime.session_edits import read_last_turn
from vaka.server.conversations import Conversations, period_prefixes
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.request_answers import RequestAnswer
from vaka.views.anthropic_requests import MessagesRequest

ERROR_CODES = ("thread_not_found", "thread_already_continued")
"""The codes after which a client sends its whole conversation again, as a new thread."""


class ThreadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The common settings of the requests of a thread."""

    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()


class MessageThreads:
    """Stores and continues the threads of the callers."""

    def __init__(self, service: AgentService, conversations: Conversations) -> None:
        self._service, self._conversations = service, conversations

    async def start(
        self, principal: Principal, given: MessagesRequest, key: str
    ) -> tuple[MessagesRequest, RequestAnswer]:
        """Return the request in the terms of a session, and its answer. Raises ``Problem`` and ``VakaError``."""
        if not given.previous_message:
            request = msgspec.structs.replace(given, key=key)
            return request, await self._conversations.start(principal, request)
        session, settings = await self._find(principal, given.previous_message, key)
        runtime = await self._service.runtime_of(principal)
        claim = _claim_key(session, given.previous_message)
        mark = digest_of([key]) if key else runtime.env.ids.new_id("req")
        claimed = await runtime.store.values.put_if_absent(claim, {"request": mark})
        if cast("dict[str, Any]", claimed)["request"] != mark:
            raise _lost_thread("thread_already_continued", given.previous_message)
        instructions, tools = given.instructions or settings.instructions, given.tools or settings.tools
        request = msgspec.structs.replace(given, instructions=instructions, tools=tools, key=key, session=session)
        try:
            return request, await self._conversations.start(principal, request)
        except (Problem, VakaError):
            await runtime.store.values.put(claim, None)  # a better request may continue the message
            raise

    async def remember(
        self, principal: Principal, request: MessagesRequest, answer: RequestAnswer, message: str
    ) -> None:
        """Store that a thread goes on from a message."""
        runtime, session = await self._service.runtime_of(principal), answer.session.id
        settings = ThreadSettings(instructions=request.instructions, tools=request.tools)
        await runtime.store.values.put(_settings_key(session, message), msgspec.to_builtins(settings))
        current, _ = period_prefixes(runtime.env.clock.time())
        await runtime.store.values.put(current + _digest_of(principal, message), {"session": session})

    async def _find(self, principal: Principal, message: str, key: str) -> tuple[str, ThreadSettings]:
        """Return the session of a message, which must be the last one of it. Raises a ``Problem`` (404, 409)."""
        runtime = await self._service.runtime_of(principal)
        values = runtime.store.values
        for prefix in period_prefixes(runtime.env.clock.time()):
            found = await values.get(prefix + _digest_of(principal, message))
            if found is None:
                continue
            session = parse_session_id(cast("dict[str, str]", found)["session"])
            settings = await values.get(_settings_key(session, message))
            info = await runtime.store.sessions.find(session)
            if settings is None or info is None or not principal.may_see(info):
                break
            last = await read_last_turn(runtime.store, session)
            is_last = bool(last) and message.removeprefix("msg_").partition("-")[0] == last[0].turn
            if not is_last and not (key and await values.get(_claim_key(session, message)) is not None):
                raise _lost_thread("thread_already_continued", message)
            return session, msgspec.convert(settings, ThreadSettings)
        raise _lost_thread("thread_not_found", message)


def _settings_key(session: str, message: str) -> str:
    return f"{session_values_prefix(session)}messages/{message}"


def _claim_key(session: str, message: str) -> str:
    """Return the key of the request that continues a message."""
    return f"{_settings_key(session, message)}/next"


def _digest_of(principal: Principal, message: str) -> str:
    return digest_of([principal.id, "message", message])


def _lost_thread(code: str, message: str) -> Problem:
    status, what = (404, "is not stored") if code == "thread_not_found" else (409, "was continued before")
    detail = f"the message {message[:100]!r} {what}; send the whole conversation with a thread of the type 'create'"
    return Problem(status, code, detail, headers={"x-should-retry": "false"})
