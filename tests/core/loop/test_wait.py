"""Waiting for decisions in the log, their expiry, and the grants they add."""

import asyncio

import msgspec
import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    S,
    approval_requested,
    approval_resolved,
    input_added,
    log_line,
    run_event_loop,
    tool_called,
    turn_started,
)
from vaka.core.loop.wait import is_overdue, seconds_until, wait_for_decision
from vaka.core.ports.env import format_timestamp
from vaka.core.session.log import SessionLog
from vaka.core.types.control import ApprovalResolved, ApprovalScope, QuestionAnswered, QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import DecisionId
from vaka.core.types.state import DecisionRecord
from vaka.core.types.tool import Grant
from vaka.testing.clock import FakeClock

APR, QST = DecisionId("apr_1"), DecisionId("qst_1")


async def log_with_question(clock: FakeClock, body: Body) -> tuple[LogHarness, SessionLog]:
    harness = LogHarness(clock=clock)
    log = await harness.open()
    await log.append(T1, input_added("q"), turn_started("k"), tool_called(), body)
    return harness, log


def question_asked(expires: str = "") -> QuestionAsked:
    return QuestionAsked(question=QST, text="Which?", call=tool_called().call.id, expires=expires)


async def test_an_answer_from_elsewhere_is_heard_and_the_first_counts() -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested())
    task = asyncio.create_task(wait_for_decision(log, T1, APR))
    await run_event_loop()
    await log.append(T1, log_line("something else"))
    await harness.offer(approval_resolved("apr_1", "reject"), "apr_1")
    await log.sync()
    assert (await task).resolved == approval_resolved("apr_1", "reject")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_between_the_check_and_the_wait_ends_the_wait() -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested())
    await harness.offer(approval_resolved(), "apr_1")
    sync = asyncio.create_task(log.sync())
    assert (await asyncio.wait_for(wait_for_decision(log, T1, APR), 5)).resolved == approval_resolved()
    await sync


async def test_cancelling_the_wait_leaves_no_task_behind() -> None:
    _, log = await log_with_question(FakeClock(), approval_requested(expires=format_timestamp(2_000_000_000)))
    task = asyncio.create_task(wait_for_decision(log, T1, APR))
    await run_event_loop()
    task.cancel()
    await asyncio.wait([task])
    await run_event_loop(3)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    "body",
    [approval_requested(expires=format_timestamp(1_700_000_060)), question_asked(format_timestamp(1_700_000_060))],
)
async def test_an_undecided_request_expires_in_the_log_and_an_approval_is_rejected(body: Body) -> None:
    clock = FakeClock()
    harness, log = await log_with_question(clock, body)
    id = next(iter(log.state.decisions))
    task = asyncio.create_task(wait_for_decision(log, T1, id))
    await clock.wait_for_sleeps()
    assert not is_overdue(log, log.state.decisions[id])
    assert seconds_until(log, format_timestamp(1_700_000_060)) == 60
    clock.advance(60)
    assert is_overdue(log, log.state.decisions[id]), "the last moment is over"
    decision = await task
    assert not decision.waiting
    assert (await harness.stored_events())[-1].type in {"approval.expired", "question.answered"}
    clock.jump(-3600)
    assert not log.state.decisions[id].waiting, "an expired decision stays expired when the clock is set back"
    assert (decision.answered is None) == decision.expired


async def test_an_approval_after_the_deadline_is_a_rejection() -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested(expires="2020-01-01T00:00:00.000Z"))
    await harness.offer(approval_resolved(scope="session"), "apr_1")
    await log.sync()
    assert log.state.decisions[APR].expired
    assert log.state.grants == []


async def test_a_decision_without_a_deadline_is_never_overdue() -> None:
    _, log = await log_with_question(FakeClock(), question_asked())
    assert not is_overdue(log, log.state.decisions[QST])
    assert DecisionRecord(id=QST).expires == ""


@pytest.mark.parametrize("scope", ["session", "project", "user"])
async def test_an_approval_for_longer_adds_a_grant_with_its_rule(scope: ApprovalScope) -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested(rule="r1"))
    approval = msgspec.structs.replace(approval_resolved(scope=scope), rule="look(at:sea)\n look(at:sky)")
    await harness.offer(approval, "apr_1")
    await log.sync()
    [grant] = log.state.grants
    assert grant == Grant(rule=approval.rule, answers=("r1",), tool="look", spec="spec")
    assert grant.rules == ("look(at:sea)", "look(at:sky)")


async def test_an_approval_for_longer_without_a_rule_holds_once() -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested(rule="r1"))
    await harness.offer(approval_resolved(scope="session"), "apr_1")
    await log.sync()
    assert log.state.grants == []
    assert not log.state.decisions[APR].waiting


async def test_answers_to_unknown_decisions_change_nothing() -> None:
    harness, log = await log_with_question(FakeClock(), approval_requested())
    await harness.offer(ApprovalResolved(approval=DecisionId("apr_9"), decision="approve"), "apr_9")
    await harness.offer(QuestionAnswered(question=DecisionId("qst_9"), answer=1), "qst_9")
    await harness.offer(QuestionAnswered(question=APR, answer="yes"), "apr_1")
    await log.sync()
    assert list(log.state.decisions) == ["apr_1"]
    assert log.session == S
