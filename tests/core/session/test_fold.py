"""The fold, the index rows and the branches, also for logs that break the invariants."""

import pytest

from tests.core.session.log_harness import (
    NOW,
    T1,
    LogHarness,
    S,
    approval_requested,
    approval_resolved,
    input_added,
    log_line,
    message_completed,
    scope_at,
    step_started,
    tool_called,
    tool_completed,
    tool_started,
    turn_completed,
    turn_started,
    write_simple_turn,
)
from vaka.core.ports.store import SessionInfo
from vaka.core.session.branches import end_turn_entries, fork_entries
from vaka.core.session.fold import fold
from vaka.core.session.hash_chain import seal
from vaka.core.session.index_rows import (
    advance_row,
    find_asked_decisions,
    find_settled_decisions,
    rebuild_row,
)
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, DecisionId, EventScope, MessageId, TurnId
from vaka.core.types.message import AssistantMessage, Text, ToolResult, Usage
from vaka.core.types.state import SessionState, call_id, child_name


def sealed_events(*bodies: Body, scope: EventScope = T1) -> list[Event]:
    """Seal bodies one after the other without checking the invariants."""
    events: list[Event] = []
    for seq, body in enumerate(bodies, 1):
        event = Event(data=body, session=S, ts=NOW, turn=scope.turn, step=scope.step, path=scope.path)
        events.append(seal(event, epoch=1, seq=seq, prev=events[-1].hash if events else ""))
    return events


@pytest.mark.parametrize(
    "body",
    [
        tool_completed("call_9"),
        tool_started("call_9"),
        progress.ToolReturned(result=ToolResult(call=CallId("call_9"))),
        progress.TurnResumed(agent="a"),
        control.InterruptRequested(key="i"),
        approval_requested("apr_9", "call_9"),
        control.ApprovalExpired(approval=DecisionId("apr_8")),
        turn_started("unknown key"),
    ],
)
def test_a_body_without_its_counterpart_changes_nothing(body: Body) -> None:
    state = fold(SessionState(), sealed_events(body))
    assert state.seq == 1
    assert state.open == {}


def test_the_first_interrupt_counts_and_an_input_can_interrupt() -> None:
    events = sealed_events(
        turn_started(),
        control.InterruptRequested(key="i", note="first"),
        control.InterruptRequested(key="j", note="second"),
        input_added("now!", "k", "interrupt"),
    )
    turn = fold(SessionState(), events).turn
    assert turn is not None
    assert turn.interrupted == "first"
    turn = fold(SessionState(), sealed_events(turn_started(), input_added("now!", "k", "interrupt"))).turn
    assert turn is not None
    assert turn.interrupted
    assert fold(SessionState(), sealed_events(input_added("now!", "k", "interrupt"))).turn is None


def test_two_inputs_with_one_key_are_one_input() -> None:
    state = fold(SessionState(), sealed_events(input_added("first"), input_added("second")))
    assert [queued.seq for queued in state.inputs.values()] == [1]


def test_model_calls_are_counted_by_agent_including_retried_attempts() -> None:
    def failed(retried: bool) -> Body:
        return monitor.ModelFailed(model="m", code="c", message="m", agent="a", retried=retried)

    state = fold(
        SessionState(),
        sealed_events(
            turn_started(), step_started(), failed(True), failed(False), message_completed("x"), step_started(2)
        ),
    )
    assert state.models == {"a": 3}
    assert state.agent_progress(()).number == 3


def test_usage_is_summed_for_the_agent_the_turn_and_the_session() -> None:
    used = monitor.UsageRecorded(model="m", usage=Usage(input=2, output=1))
    state = fold(SessionState(), sealed_events(used, turn_started(), used, used))
    assert state.turn is not None
    assert (state.usage.input, state.turn.usage.input, state.agent_progress(()).usage.input) == (6, 4, 4)


def test_values_are_set_and_removed() -> None:
    events = sealed_events(control.StateChanged(key="a", value=1), control.StateChanged(key="b", value=0))
    assert fold(SessionState(), events).values == {"a": 1, "b": 0}
    gone = sealed_events(
        control.StateChanged(key="a", value=1), control.StateChanged(key="a"), control.StateChanged(key="x")
    )
    assert fold(SessionState(), gone).values == {}


def test_call_ids_and_child_names_contain_the_path() -> None:
    assert call_id((), 3) == "call_3"
    assert call_id(("agent-3", "agent-1-2"), 4) == "call_3.1-2.4"
    assert (child_name(3), child_name(3, 2)) == ("agent-3", "agent-3-2")


