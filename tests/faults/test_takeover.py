"""Writers that stop, lose their place, race for it, and find their database gone: one of them writes, rightly."""

import asyncio
import gc
import os
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.faults import checks
from tests.faults.conftest import Start
from tests.faults.homes import Home, Postgres, Sqlite, read
from tests.faults.processes import PATIENCE, Child
from tests.faults.voyage import ANSWER, Ledger, Plan
from vaka.agents.react import Agent
from vaka.core.types.errors import ConflictError
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import TurnCompleted
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls
from vaka.tools import tool


async def stopped(child: Child) -> None:
    """Return when the process stands still."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(os.waitid, os.P_PID, child.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


async def ended(plan: Plan, unsure: checks.Calls = checks.NONE) -> Counter[str]:
    """The turn has ended well; return how many events of each type there are."""
    log = await read(plan)
    checks.whole(log)
    checks.effects(plan, log, unsure)
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == ANSWER
    return Counter(event.type for event in log)


@pytest.mark.parametrize("place", ["append.before_begin", "append.after_commit", "append.before_ack"])
async def test_a_worker_paused_past_its_lease_is_fenced_out(postgres: Home, spawn: Start, place: str) -> None:
    plan = postgres.plan(lease=1.0, pause=f"{place}:2")
    paused = await spawn("sail", plan)
    shown = await paused.until("paused")
    await stopped(paused)
    other = await spawn("sail", msgspec.structs.replace(plan, pause="", lease=15.0, ahead=60.0))
    lines = await other.rest()
    assert lines[-1] == "ended"
    log = await read(plan)
    paused.signal(signal.SIGCONT)
    shown += await paused.rest()
    assert paused.code == 0
    assert shown[-1] in {"conflict", "ended"}  # it may have read the end that the other one wrote
    assert [event.stored for event in await read(plan)] == [event.stored for event in log]
    checks.nothing_lost(checks.acknowledged(shown + lines), log)
    begun = place != "append.before_begin"  # the three calls of the second write, one of them once
    unsure = checks.calls_of(log, "charge") if begun else checks.NONE
    types = await ended(plan, unsure)
    assert types["turn.started"] == types["turn.resumed"] == 1
    assert Ledger(plan.ledger).count()["charge", "call_3"] == (0 if begun else 1)


async def test_a_worker_paused_inside_a_tool_does_not_repeat_it_elsewhere(postgres: Home, spawn: Start) -> None:
    """Its tool may still have its effect, late; the other one does not run it, and says that it does not know."""
    plan = postgres.plan(lease=1.0, die="stop:2", timeout=3.0)
    paused = await spawn("sail", plan)
    await paused.until("stop")
    await stopped(paused)
    other = await spawn("sail", msgspec.structs.replace(plan, die="", lease=15.0))
    assert (await other.rest())[-1] == "ended"
    assert Ledger(plan.ledger).count()["charge", "call_3"] == 0
    paused.signal(signal.SIGCONT)
    assert (await paused.rest())[-1] in {"conflict", "ended"}
    await ended(plan, checks.calls_of(await read(plan), "charge"))


async def test_a_paused_worker_on_this_machine_keeps_its_session(tmp_path: Path, spawn: Start) -> None:
    plan = Plan(
        store=f"sqlite:///{tmp_path}/vaka.db", session="s", ledger=str(tmp_path / "l.db"), pause="append.after_commit:2"
    )
    paused = await spawn("sail", plan)
    await paused.until("paused")
    await stopped(paused)
    other = await spawn("sail", msgspec.structs.replace(plan, pause="", how="resume"))
    assert await other.rest() == ["busy"]
    paused.signal(signal.SIGCONT)
    assert (await paused.rest())[-1] == "ended"
    types = await ended(plan)
    assert (types["turn.started"], types["turn.resumed"]) == (1, 0)


async def test_what_a_dead_worker_forked_does_not_hold_its_session(tmp_path: Path, spawn: Start) -> None:
    plan = Sqlite(tmp_path, "process").plan(die="fork:2")
    worker = await spawn("sail", plan)
    lines = await worker.until("child")
    assert await worker.died() == -signal.SIGKILL
    child = int(lines[-1].split()[1])
    try:
        other = await spawn("sail", msgspec.structs.replace(plan, die="", how="resume", ahead=60.0))
        assert (await other.rest())[-1] == "ended"
        assert not worker.alone()
    finally:
        os.kill(child, signal.SIGKILL)
    await ended(plan, checks.calls_of(await read(plan), "charge"))


@pytest.mark.parametrize("number", [2, 5, 9])
async def test_of_processes_that_race_to_resume_a_session_one_does(shared: Home, spawn: Start, number: int) -> None:
    plan = shared.plan()
    died = await spawn("sail", plan, VAKA_FAILPOINT=f"append.after_commit:{number}:kill")
    assert await died.died() == -signal.SIGKILL
    await shared.bury(plan)
    before = await read(plan)
    racing = msgspec.structs.replace(plan, how="resume", wait=True, ahead=60.0)
    children = [await spawn("sail", racing) for _ in range(3)]
    for child in children:
        await child.until("gate")
    for child in children:
        await child.tell("go")
    said = [await child.rest() for child in children]
    log = await read(plan)
    assert {lines[-1] for lines in said} <= {"ended", "busy"}
    assert sum(log[-1].id in checks.acknowledged(lines) for lines in said) == 1
    for lines in said:
        checks.nothing_lost(checks.acknowledged(lines), log)
    types = await ended(plan, checks.lost(before))
    assert (types["turn.started"], types["turn.resumed"]) == (1, 1)


async def test_a_request_sent_twice_at_once_is_one_turn(shared: Home, spawn: Start) -> None:
    plan = shared.plan(wait=True)
    children = [await spawn("sail", plan) for _ in range(3)]
    for child in children:
        await child.until("gate")
    for child in children:
        await child.tell("go")
    said = [await child.rest() for child in children]
    log = await read(plan)
    assert [lines[-1] for lines in said] == ["ended"] * 3
    for lines in said:
        shown = checks.acknowledged(lines)
        checks.nothing_lost(shown, log)
        assert log[-1].id in shown
    types = await ended(plan)
    assert (types["input.added"], types["turn.started"], types["turn.resumed"]) == (1, 1, 0)


async def test_of_two_decisions_at_once_the_first_counts_for_both(shared: Home, spawn: Start) -> None:
    for _ in range(3):
        plan = shared.plan(ask="suspend", decide="")
        assert (await (await spawn("sail", plan)).rest())[-1].startswith("suspended")
        people = [await spawn("resolve", msgspec.structs.replace(plan, decide=d)) for d in ("approve", "reject")]
        for person in people:
            await person.until("gate")
        for person in people:
            await person.tell("go")
        said = [await person.rest() for person in people]
        assert len({line for lines in said for line in lines} - {"late"}) == 2  # one event, one decision
        decision = next(line for lines in said for line in lines if line in ("approve", "reject"))
        finished = await spawn("sail", msgspec.structs.replace(plan, how="resume"))
        assert (await finished.rest())[-1] == "ended"
        log = await read(plan)
        result = checks.results(log)[next(iter(checks.calls_of(log, "deploy")))]
        assert result.reason == ("" if decision == "approve" else "denied")
        assert (await ended(plan))["approval.resolved"] == 1


@pytest.mark.parametrize("call", [1, 2, 4])
async def test_a_turn_ends_although_postgres_died_meanwhile(postgres: Postgres, spawn: Start, call: int) -> None:
    plan = postgres.plan(gates=(call,))
    child = await spawn("sail", plan)
    shown = await child.until("gate")
    postgres.server.stop_immediate()
    await child.tell("go")
    postgres.server.start()
    shown += await child.rest()
    assert (child.code, shown[-1]) == (0, "ended")
    checks.nothing_lost(checks.acknowledged(shown), await read(plan))
    assert (await ended(plan))["turn.started"] == 1


@pytest.mark.parametrize("seq", [4, 12, 21, 30, 41])
async def test_a_turn_ends_although_postgres_died_at_any_moment(postgres: Postgres, spawn: Start, seq: int) -> None:
    plan = postgres.plan()
    child = await spawn("sail", plan)
    shown: list[str] = []
    while not shown or shown[-1].split()[1] != f"1.{seq}":
        shown.append(await child.line())
    postgres.server.stop_immediate()
    postgres.server.start()
    shown += await child.rest()
    assert (child.code, shown[-1]) == (0, "ended")
    checks.nothing_lost(checks.acknowledged(shown), await read(plan))
    assert (await ended(plan))["turn.started"] == 1


async def test_calls_that_all_lose_their_writer_make_one_error() -> None:
    """Each of several calls side by side finds the session taken over: the turn fails once, nothing is left over."""
    store, complaints = MemoryStore(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    @tool(effect="read")
    async def look(where: str) -> str:
        """Look somewhere, while somebody else takes the session."""
        driver = runtime.driver(SessionId("s"))
        assert driver is not None
        await store.events.release(driver.session, driver.log.term)
        return where

    model = ScriptedModel(calls(call("look", where="north"), call("look", where="south"), call("look", where="east")))
    async with Runtime(store=store) as runtime:
        session = await runtime.open(Agent("captain", model=model, tools=[look]), id="s")
        with pytest.raises(ConflictError):
            await session.run("Look.")
    gc.collect()
    assert complaints == []
