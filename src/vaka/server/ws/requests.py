"""``RequestHandlers``: what the requests of one connection do, for the principal it belongs to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.env import format_milliseconds
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import Cursor, SessionId
from vaka.runtime.session import binding_of
from vaka.server.event_filter import EventFilter
from vaka.server.kit.guard import require_scope
from vaka.server.kit.identifiers import check_id
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService, PromptInput, require_model
from vaka.server.kit.sessions import SessionDocument, cursor_of, session_document
from vaka.server.rest.approvals import RememberDecision, ResolveApproval, settle
from vaka.server.rest.documents import DecisionDocument
from vaka.server.rest.open_decisions import describe_decisions
from vaka.server.ws import frames
from vaka.server.ws.frames import encode_control
from vaka.server.ws.outbound import OutboundQueue
from vaka.server.ws.subscriptions import AllSessionsFeed, SessionChanges, SessionFeed

Feed: TypeAlias = SessionFeed | AllSessionsFeed

ALL_SESSIONS = "*"
_SCOPES: dict[type, str] = {
    frames.Subscribe: "runs:read",
    frames.StateGet: "runs:read",
    frames.TurnStart: "runs:write",
    frames.TurnSteer: "runs:write",
    frames.TurnCancel: "runs:write",
    frames.SessionFork: "runs:write",
    frames.ApprovalResolve: "approvals:write",
}
"""The scope that a request needs; the others need none and are not counted."""


class StateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``state.get``."""

    session: SessionDocument
    decisions: Sequence[DecisionDocument]


