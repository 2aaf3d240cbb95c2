"""Two runs of the same story have the same fingerprint; anything that matters changes it."""

from collections.abc import Callable, Sequence

import pytest

from tests.core.session.desk import (
    T1,
    Desk,
    S,
    answered,
    asked,
    at,
    bad,
    begun,
    called,
    ended,
    note,
    ok,
    resolved,
    rewind,
    said,
    started,
    stepped,
)
from vaka.core.session.place import Place
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, DecisionId
from vaka.core.types.usage import Usage
from vaka.testing.fingerprint import fingerprint, outline

Story = list[tuple[Place, Body]]


async def told(story: Story, *, together: bool = True) -> list[Event]:
    """Write a story down, in one write or in many."""
    desk = Desk()
    desk.clock.advance(0 if together else 1000)
    log = await desk.open()
    for place, body in story:
        log.later(place, body)
        if not together:
            await log.append(Place())
    await log.append(Place())
    return await desk.stored()


CHILD = at("t1", 1, ("agent-1",))


def story() -> Story:
    used = monitor.UsageRecorded(model="m", usage=Usage(input=5, output=2))
    return [
        (Place(), said("do it", "key")), (T1, begun("key")), (T1, stepped()), (T1, answered("let me see")), (T1, used),
        (T1, called("call_1", "hand", n=1)), (T1, called("call_2", "look", n=2)),
        (T1, asked("apr_1", "call_2")), (T1, started("call_1", "resume")),
        (T1, progress.SubagentStarted(call=CallId("call_1"), agent="child", child="agent-1")),
        (CHILD, stepped(agent="child")), (CHILD, called("call_1.1", "look")), (CHILD, started("call_1.1")),
        (Place(), resolved("apr_1")), (T1, started("call_2")), (CHILD, ok("call_1.1", "seen")), (CHILD, used),
        (T1, ok("call_2", "two")),
        (T1, progress.SubagentCompleted(call=CallId("call_1"), agent="child", child="agent-1", text="found")),
        (T1, ok("call_1", "one")), (T1, progress.StepCompleted(number=1)), (T1, stepped(2)), (T1, answered("done")),
        (T1, ended("done")), (Place(), control.StateChanged(key="k", value=[1])),
    ]  # fmt: skip


def resumed(parts: Story) -> Story:
    """The same story after a crash: begun again, tried again."""
    moved = [*parts]
    moved.insert(15, (T1, progress.TurnResumed(agent="a")))
    moved.insert(16, (T1, progress.ToolStarted(call=started("call_1").call, key="k", effect="resume", attempt=2)))
    moved.insert(17, (T1, note("the process was killed")))
    moved.insert(18, (T1, progress.MessageDiscarded(message_id=answered("", "m9").message_id)))
    return moved


async def test_how_it_was_written_does_not_matter() -> None:
    once = await told(story())
    assert fingerprint(await told(story(), together=False)) == fingerprint(once)
    assert fingerprint(await told(resumed(story()))) == fingerprint(once)
    assert len(fingerprint(once)) == 64


async def test_the_order_in_which_parallel_calls_end_does_not_matter() -> None:
    def run(ends: Sequence[str]) -> Story:
        calls: Story = [(T1, called(f"call_{n}", n=n)) for n in (1, 2)]
        return [(T1, said("q", "k")), (T1, begun("k")), *calls, *((T1, ok(id, id)) for id in ends), (T1, ended())]

    one, two = await told(run(["call_1", "call_2"])), await told(run(["call_2", "call_1"]))
    assert outline(one) == outline(two)
    assert fingerprint(one) == fingerprint(two)


def _replaced(what: type[Body], by: Callable[[Body], Body]) -> Callable[[], Story]:
    def made() -> Story:
        parts = story()
        index = next(index for index, (_, body) in enumerate(parts) if type(body) is what)
        parts[index] = (parts[index][0], by(parts[index][1]))
        return parts

    return made


@pytest.mark.parametrize(
    "other",
    [
        _replaced(control.InputAdded, lambda _: said("do something else", "key")),
        _replaced(progress.MessageCompleted, lambda _: answered("let me think")),
        _replaced(progress.ToolCalled, lambda _: called("call_1", "hand", n=7)),
        _replaced(progress.ToolCompleted, lambda _: ok("call_1.1", "missed")),
        _replaced(progress.ToolCompleted, lambda _: bad("call_1.1")),
        _replaced(control.ApprovalResolved, lambda _: resolved("apr_1", "reject")),
        _replaced(control.ApprovalResolved, lambda _: control.ApprovalExpired(approval=DecisionId("apr_1"))),
        _replaced(monitor.UsageRecorded, lambda _: monitor.UsageRecorded(model="m", usage=Usage(input=6))),
        _replaced(progress.TurnCompleted, lambda _: progress.TurnInterrupted(note="enough")),
        _replaced(control.StateChanged, lambda _: control.StateChanged(key="k", value=[2])),
        lambda: [*story(), (Place(), control.CheckpointSaved(label="here"))],
        lambda: [*story(), (Place(), control.SessionClosed())],
        lambda: [*story(), (Place(), said("and then?", "more"))],
        lambda: [*story(), (Place(), said("and then?", "more")), (at("t2"), begun("more"))],
        lambda: [*story(), (Place(), control.Handoff(source="a", target="b"))],
        lambda: [*story(), (Place(), control.ContextCompacted(summary="so far", keep_from=1))],
    ],
)  # fmt: skip
async def test_what_happened_does_matter(other: Callable[[], Story]) -> None:
    assert fingerprint(await told(other())) != fingerprint(await told(story()))


async def test_one_result_can_be_left_out() -> None:
    lost = _replaced(progress.ToolCompleted, lambda _: bad("call_1.1", "outcome_unknown"))()
    lost[13:13] = [
        (
            CHILD,
            control.QuestionAsked(question=DecisionId("q"), text="did it?", call=CallId("call_1.1"), kind="outcome"),
        ),
        (Place(), control.QuestionAnswered(question=DecisionId("q"), answer="leave it")),
    ]
    one, two = await told(story()), await told(lost)
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one, without=["call_1.1"]) == fingerprint(two, without=["call_1.1"])


async def test_only_the_live_branch_counts() -> None:
    desk = Desk()
    log = await desk.open()
    for place, body in story():
        log.later(place, body)
    await log.append(Place())
    before, head = fingerprint(await desk.stored()), log.head
    await log.append(at("t2"), said("more", "k2"), begun("k2"), called("call_3", "look"), ok("call_3"), ended())
    await desk.shut(log)
    assert fingerprint(await desk.stored()) != before
    await rewind(desk, head)
    assert fingerprint(await desk.stored()) == before
    again = await desk.open()
    await again.append(at("t3"), said("more", "k3"), begun("k3"), called("call_4", "look"), ok("call_4"), ended())
    rest: Story = [
        (at("t2"), body) for body in (said("more", "k2"), begun("k2"), called("call_3", "look"), ok("call_3"), ended())
    ]
    assert fingerprint(await desk.stored()) == fingerprint(await told([*story(), *rest]))
    assert again.session == S
