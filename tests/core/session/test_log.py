"""The writer: what was acknowledged is in the log once, whatever happens on the way."""

import asyncio
from itertools import repeat
from typing import Any

import pytest

from tests.core.session.log_harness import (
    T1,
    Fault,
    LogHarness,
    assert_same_after_reopening,
    flaky_harness,
    input_added,
    log_line,
    message_completed,
    run_event_loop,
    step_started,
    tool_called,
    tool_completed,
    tool_started,
    turn_completed,
    turn_started,
    write_simple_turn,
)
from vaka.core.session.hash_chain import seal_chain
from vaka.core.session.log import STORE_RETRY_SECONDS
from vaka.core.types import control, progress
from vaka.core.types.errors import ConflictError, Corrupt, LogError, Unavailable
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, EventScope
from vaka.core.types.message import Text, ToolResult, Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.stores.memory import MemoryStore

BEFORE: Fault = "before"


async def stored_messages(desk: LogHarness) -> list[str]:
    return [getattr(event.data, "message", event.type) for event in await desk.stored_events()]


class TestWhatIsAcknowledged:
    async def test_appends_made_at_the_same_time_share_one_write(self) -> None:
        desk, events = flaky_harness()
        events.slow = 3
        log = await desk.open()
        await asyncio.gather(*(log.append(EventScope(), log_line(str(number))) for number in range(100)))
        assert await stored_messages(desk) == [str(number) for number in range(100)]
        assert events.appends == 2
        await assert_same_after_reopening(desk, log)

    @pytest.mark.parametrize("fault", ["conflict", "before", "after", "late"])
    async def test_nobody_is_told_yes_when_the_write_they_share_fails(self, fault: Fault) -> None:
        desk, events = flaky_harness()
        events.slow = 2
        log = await desk.open()
        await log.append(EventScope(), log_line("first"))
        events.faults = [fault] * 4
        events.down = 3 if fault != "conflict" else 0
        results = await asyncio.gather(
            *(log.append(EventScope(), log_line(str(number))) for number in range(4)), return_exceptions=True
        )
        told_yes = [str(number) for number, told in enumerate(results) if not isinstance(told, BaseException)]
        assert [text for text in await stored_messages(desk) if text != "first"] == told_yes
        assert told_yes == ([] if fault == "conflict" else ["0", "1", "2", "3"])

    @pytest.mark.parametrize("fault", ["", "before", "after", "late"])
    async def test_a_writer_cancelled_in_the_middle_takes_nobody_along(self, fault: Fault) -> None:
        desk, events = flaky_harness(fault)
        events.slow = 3
        log = await desk.open()
        leader = asyncio.create_task(log.append(EventScope(), log_line("leader")))
        await run_event_loop(1)
        others = [asyncio.create_task(log.append(EventScope(), log_line(str(number)))) for number in range(5)]
        await run_event_loop(2)
        leader.cancel()
        await asyncio.gather(leader, *others, return_exceptions=True)
        assert all(len(other.result()) == 1 for other in others)
        assert [text for text in await stored_messages(desk) if text != "leader"] == ["0", "1", "2", "3", "4"]
        await log.sync()
        await assert_same_after_reopening(desk, log)

    async def test_an_outage_is_sat_out_also_when_reading_fails_too(self) -> None:
        desk, events = flaky_harness("before", "before", "after")
        log = await desk.open()
        events.down = 7
        await log.append(EventScope(), log_line("kept"))
        assert await stored_messages(desk) == ["kept"]
        assert desk.clock.monotonic() > 0

    async def test_a_store_that_stays_away_is_given_up_on(self) -> None:
        desk, events = flaky_harness(*repeat(BEFORE, 1000))
        log = await desk.open()
        with pytest.raises(Unavailable, match="gave up"):
            await log.append(EventScope(), log_line("lost"))
        assert STORE_RETRY_SECONDS < desk.clock.monotonic() < STORE_RETRY_SECONDS + 2
        events.faults = []
        await log.append(EventScope(), log_line("kept"))
        assert await stored_messages(desk) == ["kept"]

    async def test_a_write_that_arrives_after_it_was_given_up_on_is_recognised(self) -> None:
        desk, events = flaky_harness("late", "late", "late")
        log = await desk.open()
        await log.append(EventScope(), log_line("once"))
        assert await stored_messages(desk) == ["once"]
        events.faults = ["late"]
        leader = asyncio.create_task(log.append(EventScope(), log_line("twice?")))
        await run_event_loop(1)
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)
        await events.deliver_late_writes()
        await log.append(EventScope(), log_line("after"))
        assert (await stored_messages(desk)).count("twice?") <= 1
        assert (await stored_messages(desk))[-1] == "after"
        await assert_same_after_reopening(desk, log)

    async def test_a_release_whose_answer_was_lost_still_counts(self) -> None:
        desk, _ = flaky_harness("after")
        log = await desk.open()
        await log.append(EventScope(), log_line("last"), release=True)
        assert log.released
        assert not log.is_writer

    async def test_a_log_that_became_shorter_is_an_error_and_no_endless_loop(self) -> None:
        desk, _ = flaky_harness()
        log = await desk.open()
        await log.append(EventScope(), log_line("one"), log_line("two"))
        store = desk.store
        assert isinstance(store, MemoryStore)
        kept = store.hub.shared.logs["", log.session]
        kept.events = kept.events[:1]
        with pytest.raises(Corrupt, match="ends before event 2"):
            await log.append(EventScope(), log_line("three"))

    async def test_an_old_term_is_refused_and_nothing_is_merged(self) -> None:
        desk = LogHarness()
        old = await desk.open()
        await old.append(EventScope(), log_line("mine"))
        await desk.store.events.release(old.session, old.term)
        new = await desk.open()
        await new.append(EventScope(), log_line("theirs"))
        with pytest.raises(ConflictError):
            await old.append(EventScope(), log_line("mine again"))
        with pytest.raises(ConflictError):
            old.require_writer()
        assert await stored_messages(desk) == ["mine", "theirs"]

    async def test_what_another_writer_wrote_is_a_conflict_and_never_folded(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q"), turn_started("k"))
        store = desk.store
        assert isinstance(store, MemoryStore)
        last, kept = (await desk.stored_events())[-1], store.hub.shared.logs["", log.session]
        kept.events += seal_chain(log.session, last, [(T1, turn_completed())], last.ts)
        for _ in range(2):
            with pytest.raises(ConflictError, match="another writer"):
                await log.sync()
            with pytest.raises(ConflictError, match="another writer"):
                await log.append(T1, step_started())
        assert log.state.turn is not None
        assert log.head == 2


class TestWhatIsRefused:
    async def test_what_one_may_not_append_does_not_touch_its_neighbours(self) -> None:
        desk, events = flaky_harness()
        events.slow = 2
        log = await desk.open()
        results = await asyncio.gather(
            log.append(EventScope(), log_line("first")),
            log.append(EventScope(), tool_completed("call_7")),
            log.append(EventScope(), log_line("a\ud800b")),
            log.append(EventScope(), log_line("last")),
            return_exceptions=True,
        )
        assert [isinstance(told, LogError) for told in results] == [False, True, True, False]
        assert await stored_messages(desk) == ["first", "last"]
        await assert_same_after_reopening(desk, log)

    @pytest.mark.parametrize(
        "body",
        [
            control.StateChanged(key="k", value=object()),
            control.StateChanged(key="k", value={"deep": ["\udcff"]}),
            UsageRecorded(model="m", usage=Usage(cost=float("inf"))),
            progress.ToolCompleted(result=ToolResult(call=CallId("call_1"), content="words")),  # type: ignore[arg-type]  # what a careless tool returns
            progress.ToolCompleted(result=ToolResult(call=CallId("call_1"), reason="because")),  # type: ignore[arg-type]  # what a careless middleware says
        ],
    )
    async def test_what_could_not_be_read_back_is_not_written(self, body: Body) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q"), turn_started("k"), tool_called())
        with pytest.raises(LogError, match="cannot be encoded"):
            await log.append(T1, body)
        assert log.head == 3
        await assert_same_after_reopening(desk, log)

    async def test_a_nest_too_deep_to_read_is_not_written(self) -> None:
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        log = await LogHarness().open()
        with pytest.raises(LogError, match="cannot be encoded"):
            await log.append(EventScope(), control.StateChanged(key="k", value=deep))
        while deep:
            deep = deep.pop()  # type: ignore[assignment]  # taken apart slowly: the interpreter would do it recursively

    async def test_a_log_keeps_its_own_copy_of_what_it_was_given(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        place: dict[str, Any] = {"city": "Hilo", "when": (1, 2), "how": {3: float("nan")}}
        await log.append(T1, input_added("q"), turn_started("k"), tool_called(**place), tool_started(**place))
        place["city"] = "Kona"
        assert log.state.open[CallId("call_1")].call.arguments == {"city": "Hilo", "when": [1, 2], "how": {"3": None}}
        await assert_same_after_reopening(desk, log)

    async def test_a_rewind_cannot_be_written_into_an_open_log(self) -> None:
        log = await LogHarness().open()
        await log.append(EventScope(), log_line("one"))
        with pytest.raises(LogError, match="read from the store"):
            await log.append(EventScope(), control.SessionReverted(to=1))

    async def test_but_one_after_which_its_turn_goes_on_can_between_steps(self) -> None:
        log = await LogHarness().open()
        onward = control.Onward(turn=T1.turn, step=1, rewinds=1)
        with pytest.raises(LogError, match="without a turn"):
            await log.append(T1, control.SessionReverted(to=1, onward=onward))
        await log.append(T1, input_added("q"), turn_started("k"), tool_called())
        with pytest.raises(LogError, match="has no result"):
            await log.append(T1, control.SessionReverted(to=2, onward=onward))
        await log.append(T1, tool_completed())
        for wrong in (0, 5, 99):
            with pytest.raises(LogError, match="expected 1 to 4"):
                await log.append(T1, control.SessionReverted(to=wrong, onward=onward))
        await log.revert(T1, control.SessionReverted(to=2, onward=onward))
        assert (log.state.turn is not None, log.state.agent_progress(()).step, log.state.open) == (True, 1, {})
        assert [event.type for event in log.window.events] == ["input.added", "turn.started"]


class TestWhatIsPutOff:
    async def test_it_goes_with_the_next_write_and_before_it(self) -> None:
        desk, events = flaky_harness()
        log = await desk.open()
        log.defer(EventScope(), log_line("put off"))
        assert [body for _, body in log.deferred] == [log_line("put off")]
        assert await stored_messages(desk) == []
        shown = await log.append(EventScope(), log_line("now"))
        assert await stored_messages(desk) == ["put off", "now"]
        assert [event.seq for event in shown] == [2]
        assert events.appends == 1
        assert log.deferred == []

    async def test_it_outlives_the_caller_that_was_to_take_it_along(self) -> None:
        desk, events = flaky_harness("before")
        events.slow = 3
        log = await desk.open()
        log.defer(EventScope(), log_line("put off"))
        task = asyncio.create_task(log.append(EventScope(), log_line("cancelled")))
        await run_event_loop(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [body for _, body in log.deferred] == [log_line("put off")]
        await log.append(EventScope(), log_line("next"))
        assert await stored_messages(desk) == ["put off", "next"]

    async def test_it_is_written_although_what_it_came_with_is_refused(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q"), turn_started("k"))
        log.defer(T1, step_started(), message_completed("hm"), tool_called())
        with pytest.raises(LogError):
            await log.append(T1, tool_started("call_9"))
        assert list(log.state.open) == ["call_1"]
        await log.append(T1, tool_completed("call_1"), turn_completed())

    async def test_a_rule_it_breaks_is_told_to_who_takes_it_along(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        log.defer(EventScope(), tool_completed("call_1"))
        with pytest.raises(LogError, match="call_1"):
            await log.append(EventScope(), log_line("not written"))
        assert await stored_messages(desk) == []
        await log.append(EventScope(), log_line("next"))
        assert await stored_messages(desk) == ["next"]

    async def test_only_a_release_is_written_too(self) -> None:
        desk, events = flaky_harness()
        log = await desk.open()
        assert await log.append(EventScope()) == ()
        assert await log.append(EventScope(), release=True) == ()
        assert log.released
        assert events.appends == 0
        other = await LogHarness(desk.store).open()
        await other.append(EventScope(), log_line("free to take"))


class TestHearing:
    async def test_a_change_between_asking_and_waiting_is_not_missed(self) -> None:
        log = await LogHarness().open()
        change = log.wait_for_change()
        await log.append(EventScope(), log_line("already there"))
        await asyncio.wait_for(change, 1)

    async def test_listeners_hear_of_what_others_offer(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        heard: list[int] = []
        log.listeners = [lambda: heard.append(log.head)]
        await log.append(EventScope(), log_line("mine"))
        await desk.offer(input_added("hello"), "k")
        await log.sync()
        assert heard == [1, 2]
        assert list(log.state.inputs) == ["k"]


async def test_a_turn_of_one_call_is_four_writes() -> None:
    desk, events = flaky_harness()
    log = await desk.open()
    await write_simple_turn(log)
    assert events.appends == 4
    assert log.state.turn is None
    assert log.window.last_text(T1.turn, ()) == "answer 1"
    assert Text(text="answer 1") in (await desk.stored_events())[-3].data.content  # type: ignore[attr-defined]  # a message
    await assert_same_after_reopening(desk, log)
