"""Run the turns of one session in this process: claim it, finish its turn, take queued inputs, release it.

A driver lives only while there is work; an idle session has no writer, so any process can claim it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from vaka.core.loop.context import Recipe, Turn
from vaka.core.loop.stop import StopSignal
from vaka.core.loop.turn import TurnInput, run_turn
from vaka.core.ports.env import Env
from vaka.core.ports.store import Store
from vaka.core.session.fanout import Fanout, Follower
from vaka.core.session.fold_offers import withdrawn_inputs
from vaka.core.session.follow import FollowerHub
from vaka.core.session.log import SessionLog
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import OpenedSession, empty_session, reopen, reopen_warm
from vaka.core.types.control import InputAdded, RunSettings, SessionOpened, SessionUpdated, SessionWorkspace
from vaka.core.types.ending import StopKind
from vaka.core.types.errors import Busy, ConflictError, NotFound, Suspended, TooNew, Unavailable, VakaError
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import EventScope, SessionId, Term, TurnId
from vaka.core.types.progress import TurnQueued, TurnStarted
from vaka.runtime.session_edits import require_owner
from vaka.runtime.workspace import require_same_folder

WRITER_WAIT = 1.0
"""Seconds after which a driver tries again to claim a session that another process had claimed."""
SYNC_DELAY = 0.02
"""Seconds that a turn runs before its driver starts to read events offered by other processes."""
MAX_WARM_SESSIONS = 512
"""Idle sessions whose state is held at most."""
MAX_WARM_BYTES = 64 * 1024 * 1024
"""Bytes of stored events held at most; the decoded events take about three times as much memory."""
SESSION_OVERHEAD = 4096
"""Bytes that count for a session besides its events."""


_DETACHED_FANOUT = Fanout(SessionId(""))
"""The fan-out of a log before its session is claimed: nothing is published to it."""


class SyncStarter:
    """Starts the sync of drivers whose work takes longer than ``SYNC_DELAY``, with one timer for all of them."""

    def __init__(self) -> None:
        self._due: set[SessionDriver] = set()
        self._next: set[SessionDriver] = set()
        """Drivers that were scheduled since the timer was set."""
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, driver: "SessionDriver") -> None:
        """Start a driver's sync after the delay, or up to twice of it."""
        self._next.add(driver)
        if self._timer is None:
            self._set_timer()

    def forget(self, driver: "SessionDriver") -> None:
        """Forget a driver that has ended, so that what it holds does not wait for the timer."""
        self._due.discard(driver)
        self._next.discard(driver)

    def _set_timer(self) -> None:
        self._due, self._next = self._next, set()
        self._timer = asyncio.get_running_loop().call_later(SYNC_DELAY, self._start_due) if self._due else None

    def _start_due(self) -> None:
        for driver in self._due:
            driver.start_sync()
        self._set_timer()

    def close(self) -> None:
        self._due, self._next = set(), set()
        if self._timer is not None:
            self._timer.cancel()


class WarmSessions:
    """The states of sessions without a writer in this process, so that their next turn reads only what is new.

    The least recently used one is first. An entry may be out of date: ``reopen_warm`` compares it with the store. A
    running driver takes its session out.
    """

    def __init__(self, max_sessions: int = MAX_WARM_SESSIONS, max_bytes: int = MAX_WARM_BYTES) -> None:
        self._max_sessions, self._max_bytes = max_sessions, max_bytes
        self._entries: OrderedDict[SessionId, OpenedSession] = OrderedDict()
        self.size = 0
        """Bytes that the sessions count for."""

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, session: SessionId) -> OpenedSession | None:
        """Remove and return a session, ``None`` when it is not held."""
        entry = self._entries.pop(session, None)
        if entry is not None:
            self.size -= _size_of(entry)
        return entry

    def put(self, session: SessionId, opened: OpenedSession) -> None:
        """Hold a session; the least recently used ones are dropped when there are too many or they are too large."""
        self.take(session)
        self._entries[session] = opened
        self.size += _size_of(opened)
        while len(self._entries) > self._max_sessions or self.size > self._max_bytes:
            self.take(next(iter(self._entries)))

    def clear(self) -> None:
        self._entries.clear()
        self.size = 0


