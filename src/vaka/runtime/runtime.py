"""The runtime: it opens sessions, owns every task, and hands parts to each other."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import msgspec

from vaka.agents.react import Agent
from vaka.core.loop.blobs import offload_parts
from vaka.core.loop.context import Env
from vaka.core.ports.files import Files
from vaka.core.ports.store import PendingDecision, Store
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub
from vaka.core.session.log import format_timestamp
from vaka.core.session.redaction import Secrets
from vaka.core.types.control import InputAdded, InterruptRequested, OfferedBody, QuestionAnswered
from vaka.core.types.errors import Busy, Closed, ConflictError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, Cursor, DecisionId, SessionId, parse_session_id
from vaka.runtime import lazy
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import ApprovalAnswer, Options, RandomIds, Request, Response, SystemClock, policy_from_rules
from vaka.runtime.session import Session, TurnCollector
from vaka.runtime.session_driver import SessionDriver
from vaka.runtime.session_edits import fork, rewind, write_event
from vaka.runtime.stats import SessionStats, read_session_stats, read_total_stats

if TYPE_CHECKING:
    from vaka.core.ports.tool import World
    from vaka.runtime.file_rewind import FileRewind
    from vaka.runtime.scripts import ScriptHost
    from vaka.runtime.tool_world import WorldFactory

INTERRUPT_TIMEOUT = 30.0
"""Seconds to wait for a session elsewhere to stop."""
RESOLVE_APPROVAL = "vaka.runtime.resolve_approval:resolve_approval"
"""What makes a person's answer count; many programs never need one."""


