"""``A2aTasks``: what clients of A2A do with tasks. A context is a session, and a task is a turn of it.

The id of a task names its session, so that a task is found in a store of any size: ``SESSION.TURN``, or with a ``~`` in
front and the session in base64 where its id has characters that an address cannot have.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from vaka.agents.react import Agent
from vaka.agents.routing import routers_of
from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.types.control import ApprovalResolved, InputAdded, QuestionAnswered
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId, parse_session_id
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import TurnStarted
from vaka.server.chat_turns import ChatTurn, open_turn
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService, PromptInput
from vaka.server.rest.turn_log import TurnRecord, find_turn, list_turns
from vaka.views.a2a import A2aEncoder, A2aInput, read_message, read_reply, task_of
from vaka.views.a2a.content import JsonObject
from vaka.views.chat_input import ChatInput

DEFAULT_PAGE, MAX_PAGE = 50, 100
MAX_EXAMINED = 500
"""Turns read for one page of a list at most; a page may then have fewer tasks and a next one."""
INPUT_SPAN = 16
"""Events before a turn among which its input is looked for."""
CANCEL_SECONDS = 10.0
"""Seconds that a task gets to stop before its state is returned as it is."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")


class SendConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """How a client wants the answer to a message."""

    history_length: int | None = None
    return_immediately: bool = False
    task_push_notification_config: Any = None


class SendParams(msgspec.Struct, frozen=True):
    """The parameters of ``SendMessage``."""

    message: dict[str, Any]
    configuration: SendConfiguration = SendConfiguration()


