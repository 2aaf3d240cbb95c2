"""Random interleavings of callers on one session in two runtimes, and what must hold after each of them."""

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import vaka
from tests.runtime.runtime_fixtures import IDS, check_log
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import Store
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Busy, Cancelled, Closed, Interrupted, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import UserMessage, text_of
from vaka.core.types.progress import StepStarted, TurnStarted
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import FunctionModel, call

SESSION = SessionId("s")
PATIENCE = 120.0
"""Seconds of the event loop after which a caller that has not ended is stuck."""


class SkippingSelector(selectors.DefaultSelector):
    """A selector that does not wait for timers: without other events, the time of its loop jumps to the next one."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0.001)  # a thread may be about to report
        if not ready:
            self.skipped += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop in which timers cost no time."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped


def run_skipping(work: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine in an event loop in which timers cost no time."""

    async def main() -> None:
        await work()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(main())


async def sleep_ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class TickingEvents:
    """An event store whose operations begin some ticks after their call: others run, and callers are cancelled."""

    def __init__(self, inner: Any, rng: random.Random) -> None:
        self._inner, self._rng = inner, rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def claim(self, session: SessionId) -> Any:
        await sleep_ticks(self._rng.randrange(4))
        return await self._inner.claim(session)

    async def append(self, *arguments: Any, **more: Any) -> Any:
        await sleep_ticks(self._rng.randrange(4))
        return await self._inner.append(*arguments, **more)

    async def offer(self, *arguments: Any, **more: Any) -> Any:
        await sleep_ticks(self._rng.randrange(4))
        return await self._inner.offer(*arguments, **more)

    async def read(self, *arguments: Any, **more: Any) -> AsyncGenerator[Event]:
        await sleep_ticks(self._rng.randrange(4))
        async with aclosing(self._inner.read(*arguments, **more)) as events:
            async for event in events:
                yield event


class EventFollower:
    """Reads the durable events of the session until the runtime closes."""

    def __init__(self, rt: vaka.Runtime) -> None:
        self.seqs: list[int] = []
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(self._read(rt))

    async def _read(self, rt: vaka.Runtime) -> None:
        async with aclosing(rt.follow(SESSION)) as events:
            async for event in events:
                if event.seq:
                    self.seqs.append(event.seq)
                    self._moved.set()

    async def check(self, head: int) -> None:
        """Wait until the event ``head`` was read; every event before it must have been read once, in order."""
        while head not in self.seqs:
            self._moved.clear()
            await self._moved.wait()
        assert self.seqs == list(range(1, len(self.seqs) + 1))

    async def end(self) -> None:
        await self._task


