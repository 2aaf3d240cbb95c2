"""Requests of clients that send the whole conversation, as turns of sessions.

A request belongs to the session that its model names (``agent:session``), or to the session with the conversation that
it repeats. Otherwise it creates a session, which begins with the conversation of the request.
"""

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import quote

import msgspec
from starlette.requests import HTTPConnection

from vaka.agents.react import Agent
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.store import PendingDecision
from vaka.core.ports.values import KeyValueStore
from vaka.core.session.fanout import Follower
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, Asked, QuestionAsked
from vaka.core.types.errors import Busy, HeadMoved, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, DecisionId, digest_of, parse_session_id
from vaka.core.types.imported_turns import ImportedTurns
from vaka.core.types.message import (
    AssistantMessage,
    Message,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
    text_of,
)
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.core.types.progress import ToolCompleted, ToolFailed
from vaka.runtime.options import OnBusy
from vaka.runtime.session import Session, binding_of
from vaka.runtime.turn_stream import TurnCollector
from vaka.server.chat_turns import settle
from vaka.server.kit.guard import principal_of, require_scope
from vaka.server.kit.identifiers import check_id
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService, PromptInput, refuse_blobs
from vaka.server.request_agent import extend_agent, make_client_tools
from vaka.server.request_answers import AnswerEncoding, AnswerPlace, RequestAnswer
from vaka.server.turn_events import DecisionCollector, restore_event
from vaka.views.answers import is_client_call
from vaka.views.chat_input import ChatInput
from vaka.views.openai import describe_decision

SESSION_HEADER = "x-vaka-session"
"""The header of a response with the id of the session, percent-encoded."""
CONVERSATION_PREFIX = "server/conversations/"
"""Keys with the session of a conversation, by the period in which it was stored and the digest of its messages."""
CONVERSATION_DAYS = 30
"""The length of a period. A conversation is continued in its session for this time at least, later in a new one."""
REQUEST_PREFIX = "server/requests/"
"""Keys with the session and the turn of a request that has an idempotency key; the day of the request follows."""
DAY_SECONDS = 86_400
DISCONNECT_HEADER = "x-vaka-on-disconnect"
"""The header of a request whose turn is to be stopped when its client leaves: ``cancel``."""


def session_header(session: str) -> dict[str, str]:
    """Return the header that names a session."""
    return {SESSION_HEADER: quote(session)}


