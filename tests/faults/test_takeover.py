"""Writers that are paused, lose their claim, race for it, or lose their database: exactly one of them writes."""

import asyncio
import gc
import os
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.conftest import StartProgram
from tests.faults.crash_run import ANSWER, EffectLedger, Plan
from tests.faults.log_stores import LogStore, PostgresLogStore, SqliteLogStore, read_log
from tests.faults.processes import TIMEOUT, ChildProcess
from vaka.agents.react import Agent
from vaka.core.types.errors import ConflictError
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import TurnCompleted
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls
from vaka.tools import tool


async def wait_stopped(child: ChildProcess) -> None:
    """Return when the process is stopped."""
    async with asyncio.timeout(TIMEOUT):
        await child.wait_stopped()


async def check_ended(plan: Plan, unsure: log_checks.CallIds = log_checks.NO_CALLS) -> Counter[str]:
    """The turn is complete; return the number of events of each type."""
    log = await read_log(plan)
    log_checks.assert_chain_complete(log)
    log_checks.assert_effects(plan, log, unsure)
    last = log[-1].data
    assert isinstance(last, TurnCompleted)
    assert last.text == ANSWER
    return Counter(event.type for event in log)


@pytest.mark.parametrize("place", ["append.before_begin", "append.after_commit", "append.before_ack"])
async def test_a_worker_paused_past_its_lease_is_fenced_out(
    postgres: LogStore, spawn: StartProgram, place: str
) -> None:
    plan = postgres.new_plan(lease=1.0, pause=f"{place}:2")
    paused = await spawn("run_agent", plan)
    shown = await paused.read_until("paused")
    await wait_stopped(paused)
    other = await spawn("run_agent", msgspec.structs.replace(plan, pause="", lease=15.0, ahead=60.0))
    lines = await other.read_to_end()
    assert lines[-1] == "ended"
    log = await read_log(plan)
    paused.send_signal(signal.SIGCONT)
    shown += await paused.read_to_end()
    assert paused.code == 0
    assert shown[-1] in {"conflict", "ended"}  # it may have read the end that the other process wrote
    assert [event.stored for event in await read_log(plan)] == [event.stored for event in log]
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(shown + lines), log)
    begun = place != "append.before_begin"  # the three calls of the second write, one of them once
    unsure = log_checks.calls_of(log, "charge") if begun else log_checks.NO_CALLS
    types = await check_ended(plan, unsure)
    assert types["turn.started"] == types["turn.resumed"] == 1
    assert EffectLedger(plan.ledger).count_effects()["charge", "call_3"] == (0 if begun else 1)


async def test_a_call_of_a_worker_paused_inside_it_is_not_repeated(postgres: LogStore, spawn: StartProgram) -> None:
    """Its tool may still have its effect, late; the other process does not run it and records an unknown outcome."""
    plan = postgres.new_plan(lease=1.0, die="stop:2", timeout=3.0)
    paused = await spawn("run_agent", plan)
    await paused.read_until("stop")
    await wait_stopped(paused)
    other = await spawn("run_agent", msgspec.structs.replace(plan, die="", lease=15.0))
    assert (await other.read_to_end())[-1] == "ended"
    assert EffectLedger(plan.ledger).count_effects()["charge", "call_3"] == 0
    paused.send_signal(signal.SIGCONT)
    assert (await paused.read_to_end())[-1] in {"conflict", "ended"}
    await check_ended(plan, log_checks.calls_of(await read_log(plan), "charge"))


async def test_a_paused_worker_on_this_machine_keeps_its_session(tmp_path: Path, spawn: StartProgram) -> None:
    plan = Plan(
        store=f"sqlite:///{tmp_path}/vaka.db", session="s", ledger=str(tmp_path / "l.db"), pause="append.after_commit:2"
    )
    paused = await spawn("run_agent", plan)
    await paused.read_until("paused")
    await wait_stopped(paused)
    other = await spawn("run_agent", msgspec.structs.replace(plan, pause="", how="resume"))
    assert await other.read_to_end() == ["busy"]
    paused.send_signal(signal.SIGCONT)
    assert (await paused.read_to_end())[-1] == "ended"
    types = await check_ended(plan)
    assert (types["turn.started"], types["turn.resumed"]) == (1, 0)


async def test_a_forked_child_of_a_dead_worker_does_not_hold_its_session(tmp_path: Path, spawn: StartProgram) -> None:
    plan = SqliteLogStore(tmp_path, "process").new_plan(die="fork:2")
    worker = await spawn("run_agent", plan)
    lines = await worker.read_until("child")
    assert await worker.wait_exit() == -signal.SIGKILL
    child = int(lines[-1].split()[1])
    try:
        other = await spawn("run_agent", msgspec.structs.replace(plan, die="", how="resume", ahead=60.0))
        assert (await other.read_to_end())[-1] == "ended"
        assert not worker.is_group_empty()
    finally:
        os.kill(child, signal.SIGKILL)
    await check_ended(plan, log_checks.calls_of(await read_log(plan), "charge"))