def test_a_call_that_ends_drops_its_own_children_and_decisions_only() -> None:
    events = sealed_events(
        turn_started(),
        tool_called("call_1"),
        tool_called("call_2"),
        progress.SubagentStarted(call=CallId("call_1"), agent="x", child="agent-1"),
        progress.SubagentStarted(call=CallId("call_1"), agent="x", child="agent-1-2"),
        progress.SubagentStarted(call=CallId("call_2"), agent="x", child="agent-2"),
        approval_requested("apr_1", "call_1"),
        approval_requested("apr_2", "call_2"),
        tool_completed("call_1"),
    )
    state = fold(SessionState(), events)
    assert set(state.lanes) == {"", "agent-2"}
    assert list(state.decisions) == ["apr_2"]


def test_steps_in_a_row_with_an_equal_call_are_counted() -> None:
    def called(first: int, *numbers: int) -> list[Body]:
        return [tool_called(f"call_{id}", n=n) for id, n in enumerate(numbers, start=first)]

    steps = [step_started(1), *called(1, 1, 1), step_started(2), *called(3, 2, 1), step_started(3), *called(5, 1, 2, 3)]
    state = fold(SessionState(), sealed_events(turn_started(), *steps, step_started(4), tool_called("call_8", n=4)))
    assert [call.streak for call in state.open.values()] == [1, 1, 1, 2, 3, 2, 1, 1]


class TestIndexRows:
    def test_a_row_has_the_status_of_its_session(self) -> None:
        assert SessionInfo(id=S).status == "idle"
        assert SessionInfo(id=S, inputs=1).status == "queued"
        assert SessionInfo(id=S, turn="t").status == "running"
        assert SessionInfo(id=S, turn="t", pending=1).status == "waiting"
        assert SessionInfo(id=S, turn="t", closed=True).status == "closed"

    def test_a_row_advances_with_the_events(self) -> None:
        events = sealed_events(
            control.SessionOpened(agent="first"),
            input_added("  What\n is   this? " + "x" * 100),
            turn_started("k", agent="second"),
            tool_called(),
            approval_requested(),
            control.QuestionAsked(question=DecisionId("q"), text="?"),
            approval_resolved(),
            control.QuestionAnswered(question=DecisionId("q")),
            input_added("more", "k2"),
            step_started(2, "k2"),
            tool_completed(),
            turn_completed(),
            control.SessionClosed(),
        )
        rows = [rebuild_row(S, events[:count]) for count in range(len(events) + 1)]
        assert [row.status for row in rows] == [
            "idle",
            "idle",
            "queued",
            "running",
            "running",
            "waiting",
            "waiting",
            "waiting",
            "running",
            "running",
            "running",
            "running",
            "idle",
            "closed",
        ]
        assert rows[-1].title.startswith("What is this? xxx")
        assert len(rows[-1].title) == 80
        assert (rows[-1].agent, rows[-1].head, rows[-1].hash) == ("second", len(events), events[-1].hash)
        assert advance_row(rows[3], events[3:]) == rows[-1]

    def test_asked_and_settled_decisions_are_found(self) -> None:
        events = sealed_events(
            approval_requested("a"),
            control.QuestionAsked(question=DecisionId("q"), text="?"),
            log_line("x"),
            approval_resolved("a"),
        )
        assert [row.id for row in find_asked_decisions(S, events)] == ["a", "q"]
        assert find_settled_decisions(events) == (["a"], False)
        late = sealed_events(
            control.ApprovalExpired(approval=DecisionId("b")), control.QuestionAnswered(question=DecisionId("q"))
        )
        assert find_settled_decisions(late) == (["b", "q"], False)
        assert find_settled_decisions(sealed_events(turn_completed())) == ([], True)


class TestBranches:
    async def test_an_abandoned_turn_gets_results_for_its_open_calls_and_an_end(self) -> None:
        log = await LogHarness().open()
        await log.append(T1, input_added("q"), turn_started("k"), tool_called(), tool_started())
        entries = end_turn_entries(log.state, "over")
        assert [body.type for _, body in entries] == ["tool.failed", "turn.interrupted"]
        assert {scope.turn for scope, _ in entries} == {TurnId("t1")}
        for scope, body in entries:
            log.defer(scope, body)
        await log.append(EventScope())
        assert end_turn_entries(log.state, "over") == []
        assert [body.type for _, body in fork_entries(log.state, S, "1.6")] == ["session.forked"]

    async def test_last_text_returns_the_last_answer_of_a_turn(self) -> None:
        log = await LogHarness().open()
        await write_simple_turn(log)
        assert log.window.last_text(TurnId("t1"), ()) == "answer 1"
        assert log.window.last_text(TurnId("t9"), ()) == ""
        message = AssistantMessage(id=MessageId("m"), content=(Text(text="a"), Text(text="b")))
        assert message.text == "ab"
        assert scope_at("t1", 1) == T1