class Conversations:
    """Finds or creates the sessions of requests, and starts or continues their turns."""

    def __init__(self, service: AgentService) -> None:
        self._service = service
        self._starting: set[tuple[str, str, str]] = set()
        """Namespace, caller and idempotency key of the requests whose turns are being started."""
        self._swept: dict[str, str] = {}
        """The day on which old requests and conversations of each namespace were removed last."""

    def find_model(self, model: str) -> tuple[Agent, str]:
        """Return the agent and the session that the name of a model stands for. Raises a ``Problem`` (404)."""
        name, _, session = (model, "", "") if model in self._service.agents else model.partition(":")
        if name not in self._service.agents:
            known = ", ".join(list(self._service.agents)[:20])
            raise Problem(404, "model_not_found", f"there is no model {model[:100]!r}; the models are agents: {known}")
        return self._service.find_agent(name), session

    async def start(self, principal: Principal, request: ChatInput) -> RequestAnswer:
        """Return the answer of a request; its turn runs from now on, with or without a reader.

        Raises ``Problem`` and ``VakaError``.
        """
        agent, named = self.find_model(request.model)
        session = request.session or named
        if request.key:
            starting = (principal.namespace, principal.id, request.key)
            if starting in self._starting:
                detail = "a request with this idempotency key is being started; try again"
                raise Problem(409, "in_progress", detail, headers={"Retry-After": "1"})
            self._starting.add(starting)
            try:
                return await self._start_once(principal, agent, request, session)
            finally:
                self._starting.discard(starting)
        session = session or await self._find_session(principal, agent, request)
        return await self._continue(principal, agent, request, session)

    async def _start_once(self, principal: Principal, agent: Agent, request: ChatInput, session: str) -> RequestAnswer:
        """Start or continue a turn, or return the answer of the request that had the same idempotency key."""
        runtime, id = await self._service.runtime_of(principal), digest_of([principal.id, request.key])
        decisions = [
            {"decision": decision.decision, "approval": decision.approval, "message": decision.message}
            for decision in request.decisions
            if isinstance(decision, ApprovalResolved)
        ]
        fields = [request.model, request.history, request.content, request.results, decisions]
        mark, values = digest_of(msgspec.to_builtins(fields)), runtime.store.values
        now = runtime.env.clock.time()
        today, yesterday = f"{REQUEST_PREFIX}{_day(now)}/{id}", f"{REQUEST_PREFIX}{_day(now - DAY_SECONDS)}/{id}"
        name = yesterday if await values.get(yesterday) is not None else today
        stored = await values.get(name)
        if stored is None:
            session = session or await self._find_session(principal, agent, request) or runtime.env.ids.new_id("ses")
            place = AnswerPlace(session=session, key=f"key_{id}")
            stored = await values.put_if_absent(name, _record(mark, place))
            await self._remove_old(values, principal.namespace, now)
        record = cast("Mapping[str, Any]", stored)
        if record["request"] != mark:
            detail = "the idempotency key belongs to another request; use a new key for each request"
            raise Problem(422, "idempotency_conflict", detail)
        place = msgspec.convert(record["place"], AnswerPlace)
        if record.get("started"):
            return await self.follow(principal, place, agent=_adapt_agent(agent, request))
        keyed = msgspec.structs.replace(request, key=place.key)
        try:
            answer = await self._continue(principal, agent, keyed, place.session)
        except (Problem, VakaError):
            await values.put(name, None)  # the key can be used for a better request
            raise
        await values.put(name, {**_record(mark, answer.place), "started": True})
        return answer

    async def _remove_old(self, values: KeyValueStore, namespace: str, now: float) -> None:
        """Remove what is stored of requests before yesterday and of old conversations, once a day."""
        if self._swept.get(namespace) == _day(now):
            return
        self._swept[namespace] = _day(now)
        oldest = {REQUEST_PREFIX: _day(now - DAY_SECONDS), CONVERSATION_PREFIX: _period(now, -1)}
        for prefix, first in oldest.items():
            for key in await values.keys(prefix):
                if key < prefix + first:
                    await values.put(key, None)

    async def follow(self, principal: Principal, place: AnswerPlace, *, agent: Agent | None = None) -> RequestAnswer:
        """Return an answer again. Raises a ``Problem`` (404) if its session is gone."""
        info = await self._service.find_session(principal, place.session)
        runtime = await self._service.runtime_of(principal)
        session = await runtime.open(agent or self._service.find_agent(info.agent), id=info.id)
        events = await self._service.attach_turn(
            principal, session, turn=place.turn, key=place.key, after=Cursor(0, place.start)
        )
        return RequestAnswer(session, events, place, runtime.store.blobs)

    async def read_stored(self, principal: Principal, place: AnswerPlace, encoding: AnswerEncoding) -> TurnCollector:
        """Encode what is stored of an answer; return the collector of its turn. Raises a ``Problem`` (404)."""
        info = await self._service.find_session(principal, place.session)
        store, pending = (await self._service.runtime_of(principal)).store, PendingDecisions()
        collector = DecisionCollector(info.id, key=place.key, turn=place.turn)
        async with aclosing(store.events.read(info.id, after=place.start)) as events:
            async for event in events:
                for taken in collector.take_events([event]):
                    pending.note(taken)
                    encoding.encode(await restore_event(store.blobs, taken))
                    if pending.is_waiting_after(taken.data):
                        encoding.wait()
                if encoding.ended or collector.ended:
                    break
        return collector

    async def remember(
        self, principal: Principal, request: ChatInput, answer: RequestAnswer, said: AssistantMessage
    ) -> None:
        """Store that the session of an answer goes on when a client repeats the conversation up to it."""
        agent, named = self.find_model(request.model)
        if request.session or named:
            return
        messages: list[Message] = [*request.history]
        if request.results:
            messages.append(ToolMessage(results=request.results))
        if request.content:
            messages.append(UserMessage(content=request.content))
        runtime = await self._service.runtime_of(principal)
        now, values = runtime.env.clock.time(), runtime.store.values
        digest = digest_conversation(principal, agent.name, [*messages, said])
        await values.put(f"{CONVERSATION_PREFIX}{_period(now)}/{digest}", {"session": answer.session.id})
        await self._remove_old(values, principal.namespace, now)

    # --------------------------------------------------------------------------------------------------------- sessions

    async def _find_session(self, principal: Principal, agent: Agent, request: ChatInput) -> str:
        """Return the session that a request continues; ``""`` for none."""
        runtime = await self._service.runtime_of(principal)
        named = {reply.approval for reply in request.approvals} - {""}
        for id in named:
            for row in await runtime.decisions(id=id):
                return (await self._service.find_session(principal, row.session)).id
        if not request.history or request.is_separate:
            return ""
        for key in _conversation_keys(principal, agent.name, request.history, runtime.env.clock.time()):
            if (found := await runtime.store.values.get(key)) is not None:
                record = cast("dict[str, Any]", found)
                if record.get("decided") and not request.has_only_results:
                    return ""
                info = await runtime.store.sessions.find(parse_session_id(record["session"]))
                return info.id if info is not None else ""
        return ""

    async def _forget(self, principal: Principal, agent: Agent, request: ChatInput, decided: str = "") -> None:
        """Let another request with the same messages begin a session of its own.

        ``decided`` is the session that has got the results of the request: it answers the same results again.
        """
        if request.history and not request.session:
            runtime = await self._service.runtime_of(principal)
            record = {"session": decided, "decided": True} if decided and request.results else None
            for key in _conversation_keys(principal, agent.name, request.history, runtime.env.clock.time()):
                if record is None or await runtime.store.values.get(key) is not None:
                    await runtime.store.values.put(key, record)

    async def _create(self, principal: Principal, agent: Agent, request: ChatInput, id: str) -> Session[Any]:
        """Return a new session that begins with the history of the request.

        Without a new message of the user, results of the last calls of the history leave its last turn unfinished.
        """
        runtime = await self._service.runtime_of(principal)
        turns = ImportedTurns(agent.name, runtime.env.ids.new_id)
        for message in request.history:
            turns.add_message(_without_repeated_results(message))
        results = tuple(result for result in request.results if result.call in turns.open_calls)
        if not request.has_content and not results:
            raise _nothing_waits(request)
        if results:
            turns.add_message(_without_repeated_results(ToolMessage(results=results)))
        if request.has_content:
            turns.end_turn()
        if id:
            check_id(id)
        session = await runtime.open(agent, id=id)
        await session.update(owner=principal.id, by=principal.id, create=True)
        if turns.entries:
            await binding_of(session).append_imported(lambda _: turns.entries)
        return session

    async def _continue(self, principal: Principal, agent: Agent, request: ChatInput, id: str) -> RequestAnswer:
        """Decide what a session waits for, or start a turn of it. A session that does not exist is created."""
        runtime, changed = await self._service.runtime_of(principal), _adapt_agent(agent, request)
        if not id or await runtime.store.sessions.find(parse_session_id(id)) is None:
            if not request.has_content:  # there is no input that can have them
                changed = copy.copy(changed)
                changed.options = {**changed.options, **request.options}
            try:
                session = await self._create(principal, changed, request, id)
            except HeadMoved:  # another request has just created it
                return await self._continue(principal, agent, request, id)
            if request.has_content:
                return await self._start_turn(principal, session, request, 0)
            self._service.admit_turn(principal, session.id)
            last = await session.last_turn()
            return await self._answer_again(principal, session, _place_after(session.id, last, last[-1].seq))
        info = await self._service.find_session(principal, id)
        if info.agent not in ("", agent.name):
            raise Problem(409, "other_agent", f"session {id!r} belongs to agent {info.agent!r}, not to {agent.name!r}")
        session = await runtime.open(changed, id=info.id)
        rows = await runtime.decisions(info.id) if info.pending else ()
        if request.has_only_results:
            place = _place_of_results(info.id, await session.last_turn(), request.results)
            if place is not None:
                return await self._answer_again(principal, session, place)
        if not rows:
            return await self._start_next(principal, agent, request, session, info.head)
        start = (await session.last_turn())[0].seq - 1
        cursor = Cursor(0, start)  # a turn that no process runs goes on with the tools of this request
        events = await self._service.attach_turn(principal, session, turn=info.turn, after=cursor)
        seqs = [event.seq for event in await self._decide(principal, request, session, rows)]
        await self._forget(principal, agent, request, decided=info.id)
        place = AnswerPlace(session=info.id, turn=info.turn, start=start, after=min(seqs), decided=max(seqs))
        return RequestAnswer(session, events, place, runtime.store.blobs)

    async def _answer_again(self, principal: Principal, session: Session[Any], place: AnswerPlace) -> RequestAnswer:
        """Return what follows an event of a turn; a turn that has stopped goes on."""
        cursor = Cursor(0, place.start)
        events = await self._service.attach_turn(principal, session, turn=place.turn, after=cursor)
        return RequestAnswer(session, events, place, (await self._service.runtime_of(principal)).store.blobs)

    async def _start_next(
        self, principal: Principal, agent: Agent, request: ChatInput, session: Session[Any], head: int
    ) -> RequestAnswer:
        """Start the next turn of a session; a conversation that another request has just continued is copied."""
        if not request.has_content:
            if request.session or self.find_model(request.model)[1] or not request.history:
                raise _nothing_waits(request)
            return await self._continue(principal, agent, request, "")  # its results are for an earlier turn
        if request.session or self.find_model(request.model)[1]:
            return await self._start_turn(principal, session, request, head)
        try:
            answer = await self._start_turn(principal, session, request, head, on_busy="reject")
        except Busy:
            return await self._continue(principal, agent, request, "")
        await self._forget(principal, agent, request)
        return answer

    async def _start_turn(
        self,
        principal: Principal,
        session: Session[Any],
        request: ChatInput,
        head: int,
        *,
        on_busy: OnBusy = "queue",
    ) -> RequestAnswer:
        input = PromptInput(prompt=request.content, key=request.key, options=request.options, on_busy=on_busy)
        events = await self._service.start_turn(principal, session, input, until_waiting=True)
        place = AnswerPlace(session=session.id, key=events.key, start=0 if request.key else head)
        blobs = (await self._service.runtime_of(principal)).store.blobs
        return RequestAnswer(session, events, place, blobs)

    # -------------------------------------------------------------------------------------------------------- decisions

    async def _decide(
        self, principal: Principal, request: ChatInput, session: Session[Any], rows: Sequence[PendingDecision]
    ) -> list[Event]:
        """Decide what a request decides; return the events. Raises a ``Problem`` when it decides nothing.

        What the user says besides results and decisions joins the turn.
        """
        service = self._service
        asked = {row.id: cast("Asked", row.event.data) for row in rows}
        calls = {body.call for body in asked.values() if isinstance(body, QuestionAsked) and is_client_call(body)}
        results = [result for result in request.results if result.call in calls]
        approvals = [id for id, body in asked.items() if isinstance(body, ApprovalRequested)]
        replies = [
            msgspec.structs.replace(reply, approval=id)
            for reply in request.approvals
            if (id := _named_approval(reply, approvals))
        ]
        if replies:
            require_scope(principal, "approvals:write", "a decision about a call")
        questions = [id for id, body in asked.items() if id not in approvals and not is_client_call(body)]
        if not results and not replies:
            if not questions or not text_of(request.content):
                raise _still_waits(list(asked.values()))
            return [await service.answer(principal, questions[0], text_of(request.content))]
        if request.has_content and (results or request.decisions):
            refuse_blobs(request.content)
            await binding_of(session).submit(request.content, Follower(), on_busy="steer")
        return await settle(service, principal, session, results, replies)