def _size_of(opened: OpenedSession) -> int:
    return opened.window.size + SESSION_OVERHEAD


class SessionDriver:
    """Runs the turns of one session, one after the other."""

    error: BaseException | None = None
    ending = False
    """Whether the driver accepts no more inputs."""
    workspace: SessionWorkspace | None = None
    works_in_folder: Callable[[], bool] = staticmethod(lambda: True)
    """Returns whether the agent has tools that work in ``workspace``."""
    run_settings: RunSettings | None = None
    deps: Any = None
    waiting_for_claim = False
    """Whether another process may be the writer, of which this driver waits for the end."""
    abandoned: asyncio.Task[None] | None = None
    """Ends a driver whose caller was cancelled before it was started."""
    _sync_task: asyncio.Task[None] | None = None
    must_begin = False
    """Whether the first turn creates the session, which then belongs to ``owner``."""
    _attached = _no_more_turns = _ended = False

    def __init__(
        self,
        session: SessionId,
        recipe_for: "Callable[[InputAdded | None], Recipe]",
        env: Env,
        hub: FollowerHub,
        secrets: Secrets,
        sync_starter: SyncStarter,
        warm_sessions: WarmSessions,
    ) -> None:
        self.session = session
        self.recipe_for = recipe_for
        self.env = env
        self.hub = hub
        self.store: Store = hub.store
        self._sync_starter, self._warm_sessions = sync_starter, warm_sessions
        self.log = SessionLog(self.store, session, _DETACHED_FANOUT, env.clock, secrets)
        self._is_open: bool | None = None
        """Whether the session was claimed and the driver has started; ``None`` until that is known."""
        self._opening: asyncio.Event | None = None
        """Set when ``_is_open`` is known, if a caller waits for that."""
        self.new_inputs: list[InputAdded] = []
        self.observers: list[Callable[[Sequence[Event]], None]] = []
        """Called with the events that this driver's log stores."""
        self.offer_input: Callable[[SessionId, InputAdded], Awaitable[int]]
        """Adds an input to a session of which another process is the writer."""
        self.metadata: dict[str, Any] = {}
        self.owner = ""
        self._followers: set[Follower] = set()
        self._announced: set[str] = set()
        self._stop = StopSignal()
        self._task: asyncio.Task[None] | None = None
        self._done: Callable[[SessionDriver], None]
        self.current_inputs: tuple[str, ...] = ()
        self._withdrawn: set[str] = set()
        self._finished = asyncio.Event()
        self._term = Term(0)
        self._scope: EventScope | None = None
        self._turn_ended: asyncio.Event | None = None

    async def claim(self) -> None:
        """Become the writer of the session and load its state. Raises ``Busy`` while another process is the writer.

        After an error or a cancellation, ``release`` must be called.
        """
        term = self._term = await self.store.events.claim(self.session)
        opened = await self._open_session() if term > 1 else empty_session()
        if opened.too_new:
            raise TooNew(
                f"session {self.session!r} holds events of version {opened.too_new}, this vaka knows {VERSION}; "
                "it can be read, but only a newer vaka can continue it"
            )
        recorded = opened.state.workspace
        if recorded is not None and self.workspace is not None:
            require_same_folder(self.session, recorded, self.workspace)
        if not self._attached:
            self._attached = True
            self.log.fanout = self.hub.attach_writer(self.session)
        self.log.begin_writing(term, opened)
        self.log.listeners = [self._on_events, *self.observers]

    async def _open_session(self) -> OpenedSession:
        warm = self._warm_sessions.take(self.session) or (self.log.hand_over() if self._attached else None)
        opened = await reopen_warm(self.store, self.session, warm) if warm is not None else None
        return opened or await reopen(self.store, self.session)

    async def release(self) -> None:
        """Release the last claim, unless it has ended: otherwise no other process could claim the session."""
        if self._term:
            with suppress(VakaError):
                await self.store.events.release(self.session, self._term)

    def start(self, done: "Callable[[SessionDriver], None]") -> None:
        """Run turns in a task until no work is left; then call ``done``."""
        self._sync_starter.schedule(self)
        self._done = done
        self._task = asyncio.create_task(self._run())
        self._note_open(is_open=True)
        self._task.add_done_callback(self._on_done)

    def stop(self, why: StopKind, note: str = "") -> None:
        self._stop.trigger(why, note)

    def finish(self, note: str) -> None:
        """Stop the running turn and begin no other; queued inputs stay in the log."""
        self._no_more_turns = True
        self._finished.set()
        self.stop("cancelled", note)

    async def withdraw(self, key: str) -> None:
        """Withdraw an input of a cancelled caller: its turn is stopped, now or as soon as it begins.

        Another caller with the same key keeps it.
        """
        if any(follower.input == key for follower in self.log.fanout.followers):
            return
        self.new_inputs = [added for added in self.new_inputs if added.key != key]
        self._withdrawn.add(key)
        running = self._scope.turn if self._scope else ""
        if running and key in self.current_inputs:
            self.stop("cancelled", "the caller withdrew")
            while self._scope is not None and self._scope.turn == running:
                self._turn_ended = self._turn_ended or asyncio.Event()
                await self._turn_ended.wait()

    @property
    def turn_opening(self) -> bool:
        """Whether a turn has started whose first event is not in the log yet."""
        return self._scope is not None and self.log.state.turn is None

    @property
    def next_turn(self) -> tuple[str, str]:
        """The id of the unfinished turn, or else the key of the next queued input."""
        turn, waiting = self.log.state.turn, self._queued_inputs()
        return (turn.id, "") if turn else ("", waiting[0].key if waiting else "")

    def add_follower(self, follower: Follower) -> None:
        """End a follower when this driver ends."""
        if self._ended:
            follower.end(self.error)
        self._followers.add(follower)

    def detach(self) -> None:
        """Stop feeding the followers of the session; they read from the store from now on."""
        if self._is_open is None:
            self._note_open(is_open=False)
        if self._attached:
            self._attached = False
            self.hub.detach_writer(self.session)

    @property
    def started(self) -> bool:
        """Whether the session was claimed and its turns run."""
        return self._task is not None

    async def wait_started(self) -> bool:
        """Return whether the driver has started, once its session was claimed or could not be."""
        if self._is_open is None:
            self._opening = self._opening or asyncio.Event()
            await self._opening.wait()
        return self._is_open is True

    def _note_open(self, *, is_open: bool) -> None:
        self._is_open = is_open
        if self._opening is not None:
            self._opening.set()

    async def wait_written(self) -> None:
        """Return once the first event is in the store, or the driver has ended."""
        if self._task is not None and not self.log.head and not self.waiting_for_claim:
            changed = asyncio.ensure_future(self.log.wait_for_change())
            changed.add_done_callback(_retrieve_error)
            try:
                await asyncio.wait([changed, self._task], return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()

    async def wait(self) -> None:
        """Return when the driver has ended, with or without an error."""
        if await self.wait_started() and self._task is not None:
            await asyncio.wait([self._task])

    def abort(self) -> None:
        """Cancel the driver as if the process had died; the log allows another one to resume."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._run_turns()
            self.ending = True
            if not self.log.released:
                await self.log.append(EventScope(), release=True)
            if self._sync_task is not None:  # a sync that is under way would keep the log from being handed over
                self._sync_task.cancel()
                await asyncio.wait([self._sync_task])
        except BaseException:
            self.ending = True
            await self.release()
            raise

    async def _run_turns(self) -> None:
        try:
            while not self._no_more_turns and (self._has_work() or await self._find_offered_work()):
                if self.log.released:
                    await self._claim_again()  # another process may have done the work meanwhile
                else:
                    await self._run_next_turn()
        except Suspended as suspended:
            self.error = suspended

    async def _run_next_turn(self) -> None:
        opening = self._next_opening()
        try:
            await self._run_turn(opening)
        except ConflictError:
            if opening is None or not opening.fresh or self.log.head:
                raise
            await self._join_session(opening)

    async def _join_session(self, opening: TurnInput) -> None:
        """Queue an input in a session whose first event another process has written at the same moment."""
        log, self.waiting_for_claim = self.log, True
        await self.release()
        self.detach()
        if self.must_begin:
            await require_owner(self.store, self.session, self.owner)
        self.log = SessionLog(self.store, self.session, _DETACHED_FANOUT, self.env.clock, log.secrets)
        self.log.begin_writing(Term(0), empty_session())
        try:
            for added in opening.fresh:
                await self.offer_input(self.session, added)
        except NotFound:  # it was deleted again
            self.new_inputs = [*opening.fresh, *self.new_inputs]
        log.wake_waiters()
        await self._claim_again()

    async def _claim_again(self) -> None:
        """Become the writer again, for an input that came when the claim had ended; wait while another writer lives."""
        head, self.waiting_for_claim = self.log.head, True
        self._cancel_sync()
        try:
            while not self._no_more_turns:
                try:
                    await self.claim()
                except Busy:
                    self.detach()  # the followers read what the other process writes
                    head = await self._wait_for_writer(head)
                else:
                    self._sync_starter.schedule(self)
                    return
        finally:
            self.waiting_for_claim = False

    async def _wait_for_writer(self, head: int) -> int:
        """Return the new head once the log has moved, or after a second: a writer that dies sends no notification."""
        moved = asyncio.ensure_future(self.store.events.wait(self.session, after=head))
        moved.add_done_callback(_retrieve_error)
        finished = asyncio.ensure_future(self._finished.wait())
        try:
            await asyncio.wait([moved, finished], timeout=WRITER_WAIT, return_when=asyncio.FIRST_COMPLETED)
            return moved.result() if moved.done() else head
        finally:
            moved.cancel()
            finished.cancel()

    async def _find_offered_work(self) -> bool:
        """Return whether an input was offered since the session was read; the claim then must not end without it."""
        if self.log.released:
            return False
        await self.sync()
        return self._has_work()

    def _has_work(self) -> bool:
        state = self.log.state
        return bool(state.turn or self.new_inputs or (state.inputs and self._queued_inputs()))

    def _next_opening(self) -> TurnInput | None:
        """Return the input of the next turn, ``None`` to finish the unfinished one."""
        if self.log.state.turn is not None:
            return None
        if self.new_inputs:  # what is queued in the log came later
            added = self.new_inputs.pop(0)
            return TurnInput(content=added.content, keys=(added.key,), fresh=(added,))
        waiting = self._queued_inputs()[0]
        return TurnInput(content=waiting.content, keys=(waiting.key,))

    def _unfinished_inputs(self) -> tuple[str, ...]:
        """Return the keys of the inputs with which the unfinished turn began."""
        starts = [e.data for e in self.log.window.events if isinstance(e.data, TurnStarted)]
        return starts[-1].inputs if starts else ()

    def _queued_inputs(self) -> list[InputAdded]:
        """Return the inputs that no turn has taken yet; inputs with the policy ``interrupt`` come first."""
        if not self.log.state.inputs:
            return []
        queued = {e.data.key: e.data for e in self.log.window.events if isinstance(e.data, InputAdded)}
        withdrawn = withdrawn_inputs(self.log.deferred)
        inputs = [queued[key] for key in self.log.state.inputs if key not in withdrawn]
        return sorted(inputs, key=lambda added: added.policy != "interrupt")

    def _model_request(self, keys: tuple[str, ...], fresh: tuple[InputAdded, ...]) -> InputAdded | None:
        """Return the last of some inputs that sets a model or options, or else the first one."""
        if len(fresh) == len(keys) == 1:
            return fresh[0]
        found = list(fresh)
        for event in reversed(self.log.window.events if not fresh else ()):
            if len(found) == len(keys):
                break
            if isinstance(event.data, InputAdded) and event.data.key in keys:
                found.insert(0, event.data)
        requests = [added for added in found if added.model or added.options]
        return next(iter((*requests[-1:], *found)), None)

    async def _run_turn(self, opening: TurnInput | None) -> None:
        answering = opening.keys if opening else self._unfinished_inputs()
        fresh = opening.fresh if opening else ()
        recipe = self.recipe_for(fresh[0] if len(fresh) == 1 else self._model_request(answering, fresh))
        state = self.log.state
        self._stop, self.current_inputs = StopSignal(), answering
        if not self._withdrawn.isdisjoint(self.current_inputs):
            self._stop.trigger("cancelled", "the caller withdrew")
        if opening is None and state.turn is not None:
            place = EventScope(state.turn.id)
            if state.turn.interrupted is not None:
                self._stop.trigger("interrupted", state.turn.interrupted)
        else:
            place = EventScope(TurnId(self.env.ids.new_id("trn")))
        if self.workspace is not None or self.log.head == 0:
            await self._record_session(recipe.name)
        self._scope = place
        try:
            turn = Turn(self.log, recipe, self.env, place, self._stop)
            turn.deps, turn.metadata = self.deps, self.metadata
            await run_turn(turn, opening)
        finally:
            self._scope, self.current_inputs = None, ()
            if self._turn_ended is not None:
                self._turn_ended.set()
                self._turn_ended = None

    async def _record_session(self, agent: str) -> None:
        """Write the folder of the session and how it is run, if the log does not have them yet."""
        state = self.log.state
        workspace = self.workspace
        run = self.run_settings
        if self.log.head == 0:
            opened = SessionOpened(
                agent=agent, metadata=dict(self.metadata), workspace=workspace, run=run, owner=self.owner
            )
            self.log.defer(EventScope(), opened)
            return
        known = state.workspace
        if known is None:  # a session that was begun without a folder needs one for the tools that work in a folder
            moved = workspace is not None and self.works_in_folder()
        else:
            moved = workspace is not None and known.directories != workspace.directories
        changed = run is not None and run != state.run
        if moved or changed:
            updated = SessionUpdated(workspace=workspace if moved else None, run=run if changed else None)
            self.log.defer(EventScope(), updated)
        if moved:  # open calls are judged next, without the grants and approvals of another folder
            await self.log.append(EventScope())

    def _on_events(self, events: Sequence[Event]) -> None:
        """Stop the turn if the new events interrupt it, and announce newly queued inputs."""
        turn, inputs = self.log.state.turn, self.log.state.inputs
        if turn is None:
            return
        if turn.interrupted is not None:
            self._stop.trigger("interrupted", turn.interrupted)
        for queued in inputs.values() if inputs else ():
            if not queued.announced and queued.policy != "steer" and queued.key not in self._announced:
                self._announced.add(queued.key)
                self.log.defer(EventScope(), TurnQueued(input=queued.key))

    def start_sync(self) -> None:
        """Start to read events offered by other processes, unless the driver does so already or has ended."""
        if not self._ended and not self.log.released and self._sync_task is None:
            self._sync_task = asyncio.create_task(self._sync_loop())

    async def sync(self) -> None:
        """Read events that were offered. A conflict with another writer is left to the next append of the driver."""
        with suppress(ConflictError):
            await self.log.sync()

    def _cancel_sync(self) -> None:
        if self._sync_task is not None:
            self._sync_task.cancel()
            self._sync_task = None

    async def _sync_loop(self) -> None:
        """Read offered events until the claim ends, or an error; the next append reports a store that fails."""
        while not self.log.released:
            try:
                head = await self.store.events.wait(self.session, after=self.log.head)
                if head > self.log.head:  # the head moves also with the appends of this log, which need no sync
                    await self.log.sync(head)
            except Unavailable:
                await self.env.clock.sleep(1.0)
            except VakaError:
                return

    def has_ended(self) -> bool:
        """Whether its task has ended. A reader of the last turn may run before the callback of the task."""
        if self._task is not None and self._task.done():
            self._on_done(self._task)
        return self._ended

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if self._ended:
            return
        self.ending = True
        self._cancel_sync()
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
        self.detach()
        self._ended = True
        self._sync_starter.forget(self)
        opened = self.log.hand_over() if self.error is None or isinstance(self.error, Suspended) else None
        if opened is not None:
            self._warm_sessions.put(self.session, opened)
        self._done(self)
        self.log.listeners = []  # no reference cycle is left to the garbage collector
        for follower in self._followers:
            follower.end(self.error)


def _retrieve_error(done: "asyncio.Future[Any]") -> None:
    """Mark the error of a future as retrieved: its waiter may be cancelled, and asyncio would report it."""
    if not done.cancelled():
        done.exception()
