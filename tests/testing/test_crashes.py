"""Two runs with the same outcome have the same fingerprint; any difference in the outcome changes it."""

from collections.abc import Callable, Sequence

import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    S,
    approval_requested,
    approval_resolved,
    input_added,
    log_line,
    message_completed,
    rewind_session,
    scope_at,
    step_started,
    tool_called,
    tool_completed,
    tool_failed,
    tool_started,
    turn_completed,
    turn_started,
)
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, CallKey, DecisionId, EventScope
from vaka.core.types.message import Usage
from vaka.testing.crashes import fingerprint, outline_log

Story = list[tuple[EventScope, Body]]


async def write_story(story: Story, *, together: bool = True) -> list[Event]:
    """Write the events of a story, in one write or in many."""
    harness = LogHarness()
    harness.clock.advance(0 if together else 1000)
    log = await harness.open()
    for place, body in story:
        log.defer(place, body)
        if not together:
            await log.append(EventScope())
    await log.append(EventScope())
    return await harness.stored_events()


CHILD = scope_at("t1", 1, ("agent-1",))


def make_story() -> Story:
    used = monitor.UsageRecorded(model="m", usage=Usage(input=5, output=2))
    return [
        (EventScope(), input_added("do it", "key")),
        (T1, turn_started("key")),
        (T1, step_started()),
        (T1, message_completed("let me see")),
        (T1, used),
        (T1, tool_called("call_1", "hand", n=1)),
        (T1, tool_called("call_2", "look", n=2)),
        (T1, approval_requested("apr_1", "call_2")),
        (T1, tool_started("call_1", "resume")),
        (T1, progress.SubagentStarted(call=CallId("call_1"), agent="child", child="agent-1")),
        (CHILD, step_started(agent="child")),
        (CHILD, tool_called("call_1.1", "look")),
        (CHILD, tool_started("call_1.1")),
        (EventScope(), approval_resolved("apr_1")),
        (T1, tool_started("call_2")),
        (CHILD, tool_completed("call_1.1", "seen")),
        (CHILD, used),
        (T1, tool_completed("call_2", "two")),
        (T1, progress.SubagentCompleted(call=CallId("call_1"), agent="child", child="agent-1", text="found")),
        (T1, tool_completed("call_1", "one")),
        (T1, progress.StepCompleted(number=1)),
        (T1, step_started(2)),
        (T1, message_completed("done")),
        (T1, turn_completed("done")),
        (EventScope(), control.StateChanged(key="k", value=[1])),
    ]


def resume_story(parts: Story) -> Story:
    """The same story after a crash: begun again, tried again."""
    moved = [*parts]
    moved.insert(15, (T1, progress.TurnResumed(agent="a")))
    moved.insert(
        16, (T1, progress.ToolStarted(call=tool_started("call_1").call, key=CallKey("k"), effect="resume", attempt=2))
    )
    moved.insert(17, (T1, log_line("the process was killed")))
    moved.insert(18, (T1, progress.MessageDiscarded(message_id=message_completed("", "m9").message_id)))
    return moved


async def test_the_batching_of_writes_does_not_matter() -> None:
    once = await write_story(make_story())
    assert fingerprint(await write_story(make_story(), together=False)) == fingerprint(once)
    assert fingerprint(await write_story(resume_story(make_story()))) == fingerprint(once)
    assert len(fingerprint(once)) == 64


async def test_the_order_in_which_parallel_calls_end_does_not_matter() -> None:
    def run(ends: Sequence[str]) -> Story:
        calls: Story = [(T1, tool_called(f"call_{n}", n=n)) for n in (1, 2)]
        return [
            (T1, input_added("q", "k")),
            (T1, turn_started("k")),
            *calls,
            *((T1, tool_completed(id, id)) for id in ends),
            (T1, turn_completed()),
        ]

    one, two = await write_story(run(["call_1", "call_2"])), await write_story(run(["call_2", "call_1"]))
    assert outline_log(one) == outline_log(two)
    assert fingerprint(one) == fingerprint(two)


