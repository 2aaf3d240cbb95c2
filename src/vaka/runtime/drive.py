"""One session at work in this process: claim it, finish what is unfinished, answer what was said, let it go.

A driver lives only while there is something to do; an idle session has no writer, so any process may go on with it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from vaka.core.loop.scope import Env, Recipe, Turn
from vaka.core.loop.stop import Stop, Why
from vaka.core.loop.turn import Opening, run
from vaka.core.ports.store import Store
from vaka.core.session.fanout import Fanout, Follower
from vaka.core.session.follow import Hub
from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.session.redact import Secrets
from vaka.core.session.snapshot import nothing, reopen
from vaka.core.types.content import Content
from vaka.core.types.control import InputAdded, SessionOpened
from vaka.core.types.errors import Suspended, TooNew, Unavailable, VakaError
from vaka.core.types.event import VERSION
from vaka.core.types.ids import SessionId, TurnId
from vaka.core.types.progress import TurnQueued, TurnStarted

SHORT = 0.02
"""Seconds a turn may take before this process starts to listen for what others offer to its session."""


class Driver:
    """Runs the turns of one session, one after the other."""

    def __init__(
        self, session: SessionId, recipe: "Callable[[InputAdded | None], Recipe]", env: Env, hub: Hub, secrets: Secrets
    ) -> None:
        self.session, self.recipe, self.env, self.hub = session, recipe, env, hub
        self.store: Store = hub.store
        self.log = Log(self.store, session, Fanout(session), env.clock, secrets)
        self.error: BaseException | None = None
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the session could be claimed, and work has begun."""
        self.ending = False
        """True when it takes nothing more on."""
        self.fresh: list[InputAdded] = []
        self.metadata: dict[str, object] = {}
        self._followers: set[Follower] = set()
        self._announced: set[str] = set()
        self._stop = Stop()
        self._watch: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._attached = False
        self._answering: tuple[str, ...] = ()
        self._withdrawn: set[str] = set()
        self._last = self._ended = False
        self._place: Place | None = None
        self._next_end = asyncio.Event()

    async def claim(self) -> None:
        """Become the writer and read what there is. ``Busy`` while another process is it."""
        term = await self.store.events.claim(self.session)
        try:
            opened = await reopen(self.store, self.session) if term > 1 else nothing()
            if opened.too_new:
                raise TooNew(
                    f"session {self.session!r} holds events of version {opened.too_new}, this vaka knows {VERSION}; "
                    "it can be read, but only a newer vaka may go on with it"
                )
        except BaseException:
            await self.store.events.release(self.session, term)
            raise
        if not self._attached:
            self._attached = True
            self.log.fanout = self.hub.attach(self.session)
        self.log.begin(term, opened)
        self.log.listeners = [self._heard]

    def start(self, done: "Callable[[Driver], None]") -> None:
        """Work until nothing is left to do; then call ``done``."""
        self._later = asyncio.get_running_loop().call_later(SHORT, self._listen)
        self._task = asyncio.create_task(self._run())
        self.ready.set_result(True)
        self._task.add_done_callback(lambda _: self._over(done))

    def stop(self, why: Why, note: str = "") -> None:
        """Stop the running turn."""
        self._stop.trigger(why, note)

    def finish(self, note: str) -> None:
        """Stop the running turn and begin no other: what was said after it stays in the log."""
        self._last = True
        self.stop("cancelled", note)

    async def withdraw(self, key: str) -> None:
        """A caller takes an input back: its turn is stopped, now or as soon as it begins."""
        self.fresh = [added for added in self.fresh if added.key != key]
        self._withdrawn.add(key)
        running = self._place.turn if self._place else ""
        if running and key in self._answering:
            self.stop("cancelled", "the caller withdrew")
            while self._place is not None and self._place.turn == running:
                await self._next_end.wait()

    @property
    def opening(self) -> bool:
        """Whether a turn is about to begin that is not in the log yet."""
        return self._place is not None and self.log.state.turn is None

    @property
    def upcoming(self) -> tuple[str, str]:
        """The unfinished turn, or else the key of the input that is answered next."""
        turn, waiting = self.log.state.turn, self._waiting()
        return (turn.id, "") if turn else ("", waiting[0].key if waiting else "")

    def attend(self, follower: Follower) -> None:
        """Tell a follower when this driver has nothing more to do."""
        if self._ended:
            follower.end(self.error)
        self._followers.add(follower)

    def detach(self) -> None:
        """Let go of the session's followers; they hear of it through the store from now on."""
        if not self.ready.done():
            self.ready.set_result(False)
        if self._attached:
            self._attached = False
            self.hub.detach(self.session)

    async def written(self) -> None:
        """Return once the session is in the store, or work has ended without that."""
        if self._task is not None and not self.log.head:
            changed = asyncio.ensure_future(self.log.changed())
            await asyncio.wait([changed, self._task], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    async def wait(self) -> None:
        """Return when the driver has ended, however it ended."""
        if await self.ready and self._task is not None:
            await asyncio.wait([self._task])

    def abort(self) -> None:
        """End now, as if the process had died: the log says where to go on."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._turns()
            self.ending = True
            if not self.log.released:
                await self.log.append(Place(), release=True)
        except BaseException:
            self.ending = True
            if not self.log.released:  # nobody else could go on with the session
                with suppress(VakaError):
                    await self.store.events.release(self.session, self.log.term)
            raise

    async def _turns(self) -> None:
        try:
            while self._work() and not self._last:
                if self.log.released:
                    await self.claim()
                await self._turn(self._next())
        except Suspended as suspended:
            self.error = suspended

    def _work(self) -> bool:
        state = self.log.state
        return bool(state.turn or state.inputs or self.fresh)

    def _next(self) -> Opening | None:
        """Return what the next turn answers; an unfinished turn comes before anything new."""
        state = self.log.state
        if state.turn is not None:
            return None
        waiting = self._waiting()
        if waiting:
            first = waiting[0]
            return Opening(content=first.content, keys=(first.key,))
        fresh = tuple(self.fresh[:1])
        del self.fresh[:1]
        content: Content = tuple(part for added in fresh for part in added.content)
        return Opening(content=content, keys=tuple(added.key for added in fresh), fresh=fresh)

    def _taken_on(self) -> tuple[str, ...]:
        """Return the inputs the unfinished turn began with."""
        begun = [e.data for e in self.log.window.events if isinstance(e.data, TurnStarted)]
        return begun[-1].inputs if begun else ()

    def _waiting(self) -> list[InputAdded]:
        """Return the inputs no turn has taken yet: first those that came to interrupt, to be heard now."""
        queued = {e.data.key: e.data for e in self.log.window.events if isinstance(e.data, InputAdded)}
        return sorted((queued[key] for key in self.log.state.inputs), key=lambda added: added.policy != "interrupt")

    def _wish(self, keys: tuple[str, ...], fresh: tuple[InputAdded, ...]) -> InputAdded | None:
        """Return the last of some inputs that asks for a model or for something of it."""
        known = fresh or [e.data for e in self.log.window.events if isinstance(e.data, InputAdded)]
        return next((i for i in reversed(known) if i.key in keys and (i.model or i.options)), None)

    async def _turn(self, opening: Opening | None) -> None:
        answering = opening.keys if opening else self._taken_on()
        recipe = self.recipe(self._wish(answering, opening.fresh if opening else ()))
        state = self.log.state
        self._stop = Stop()
        self._answering = answering
        if not self._withdrawn.isdisjoint(self._answering):
            self._stop.trigger("cancelled", "the caller withdrew")
        if opening is None and state.turn is not None:
            place = Place(state.turn.id)
            if state.turn.interrupted is not None:
                self._stop.trigger("interrupted", state.turn.interrupted)
        else:
            place = Place(TurnId(self.env.ids.new("trn")))
            if self.log.head == 0:
                self.log.later(Place(), SessionOpened(agent=recipe.name, metadata=dict(self.metadata)))
        self._place = place
        try:
            await run(Turn(self.log, recipe, self.env, place, self._stop), opening)
        finally:
            self._place, self._answering = None, ()
            self._next_end.set()
            self._next_end = asyncio.Event()

    def _heard(self) -> None:
        """Events were folded: has someone asked to stop, or said something that must wait?"""
        turn = self.log.state.turn
        if turn is None:
            return
        if turn.interrupted is not None:
            self._stop.trigger("interrupted", turn.interrupted)
        for queued in self.log.state.inputs.values():
            if not queued.announced and queued.policy != "steer" and queued.key not in self._announced:
                self._announced.add(queued.key)
                self.log.later(Place(), TurnQueued(input=queued.key))

    def _listen(self) -> None:
        self._watch = asyncio.create_task(self._sync())

    async def _sync(self) -> None:
        """Hear what others offer; when the store cannot be asked, the next write will say so."""
        while True:
            try:
                if await self.store.events.wait(self.session, after=self.log.head) > self.log.head:
                    await self.log.sync()  # not what this log has just written itself
            except Unavailable:
                await self.env.clock.sleep(1.0)
            except VakaError:
                return

    def _over(self, done: "Callable[[Driver], None]") -> None:
        task, self.ending = self._task, True
        if self._later is not None:
            self._later.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if task is not None and not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
        self.detach()
        self._ended = True
        done(self)
        for follower in self._followers:
            follower.end(self.error)