class Interleaving:
    """One round: some callers, each with its own actions, some of them cancelled after some ticks."""

    def __init__(self, seed: int, stores: Sequence[Store], operations: Sequence[str]) -> None:
        self._rng = random.Random(seed)
        self._stores, self._operations = stores, operations
        self._texts = 0
        self.prompts: list[Prompt] = []
        self._withdrawn: set[str] = set()
        """Keys of inputs that were withdrawn."""
        self._answered: set[str] = set()
        """Texts of inputs whose turn ended with an answer."""

        @vaka.tool(effect="read")
        async def look() -> str:
            """Look around."""
            await sleep_ticks(self._rng.randrange(4))
            return "seen"

        self._agent = vaka.Agent("helper", model=FunctionModel(self._answer), tools=[look])

    async def _answer(self, prompt: Prompt) -> Any:
        self.prompts.append(prompt)
        await sleep_ticks(self._rng.randrange(6))
        return call("look") if self._rng.random() < 0.3 else "done"

    async def run(self) -> None:
        runtimes = [
            vaka.Runtime(
                store=store,
                environment=Environment(ids=IDS, clock=FakeClock(auto=True)),
                permissions=vaka.Permissions(ask="suspend"),
            )
            for store in self._stores
        ]
        followers = [EventFollower(rt) for rt in runtimes]
        sessions = [await rt.open(self._agent, id=SESSION) for rt in runtimes]
        async with asyncio.timeout(PATIENCE):
            if self._rng.random() < 0.7:
                await self._run(sessions[0])
            await asyncio.gather(self._run_callers(sessions), self._shut_down(runtimes[1]))
            if "shutdown" in self._operations:
                del sessions[1]
            for session in (*sessions, *sessions):  # nothing keeps the next turn from running, wherever it runs
                await self._run(session)
            events = await self._check_stored(self._stores[0])
            for follower in followers[: len(sessions)]:
                await follower.check(len(events))
            for rt in runtimes:
                await rt.close()
            for follower in followers:
                await follower.end()
        info = await self._stores[0].sessions.find(SESSION)
        assert info is not None
        assert not info.live

    async def _shut_down(self, rt: vaka.Runtime) -> None:
        """Close a runtime while its callers wait, if the round has it."""
        if "shutdown" in self._operations:
            await sleep_ticks(self._rng.randrange(30))
            await rt.close(cancel=self._rng.random() < 0.5)

    async def _run_callers(self, sessions: Sequence[vaka.Session[Any]]) -> None:
        callers = [
            asyncio.create_task(self._act(self._rng.choice(sessions), self._rng.choice(self._operations)))
            for _ in range(self._rng.randint(2, 6))
        ]
        cancelled = [caller for caller in callers if self._rng.random() < 0.4] if "cancel" in self._operations else []
        for caller in cancelled:
            await sleep_ticks(self._rng.randrange(12))
            caller.cancel()
        for caller in callers:
            try:
                await caller
            except asyncio.CancelledError:
                assert caller in cancelled, "a caller that was not cancelled has been"

    async def _act(self, session: vaka.Session[Any], operation: str) -> None:
        await sleep_ticks(self._rng.randrange(12))
        action: Callable[[vaka.Session[Any]], Awaitable[None]] = getattr(self, f"_{operation}", self._run)
        try:
            await action(session)
        except (Interrupted, Cancelled):
            pass  # a turn may be interrupted
        except Closed:
            assert "shutdown" in self._operations

    def _next_text(self) -> str:
        self._texts += 1
        return f"<{self._texts}>"

    async def _run(self, session: vaka.Session[Any]) -> None:
        text = self._next_text()
        try:
            await session.run(text)
        except Closed:
            assert {"rewind", "shutdown"} & {*self._operations}, "a caller was left without its answer"
        else:
            self._answered.add(text)

    async def _stream(self, session: vaka.Session[Any]) -> None:
        text = self._next_text()
        try:
            async with session.stream(text) as turn:
                async for _ in turn:
                    await sleep_ticks(self._rng.randrange(3))
        except Closed:
            assert {"rewind", "shutdown"} & {*self._operations}, "a caller was left without its answer"
        else:
            self._answered.add(text)

    async def _leave(self, session: vaka.Session[Any]) -> None:
        with suppress(Closed):
            async with session.stream(self._next_text()) as turn:
                await anext(turn)

    async def _reject(self, session: vaka.Session[Any]) -> None:
        with suppress(Busy):
            await session.run(self._next_text(), on_busy="reject")

    async def _replace(self, session: vaka.Session[Any]) -> None:
        with suppress(Closed):
            await session.run(self._next_text(), on_busy="interrupt")

    async def _steer(self, session: vaka.Session[Any]) -> None:
        with suppress(Closed):
            await session.steer(self._next_text())

    async def _send(self, session: vaka.Session[Any]) -> None:
        with suppress(Closed):
            await session.send(self._next_text())

    async def _withdraw(self, session: vaka.Session[Any]) -> None:
        with suppress(Closed, Busy):
            key = await session.send(self._next_text())
            await sleep_ticks(self._rng.randrange(12))
            if await session.withdraw(key):
                self._withdrawn.add(key)

    async def _interrupt(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound):
            await session.interrupt()

    async def _resume(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound, Closed, InvalidInput, Busy):
            async with session.resume() as turn:
                async for _ in turn:
                    pass

    async def _checkpoint(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound, Busy):
            await session.checkpoint(self._next_text())

    async def _rewind(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound, Busy, InvalidInput):
            await session.rewind("1.1", interrupt=self._rng.random() < 0.5)

    async def _close(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound, Busy):
            await session.close()

    async def _fork(self, session: vaka.Session[Any]) -> None:
        with suppress(NotFound, InvalidInput):
            forked = await session.fork()
            await forked.run(self._next_text())

    async def _check_stored(self, store: Store) -> list[Event]:
        async with aclosing(store.events.read(SESSION)) as stored:
            events = [event async for event in stored]
        check_log(events)
        added = Counter(event.data.key for event in events if isinstance(event.data, InputAdded))
        assert set(added.values()) <= {1}
        taken: Counter[str] = Counter()
        for event in events:
            if isinstance(event.data, TurnStarted | StepStarted):
                assert event.data.inputs or not isinstance(event.data, TurnStarted), "a turn without an input"
                taken.update(event.data.inputs)
        assert set(taken.values()) == {1}, taken
        assert self._withdrawn.isdisjoint(taken), "an input was withdrawn, and taken by a turn"
        self._check_prompts()
        return events

    def _check_prompts(self) -> None:
        """Each input is in one place of each prompt, and the prompts that answered a caller have its input."""
        seen: set[str] = set()
        for prompt in self.prompts:
            texts: Counter[str] = Counter()
            for message in prompt.messages:
                if isinstance(message, UserMessage):
                    texts.update(f"{part}>" for part in text_of(message.content).split(">") if part)
            assert set(texts.values()) <= {1}, texts
            seen.update(texts)
        assert self._answered <= seen


async def interleave(seed: int, stores: Sequence[Store], operations: Sequence[str]) -> None:
    """Run one round on two handles of one store, and close them."""
    try:
        await Interleaving(seed, stores, operations).run()
    finally:
        for store in stores:
            await store.close()