def _story_replacing(what: type[Body], by: Callable[[Body], Body]) -> Callable[[], Story]:
    def made() -> Story:
        parts = make_story()
        index = next(index for index, (_, body) in enumerate(parts) if type(body) is what)
        parts[index] = (parts[index][0], by(parts[index][1]))
        return parts

    return made


@pytest.mark.parametrize(
    "other",
    [
        _story_replacing(control.InputAdded, lambda _: input_added("do something else", "key")),
        _story_replacing(progress.MessageCompleted, lambda _: message_completed("let me think")),
        _story_replacing(progress.ToolCalled, lambda _: tool_called("call_1", "hand", n=7)),
        _story_replacing(progress.ToolCompleted, lambda _: tool_completed("call_1.1", "missed")),
        _story_replacing(progress.ToolCompleted, lambda _: tool_failed("call_1.1")),
        _story_replacing(control.ApprovalResolved, lambda _: approval_resolved("apr_1", "reject")),
        _story_replacing(control.ApprovalResolved, lambda _: control.ApprovalExpired(approval=DecisionId("apr_1"))),
        _story_replacing(monitor.UsageRecorded, lambda _: monitor.UsageRecorded(model="m", usage=Usage(input=6))),
        _story_replacing(progress.TurnCompleted, lambda _: progress.TurnInterrupted(note="enough")),
        _story_replacing(control.StateChanged, lambda _: control.StateChanged(key="k", value=[2])),
        lambda: [*make_story(), (EventScope(), context.CheckpointSaved(label="here"))],
        lambda: [*make_story(), (EventScope(), control.SessionClosed())],
        lambda: [*make_story(), (EventScope(), input_added("and then?", "more"))],
        lambda: [*make_story(), (EventScope(), input_added("next?", "more")), (scope_at("t2"), turn_started("more"))],
        lambda: [*make_story(), (EventScope(), control.Handoff(source="a", target="b"))],
        lambda: [*make_story(), (EventScope(), context.ContextCompacted(summary="so far", keep_from=1))],
    ],
)
async def test_a_different_event_changes_the_fingerprint(other: Callable[[], Story]) -> None:
    assert fingerprint(await write_story(other())) != fingerprint(await write_story(make_story()))


async def test_one_result_can_be_excluded() -> None:
    lost = _story_replacing(progress.ToolCompleted, lambda _: tool_failed("call_1.1", "outcome_unknown"))()
    lost[13:13] = [
        (
            CHILD,
            control.QuestionAsked(question=DecisionId("q"), text="did it?", call=CallId("call_1.1"), kind="outcome"),
        ),
        (EventScope(), control.QuestionAnswered(question=DecisionId("q"), answer="leave it")),
    ]
    one, two = await write_story(make_story()), await write_story(lost)
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one, without=["call_1.1"]) == fingerprint(two, without=["call_1.1"])


async def test_only_the_live_branch_counts() -> None:
    harness = LogHarness()
    log = await harness.open()
    for place, body in make_story():
        log.defer(place, body)
    await log.append(EventScope())
    before, head = fingerprint(await harness.stored_events()), log.head
    await log.append(
        scope_at("t2"),
        input_added("more", "k2"),
        turn_started("k2"),
        tool_called("call_3", "look"),
        tool_completed("call_3"),
        turn_completed(),
    )
    await harness.release(log)
    assert fingerprint(await harness.stored_events()) != before
    await rewind_session(harness, head)
    assert fingerprint(await harness.stored_events()) == before
    again = await harness.open()
    await again.append(
        scope_at("t3"),
        input_added("more", "k3"),
        turn_started("k3"),
        tool_called("call_4", "look"),
        tool_completed("call_4"),
        turn_completed(),
    )
    rest: Story = [
        (scope_at("t2"), body)
        for body in (
            input_added("more", "k2"),
            turn_started("k2"),
            tool_called("call_3", "look"),
            tool_completed("call_3"),
            turn_completed(),
        )
    ]
    assert fingerprint(await harness.stored_events()) == fingerprint(await write_story([*make_story(), *rest]))
    assert again.session == S
