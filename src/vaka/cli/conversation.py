"""One turn of one session, from finding the session to the result."""

import asyncio
from contextlib import aclosing, suppress

import msgspec

from vaka import __version__
from vaka.cli.desk import Desk, describe, person
from vaka.cli.errors import Quit
from vaka.cli.report import Report
from vaka.cli.signals import Signals
from vaka.cli.start import has_terminal
from vaka.core.ports.store import Query, SessionInfo
from vaka.core.types.content import Part, Text, clean
from vaka.core.types.errors import NotFound, Suspended, VakaError
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import TurnStarted
from vaka.runtime.options import Says
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is meant, and what is said to it."""

    session: str = ""
    last: bool = False
    resume: bool = False
    fork: str = ""
    prompt: str = ""
    parts: tuple[Part, ...] = ()
    """What is said besides the prompt."""

    @property
    def says(self) -> Says:
        """Everything that is said: the words first."""
        return (Text(text=clean(self.prompt)), *self.parts) if self.parts else self.prompt


class Conversation:
    """Holds one turn and reports it."""

    def __init__(self, runtime: Runtime, report: Report) -> None:
        self.runtime, self.report = runtime, report
        self._session: Session | None = None
        self._task: asyncio.Task[object] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def hold(self, target: Target) -> int:
        """Run the turn to its end, or to where a person is needed; return the exit code."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        with Signals(loop, self._stop, lambda: self.report.failed(KeyboardInterrupt())) as signals:
            session = self._session = await self._open(target)
            info = await self.runtime.store.sessions.find(session.id)
            cursor = f"{info.epoch}.{info.head}" if info else "1.0"
            self._introduce(session, info, cursor)
            try:
                code = await self._watch(session, target, cursor, signals)
            except Suspended as suspended:
                code = await self._suspended(session, suspended)
            except asyncio.CancelledError:
                if not signals.code:
                    raise
                raise Quit(signals.code) from None
        return code

    async def _watch(self, session: Session, target: Target, cursor: str, signals: Signals) -> int:
        desk = self._attend(session.id, cursor)
        try:
            if target.resume:
                await self._recall(session)
            stream = session.resume() if target.resume else session.stream(target.says)
            async with aclosing(stream) as events:
                async for event in events:
                    await self.report.event(event)
                    if signals.code and isinstance(event.data, TurnStarted):
                        self._stop()
        finally:
            if desk is not None:
                desk.cancel()
                with suppress(asyncio.CancelledError):
                    await desk
        self.report.tally.signal = signals.code
        return self.report.finish()

    async def _recall(self, session: Session) -> None:
        """Count what the last turn has come to so far; when nothing is left to do, that is the result."""
        for event in await session.last_turn():
            self.report.tally.see(event)
        if not self.report.tally.begun:
            raise NotFound(f"session {session.id!r} has no turn to resume")

    async def _open(self, target: Target) -> Session:
        id = target.session
        if target.last:
            page = await self.runtime.store.sessions.list(Query(limit=1))
            if not page.sessions:
                raise NotFound("there is no session yet; leave --last out to begin one")
            id = page.sessions[0].id
        if target.fork:
            origin, at = await split_place(self.runtime, target.fork)
            id = await self.runtime.fork(origin, at=at, id=id)
        return await self.runtime.open(id=id)

    def _introduce(self, session: Session, info: SessionInfo | None, cursor: str) -> None:
        self.report.tally.session = session.id
        self.report.session(
            session_id=session.id, store=self.runtime.store.url, cursor=cursor, resumed=info is not None,
            agent=session.agent.name, ask=self.runtime.env.ask, version=__version__,
        )  # fmt: skip
        if info is None or not info.live:
            return
        self.report.note(f"session {session.id} is at work elsewhere; this waits for its turn")

    def _attend(self, session: SessionId, cursor: str) -> "asyncio.Task[None] | None":
        """Let a person decide while the turn waits for one."""
        if self.runtime.env.ask != "wait":
            return None
        desk = Desk(self.runtime, session, self.report.note, terminal=has_terminal())
        return asyncio.create_task(desk.attend(cursor))

    async def _suspended(self, session: Session, suspended: Suspended) -> int:
        waiting = [describe(row) for row in await self.runtime.decisions(session.id) if row.id in suspended.decisions]
        code = self.report.finish(waiting)
        self.report.note(f"then go on with: vaka run --session {session.id} --resume")
        return code

    def _stop(self) -> None:
        """Interrupt the turn; with none to interrupt here, stop waiting for it."""
        task = asyncio.ensure_future(self._interrupt())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _interrupt(self) -> None:
        session = self._session
        if session is not None and (self.report.tally.begun or self._ours(session.id)):
            with suppress(VakaError):
                await session.interrupt("stopped from the command line", by=person())
                return
        if self._task is not None:
            self._task.cancel()

    def _ours(self, session: SessionId) -> bool:
        """Whether this process works on the session: somebody else's turn is not ours to stop."""
        driver = self.runtime.driver(session)
        return driver is not None and driver.ready.done() and driver.ready.result()


async def split_place(runtime: Runtime, text: str) -> tuple[str, str | None]:
    """Return session and place of ``ID[@SEQ]``; an id may hold an ``@`` itself."""
    origin, at, place = text.rpartition("@")
    if not at or not origin or not place or await runtime.store.sessions.find(SessionId(text)) is not None:
        return text, None
    return origin, place
