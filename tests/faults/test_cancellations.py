"""Runs that are cancelled, interrupted or aborted anywhere: their logs are valid, and the sessions continue."""

import asyncio
import random
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from tests.faults import log_checks
from tests.faults.asyncio_reports import cancel_after, nothing_reported
from tests.faults.crash_run import ANSWER, ONCE_TOOLS, REQUEST, EffectLedger, make_agent
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.ports.store import Store
from vaka.core.ports.tool import ToolContext
from vaka.core.types.control import InterruptRequested
from vaka.core.types.errors import Closed, NotFound, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import TurnCancelled, TurnCompleted, TurnInterrupted
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.server.kit.problems import Problem
from vaka.server.sse import wait_while_connected
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock

AT_ONCE = 50
STOP_METHODS = ("cancel", "interrupt", "abort", "both")


class MemoryLedger(EffectLedger):
    """A ledger in memory, by session and call."""

    def __init__(self) -> None:
        self.times: Counter[tuple[str, str, str]] = Counter()
        self._honoured: set[str] = set()

    def record_effect(self, name: str, context: ToolContext, what: str) -> None:
        if name != "stamp" or context.key not in self._honoured:
            self._honoured.add(context.key)
            self.times[context.session, name, context.call] += 1


async def stop_run(runtime: Runtime, session: Session, running: "asyncio.Task[object]", method: str) -> None:
    """Stop a run by one method; it may have ended already, or not have begun."""
    driver = runtime._drivers.active.get(session.id)
    if method in {"cancel", "both"}:
        running.cancel()
    if method in {"interrupt", "both"}:
        try:
            await session.interrupt("enough")
        except NotFound:
            pass
    if method == "abort" and driver is not None:
        driver.abort()


async def stop_and_resume(runtime: Runtime, captain: Agent, seed: int) -> list[Event]:
    """Begin a run, stop it somewhere, finish what is left, and return the log."""
    chance = random.Random(seed)
    session = await runtime.open(captain, id=f"s{seed}")
    running = asyncio.create_task(session.run(REQUEST))
    for _ in range(chance.randrange(150)):
        await asyncio.sleep(0)
    await stop_run(runtime, session, running, STOP_METHODS[seed % len(STOP_METHODS)])
    ended = (await asyncio.gather(running, return_exceptions=True))[0]
    assert not isinstance(ended, BaseException) or isinstance(ended, asyncio.CancelledError | TurnError | Closed), ended
    if await runtime.store.sessions.find(session.id) is None:
        return []
    async with aclosing(session.resume()) as events:
        async for _ in events:
            pass
    return [event async for event in runtime.store.events.read(session.id)]


def check_log(log: list[Event], effects: MemoryLedger, seed: int) -> str:
    """The log is valid, each ``once`` call had its effect at most once; return the type of the turn's end."""
    log_checks.assert_chain_complete(log)
    last = [event.data for event in log if not isinstance(event.data, InterruptRequested)][-1]
    assert isinstance(last, TurnCompleted | TurnCancelled | TurnInterrupted), last
    found = log_checks.results_by_call(log)
    for name in ONCE_TOOLS:
        for call in log_checks.calls_of(log, name):
            times = effects.times[f"s{seed}", name, call]
            assert times <= 1
            assert times == 1 or found[call].failed
            assert not found[call].failed or found[call].reason or "unknown" in found[call].text
    assert not isinstance(last, TurnCompleted) or last.text == ANSWER
    return last.type


async def run_cancellations(seeds: range) -> Counter[str]:
    effects = MemoryLedger()
    captain = make_agent(effects)
    slots = asyncio.Semaphore(AT_ONCE)
    ends: Counter[str] = Counter()
    async with Runtime(
        store=MemoryStore(), environment=Environment(clock=FakeClock(auto=True)), permissions=Permissions(ask="deny")
    ) as runtime:

        async def one(seed: int) -> None:
            async with slots:
                try:
                    log = await stop_and_resume(runtime, captain, seed)
                    ends[check_log(log, effects, seed) if log else "nothing"] += 1
                except BaseException as error:
                    error.add_note(f"seed {seed}: {STOP_METHODS[seed % len(STOP_METHODS)]}")
                    raise

        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                group.create_task(one(seed))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return ends


async def test_runs_stopped_anywhere_leave_valid_logs() -> None:
    async with nothing_reported():
        ends = await run_cancellations(range(250))
    assert {"turn.completed", "turn.cancelled", "turn.interrupted"} <= set(ends)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_ten_thousand_runs_stopped_anywhere_leave_valid_logs() -> None:
    async with nothing_reported():
        ends = await run_cancellations(range(10_000))
    assert ends.total() == 10_000


async def append_at_wrong_head(store: Store, session: SessionId) -> None:
    """Claim a session and append where its head is not, which fails."""
    term = await store.events.claim(session)
    await store.events.append(session, [], head=7, term=term)


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
async def test_cancelled_callers_of_a_store_that_fails_report_nothing(
    place: str, tmp_path: Path, postgres_dsn: str
) -> None:
    url = f"sqlite:///{tmp_path / 'vaka.db'}" if place == "sqlite" else postgres_dsn
    async with nothing_reported(), Runtime(store=url, permissions=Permissions(ask="deny")) as runtime:
        captain = make_agent(MemoryLedger())
        for steps in range(40):
            await cancel_after(steps, append_at_wrong_head(runtime.store, SessionId(f"a{steps}")))
            session = await runtime.open(captain, id=f"s{steps}")
            running = asyncio.create_task(session.run(REQUEST))
            await cancel_after(steps, session.run("Another request."))
            await cancel_after(steps, runtime.store.events.wait(SessionId(f"s{steps}"), after=10_000))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_work_that_fails_after_its_client_has_left_is_not_reported() -> None:
    async def disconnect() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TurnError("the turn has ended")

    async with nothing_reported():
        with pytest.raises(Problem, match="the client left"):
            await wait_while_connected(Request({"type": "http"}, disconnect), fail_when_cancelled())