class TaskParams(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of the methods that name a task."""

    id: str
    history_length: int | None = None


class ListParams(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of ``ListTasks``."""

    context_id: str = ""
    status: str = ""
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: str = ""
    include_artifacts: bool = False


class _PageToken(msgspec.Struct, frozen=True, array_like=True):
    """Where a page begins: after some tasks, in a session before a seq, and where the list of sessions goes on."""

    listed: int = 0
    session: str = ""
    before: int = 0
    sessions: str = ""


class TaskUpdates(msgspec.Struct, frozen=True, kw_only=True):
    """The updates of a task from an event on."""

    turn: ChatTurn
    first: JsonObject | None = None
    """The task as it was before the updates, for a client that has not seen all of it."""
    until_end: bool = False
    """Whether the updates go on while the task waits for input."""


def make_task_id(session: str, turn: str) -> str:
    """Return the id of a task."""
    if _PLAIN_ID.fullmatch(session):
        return f"{session}.{turn}"
    return f"~{base64.urlsafe_b64encode(session.encode()).decode().rstrip('=')}.{turn}"


def read_task_id(task: str) -> tuple[SessionId, str]:
    """Return the session and the turn of a task. Raises a ``Problem`` for an id that no task has."""
    session, _, turn = task.rpartition(".")
    try:
        if session.startswith("~"):
            session = base64.urlsafe_b64decode(session[1:] + "=" * (-len(session[1:]) % 4)).decode()
        if turn:
            return parse_session_id(session), turn
    except (InvalidInput, binascii.Error, UnicodeDecodeError):
        pass
    raise no_task(task)


def no_task(task: str) -> Problem:
    """Return the answer for a task that does not exist, or that the caller may not know of."""
    return Problem(404, "task_not_found", f"there is no task {task[:200]!r}")


class A2aTasks:
    """The tasks of the agents of a server."""

    def __init__(self, service: AgentService) -> None:
        self._service = service

    # --------------------------------------------------------------------------------------------------------- messages

    async def send(self, principal: Principal, agent: Agent, params: SendParams) -> TaskUpdates:
        """Give a message to a new task, or to a task that waits or works; return the updates that follow."""
        if params.configuration.task_push_notification_config is not None:
            raise Problem(400, "push_not_supported", "this server sends no push notifications; stream or poll the task")
        given = read_message(params.message)
        if given.turn is not None:
            return await self._reply(principal, agent, given, params.message)
        if given.session is None:
            session = await self._service.create_session(principal, agent=agent.name)
        else:
            session = await self._service.enter_session(principal, given.session, agent=agent.name)
        added = InputAdded(key=given.key, content=given.content)
        turn = await open_turn(self._service, principal, session, ChatInput(inputs=(added,)), while_waiting="reject")
        return TaskUpdates(turn=turn)

    async def _reply(self, principal: Principal, agent: Agent, given: A2aInput, message: JsonObject) -> TaskUpdates:
        task = str(given.turn)
        info, record = await self._find(principal, agent, task)
        if given.session not in (None, info.id):
            raise InvalidInput(f"message: task {task[:80]!r} is not one of context {given.session!r}")
        if info.turn != record.id:
            raise Problem(409, "task_ended", f"task {task[:80]!r} has ended; send a message without a task")
        session = await self._service.open_session(principal, info.id, agent=agent.name)
        runtime = await self._service.runtime_of(principal)
        rows = await runtime.decisions(info.id)
        if not rows:
            prompt = PromptInput(prompt=given.content, key=given.key, on_busy="steer")
            await self._service.start_turn(principal, session, prompt)
            return await self.subscribe(principal, agent, task, until_end=False)
        decided = read_reply(message, [row.event for row in rows])
        request = ChatInput(
            decisions=tuple(one for one in decided if isinstance(one, ApprovalResolved | QuestionAnswered)),
            results=tuple(one for one in decided if isinstance(one, ToolResult)),
        )
        turn = await open_turn(self._service, principal, session, request, while_waiting="reject")
        seen = [event for event in record.events if event.seq <= turn.seen]
        return TaskUpdates(turn=turn, first=self._task(agent, seen))

    async def wait(self, principal: Principal, agent: Agent, updates: TaskUpdates, params: SendParams) -> JsonObject:
        """Return the task of a message when it has ended or waits, or with ``returnImmediately`` when it has begun."""
        events = updates.turn.events
        async with events:
            while not events.ended and not (params.configuration.return_immediately and events.turn):
                if updates.turn.is_paused(await events.next_batch()):
                    break
        if not events.turn:
            raise Problem(409, "withdrawn", "the message was withdrawn before a task began")
        task = make_task_id(events.session, events.turn)
        return await self.get(principal, agent, TaskParams(task, params.configuration.history_length))

    async def stream(self, agent: Agent, updates: TaskUpdates) -> AsyncGenerator[list[JsonObject]]:
        """Yield the stream responses of a task until it ends or waits."""
        turn, events = updates.turn, updates.turn.events
        encoder = A2aEncoder(routers=routers_of(agent), task_id=make_task_id)
        if updates.first is not None:
            yield [{"task": updates.first}]
        async with events:
            while not events.ended:
                batch, responses = await events.next_batch(), list[JsonObject]()
                for event in batch:
                    encoded = encoder.encode(event)
                    if not 0 < event.seq <= turn.seen:
                        responses += encoded
                if responses:
                    yield responses
                if turn.is_paused(batch) and not updates.until_end:
                    return

    # ------------------------------------------------------------------------------------------------------------ tasks

    async def subscribe(self, principal: Principal, agent: Agent, task: str, *, until_end: bool = True) -> TaskUpdates:
        """Return a task and its further updates. Raises a ``Problem`` if it has ended."""
        info, record = await self._find(principal, agent, task)
        if info.turn != record.id:
            raise Problem(400, "unsupported", f"task {task[:80]!r} has ended; get it instead")
        session = await self._service.open_session(principal, info.id, agent=agent.name)
        after = Cursor(0, record.first_seq - 1)
        events = await self._service.attach_turn(principal, session, turn=record.id, after=after, wake=not info.pending)
        seen = record.events[-1].seq
        turn = ChatTurn(session=session, events=events, seen=seen, head=seen)
        return TaskUpdates(turn=turn, first=self._task(agent, record.events), until_end=until_end)

    async def get(self, principal: Principal, agent: Agent, params: TaskParams) -> JsonObject:
        """Return a task with the last messages of its history."""
        info, record = await self._find(principal, agent, params.id)
        runtime = await self._service.runtime_of(principal)
        task = self._task(agent, [*await _inputs_of(runtime.store, info, record), *record.events])
        return _limit_history(task, params.history_length)

    async def cancel(self, principal: Principal, agent: Agent, params: TaskParams) -> JsonObject:
        """Stop a task and return it. Raises a ``Problem`` if it has ended."""
        info, record = await self._find(principal, agent, params.id)
        if info.turn != record.id:
            raise Problem(400, "task_not_cancelable", f"task {params.id[:80]!r} has ended")
        session = await self._service.open_session(principal, info.id, agent=agent.name)
        after = Cursor(0, record.first_seq - 1)
        async with await self._service.attach_turn(principal, session, turn=record.id, after=after) as events:
            await session.interrupt("cancelled by the client", by=principal.id)
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    while not events.ended:
                        await events.next_batch()
            except TimeoutError:  # the task is still stopping; its state says so
                pass
        return await self.get(principal, agent, params)

    async def list_page(self, principal: Principal, agent: Agent, params: ListParams) -> JsonObject:
        """Return a page of tasks, the newest of each session first. ``totalSize`` counts those up to this page."""
        size = DEFAULT_PAGE if params.page_size is None else params.page_size
        if not 1 <= size <= MAX_PAGE:
            raise InvalidInput(f"pageSize must be from 1 to {MAX_PAGE}, not {size}")
        token = _read_token(params.page_token)
        tasks, following = await self._read_page(principal, agent, params, token, size)
        count = token.listed + len(tasks)
        next_token = "" if following is None else _write_token(msgspec.structs.replace(following, listed=count))
        shown = [_without(task, params) for task in tasks]
        return {"tasks": shown, "nextPageToken": next_token, "pageSize": size, "totalSize": count}

    async def _read_page(
        self, principal: Principal, agent: Agent, params: ListParams, token: _PageToken, size: int
    ) -> tuple[list[JsonObject], _PageToken | None]:
        """Return tasks and where the next page begins; ``None`` after the last one."""
        runtime = await self._service.runtime_of(principal)
        tasks, examined = list[JsonObject](), 0
        while True:
            info, sessions = await self._next_session(principal, agent, params, token)
            if info is None:
                return tasks, None
            before = token.before if token.session == info.id else 0
            records, before = await list_turns(runtime.store, info, before, size - len(tasks))
            examined += len(records) + 1
            tasks += [
                task
                for record in records
                if isinstance(record.events[0].data, TurnStarted)
                and _is_listed(task := self._task(agent, record.events), params)
            ]
            if before:
                token = msgspec.structs.replace(token, session=info.id, before=before)
            elif params.context_id or not sessions:
                return tasks, None
            else:
                token = _PageToken(sessions=sessions)
            if len(tasks) >= size or examined >= MAX_EXAMINED:
                return tasks, token

    async def _next_session(
        self, principal: Principal, agent: Agent, params: ListParams, token: _PageToken
    ) -> tuple[SessionInfo | None, str]:
        """Return the session that a page goes on with, and where the list of sessions goes on after it."""
        if params.context_id:
            return await self._service.find_session(principal, params.context_id), ""
        runtime = await self._service.runtime_of(principal)
        owner = principal.visible_owner
        query = SessionQuery(agent=agent.name, owner=owner, limit=1, after=token.sessions)
        page = await runtime.store.sessions.list(query)
        return (page.sessions[0] if page.sessions else None), page.next

    async def _find(self, principal: Principal, agent: Agent, task: str) -> tuple[SessionInfo, TurnRecord]:
        """Return the session and the events of a task. Raises a ``Problem`` if there is none."""
        session, turn = read_task_id(task)
        runtime = await self._service.runtime_of(principal)
        info = await runtime.store.sessions.find(session)
        if info is None or not principal.may_see(info) or info.agent != agent.name:
            raise no_task(task)
        record = await find_turn(runtime.store, info, turn)
        if record is None or record.id != turn:
            raise no_task(task)
        return info, record

    def _task(self, agent: Agent, events: Sequence[Event]) -> JsonObject:
        return task_of(events, routers=routers_of(agent), task_id=make_task_id) or {}


async def _inputs_of(store: Store, info: SessionInfo, record: TurnRecord) -> list[Event]:
    """Return the inputs that a turn began with, if they are right before it."""
    started, first = record.events[0].data, record.first_seq
    keys = started.inputs if isinstance(started, TurnStarted) else ()
    async with aclosing(store.events.read(info.id, after=max(first - INPUT_SPAN, 0), upto=first - 1)) as events:
        return [event async for event in events if isinstance(event.data, InputAdded) and event.data.key in keys]


def _limit_history(task: JsonObject, length: int | None) -> JsonObject:
    if length is not None and length < 0:
        raise InvalidInput(f"historyLength must be 0 or more, not {length}")
    if length is None or "history" not in task:
        return task
    history: list[JsonObject] = task["history"][-length:] if length else []
    rest = {name: value for name, value in task.items() if name != "history"}
    return rest | ({"history": history} if history else {})


def _is_listed(task: JsonObject, params: ListParams) -> bool:
    status = task["status"]
    if params.status not in ("", "TASK_STATE_UNSPECIFIED", status["state"]):
        return False
    return not params.status_timestamp_after or status["timestamp"] > params.status_timestamp_after


def _without(task: JsonObject, params: ListParams) -> JsonObject:
    kept = {name: value for name, value in task.items() if name != "artifacts" or params.include_artifacts}
    return _limit_history(kept, params.history_length)


def _write_token(token: _PageToken) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read_token(text: str) -> _PageToken:
    if not text:
        return _PageToken()
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_PageToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput("pageToken was not returned by this server") from error
