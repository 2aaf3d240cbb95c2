"""Responses of OpenAI's Responses API: sessions are their conversations, turns their contents.

A stored response is a place in the log of its session and what its request had that the log has not.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from vaka.agents.routing import routers_of
from vaka.core.loop.blobs import restore_content
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.store import SessionQuery
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Busy, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, Cursor, MessageId, digest_of, parse_session_id
from vaka.core.types.message import AssistantMessage, ToolCall, as_content, text_of
from vaka.core.types.progress import StepStarted, TurnStarted
from vaka.runtime.session_edits import read_last_turn
from vaka.runtime.turn_stream import TurnCollector
from vaka.server.conversations import Conversations
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.request_answers import AnswerEncoding, AnswerPlace, RequestAnswer
from vaka.views.responses import ResponseEncoder, ResponseEvent, empty_response, response_of_item
from vaka.views.responses_requests import (
    ResponsesRequest,
    input_item,
    list_item_references,
    parse_responses_request,
)

_log = logging.getLogger("vaka.server")

_TOKEN_LENGTH = 24
EPHEMERAL_TAG = "ephemeral"
"""The tag of sessions that are deleted when their turn has ended."""
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_DELETE_TRIES, _DELETE_SECONDS = 100, 0.05
_LEFTOVER_SECONDS, _LEFTOVER_PAGE = 3600.0, 100


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored data of a response in addition to the log of its session."""

    id: str
    model: str
    place: AnswerPlace
    created: int = 0
    client_tools: tuple[str, ...] = ()
    echo: dict[str, Any] = {}
    items: tuple[dict[str, Any], ...] = ()
    """The items of the input that are no messages: results and decisions."""
    steered: str = ""
    """The key of the input with which another response went on."""


class ResponseState(msgspec.Struct, frozen=True, kw_only=True):
    """A stored response as it is now."""

    document: dict[str, Any]
    collector: TurnCollector
    """Has read the events of its turn that are stored."""
    last_number: int

    @property
    def is_open(self) -> bool:
        return self.document["status"] in ("queued", "in_progress")


class OpenResponse:
    """A response whose turn runs, with its encoder."""

    def __init__(self, stored: StoredResponse, answer: RequestAnswer, request: ResponsesRequest) -> None:
        self.stored = stored
        self.answer = answer
        self.request = request
        self.encoder = encoder_of(stored, routers_of(answer.session.agent))
        self.encoding = encoding_of(stored, self.encoder)
        self.is_streamed = self.is_background = self.is_stored = False
        self.is_read = asyncio.Event()
        """Set when the reader has ended."""

    @property
    def document(self) -> dict[str, Any]:
        """The response as it is now."""
        return self.encoder.response or _describe_unstarted(self.stored)


def encoder_of(stored: StoredResponse, routers: set[str]) -> ResponseEncoder:
    """Return a new encoder of a response."""
    return ResponseEncoder(
        routers=routers, model=stored.model, client_tools=stored.client_tools, echo=stored.echo, id=stored.id
    )


def encoding_of(stored: StoredResponse, encoder: ResponseEncoder) -> AnswerEncoding:
    """Return a new encoding of a response."""
    encoding = AnswerEncoding(stored.place, encoder)
    if stored.steered:
        encoding.steers[stored.steered] = encoder.steer
    return encoding


def _describe_unstarted(stored: StoredResponse, status: str = "queued") -> dict[str, Any]:
    return empty_response(stored.id, stored.model, stored.created, stored.echo, status)