@pytest.mark.parametrize("number", [2, 5, 9])
async def test_of_processes_that_race_to_resume_a_session_one_succeeds(
    shared: LogStore, spawn: StartProgram, number: int
) -> None:
    plan = shared.new_plan()
    died = await spawn("run_agent", plan, VAKA_FAILPOINT=f"append.after_commit:{number}:kill")
    assert await died.wait_exit() == -signal.SIGKILL
    await shared.expire_claim(plan)
    before = await read_log(plan)
    racing = msgspec.structs.replace(plan, how="resume", wait=True, ahead=60.0)
    children = [await spawn("run_agent", racing) for _ in range(3)]
    for child in children:
        await child.read_until("gate")
    for child in children:
        await child.send_line("go")
    outputs = [await child.read_to_end() for child in children]
    log = await read_log(plan)
    assert {lines[-1] for lines in outputs} <= {"ended", "busy"}
    assert sum(log[-1].id in log_checks.parse_acknowledged(lines) for lines in outputs) == 1
    for lines in outputs:
        log_checks.assert_nothing_lost(log_checks.parse_acknowledged(lines), log)
    types = await check_ended(plan, log_checks.lost_calls(before))
    assert (types["turn.started"], types["turn.resumed"]) == (1, 1)


async def test_a_request_sent_twice_at_once_is_one_turn(shared: LogStore, spawn: StartProgram) -> None:
    plan = shared.new_plan(wait=True)
    children = [await spawn("run_agent", plan) for _ in range(3)]
    for child in children:
        await child.read_until("gate")
    for child in children:
        await child.send_line("go")
    outputs = [await child.read_to_end() for child in children]
    log = await read_log(plan)
    assert [lines[-1] for lines in outputs] == ["ended"] * 3
    for lines in outputs:
        shown = log_checks.parse_acknowledged(lines)
        log_checks.assert_nothing_lost(shown, log)
        assert log[-1].id in shown
    types = await check_ended(plan)
    assert (types["input.added"], types["turn.started"], types["turn.resumed"]) == (1, 1, 0)


async def test_of_two_concurrent_decisions_the_first_counts(shared: LogStore, spawn: StartProgram) -> None:
    for _ in range(3):
        plan = shared.new_plan(ask="suspend", decide="")
        assert (await (await spawn("run_agent", plan)).read_to_end())[-1].startswith("suspended")
        people = [
            await spawn("resolve_approvals", msgspec.structs.replace(plan, decide=d)) for d in ("approve", "reject")
        ]
        for person in people:
            await person.read_until("gate")
        for person in people:
            await person.send_line("go")
        outputs = [await person.read_to_end() for person in people]
        assert len({line for lines in outputs for line in lines} - {"late"}) == 2  # one event, one decision
        decision = next(line for lines in outputs for line in lines if line in ("approve", "reject"))
        finished = await spawn("run_agent", msgspec.structs.replace(plan, how="resume"))
        assert (await finished.read_to_end())[-1] == "ended"
        log = await read_log(plan)
        result = log_checks.results_by_call(log)[next(iter(log_checks.calls_of(log, "deploy")))]
        assert result.reason == ("" if decision == "approve" else "denied")
        assert (await check_ended(plan))["approval.resolved"] == 1


@pytest.mark.parametrize("call", [1, 2, 4])
async def test_a_turn_completes_although_postgres_died_during_a_model_call(
    postgres: PostgresLogStore, spawn: StartProgram, call: int
) -> None:
    plan = postgres.new_plan(gates=(call,))
    child = await spawn("run_agent", plan)
    shown = await child.read_until("gate")
    postgres.server.stop_immediate()
    await child.send_line("go")
    postgres.server.start()
    shown += await child.read_to_end()
    assert (child.code, shown[-1]) == (0, "ended")
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(shown), await read_log(plan))
    assert (await check_ended(plan))["turn.started"] == 1


@pytest.mark.parametrize("seq", [4, 12, 21, 30, 41])
async def test_a_turn_completes_although_postgres_died_at_any_event(
    postgres: PostgresLogStore, spawn: StartProgram, seq: int
) -> None:
    plan = postgres.new_plan()
    child = await spawn("run_agent", plan)
    shown: list[str] = []
    while not shown or shown[-1].split()[1] != f"1.{seq}":
        shown.append(await child.read_line())
    postgres.server.stop_immediate()
    postgres.server.start()
    shown += await child.read_to_end()
    assert (child.code, shown[-1]) == (0, "ended")
    log_checks.assert_nothing_lost(log_checks.parse_acknowledged(shown), await read_log(plan))
    assert (await check_ended(plan))["turn.started"] == 1


async def test_several_calls_that_lose_the_claim_raise_one_error() -> None:
    """Each of several parallel calls finds the claim lost: the turn fails once, and no task exception is left."""
    store, complaints = MemoryStore(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    @tool(effect="read")
    async def look(where: str) -> str:
        """Look somewhere, while the claim is lost."""
        driver = runtime._drivers.active.get(SessionId("s"))
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