def _without_repeated_results(message: Message) -> Message:
    """Return a message in which each call has one result: the first one counts."""
    if not isinstance(message, ToolMessage):
        return message
    results: dict[str, ToolResult] = {}
    for result in message.results:
        results.setdefault(result.call, result)
    return ToolMessage(results=tuple(results.values()))


def _place_after(session: str, turn: Sequence[Event], after: int, decided: int = 0) -> AnswerPlace:
    """Return the place of an answer that begins in the middle of a turn."""
    return AnswerPlace(session=session, turn=turn[0].turn, start=turn[0].seq - 1, after=after, decided=decided)


def _place_of_results(session: str, turn: Sequence[Event], results: Iterable[ToolResult]) -> AnswerPlace | None:
    """Return the place of the answer to results that a turn has got before; ``None`` if it has not got one of them."""
    seqs = {
        event.data.result.call: event.seq
        for event in turn
        if isinstance(event.data, ToolCompleted | ToolFailed) and not event.path
    }
    calls = [result.call for result in results]
    if not calls or any(call not in seqs for call in calls):
        return None
    answered = [seqs[call] for call in calls]
    return _place_after(session, turn, min(answered) - 1, max(answered))


def _named_approval(reply: ApprovalResolved, approvals: Sequence[DecisionId]) -> DecisionId | None:
    """Return the approval that a reply decides; ``None`` if that is not clear."""
    if reply.approval:
        return reply.approval if reply.approval in approvals else None
    return approvals[0] if len(approvals) == 1 else None