class Responses:
    """Creates responses, and finds stored ones."""

    def __init__(self, service: AgentService) -> None:
        self.service, self.conversations = service, Conversations(service)
        self._ephemeral: dict[str, list[OpenResponse]] = {}
        """The responses of sessions that are deleted at the end of their turn."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._swept: set[str] = set()
        """The namespaces whose ephemeral sessions of earlier processes were deleted."""

    # ---------------------------------------------------------------------------------------------------------- create

    async def open(self, principal: Principal, body: "bytes | Mapping[str, Any]", key: str = "") -> OpenResponse:
        """Start the turn of a request, or continue the turn that waits for its decision.

        Raises ``Problem`` and ``VakaError``.
        """
        stored = await self._find_items(principal, list_item_references(body))
        given = parse_responses_request(body, stored)
        if given.stream and isinstance(body, bytes):  # a socket has been counted
            self.service.streams.require_room(principal)
        request = await self._conversation_of(principal, given, key)
        answer = await self.conversations.start(principal, request)
        runtime = await self.service.runtime_of(principal)
        response = StoredResponse(
            id=make_id(answer.session.id, digest_of([principal.id, key]) if key else secrets.token_hex(16)),
            model=given.model,
            place=answer.place,
            created=int(runtime.env.clock.time()),
            client_tools=tuple(tool.name for tool in given.tools),
            items=_other_items(given),
            echo={**given.echo, "conversation": {"id": answer.session.id}},
        )
        opened = OpenResponse(response, answer, request)
        opened.is_streamed = given.stream
        opened.is_background = given.background
        opened.is_stored = given.store
        if given.store:
            await self.save(principal, response)
        else:
            await self._register_ephemeral(principal, opened)
        return opened

    async def open_successor(self, principal: Principal, ended: OpenResponse, answer: RequestAnswer) -> OpenResponse:
        """Return the response with which the turn of another one goes on, after an input that has steered it."""
        echo = {**ended.stored.echo, "previous_response_id": ended.stored.id}
        stored = msgspec.structs.replace(
            ended.stored,
            id=make_id(answer.session.id, secrets.token_hex(16)),
            place=answer.place,
            echo=echo,
            items=(),
            steered="",
        )
        opened = OpenResponse(stored, answer, msgspec.structs.replace(ended.request, session=answer.session.id))
        opened.is_stored = ended.is_stored
        if opened.is_stored:
            await self.save(principal, stored)
        elif answer.session.id in self._ephemeral:
            self._ephemeral[answer.session.id].append(opened)
        return opened

    async def read(
        self, principal: Principal, opened: OpenResponse, *, live: bool = True
    ) -> AsyncGenerator[list[ResponseEvent]]:
        """Yield the events of a response; the conversation is stored before the last ones."""
        try:
            async with aclosing(opened.answer.encode(opened.encoding, live=live)) as batches:
                async for events in batches:
                    is_kept = not opened.request.is_separate or not opened.answer.events.ended
                    if events[-1]["type"] in _ENDS and is_kept:
                        said = _message_of(opened.document)
                        await self.conversations.remember(principal, opened.request, opened.answer, said)
                    yield events
            if not opened.encoder.response:  # the input was withdrawn
                cancelled = _describe_unstarted(opened.stored, "cancelled")
                yield [{"type": "response.incomplete", "sequence_number": 0, "response": cancelled}]
        finally:
            opened.is_read.set()

    async def _conversation_of(self, principal: Principal, given: ResponsesRequest, key: str) -> ResponsesRequest:
        if given.background and not given.store:
            raise InvalidInput("a background response is stored; leave out 'store', or 'background'")
        session, is_separate = given.session, not (given.store or given.results or given.decisions)
        if given.previous_response_id:
            session = await self._session_after(principal, given.previous_response_id)
        if session and is_separate:
            runtime = await self.service.runtime_of(principal)
            session = await runtime.fork((await self.service.find_session(principal, session)).id)
        return msgspec.structs.replace(given, key=key, session=session, is_separate=is_separate)

    async def _session_after(self, principal: Principal, id: str) -> str:
        """Return the session that a response ends, or a copy of its beginning if the session has gone on since."""
        try:
            place = (await self.find(principal, id)).place
        except Problem as problem:
            detail = f"there is no response {id[:100]!r} to go on from; it may have been deleted, or was not stored"
            errors = [{"field": "previous_response_id", "message": detail}]
            raise Problem(400, "previous_response_not_found", detail, errors=errors) from problem
        runtime = await self.service.runtime_of(principal)
        session = parse_session_id(place.session)
        last = await read_last_turn(runtime.store, session)
        if not last or last[0].turn == place.turn or _takes_input(last, place.key):
            return session
        collector = TurnCollector(session, key=place.key, turn=place.turn)
        async with aclosing(runtime.store.events.read(session, after=place.start)) as events:
            async for event in events:
                collector.take_events([event])
                if collector.end_event is not None:
                    return await runtime.fork(session, at=Cursor(0, event.seq))
        return session  # the input still waits

    # ------------------------------------------------------------------------------------------------- stored responses

    async def save(self, principal: Principal, stored: StoredResponse) -> None:
        """Store a response."""
        runtime = await self.service.runtime_of(principal)
        await runtime.store.values.put(_key_of(stored.place.session, stored.id), msgspec.to_builtins(stored))

    async def forget(self, principal: Principal, stored: StoredResponse) -> None:
        """Remove a stored response. Its turn stays in the log of the session."""
        runtime = await self.service.runtime_of(principal)
        await runtime.store.values.put(_key_of(stored.place.session, stored.id), None)

    async def find(self, principal: Principal, id: str) -> StoredResponse:
        """Return a stored response that the caller may see. Raises a ``Problem`` (404)."""
        try:
            session = (await self.service.find_session(principal, _session_of(id))).id
        except (Problem, InvalidInput):
            raise _missing_response(id) from None
        runtime = await self.service.runtime_of(principal)
        value = await runtime.store.values.get(_key_of(session, id))
        if value is None:
            raise _missing_response(id)
        return msgspec.convert(value, StoredResponse)

    async def _find_items(self, principal: Principal, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the output items of stored responses by their ids, if they exist and the caller may see them."""
        items: dict[str, dict[str, Any]] = {}
        for response in {response_of_item(id) for id in ids} - {""}:
            try:
                state = await self.describe(principal, await self.find(principal, response))
            except Problem:  # reading the request says which item is missing
                continue
            items |= {item["id"]: item for item in state.document["output"]}
        return items

    async def describe(self, principal: Principal, stored: StoredResponse) -> "ResponseState":
        """Return a stored response as it is now."""
        agent, _ = self.conversations.find_model(stored.model)
        encoder = encoder_of(stored, routers_of(agent))
        collector = await self.conversations.read_stored(principal, stored.place, encoding_of(stored, encoder))
        document = encoder.response or _describe_unstarted(stored, "cancelled" if collector.withdrawn else "queued")
        return ResponseState(document=document, collector=collector, last_number=encoder.last_number)

    async def input_messages(self, principal: Principal, stored: StoredResponse) -> list[dict[str, Any]]:
        """Return the message of the user that began the turn of a response, if it did."""
        runtime, place = await self.service.runtime_of(principal), stored.place
        session = parse_session_id(place.session)
        async with aclosing(runtime.store.events.read(session, after=place.start)) as events:
            async for event in events:
                if isinstance(event.data, InputAdded) and event.data.key == place.key:
                    content = await restore_content(runtime.store.blobs, event.data.content)
                    return [input_item(f"msg_{place.key}", content)]
                if not place.key:
                    break
        return []

    # ----------------------------------------------------------------------------------------------- ephemeral sessions

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        async def run_logged() -> None:
            try:
                await work
            except (Problem, VakaError) as error:
                _log.info("an ephemeral session is deleted by a later process: %s", error)

        task = asyncio.create_task(run_logged())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _register_ephemeral(self, principal: Principal, opened: OpenResponse) -> None:
        """Delete the session of a response that is not stored, once its turn has ended and was read."""
        session = opened.answer.session
        if opened.request.is_separate:
            await session.update(tags=[EPHEMERAL_TAG], by=principal.id)
            self._ephemeral[session.id] = []
            self._run(self._delete_at_end(principal, opened.answer))
        if session.id in self._ephemeral:
            self._ephemeral[session.id].append(opened)
        if principal.namespace not in self._swept:
            self._swept.add(principal.namespace)
            self._run(self._delete_leftover(principal))

    async def _delete_at_end(self, principal: Principal, answer: RequestAnswer) -> None:
        runtime, id = await self.service.runtime_of(principal), answer.session.id
        try:
            again = await self.conversations.follow(principal, answer.place, agent=answer.session.agent)
            async with again.events as events:
                async for _ in events:
                    continue
            if not events.ended:  # the server stops while the turn waits
                return
            for opened in self._ephemeral[id]:
                await opened.is_read.wait()
        finally:
            del self._ephemeral[id]
        for _ in range(_DELETE_TRIES):
            try:
                await runtime.store.sessions.delete(id)
            except Busy:  # the process that has run the turn still releases the session
                await asyncio.sleep(_DELETE_SECONDS)
            else:
                return

    async def _delete_leftover(self, principal: Principal) -> None:
        """Delete ephemeral sessions whose turns have ended in earlier processes."""
        runtime = await self.service.runtime_of(principal)
        before = format_timestamp(runtime.env.clock.time() - _LEFTOVER_SECONDS)
        query = SessionQuery(tag=EPHEMERAL_TAG, status="idle", updated_before=before, limit=_LEFTOVER_PAGE)
        while page := (await runtime.store.sessions.list(query)).sessions:
            for info in page:
                with suppress(Busy, NotFound):
                    await runtime.store.sessions.delete(info.id)
            if len(page) < _LEFTOVER_PAGE:
                return


