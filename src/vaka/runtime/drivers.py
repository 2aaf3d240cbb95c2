"""The drivers of the sessions that this process works on: start, join, wake, interrupt and end them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Unpack
from weakref import WeakValueDictionary

import msgspec

from vaka.config.options import PermissionRequest, PermissionRequestHandler, TokenStats
from vaka.core.loop.blobs import BlobContext, offload
from vaka.core.ports.env import Env, format_timestamp
from vaka.core.ports.store import PendingDecision, Store
from vaka.core.session.branches import TimedEntry
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub
from vaka.core.session.index_rows import merge_metadata
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types.control import (
    ApprovalRequested,
    InputAdded,
    InputWithdrawn,
    InterruptRequested,
    OfferedBody,
    SessionOpened,
    SessionUpdated,
    SessionWorkspace,
)
from vaka.core.types.errors import Busy, Closed, ConflictError, HeadMoved, NotFound, VakaError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, SessionId
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.state import SessionState
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.options import ApprovalAnswer, Options
from vaka.runtime.session_driver import SessionDriver, SyncStarter, WarmSessions
from vaka.runtime.session_edits import (
    CheckSession,
    EditCaches,
    append_entries,
    check_update,
    write_event,
    write_event_if,
)
from vaka.runtime.turn_stream import TurnCollector
from vaka.runtime.workspace import describe_workspace, require_unchanged, works_in_folder

if TYPE_CHECKING:
    from vaka.runtime.remembered_rules import RememberedRules
    from vaka.runtime.session_binding import SessionBinding

INTERRUPT_TIMEOUT = 30.0
"""Seconds to wait until a session in another process has stopped."""


class SessionDrivers:
    """One ``SessionDriver`` for each session with a running turn in this process."""

    def __init__(
        self,
        store: Store,
        hub: FollowerHub,
        env: Env,
        secrets: Secrets,
        builder: AgentBuilder,
        options: Options,
    ) -> None:
        self.store = store
        self.hub = hub
        self.env = env
        self.secrets = secrets
        self.builder = builder
        self.active: dict[SessionId, SessionDriver] = {}
        self.observers: list[Callable[[Sequence[Event]], None]] = []
        """Called with the events that the logs of all sessions store."""
        self.on_session_end: Callable[[SessionId, str, SessionId | None], Awaitable[None]] | None = None
        """Called with the id of a session that was left, the reason, and the session that replaces it."""
        self.remembered_rules: RememberedRules | None = None
        """Where rules of approvals for the project or the user are stored; ``None``: in settings files."""
        self._options = options
        self._tasks: set[asyncio.Task[None]] = set()
        self._sync_starter, self.warm_sessions = SyncStarter(), WarmSessions()
        self.edit_caches = EditCaches(self.warm_sessions, WarmSessions())
        self._edit_locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._closed = self._cancelling = False

    def begin_close(self, *, cancel: bool) -> None:
        """Start no more turns; with ``cancel``, also end the running ones."""
        self._closed, self._cancelling = True, self._cancelling or cancel
        for driver in self.active.values() if cancel else ():
            driver.finish("the runtime was closed")

    async def finish_turns(self) -> None:
        """Wait for running turns. A turn that waits for a decision stays in the log, to be resumed after it."""
        self._suspend_waiting()
        while self.active:
            await asyncio.gather(*(driver.wait() for driver in list(self.active.values())))
            await asyncio.sleep(0)

    def _suspend_waiting(self) -> None:
        self.env.ask = "suspend" if self.env.ask == "wait" else self.env.ask
        for driver in self.active.values():
            driver.log.wake_waiters()
            if driver.waiting_for_claim:
                driver.finish("the runtime was closed")

    async def close(self) -> None:
        """Wait for running turns, after ``begin_close``.

        A turn that waits for a decision stays in the log and is resumed after the decision.
        """
        self._suspend_waiting()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self.active:
            drivers = list(self.active.values())
            for driver in drivers if self._cancelling else ():
                driver.finish("the runtime was closed")
            await asyncio.gather(*(driver.wait() for driver in drivers))
            await asyncio.sleep(0)
        self._sync_starter.close()
        for cache in self.edit_caches:
            cache.clear()

    async def leave_session(self, session: SessionId, reason: str, successor: SessionId | None = None) -> None:
        """Run what is to run when this process leaves a session, such as hooks."""
        if self.on_session_end is not None:
            await self.on_session_end(session, reason, successor)

    def require_open(self) -> None:
        if self._closed:
            raise Closed("the runtime is closed")

    def timestamp(self) -> str:
        return format_timestamp(self.env.clock.time())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background until it ends or the runtime closes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def find_pending(self, decision: str) -> PendingDecision:
        """Return an open approval or question. Raises ``NotFound``."""
        for pending in await self.store.sessions.decisions(id=decision):
            return pending
        raise NotFound(f"there is no open decision {decision!r}; it may have been decided, or have expired")

    async def decide(
        self, approval: str, decision: Literal["approve", "reject"], **answer: Unpack[ApprovalAnswer]
    ) -> Event:
        """Decide an approval; see ``Runtime.resolve``."""
        from vaka.runtime.resolve_approval import resolve_approval

        return await resolve_approval(self, await self.find_pending(approval), decision, answer)

    async def offer(self, session: SessionId, body: OfferedBody, key: str) -> Event:
        """Offer an event to a session without being its writer; return the first event stored under this key."""
        event = Event(data=self.secrets.redact_struct(body), session=session, ts=self.timestamp())
        seq = await self.store.events.offer(session, event, key=key)
        return await self._read_event(session, seq)

    async def _read_event(self, session: SessionId, seq: int) -> Event:
        async with aclosing(self.store.events.read(session, after=seq - 1, upto=seq)) as events:
            async for event in events:
                return event
        raise NotFound(f"there is no session {session!r} any more: it was deleted at this moment")

    async def write(self, session: SessionId, body: Body) -> Event:
        """Append one event as the writer of the session. Raises ``Busy`` while a turn runs."""
        await self.require_idle(session)
        return await write_event(self.store, session, self.secrets.redact_struct(body), self.timestamp())

    async def update(
        self,
        session: SessionId,
        body: SessionUpdated,
        opened: SessionOpened | None = None,
        *,
        create: bool = False,
        check: CheckSession | None = None,
    ) -> Event:
        """Write a new description of a session, also while this process runs a turn of it.

        A session that does not exist begins with ``opened``; without it ``NotFound``. Raises ``Busy`` while another
        process runs the session, and ``HeadMoved`` if ``create`` is set and the session exists. ``check`` may raise;
        no other description is written between the check and this write.
        """
        body = self.secrets.redact_struct(body)
        while not create and (driver := self.active.get(session)) is not None and await driver.wait_started():
            if driver.waiting_for_claim:
                raise Busy(f"session {session!r} is run by another process; update it there, or try again later")
            await driver.wait_written()
            if not driver.ending and not driver.log.released:
                async with self.edit_lock(session):
                    check_update(session, await self.store.sessions.find(session), body, check)
                    with suppress(ConflictError):  # the turn has ended meanwhile
                        return (await driver.log.append(EventScope(), body))[-1]
            await driver.wait()
            await asyncio.sleep(0)

        async def compose(now: OpenedSession) -> list[TimedEntry]:
            check_update(session, now.info, body, check)
            if now.last is None and opened is None:
                raise NotFound(f"there is no session {session!r}")
            if now.last is not None and create:
                raise HeadMoved(f"there is a session {session!r} already")
            first = [opened] if now.last is None and opened is not None else []
            return [("", EventScope(), self.secrets.redact_struct(entry)) for entry in (*first, body)]

        async with self.edit_lock(session):
            if create and session in self.active:
                raise HeadMoved(f"there is a session {session!r} already")
            await self.require_idle(session)
            return (await append_entries(self.store, session, compose, self.timestamp(), self.edit_caches))[-1]

    async def submit(
        self,
        session: "SessionBinding[Any, Any]",
        added: InputAdded,
        follower: Follower,
        *,
        reject: bool,
        caller_key: bool,
    ) -> int:
        """Add an input to a session; return the seq after which its events follow.

        ``caller_key``: the key was chosen by the caller, so the input may have been submitted before. Raises
        ``HeadMoved`` when the input must create the session and another caller has just created it.
        """
        after: int | None = None
        while True:
            self.require_open()
            driver = self.active.get(session.id)
            if driver is None or driver.has_ended():
                start = await self._start_driver(session, added, follower, after, reject=reject, caller_key=caller_key)
                if start is not None:
                    return start
                continue
            if not await driver.wait_started():
                continue
            if reject and after is None and not driver.ending:
                raise Busy(f"session {session.id!r} is running a turn")
            await driver.wait_written()
            if session.must_begin:
                raise _created_meanwhile(session.id)
            if not driver.ending:
                after = await self._offer_input(session.id, added) if after is None else after
                await driver.sync()
            if not driver.ending:
                driver.add_follower(follower)
                return after or 0
            await driver.wait()
            await asyncio.sleep(0)

    async def wake(self, session: "SessionBinding[Any, Any]", follower: Follower) -> tuple[int, TurnCollector | None]:
        """Continue unfinished work; return the seq after which its events follow, and their collector, if any."""
        if await self.store.sessions.find(session.id) is None:
            raise NotFound(f"there is no session {session.id!r}")
        while True:
            self.require_open()
            driver = self.active.get(session.id)
            if driver is None:
                driver = await self._claim_session(session)
                driver.start(self._remove_driver)
            if await driver.wait_started() and not driver.ending:
                if driver.waiting_for_claim:
                    raise Busy(f"session {session.id!r} is run by another process")
                break
            await driver.wait()
            await asyncio.sleep(0)
        driver.add_follower(follower)
        turn, key = driver.next_turn
        return driver.log.head, TurnCollector(session.id, turn=turn, key=key) if turn or key else None

    async def interrupt(self, session: SessionId, body: InterruptRequested) -> None:
        """Stop the turn of a session, in whichever process it runs; one of this process begins to stop at once."""
        driver = self.active.get(session)
        started = driver is not None and await driver.wait_started()
        if driver is not None and started and driver.turn_opening:
            driver.stop("interrupted", body.note)  # the turn is not in the log yet
            if not driver.log.head:
                return
        await self.offer(session, body, body.key)
        if driver is not None and started and not driver.log.released:
            with suppress(VakaError):  # it is stored: the turn reads it later
                await driver.sync()  # a runtime that is closed next would cancel a turn that has not read it

    async def withdraw(self, session: SessionId, body: InputWithdrawn) -> bool:
        """Write that an input is withdrawn; return whether it still waited. Raises ``Busy`` while another process runs.

        An input that joins the running turn cannot be withdrawn.
        """
        driver = self.active.get(session)
        if driver is None or not await driver.wait_started() or driver.ending:
            return await self._withdraw_idle(session, body)
        if driver.waiting_for_claim:
            raise Busy(f"session {session!r} is run by another process, which has its queue")
        await driver.sync()
        if driver.log.released:
            return await self._withdraw_idle(session, body)
        if not _is_waiting(driver.log.state, body.input) or body.input in driver.current_inputs:
            return False
        await driver.log.append(EventScope(), body)
        return True

    async def _withdraw_idle(self, session: SessionId, body: InputWithdrawn) -> bool:
        """Withdraw an input of a session that this process does not run, if it still waits when that is written."""
        if not _is_waiting((await reopen(self.store, session)).state, body.input):
            return False
        await self.require_idle(session)
        body, now = self.secrets.redact_struct(body), self.timestamp()
        return await write_event_if(self.store, session, body, now, lambda state: _is_waiting(state, body.input))

    def edit_lock(self, session: SessionId) -> asyncio.Lock:
        """Return the lock for edits of a session that no turn makes: two edits of this process wait for each other."""
        return self._edit_locks.setdefault(session, asyncio.Lock())

    async def require_idle(self, session: SessionId) -> None:
        """Raise ``Busy`` while this process runs a turn of a session; wait for a driver that has released it."""
        while driver := self.active.get(session):
            if not driver.log.released or driver.waiting_for_claim:
                raise Busy(f"session {session!r} is running a turn; interrupt it first, or wait")
            await driver.wait()
            await asyncio.sleep(0)

    async def wait_idle(self, session: SessionId) -> None:
        """Wait until this process runs no turn of a session."""
        while driver := self.active.get(session):
            await driver.wait()
            await asyncio.sleep(0)

    async def interrupt_and_wait(self, session: SessionId, note: str = "rewound") -> None:
        """Stop the turn of a session, in any process, and wait until its end is in the log.

        Raises ``Busy`` when the turn has not ended within ``INTERRUPT_TIMEOUT``.
        """
        info = await self.store.sessions.find(session)
        if info is None or not info.live:
            return
        key = self.env.ids.new_id("int")
        await self.offer(session, InterruptRequested(key=key, note=note), key)
        head = info.head
        try:
            async with asyncio.timeout(INTERRUPT_TIMEOUT):
                while info is not None and info.live:
                    head = await self._wait_for_head(session, head)
                    info = await self.store.sessions.find(session)
        except TimeoutError:
            raise Busy(
                f"session {session!r} got an interrupt, but still runs a turn after {INTERRUPT_TIMEOUT:g} seconds; "
                f"end the process that runs it, or try again later"
            ) from None

    async def _start_driver(
        self,
        session: "SessionBinding[Any, Any]",
        added: InputAdded,
        follower: Follower,
        after: int | None,
        *,
        reject: bool,
        caller_key: bool,
    ) -> int | None:
        """Claim a session and start its driver; ``after`` is set if the input is already stored. ``None``: retry."""
        try:
            driver = await self._claim_session(session)
        except Busy:
            if session.must_begin:
                await self._wait_for_head(session.id, 0)
                raise _created_meanwhile(session.id) from None
            if reject:
                raise
            return await self._hand_over_input(session, added, follower)
        if session.must_begin and driver.log.head:
            await self._abandon(driver)
            raise _created_meanwhile(session.id)
        try:
            if after is None and driver.log.head and (caller_key or any(driver.next_turn)):
                after = await self._offer_input(session.id, added)
                await driver.sync()
            if after is None:
                after = driver.log.head
                driver.new_inputs.append(added)
        finally:
            driver.add_follower(follower)
            driver.start(self._remove_driver)
        return after

    async def _claim_session(self, session: "SessionBinding[Any, Any]") -> SessionDriver:
        driver = SessionDriver(
            session.id,
            partial(self.builder.recipe_for_input, session.agent),
            self.env,
            self.hub,
            self.secrets,
            self._sync_starter,
            self.warm_sessions,
        )
        driver.metadata = session.metadata
        driver.deps = session.deps
        driver.offer_input = self._offer_input
        driver.workspace, driver.run_settings = self.workspace_of(session), session.run_settings
        driver.owner, driver.must_begin = session.owner, session.must_begin
        driver.works_in_folder = partial(works_in_folder, session.agent)
        if self._options.models.on_usage is not None or self._options.permissions.handler is not None:
            driver.observers.append(self._observe)
        driver.observers += self.observers
        self.active[session.id] = driver
        try:
            await driver.claim()
            if driver.log.head and (driver.log.state.metadata or not session.metadata_known):
                opened = await self._read_metadata(session.id)
                session.set_metadata(merge_metadata(opened, driver.log.state.metadata))
                driver.metadata = session.metadata
        except asyncio.CancelledError:  # others wait until the claim has ended, not the cancelled caller
            driver.abandoned = asyncio.create_task(self._abandon(driver))
            raise
        except BaseException:
            await self._abandon(driver)
            raise
        if self._closed:
            driver.finish("the runtime was closed")
        return driver

    async def _abandon(self, driver: SessionDriver) -> None:
        try:
            await driver.release()
        finally:
            self.active.pop(driver.session, None)
            driver.detach()

    @cached_property
    def workspace(self) -> SessionWorkspace | None:
        """The folder in which the tools of this runtime work, if it has one."""
        return describe_workspace(self._options)

    def workspace_of(self, session: "SessionBinding[Any, Any]") -> SessionWorkspace | None:
        """Return the folder that a session run here belongs to; ``None`` if its tools work in no folder."""
        workspace = self._options.workspace
        named = bool(workspace.cwd or workspace.add_dirs) or workspace.project_root is not None
        if not (named or works_in_folder(session.agent)):
            return None
        require_unchanged(self.workspace)
        return self.workspace

    async def _read_metadata(self, session: SessionId) -> dict[str, Any]:
        opened = (await self._read_event(session, 1)).data
        return dict(opened.metadata) if isinstance(opened, SessionOpened) else {}

    def _remove_driver(self, driver: SessionDriver) -> None:
        self.active.pop(driver.session, None)

    async def _offer_input(self, session: SessionId, added: InputAdded) -> int:
        content = await offload(BlobContext(self.store, self.secrets, session), added.content)
        event = await self.offer(session, msgspec.structs.replace(added, content=content), added.key)
        return event.seq - 1

    async def _hand_over_input(
        self, session: "SessionBinding[Any, Any]", added: InputAdded, follower: Follower
    ) -> int | None:
        """Offer the input to the process that is the writer, and take the session over if that process dies."""
        try:
            after = await self._offer_input(session.id, added)
        except NotFound:  # the writer has not stored its first event yet
            await self._wait_for_head(session.id, 0)
            return None
        self.spawn(self._take_over(session, after, added.key, follower))
        return after

    async def _take_over(self, session: "SessionBinding[Any, Any]", after: int, key: str, follower: Follower) -> None:
        collector = TurnCollector(session.id, key=key)
        try:
            while not collector.ended and not await self._join_driver(session, follower):
                await self._wait_for_head(session.id, after)
                async with aclosing(self.store.events.read(session.id, after=after)) as events:
                    async for event in events:
                        after = event.seq
                        collector.take_events((event,))
        except asyncio.CancelledError:
            follower.end(Closed("the runtime was closed"))
            raise
        except VakaError as error:
            follower.end(error)

    async def _join_driver(self, session: "SessionBinding[Any, Any]", follower: Follower) -> bool:
        """Add a follower to the driver in this process; claim the session if it has no writer."""
        driver = self.active.get(session.id)
        try:
            if driver is None:
                driver = await self._claim_session(session)
                driver.start(self._remove_driver)
        except Busy:
            return False
        if not await driver.wait_started() or driver.ending:
            return False
        driver.add_follower(follower)
        return True

    async def _wait_for_head(self, session: SessionId, seq: int) -> int:
        """Return the head once it has moved, or after a second, since a writer that dies sends no notification."""
        try:
            async with asyncio.timeout(1.0):
                return await self.store.events.wait(session, after=seq)
        except TimeoutError:
            return seq

    def _observe(self, events: Sequence[Event]) -> None:
        """Call the callbacks of the options for events that a log has just stored."""
        for event in events:
            body, options = event.data, self._options
            if isinstance(body, UsageRecorded) and options.models.on_usage is not None:
                stats = TokenStats(
                    session_id=event.session,
                    turn_id=event.turn,
                    agent=body.agent,
                    model=body.model,
                    usage=body.usage,
                    timestamp=event.ts,
                )
                # Not called here: an error of the callback must not reach the write that stored the event.
                asyncio.get_running_loop().call_soon(options.models.on_usage, stats)
            elif isinstance(body, ApprovalRequested) and options.permissions.handler is not None:
                self.spawn(self._ask_handler(event, body, options.permissions.handler))

    async def _ask_handler(self, event: Event, request: ApprovalRequested, handler: PermissionRequestHandler) -> None:
        asked = PermissionRequest(
            tool_name=request.call.name,
            tool_params=request.call.arguments,
            session_id=event.session,
            rule=request.rule,
            reason=request.reason,
            approval=request.approval,
        )
        answer: object = (await asyncio.gather(handler(asked), return_exceptions=True))[0]
        if answer == "ask":
            return
        approver = self._options.permissions.approver
        with suppress(VakaError):  # it was decided or has expired in the meantime; the log has that decision
            if answer == "allow":
                await self.decide(request.approval, "approve", by=approver)
            else:  # with a message, so that the model reads it and the turn goes on
                fault = "" if answer == "deny" else f": its handler gave {answer!r}, expected allow, deny or ask"
                await self.decide(request.approval, "reject", by=approver, message=f"denied by {approver}{fault}")


def _created_meanwhile(session: SessionId) -> HeadMoved:
    return HeadMoved(f"there is a session {session!r} already: another caller has just created it")


def _is_waiting(state: SessionState, key: str) -> bool:
    """Return whether an input waits for a turn of its own."""
    queued = state.inputs.get(key)
    return queued is not None and queued.policy != "steer"
