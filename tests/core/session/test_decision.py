"""Asking a person through the log."""

import asyncio

import msgspec
import pytest

from tests.core.session.desk import T1, Desk, S, asked, begun, called, note, resolved, said, settled
from vaka.core.session.decision import decided, overdue, seconds_until
from vaka.core.session.log import Log, stamp
from vaka.core.session.state import Decision
from vaka.core.types.control import ApprovalResolved, QuestionAnswered, QuestionAsked, Scope
from vaka.core.types.event import Body
from vaka.core.types.ids import DecisionId
from vaka.core.types.tool import Grant
from vaka.testing.clock import FakeClock

APR, QST = DecisionId("apr_1"), DecisionId("qst_1")


async def waiting(clock: FakeClock, body: Body) -> tuple[Desk, Log]:
    desk = Desk(clock=clock)
    log = await desk.open()
    await log.append(T1, said("q"), begun("k"), called(), body)
    return desk, log


def question(expires: str = "") -> QuestionAsked:
    return QuestionAsked(question=QST, text="Which?", call=called().call.id, expires=expires)


async def test_an_answer_from_elsewhere_is_heard_and_the_first_counts() -> None:
    desk, log = await waiting(FakeClock(), asked())
    task = asyncio.create_task(decided(log, T1, APR))
    await settled()
    await log.append(T1, note("something else"))
    await desk.offer(resolved("apr_1", "reject"), "apr_1")
    await log.sync()
    assert (await task).resolved == resolved("apr_1", "reject")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_that_comes_between_looking_and_waiting_is_heard() -> None:
    desk, log = await waiting(FakeClock(), asked())
    await desk.offer(resolved(), "apr_1")
    sync = asyncio.create_task(log.sync())
    assert (await asyncio.wait_for(decided(log, T1, APR), 5)).resolved == resolved()
    await sync


async def test_cancelling_the_wait_leaves_no_task_behind() -> None:
    _, log = await waiting(FakeClock(), asked(expires=stamp(2_000_000_000)))
    task = asyncio.create_task(decided(log, T1, APR))
    await settled()
    task.cancel()
    await asyncio.wait([task])
    await settled(3)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("body", [asked(expires=stamp(1_700_000_060)), question(stamp(1_700_000_060))])
async def test_nobody_in_time_is_written_down_and_for_an_approval_it_is_a_no(body: Body) -> None:
    clock = FakeClock()
    desk, log = await waiting(clock, body)
    id = next(iter(log.state.decisions))
    task = asyncio.create_task(decided(log, T1, id))
    await clock.until_sleeping()
    assert not overdue(log, log.state.decisions[id])
    assert seconds_until(log, stamp(1_700_000_060)) == 60
    clock.advance(60)
    decision = await task
    assert not decision.waiting
    assert (await desk.stored())[-1].type in {"approval.expired", "question.answered"}
    clock.jump(-3600)
    assert not log.state.decisions[id].waiting, "an expired one stays expired when the clock goes back"
    assert (decision.answered is None) == decision.expired


async def test_a_yes_that_comes_too_late_is_a_no() -> None:
    desk, log = await waiting(FakeClock(), asked(expires="2020-01-01T00:00:00.000Z"))
    await desk.offer(resolved(scope="session"), "apr_1")
    await log.sync()
    assert log.state.decisions[APR].expired
    assert log.state.grants == []


async def test_what_never_expires_is_never_overdue() -> None:
    _, log = await waiting(FakeClock(), question())
    assert not overdue(log, log.state.decisions[QST])
    assert Decision(id=QST).expires == ""


@pytest.mark.parametrize("scope", ["session", "project", "user"])
async def test_a_yes_for_longer_is_remembered_with_its_rule_and_what_it_answers(scope: Scope) -> None:
    desk, log = await waiting(FakeClock(), asked(rule="r1"))
    yes = msgspec.structs.replace(resolved(scope=scope), rule="look(at:sea)\n look(at:sky)")
    await desk.offer(yes, "apr_1")
    await log.sync()
    [grant] = log.state.grants
    assert grant == Grant(rule=yes.rule, answers=("r1",), tool="look", spec="spec")
    assert grant.rules == ("look(at:sea)", "look(at:sky)")


async def test_a_yes_for_longer_without_a_rule_counts_once() -> None:
    desk, log = await waiting(FakeClock(), asked(rule="r1"))
    await desk.offer(resolved(scope="session"), "apr_1")
    await log.sync()
    assert log.state.grants == []
    assert not log.state.decisions[APR].waiting


async def test_answers_to_what_nobody_asked_change_nothing() -> None:
    desk, log = await waiting(FakeClock(), asked())
    await desk.offer(ApprovalResolved(approval=DecisionId("apr_9"), decision="approve"), "apr_9")
    await desk.offer(QuestionAnswered(question=DecisionId("qst_9"), answer=1), "qst_9")
    await desk.offer(QuestionAnswered(question=APR, answer="yes"), "apr_1")
    await log.sync()
    assert list(log.state.decisions) == ["apr_1"]
    assert log.session == S