class RequestHandlers:
    """Answers the requests of one connection and owns its subscriptions."""

    def __init__(self, service: AgentService, queue: OutboundQueue, changes: SessionChanges) -> None:
        self._service = service
        self._queue = queue
        self._changes = changes
        self.principal: Principal | None = None
        self.subscriptions: dict[str, Feed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, Callable[[], None]] = {}
        """The function that ends the count of each subscription."""
        self._acked: dict[str, Cursor] = {}
        self._count = 0

    async def answer(self, frame: frames.ClientFrame) -> Any:
        """Return the result of a request. Raises ``Problem`` or an error of the runtime."""
        if isinstance(frame, frames.Ping):
            return frames.PingResult(ts=format_milliseconds(int(self._service.runtime.env.clock.time() * 1000)))
        principal = self._require_principal(frame)
        if isinstance(frame, frames.Unsubscribe):
            return await self._unsubscribe(frame.params.sub)
        if isinstance(frame, frames.Ack):
            return self._acknowledge(frame.params)
        return await self._find_method(type(frame))(principal, frame.params)

    def _find_method(self, kind: type) -> Callable[[Principal, Any], Awaitable[Any]]:
        """Return the method for a kind of request. A table of methods that is kept would refer to itself by them."""
        methods: dict[type, Callable[[Principal, Any], Awaitable[Any]]] = {
            frames.Subscribe: self._subscribe,
            frames.StateGet: self._describe,
            frames.TurnStart: self._start_turn,
            frames.TurnSteer: self._start_turn,
            frames.TurnCancel: self._cancel_turn,
            frames.ApprovalResolve: self._resolve,
            frames.SessionFork: self._fork,
        }
        return methods[kind]

    def _require_principal(self, frame: frames.ClientFrame) -> Principal:
        principal, scope = self.principal, _SCOPES.get(type(frame), "")
        if principal is None:
            raise Problem(401, "unauthenticated", "send auth with a token first")
        if scope:
            self._service.guard.limiter.count_request(principal)
        require_scope(principal, scope)
        return principal

    # -------------------------------------------------------------------------------------------------- subscriptions

    async def _subscribe(self, principal: Principal, params: frames.SubscribeParams) -> frames.SubscribeResult:
        limit = self._service.settings.max_subscriptions
        if len(self.subscriptions) >= limit:
            raise Problem(429, "too_many_subscriptions", f"a connection may have {limit} subscriptions; end one first")
        end = self._service.streams.add_subscription(principal)
        try:
            result = await self._open_feed(principal, params)
        except BaseException:
            end()
            raise
        self._ends[result.sub] = end
        return result

    async def _open_feed(self, principal: Principal, params: frames.SubscribeParams) -> frames.SubscribeResult:
        chosen = EventFilter(channels=params.channels, types=params.types, path=params.path, depth=params.depth)
        self._count += 1
        sub = f"s{self._count}"
        if params.session == ALL_SESSIONS:
            return await self._subscribe_all(principal, params.after, sub, chosen)
        info = await self._service.find_session(principal, params.session)
        runtime = await self._service.runtime_of(principal)
        after = Cursor(info.epoch, info.head) if params.after == "now" else Cursor.parse(params.after)
        known = after.epoch in (0, info.epoch) and after.seq <= info.head  # otherwise all events follow stream.reset
        self.subscriptions[sub] = SessionFeed(runtime.hub, info.id, after, sub, chosen, self._queue, head=info.head)
        replayed = info.head - after.seq if known else info.head
        return frames.SubscribeResult(sub=sub, cursor=cursor_of(info), replayed=replayed)

    async def _subscribe_all(
        self, principal: Principal, after: str, sub: str, chosen: EventFilter
    ) -> frames.SubscribeResult:
        if after not in ("", "now"):
            raise Problem(422, "invalid_params", "a cursor belongs to one session; after must be now for all sessions")
        runtime = await self._service.runtime_of(principal)
        changes = self._changes.of(runtime)
        self.subscriptions[sub] = AllSessionsFeed(runtime.hub, changes, principal.may_see, sub, chosen, self._queue)
        return frames.SubscribeResult(sub=sub, cursor="", replayed=0)

    def start(self, sub: str) -> None:
        """Begin to send the events of a subscription; its reply is queued already."""
        self._tasks[sub] = asyncio.create_task(self._run_feed(sub, self.subscriptions[sub]))

    async def _run_feed(self, sub: str, feed: Feed) -> None:
        end = await feed.run()
        del self._tasks[sub]
        self._forget(sub)
        code, message = (end.code, str(end)) if isinstance(end, VakaError) else (end, f"the session was {end}")
        ended = frames.SubscriptionEnded(sub=sub, cursor=feed.cursor, code=code, message=message)
        self._queue.put(encode_control(ended))

    def _forget(self, sub: str) -> None:
        del self.subscriptions[sub]
        self._acked.pop(sub, None)
        self._ends.pop(sub)()

    def _find_feed(self, sub: str) -> Feed:
        feed = self.subscriptions.get(sub)
        if feed is None:
            raise not_found(f"subscription {sub[:40]!r} of this connection")
        return feed

    async def _unsubscribe(self, sub: str) -> frames.UnsubscribeResult:
        feed = self._find_feed(sub)
        self._forget(sub)
        task = self._tasks.pop(sub)
        task.cancel()
        await asyncio.wait([task])
        return frames.UnsubscribeResult(sub=sub, cursor=feed.cursor)

    def _acknowledge(self, params: frames.AckParams) -> frames.AckResult:
        self._find_feed(params.sub)
        cursor = max(Cursor.parse(params.cursor), self._acked.get(params.sub, Cursor()))
        self._acked[params.sub] = cursor
        return frames.AckResult(sub=params.sub, cursor=str(cursor))

    async def close(self) -> None:
        """End all subscriptions."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for sub in list(self.subscriptions):
            self._forget(sub)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --------------------------------------------------------------------------------------------- sessions and turns

    async def _describe(self, principal: Principal, params: frames.StateGetParams) -> StateResult:
        info = await self._service.find_session(principal, params.session)
        runtime = await self._service.runtime_of(principal)
        decisions = await runtime.decisions(info.id) if info.pending else ()
        return StateResult(
            session=session_document(info),
            decisions=await describe_decisions(runtime.store, decisions, agent=info.agent),
        )

    async def _start_turn(
        self, principal: Principal, params: frames.TurnStartParams | frames.TurnSteerParams
    ) -> frames.TurnResult:
        starts = params if isinstance(params, frames.TurnStartParams) else None
        session = await self._service.open_for_turn(
            principal, params.session, agent=starts.agent if starts else "", begin=starts is not None
        )
        if starts is not None and not starts.model:
            require_model(await self._service.runtime_of(principal), session.agent)
        row = binding_of(session).row
        content = params.input if isinstance(params.input, str) else tuple(params.input)
        prompt = PromptInput(
            prompt=content,
            key=params.key,
            on_busy=starts.on_conflict if starts else "steer",
            model=starts.model if starts else "",
            options=starts.options if starts else {},
        )
        async with await self._service.start_turn(principal, session, prompt) as turn:
            while not turn.ended and not await turn.next_batch():  # until the input is stored
                continue
            return frames.TurnResult(
                session=session.id, key=turn.key, cursor=cursor_of(row) if row else str(Cursor(1, 0))
            )

    async def _cancel_turn(self, principal: Principal, params: frames.TurnCancelParams) -> frames.TurnCancelResult:
        session = await self._service.open_session(principal, params.session)
        info = await self._service.find_session(principal, params.session)
        if params.turn not in ("current", info.turn):
            if not await session.withdraw(params.turn, by=principal.id):
                raise Problem(409, "no_turn", f"{params.turn[:100]!r} neither runs nor waits in session {session.id!r}")
            return frames.TurnCancelResult(session=session.id, cancelled="input")
        if not info.turn:
            raise Problem(409, "no_turn", f"session {session.id!r} has no unfinished turn")
        await self._service.stop_turn(principal, session, turn=info.turn, note=params.note)
        return frames.TurnCancelResult(session=session.id, cancelled="turn")

    async def _fork(self, principal: Principal, params: frames.SessionForkParams) -> SessionDocument:
        info = await self._service.find_session(principal, params.session)
        runtime = await self._service.runtime_of(principal)
        if params.id:
            check_id(params.id)
            if await runtime.store.sessions.find(SessionId(params.id)) is not None:
                raise Problem(409, "exists", f"there is a session {params.id!r} already; choose another id")
        copy = await runtime.fork(info.id, at=params.at or None, id=params.id)
        await runtime.update_session(copy, title=params.title or None, owner=principal.id, by=principal.id)
        return session_document(await self._service.find_session(principal, copy))

    async def _resolve(self, principal: Principal, params: frames.ApprovalResolveParams) -> dict[str, Any]:
        wanted = params.remember
        decision = ResolveApproval(
            decision=params.decision,
            edited_args=params.edited_args,
            answer=params.answer,
            message=params.message,
            remember=None if wanted is None else RememberDecision(scope=wanted.scope, rule=wanted.rule),
        )
        return {"id": params.id, "event": await settle(self._service, principal, params.id, decision)}