def stop_on_disconnect(
    service: AgentService, request: HTTPConnection, answer: RequestAnswer
) -> Callable[[], Awaitable[None]] | None:
    """Return what stops the turn of an answer when the client leaves, if the request asks for it."""
    if request.headers.get(DISCONNECT_HEADER) != "cancel":
        return None
    return lambda: service.leave_turn(principal_of(request), answer.session, answer.events)


def _day(now: float) -> str:
    return format_timestamp(now)[:10]


def _record(mark: str, place: AnswerPlace) -> dict[str, Any]:
    return {"request": mark, "place": msgspec.to_builtins(place)}


def _period(now: float, shift: int = 0) -> str:
    """Return the number of a period of ``CONVERSATION_DAYS`` days, in digits that sort by it."""
    return f"{int(now // (CONVERSATION_DAYS * DAY_SECONDS)) + shift:06d}"


def _conversation_keys(principal: Principal, agent: str, messages: Iterable[Message], now: float) -> list[str]:
    """Return the keys at which a conversation may be stored."""
    digest = digest_conversation(principal, agent, messages)
    return [prefix + digest for prefix in period_prefixes(now)]


def period_prefixes(now: float) -> list[str]:
    """Return the beginnings of the keys of conversations: of this period, then of the previous period."""
    return [f"{CONVERSATION_PREFIX}{_period(now, shift)}/" for shift in (0, -1)]


