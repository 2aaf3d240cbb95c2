"""Misbehaving tools, full disks, jumping clocks: the turn ends in an event, and nothing is lost."""

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import ANSWER
from tests.faults.log_stores import SqliteLogStore, read_log
from tests.faults.planned_deaths import run_undisturbed
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.limits import Limits
from vaka.core.types.message import Stored
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import ToolCompleted, TurnCompleted
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools import tool

QUICK_LIMITS = Limits(grace=0.05)
BAD_CALL = CallId("call_1")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that hanging tools wait for; it is set at the end of the test."""
    gate = threading.Event()
    yield gate
    gate.set()


async def run_with_bad_tool(bad: Tool, store: Store | None = None) -> list[Event]:
    """Run a turn that calls a bad and a good tool in parallel; return its log."""

    @tool(effect="read")
    async def good() -> str:
        """Do what was asked."""
        return "good"

    store = store or MemoryStore()
    model = ScriptedModel(calls(call(bad.spec.name), call("good")), call("good"), say("Done."))
    async with Runtime(store=store) as runtime:
        agent = Agent("captain", model=model, tools=[bad, good], limits=QUICK_LIMITS)
        session = await runtime.open(agent, id="s")
        response = await session.run("Go.")
    assert response.text == "Done."
    log = [event async for event in store.events.read(SessionId("s"))]
    log_checks.assert_chain_complete(log)
    assert [log_checks.results_by_call(log)[CallId(call)].text for call in ("call_2", "call_3")] == ["good", "good"]
    return log


def logged_text(log: list[Event]) -> str:
    return " ".join(event.data.message for event in log if isinstance(event.data, Logged))


async def test_a_tool_that_hangs_runs_out_of_time() -> None:
    @tool(effect="once", timeout=0.05)
    async def hang() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    result = log_checks.results_by_call(await run_with_bad_tool(hang))[BAD_CALL]
    assert (result.failed, result.reason) == (True, "timeout")
    assert "unknown" in result.text


async def test_a_tool_that_hangs_in_a_thread_runs_out_of_time(gate: threading.Event) -> None:
    @tool(effect="once", timeout=0.05)
    def hang() -> str:
        """Never end."""
        gate.wait()
        return "never"

    assert log_checks.results_by_call(await run_with_bad_tool(hang))[BAD_CALL].reason == "timeout"


async def test_a_tool_that_ignores_cancellation_is_left_behind_and_reported() -> None:
    free = asyncio.Event()

    @tool(effect="once", timeout=0.05)
    async def stubborn() -> str:
        """Stay."""
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    log = await run_with_bad_tool(stubborn)
    assert log_checks.results_by_call(log)[BAD_CALL].reason == "timeout"
    assert "did not stop" in logged_text(log)
    free.set()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*left, return_exceptions=True)


async def test_a_tool_that_blocks_the_loop_is_reported() -> None:
    @tool(effect="read")
    async def block() -> str:
        """Block the event loop."""
        threading.Event().wait(2.0)
        return "at last"

    assert "held the event loop" in logged_text(await run_with_bad_tool(block))


async def test_a_tool_that_forks_does_not_disturb_the_turn(tmp_path: Path) -> None:
    @tool(effect="once")
    def fork() -> str:
        """Be two for a moment."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        return "forked"

    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    log = await run_with_bad_tool(fork, store)
    await store.close()
    assert log_checks.results_by_call(log)[BAD_CALL].text == "forked"


async def test_a_tool_that_prints_fifty_megabytes_fills_neither_log_nor_followers(tmp_path: Path) -> None:
    piece = "x" * (1 << 20)

    @tool(effect="read")
    async def flood(context: ToolContext) -> str:
        """Print a lot."""
        for _ in range(50):
            context.emit(piece)
            await asyncio.sleep(0)
        return piece * 50

    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    log = await run_with_bad_tool(flood, store)
    (result,) = [e.data.result for e in log if isinstance(e.data, ToolCompleted) and e.data.result.call == BAD_CALL]
    (part,) = result.content
    assert isinstance(part, Stored)
    assert await store.blobs.get(part.blob) == (piece * 50).encode()
    await store.close()
    assert max(len(event.stored) for event in log) < 32 * 1024


@pytest.mark.parametrize("number", [2, 6, 11, 17])
async def test_a_full_disk_is_an_error_and_the_run_resumes_when_there_is_space(
    tmp_path: Path, spawn: StartProgram, number: int
) -> None:
    home = SqliteLogStore(tmp_path, "power")
    calm = await run_undisturbed(home, spawn, "run_agent")
    plan = home.new_plan(full=number)
    child = await spawn("run_agent", plan)
    lines = await child.read_to_end()
    assert (child.code, lines[-1]) == (0, "store")
    before = await read_log(plan)
    assert 0 < len(before) < len(calm.log)
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), before)
    unsure = log_checks.lost_calls(before)
    child = await spawn("run_agent", msgspec.structs.replace(plan, full=0, how="resume", ahead=60.0))
    lines = await child.read_to_end()
    assert (child.code, lines[-1]) == (0, "ended")
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, unsure)
    log_checks.assert_same_outcome(log, calm.log, without=unsure)
    assert isinstance(log[-1].data, TurnCompleted)
    assert log[-1].data.text == ANSWER


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
async def test_a_clock_jump_changes_no_order_and_revives_no_approval(jump: float) -> None:
    clock, ran = FakeClock(auto=True), list[str]()

    @tool(effect="once")
    async def deploy(what: str) -> str:
        """Deploy something."""
        ran.append(what)
        return what

    model = ScriptedModel(call("deploy", what="a"), call("deploy", what="b"), say("Done."))
    agent = Agent("captain", model=model, tools=[deploy], limits=Limits(approval_ttl=60.0))
    async with Runtime(
        store=MemoryStore(),
        permissions=Permissions(ask="suspend", confirm=("deploy",)),
        environment=Environment(clock=clock),
    ) as runtime:
        session = await runtime.open(agent, id="s")
        with pytest.raises(Suspended):
            await session.run("Go.")
        (first,) = await runtime.decisions("s")
        clock.advance(61.0)
        with pytest.raises(Suspended):
            [event async for event in session.resume()]
        clock.jump(jump)
        (second,) = await runtime.decisions("s")
        assert second.id != first.id
        await runtime.resolve(second.id, "approve")
        [event async for event in session.resume()]
        log = [event async for event in runtime.store.events.read(SessionId("s"))]
    log_checks.assert_chain_complete(log)
    reasons = [result.reason for result in log_checks.results_by_call(log).values()]
    assert reasons == ["expired", "expired" if jump > 0 else ""]
    assert ran == ([] if jump > 0 else ["b"])
    assert isinstance(log[-1].data, TurnCompleted)