class Runtime:
    """Runs agents on one store. Use it with ``async with``; leaving waits for the turns that run."""

    def __init__(self, options: Options | None = None, **changes: Any) -> None:
        """Take options as one value, as keywords, or as a value with some of it changed."""
        options = msgspec.structs.replace(options or Options(), **changes)
        self.options = options
        made = options.store
        self.store: Store = (
            lazy.open_store(made, durability=options.durability, namespace=options.namespace)
            if isinstance(made, str)
            else made
        )
        self._owns_store = isinstance(made, str)
        self.hub = FollowerHub(self.store)
        policy = options.policy or policy_from_rules(
            mode=options.permission_mode, allow=options.allow, ask=options.confirm, deny=options.deny,
            cwd=options.cwd, directories=options.add_dirs,
        )  # fmt: skip
        self.env = Env(options.clock or SystemClock(), options.ids or RandomIds(), policy, options.ask_mode)
        self.secrets = Secrets(options.secrets)
        self._script_host: ScriptHost | None = None
        self._world_factory: WorldFactory | None = None
        self.env.make_world = self._create_world
        self.models = ModelRegistry(options.build_model_config(), self.secrets, self.env.clock)
        self._builder = AgentBuilder(
            scripts=self._get_script_host, models=self.models, cache=options.default_enable_cache
        )
        self._default_agent = options.default_agent()
        self._drivers: dict[SessionId, SessionDriver] = {}
        self._takeovers: set[asyncio.Task[None]] = set()
        self._closed = False
        if options.sandbox == "on":
            _ = self.env.world  # now, so that nothing begins without what was asked for

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(cancel=error is not None)

    async def open(
        self, agent: Agent | None = None, *, id: str = "", metadata: dict[str, Any] | None = None
    ) -> Session:
        """Return a session, new or as it was left. Nothing is written until something is said."""
        self._require_open()
        agent = agent or self._default_agent
        if agent is None:
            raise InvalidInput(
                "no agent: give one to open(), or to the runtime as Options(agent=…) or Options(model=…)"
            )
        id = id or self.env.ids.new(f"ses_{self.options.entry_point}")
        return Session(self, agent, parse_session_id(id), metadata or {})

    async def run(self, request: Request) -> Response:
        """Run one turn and return what it came to."""
        session = await self.open(request.agent, id=request.session_id, metadata=dict(request.metadata))
        return await session.run(
            request.prompt,
            on_busy=request.on_busy,
            key=request.request_id,
            model=request.model,
            options=request.model_options,
        )

    async def run_stream(self, request: Request) -> AsyncGenerator[Event]:
        """Run one turn and yield its events."""
        session = await self.open(request.agent, id=request.session_id, metadata=dict(request.metadata))
        stream = session.stream(
            request.prompt,
            on_busy=request.on_busy,
            key=request.request_id,
            model=request.model,
            options=request.model_options,
        )
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    def follow(self, session: str, *, after: "Cursor | str | None" = None) -> AsyncGenerator[Event]:
        """Yield a session's events after a cursor and go on as they happen, in whichever process. Never claims."""
        cursor = after if isinstance(after, Cursor) else Cursor.parse(after)
        return self.hub.follow(parse_session_id(session), cursor)

    async def stats(self, session: str) -> SessionStats:
        """Return what a session has used, call by call summed up, its children included. Raises ``NotFound``."""
        return await read_session_stats(self.store, parse_session_id(session))

    async def total_stats(self) -> SessionStats:
        """Return what all sessions of the store have used together, and embedders here, under the id ``_total``."""
        return await read_total_stats(self.store) + self.models.embedder_usage.stats

    async def decisions(self, session: str | None = None) -> Sequence[PendingDecision]:
        """Return what people still have to decide, oldest first."""
        return await self.store.sessions.decisions(parse_session_id(session) if session else None)

    async def resolve(
        self, approval: str, decision: Literal["approve", "reject"], **details: Unpack[ApprovalAnswer]
    ) -> Event:  # fmt: skip
        """Decide on an approval. The first decision counts; the event returned is that one.

        ``message`` says why not, ``edit`` has other arguments, ``by`` signs it. A yes for longer than once (``scope``)
        keeps a rule: that of the question, or ``rule`` (several, one per line), which must mean the call; for the
        session perhaps only for ``ttl`` seconds. Raises ``InvalidInput`` or ``ConfigError`` when it cannot; then
        nothing was decided.
        """
        pending = await self._find_pending(approval)
        resolved: Event = await lazy.load(RESOLVE_APPROVAL)(self, pending, decision, details)
        return resolved

    async def answer(self, question: str, answer: JSON, *, by: str = "") -> Event:
        """Answer a question. The first answer counts; the event returned is that one."""
        pending = await self._find_pending(question)
        return await self.offer(
            pending.session, QuestionAnswered(question=DecisionId(question), answer=answer, by=by), question
        )

    async def fork(self, origin: str, *, at: "Cursor | str | None" = None, id: str = "") -> SessionId:
        """Copy a session up to a cursor or checkpoint under a new id, and return that."""
        made = parse_session_id(id or self.env.ids.new("ses_fork"))
        await fork(self.store, parse_session_id(origin), at, made, self._timestamp())
        return made

    async def rewind(
        self, session: str, to: "Cursor | str", *, interrupt: bool = False, files: bool = False, force: bool = False
    ) -> Event:
        """Take a session back to a cursor or checkpoint. ``Busy`` while it works, unless told to interrupt first.

        With ``files``, what file tools changed since is put back as well, if snapshots were on; ``FileChanged`` names
        what somebody else has changed since, unless ``force``.
        """
        id = parse_session_id(session)
        if interrupt:
            await self._interrupt_and_wait(id)
        await self._require_idle(id)
        if not files:
            return await rewind(self.store, id, to, self._timestamp())
        back: tuple[Event, FileRewind] = await lazy.load(lazy.REWIND_FILES)(
            self.store, self._files, id, to, self._timestamp(), force=force
        )
        return back[0]

    async def files_back(self, session: str, to: "Cursor | str") -> "FileRewind":
        """Return what ``rewind`` with ``files`` would do with the files, and what is in its way."""
        back: FileRewind = await lazy.load(lazy.PREVIEW_FILE_REWIND)(
            self.store, self._files, parse_session_id(session), to
        )
        return back

    async def write(self, session: SessionId, body: Body) -> Event:
        """Append one event as the session's writer. ``Busy`` while it works."""
        await self._require_idle(session)
        return await write_event(self.store, session, body, self._timestamp())

    async def offer(self, session: SessionId, body: OfferedBody, key: str) -> Event:
        """Petition a session, whoever writes it; return the event that has this key."""
        event = Event(data=self.secrets.redact_struct(body), session=session, ts=self._timestamp())
        seq = await self.store.events.offer(session, event, key=key)
        async with aclosing(self.store.events.read(session, after=seq - 1, upto=seq)) as events:
            return await anext(events)

    async def _submit(
        self, session: Session, added: InputAdded, follower: Follower, *, reject: bool, caller_key: bool
    ) -> int:
        """Bring an input to a session; return the seq after which its events come.

        ``known``: the key is the caller's, so the input may have been brought before.
        """
        after: int | None = None
        while True:
            self._require_open()
            driver = self._drivers.get(session.id)
            if driver is None:
                begun = await self._start_driver(session, added, follower, after, reject=reject, caller_key=caller_key)
                if begun is not None:
                    return begun
                continue
            if not await driver.ready:
                continue
            if reject and after is None and not driver.ending:
                raise Busy(f"session {session.id!r} is at work")
            await driver.wait_written()
            if not driver.ending:
                after = await self._offer_input(session.id, added) if after is None else after
                await driver.log.sync()
            if not driver.ending:
                driver.add_follower(follower)
                return after or 0
            await driver.wait()
            await asyncio.sleep(0)

    async def _wake(self, session: Session, follower: Follower) -> tuple[int, TurnCollector | None]:
        """Go on with what is unfinished; return the seq after which its events come and what finds them, if any."""
        if await self.store.sessions.find(session.id) is None:
            raise NotFound(f"there is no session {session.id!r}")
        while True:
            self._require_open()
            driver = self._drivers.get(session.id)
            if driver is None:
                driver = await self._claim_session(session)
                driver.start(self._remove_driver)
            if await driver.ready and not driver.ending:
                break
            await driver.wait()
            await asyncio.sleep(0)
        driver.add_follower(follower)
        turn, key = driver.next_turn
        return driver.log.head, TurnCollector(session.id, turn=turn, key=key) if turn or key else None

    async def interrupt(self, session: SessionId, body: InterruptRequested) -> None:
        """Stop the turn of a session, in whichever process it runs."""
        driver = self._drivers.get(session)
        if driver is not None and await driver.ready and driver.turn_opening:
            driver.stop("interrupted", body.note)  # the log knows of no turn yet
            if not driver.log.head:
                return
        await self.offer(session, body, body.key)

    def driver(self, session: SessionId) -> SessionDriver | None:
        """Return who works on a session in this process, if anyone does."""
        return self._drivers.get(session)

    async def close(self, *, cancel: bool = False) -> None:
        """Take nothing new, wait for the turns that run (or end them where they are), and let go of the store.

        A turn that waits for a person is left in the log, to be resumed when someone has decided.
        """
        if self._closed:
            return
        self._closed = True
        self.env.ask = "suspend" if self.env.ask == "wait" else self.env.ask
        for driver in self._drivers.values():
            driver.log.wake_waiters()
        for visit in self._takeovers:
            visit.cancel()
        await asyncio.gather(*self._takeovers, return_exceptions=True)
        while self._drivers:
            drivers = list(self._drivers.values())
            for driver in drivers if cancel else ():
                driver.finish("the runtime was closed")
            await asyncio.gather(*(driver.wait() for driver in drivers))
            await asyncio.sleep(0)
        for stray in self.env.stray_tasks:
            stray.cancel()
        await self._end_commands()
        if self._world_factory is not None:
            await self._world_factory.close()
        if self._script_host is not None:
            await self._script_host.close()
        await self.models.close()
        await self.hub.close()
        if self._owns_store:
            await self.store.close()

    async def _end_commands(self, session: SessionId | None = None) -> None:
        """End the commands that tools left running for a session, or for all."""
        if self.env.world_created and self.env.world.shells is not None:
            await self.env.world.shells.close(session)

    async def _start_driver(
        self,
        session: Session,
        added: InputAdded,
        follower: Follower,
        after: int | None,
        *,
        reject: bool,
        caller_key: bool,
    ) -> int | None:
        """Start to work on a session; ``after`` is set when the input was left with it already. ``None``: try again."""
        try:
            driver = await self._claim_session(session)
        except Busy:
            if reject:
                raise
            return await self._hand_over_input(session, added, follower)
        first = caller_key and not driver.log.head
        try:
            if after is None and driver.log.head and (caller_key or any(driver.next_turn)):
                after = await self._offer_input(session.id, added)
                await driver.log.sync()
            if after is None:
                after = driver.log.head
                driver.new_inputs.append(added)
        finally:
            if not first:
                driver.add_follower(follower)
            driver.start(self._remove_driver)
        return after if not first or await self._began_session(driver, follower) else None

    async def _began_session(self, driver: SessionDriver, follower: Follower) -> bool:
        """Whether a request that may be sent twice at once began the session here, and not in another process."""
        await driver.wait_written()
        if isinstance(driver.error, ConflictError) and not driver.log.head:
            return False
        driver.add_follower(follower)
        return True

    async def _claim_session(self, session: Session) -> SessionDriver:
        driver = SessionDriver(
            session.id,
            lambda wish: self._builder.recipe_for_input(session.agent, wish),
            self.env,
            self.hub,
            self.secrets,
        )
        driver.metadata = session.metadata
        self._drivers[session.id] = driver
        try:
            await driver.claim()
        except BaseException:
            self._drivers.pop(session.id, None)
            driver.detach()
            raise
        if self._closed:
            driver.finish("the runtime was closed")
        return driver

    def _create_world(self) -> "World":
        made: WorldFactory = lazy.load(lazy.WORLD_FACTORY)(self.options, self.env.policy, self.models, self.store)
        self._world_factory = made
        return made.create_world()

    @property
    def _files(self) -> Files:
        files = self.env.world.files
        if files is None:
            raise InvalidInput("this runtime has no files to put back; give it some with Options(files=…) or cwd=…")
        return files

    def _get_script_host(self) -> "ScriptHost":
        scripts = self._script_host
        if scripts is None:
            made: ScriptHost = lazy.load(lazy.SCRIPT_HOST)(self.options, self.store)
            scripts = self._script_host = made
        return scripts

    def _remove_driver(self, driver: SessionDriver) -> None:
        self._drivers.pop(driver.session, None)

    async def _offer_input(self, session: SessionId, added: InputAdded) -> int:
        content = await offload_parts(self.store.blobs, self.secrets, added.content)
        event = await self.offer(session, msgspec.structs.replace(added, content=content), added.key)
        return event.seq - 1

    async def _hand_over_input(self, session: Session, added: InputAdded, follower: Follower) -> int | None:
        """Another process is the writer: leave the input with it, and take over if it goes away."""
        try:
            after = await self._offer_input(session.id, added)
        except NotFound:  # it has written nothing yet
            await self._wait_for_head(session.id, 0)
            return None
        task = asyncio.create_task(self._take_over(session, after, added.key, follower))
        self._takeovers.add(task)
        task.add_done_callback(self._takeovers.discard)
        return after

    async def _take_over(self, session: Session, after: int, key: str, follower: Follower) -> None:
        watcher = TurnCollector(session.id, key=key)
        try:
            while not watcher.ended and not await self._join_driver(session, follower):
                await self._wait_for_head(session.id, after)
                async with aclosing(self.store.events.read(session.id, after=after)) as events:
                    async for event in events:
                        after = event.seq
                        watcher.take_events((event,))
        except asyncio.CancelledError:
            follower.end(Closed("the runtime was closed"))
            raise
        except VakaError as error:
            follower.end(error)

    async def _join_driver(self, session: Session, follower: Follower) -> bool:
        """Let a follower hear from the driver in this process, if there is one or can be one now."""
        driver = self._drivers.get(session.id)
        try:
            if driver is None:
                driver = await self._claim_session(session)
                driver.start(self._remove_driver)
        except Busy:
            return False
        if not await driver.ready or driver.ending:
            return False
        driver.add_follower(follower)
        return True

    async def _wait_for_head(self, session: SessionId, seq: int) -> int:
        """Return the head once it has moved, or after a second: a writer that dies says nothing."""
        try:
            async with asyncio.timeout(1.0):
                return await self.store.events.wait(session, after=seq)
        except TimeoutError:
            return seq

    async def _require_idle(self, session: SessionId) -> None:
        """Raise ``Busy`` while this process works on a session; wait for one that has just written its end."""
        while driver := self._drivers.get(session):
            if not driver.log.released:
                raise Busy(f"session {session!r} is at work; interrupt it first, or wait")
            await driver.wait()
            await asyncio.sleep(0)

    async def _interrupt_and_wait(self, session: SessionId) -> None:
        """Stop a session's turn, wherever it runs, and wait until it has written its end."""
        info = await self.store.sessions.find(session)
        if info is None or not info.live:
            return
        key = self.env.ids.new("int")
        await self.offer(session, InterruptRequested(key=key, note="rewound"), key)
        head = info.head
        async with asyncio.timeout(INTERRUPT_TIMEOUT):
            while info is not None and info.live:
                head = await self._wait_for_head(session, head)
                info = await self.store.sessions.find(session)

    async def _find_pending(self, decision: str) -> PendingDecision:
        for pending in await self.store.sessions.decisions():
            if pending.id == decision:
                return pending
        raise NotFound(f"there is no open decision {decision!r}; it may have been taken, or have expired")

    def _timestamp(self) -> str:
        return format_timestamp(self.env.clock.time())

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the runtime is closed")