def make_id(session: str, token: str) -> str:
    """Return the id of a response: it names the session, with which its data is deleted."""
    name = base64.urlsafe_b64encode(session.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return f"resp_{token[:_TOKEN_LENGTH]}{name}"


def _session_of(id: str) -> str:
    """Return the session of the id of a response; ``""`` for what is not such an id."""
    name = id[len("resp_") + _TOKEN_LENGTH :]
    try:
        return base64.b64decode(name + "=" * (-len(name) % 4), b"-_", validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""


def _key_of(session: str, id: str) -> str:
    return f"{session_values_prefix(session)}responses/{id}"


def _missing_response(id: str) -> Problem:
    return Problem(404, "not_found", f"there is no response {id[:100]!r}")


def _takes_input(events: Iterable[Event], key: str) -> bool:
    started = (event.data for event in events if isinstance(event.data, TurnStarted | StepStarted))
    return any(key in body.inputs for body in started)


def _other_items(given: ResponsesRequest) -> tuple[dict[str, Any], ...]:
    """Return the items of the results and decisions of a request."""
    results = [
        {
            "id": f"fco_{result.call}",
            "type": "function_call_output",
            "call_id": result.call,
            "output": text_of(result.content),
            "status": "completed",
        }
        for result in given.results
    ]
    replies = [
        {
            "id": f"mcpr_{reply.approval}",
            "type": "mcp_approval_response",
            "approval_request_id": reply.approval,
            "approve": reply.decision == "approve",
            "reason": reply.message or None,
        }
        for reply in given.approvals
    ]
    return (*results, *replies)


def _message_of(response: Mapping[str, Any]) -> AssistantMessage:
    """Return the output of a response as the message that a client sends back."""
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = [
        ToolCall(id=CallId(item["call_id"]), name=item["name"])
        for item in response["output"]
        if item["type"] == "function_call"
    ]
    return AssistantMessage(id=MessageId(""), content=as_content("".join(texts)), calls=tuple(calls))