def digest_conversation(principal: Principal, agent: str, messages: Iterable[Message]) -> str:
    """Return the digest of a conversation, whatever blanks its messages have and in how many pieces they are sent."""
    parts: list[list[Any]] = []
    for message in messages:
        role, text, others = _describe(message)
        if parts and parts[-1][0] == role:
            parts[-1][1] += text
            parts[-1][2] += others
        else:
            parts.append([role, text, others])
    return digest_of([principal.id, agent, parts])


def _describe(message: Message) -> tuple[str, str, list[Any]]:
    """Return the role of a message, its text without blanks, and its other parts."""
    if isinstance(message, ToolMessage):
        return "tool", "", [[result.call, "".join(text_of(result.content).split())] for result in message.results]
    others = [msgspec.to_builtins(part) for part in message.content if not isinstance(part, Text)]
    text = "".join(text_of(message.content).split())
    if isinstance(message, UserMessage):
        return "user", text, others
    return "assistant", text, [call.id for call in message.calls]


def _adapt_agent(agent: Agent, request: ChatInput) -> Agent:
    """Return the agent with the tools, the tool choice and the instructions of a request."""
    tools = make_client_tools(agent, [(spec.name, spec.description, spec.parameters) for spec in request.tools])
    changed = extend_agent(agent, tools, request.instructions)
    if request.tool_choice != "auto":
        changed = copy.copy(changed)
        changed.tool_choice = request.tool_choice
    return changed


def _nothing_waits(request: ChatInput) -> Problem:
    if not request.results and not request.decisions:
        return Problem(400, "invalid_input", "the input is empty; write what to do")
    given = [result.call for result in request.results] + [reply.approval for reply in request.approvals]
    detail = (
        f"no session with these messages waits for {', '.join(given)[:200]}; send the messages as they were received"
    )
    return Problem(400, "nothing_waits", detail)


def _still_waits(asked: Sequence[Asked]) -> Problem:
    needed = [
        f"the result of call {body.call}"
        if isinstance(body, QuestionAsked) and is_client_call(body)
        else describe_decision(body)
        for body in asked
    ]
    return Problem(400, "decision_needed", f"the turn waits: {' '.join(needed)[:2000]}")
