"""The writer: an acknowledged append is in the log exactly once, also after faults and cancellation."""

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


async def stored_messages(harness: LogHarness) -> list[str]:
    return [getattr(event.data, "message", event.type) for event in await harness.stored_events()]


class TestAcknowledgedAppends:
    async def test_appends_made_at_the_same_time_share_one_write(self) -> None:
        harness, events = flaky_harness()
        events.slow = 3
        log = await harness.open()
        await asyncio.gather(*(log.append(EventScope(), log_line(str(number))) for number in range(100)))
        assert await stored_messages(harness) == [str(number) for number in range(100)]
        assert events.appends == 2
        await assert_same_after_reopening(harness, log)

    @pytest.mark.parametrize("fault", ["conflict", "before", "after", "late"])
    async def test_no_append_returns_when_the_shared_write_fails(self, fault: Fault) -> None:
        harness, events = flaky_harness()
        events.slow = 2
        log = await harness.open()
        await log.append(EventScope(), log_line("first"))
        events.faults = [fault] * 4
        events.down = 3 if fault != "conflict" else 0
        results = await asyncio.gather(
            *(log.append(EventScope(), log_line(str(number))) for number in range(4)), return_exceptions=True
        )
        acknowledged = [str(number) for number, result in enumerate(results) if not isinstance(result, BaseException)]
        assert [text for text in await stored_messages(harness) if text != "first"] == acknowledged
        assert acknowledged == ([] if fault == "conflict" else ["0", "1", "2", "3"])

    @pytest.mark.parametrize("fault", ["", "before", "after", "late"])
    async def test_cancelling_one_append_does_not_cancel_those_in_the_same_write(self, fault: Fault) -> None:
        harness, events = flaky_harness(fault)
        events.slow = 3
        log = await harness.open()
        leader = asyncio.create_task(log.append(EventScope(), log_line("leader")))
        await run_event_loop(1)
        others = [asyncio.create_task(log.append(EventScope(), log_line(str(number)))) for number in range(5)]
        await run_event_loop(2)
        leader.cancel()
        await asyncio.gather(leader, *others, return_exceptions=True)
        assert all(len(other.result()) == 1 for other in others)
        assert [text for text in await stored_messages(harness) if text != "leader"] == ["0", "1", "2", "3", "4"]
        await log.sync()
        await assert_same_after_reopening(harness, log)

    async def test_an_append_is_retried_through_an_outage_of_writes_and_reads(self) -> None:
        harness, events = flaky_harness("before", "before", "after")
        log = await harness.open()
        events.down = 7
        await log.append(EventScope(), log_line("kept"))
        assert await stored_messages(harness) == ["kept"]
        assert harness.clock.monotonic() > 0

    async def test_an_append_fails_after_a_long_outage(self) -> None:
        harness, events = flaky_harness(*repeat(BEFORE, 1000))
        log = await harness.open()
        with pytest.raises(Unavailable, match="gave up"):
            await log.append(EventScope(), log_line("lost"))
        assert STORE_RETRY_SECONDS < harness.clock.monotonic() < STORE_RETRY_SECONDS + 2
        events.faults = []
        await log.append(EventScope(), log_line("kept"))
        assert await stored_messages(harness) == ["kept"]

    async def test_a_late_write_of_a_failed_attempt_is_recognized(self) -> None:
        harness, events = flaky_harness("late", "late", "late")
        log = await harness.open()
        await log.append(EventScope(), log_line("once"))
        assert await stored_messages(harness) == ["once"]
        events.faults = ["late"]
        leader = asyncio.create_task(log.append(EventScope(), log_line("twice?")))
        await run_event_loop(1)
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)
        await events.deliver_late_writes()
        await log.append(EventScope(), log_line("after"))
        assert (await stored_messages(harness)).count("twice?") <= 1
        assert (await stored_messages(harness))[-1] == "after"
        await assert_same_after_reopening(harness, log)

    async def test_a_release_with_a_lost_response_is_recognized(self) -> None:
        harness, _ = flaky_harness("after")
        log = await harness.open()
        await log.append(EventScope(), log_line("last"), release=True)
        assert log.released
        assert not log.is_writer

    async def test_a_shortened_log_is_an_error_without_an_endless_loop(self) -> None:
        harness, _ = flaky_harness()
        log = await harness.open()
        await log.append(EventScope(), log_line("one"), log_line("two"))
        store = harness.store
        assert isinstance(store, MemoryStore)
        memory_log = store.hub.shared.logs["", log.session]
        memory_log.events = memory_log.events[:1]
        with pytest.raises(Corrupt, match="ends before event 2"):
            await log.append(EventScope(), log_line("three"))

    async def test_an_append_with_an_old_term_is_a_conflict(self) -> None:
        harness = LogHarness()
        old = await harness.open()
        await old.append(EventScope(), log_line("mine"))
        await harness.store.events.release(old.session, old.term)
        new = await harness.open()
        await new.append(EventScope(), log_line("theirs"))
        with pytest.raises(ConflictError):
            await old.append(EventScope(), log_line("mine again"))
        with pytest.raises(ConflictError):
            old.require_writer()
        assert await stored_messages(harness) == ["mine", "theirs"]

    async def test_events_of_another_writer_are_a_conflict_and_not_folded(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"))
        store = harness.store
        assert isinstance(store, MemoryStore)
        last, memory_log = (await harness.stored_events())[-1], store.hub.shared.logs["", log.session]
        memory_log.events += seal_chain(log.session, last, [(T1, turn_completed())], last.ts)
        for _ in range(2):
            with pytest.raises(ConflictError, match="another writer"):
                await log.sync()
            with pytest.raises(ConflictError, match="another writer"):
                await log.append(T1, step_started())
        assert log.state.turn is not None
        assert log.head == 2


class TestRefusedAppends:
    async def test_a_refused_append_does_not_affect_others_in_the_same_write(self) -> None:
        harness, events = flaky_harness()
        events.slow = 2
        log = await harness.open()
        results = await asyncio.gather(
            log.append(EventScope(), log_line("first")),
            log.append(EventScope(), tool_completed("call_7")),
            log.append(EventScope(), log_line("a\ud800b")),
            log.append(EventScope(), log_line("last")),
            return_exceptions=True,
        )
        assert [isinstance(result, LogError) for result in results] == [False, True, True, False]
        assert await stored_messages(harness) == ["first", "last"]
        await assert_same_after_reopening(harness, log)

    @pytest.mark.parametrize(
        "body",
        [
            control.StateChanged(key="k", value=object()),
            control.StateChanged(key="k", value={"deep": ["\udcff"]}),
            UsageRecorded(model="m", usage=Usage(cost=float("inf"))),
            progress.ToolCompleted(result=ToolResult(call=CallId("call_1"), content="words")),  # type: ignore[arg-type]  # wrong on purpose
            progress.ToolCompleted(result=ToolResult(call=CallId("call_1"), reason="because")),  # type: ignore[arg-type]  # wrong on purpose
        ],
    )
    async def test_a_body_that_cannot_be_decoded_is_not_written(self, body: Body) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), tool_called())
        with pytest.raises(LogError, match="cannot be encoded"):
            await log.append(T1, body)
        assert log.head == 3
        await assert_same_after_reopening(harness, log)

    async def test_a_value_nested_too_deeply_is_not_written(self) -> None:
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        log = await LogHarness().open()
        with pytest.raises(LogError, match="cannot be encoded"):
            await log.append(EventScope(), control.StateChanged(key="k", value=deep))
        while deep:
            deep = deep.pop()  # type: ignore[assignment]  # the garbage collector would recurse too deeply

    async def test_a_log_copies_the_values_of_a_body(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        arguments: dict[str, Any] = {"city": "Hilo", "when": (1, 2), "how": {3: float("nan")}}
        await log.append(T1, input_added("q"), turn_started("k"), tool_called(**arguments), tool_started(**arguments))
        arguments["city"] = "Kona"
        assert log.state.open[CallId("call_1")].call.arguments == {"city": "Hilo", "when": [1, 2], "how": {"3": None}}
        await assert_same_after_reopening(harness, log)

    async def test_a_writer_cannot_append_a_rewind_of_the_session(self) -> None:
        log = await LogHarness().open()
        await log.append(EventScope(), log_line("one"))
        with pytest.raises(LogError, match="read from the store"):
            await log.append(EventScope(), control.SessionReverted(to=1))

    async def test_a_writer_can_append_a_rewind_of_its_turn_between_steps(self) -> None:
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


class TestDeferredEntries:
    async def test_deferred_entries_are_written_before_the_next_append(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        log.defer(EventScope(), log_line("deferred"))
        assert [body for _, body in log.deferred] == [log_line("deferred")]
        assert await stored_messages(harness) == []
        appended = await log.append(EventScope(), log_line("now"))
        assert await stored_messages(harness) == ["deferred", "now"]
        assert [event.seq for event in appended] == [2]
        assert events.appends == 1
        assert log.deferred == []

    async def test_deferred_entries_survive_the_cancellation_of_the_next_append(self) -> None:
        harness, events = flaky_harness("before")
        events.slow = 3
        log = await harness.open()
        log.defer(EventScope(), log_line("deferred"))
        task = asyncio.create_task(log.append(EventScope(), log_line("cancelled")))
        await run_event_loop(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [body for _, body in log.deferred] == [log_line("deferred")]
        await log.append(EventScope(), log_line("next"))
        assert await stored_messages(harness) == ["deferred", "next"]

    async def test_deferred_entries_are_written_when_the_next_append_is_refused(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"))
        log.defer(T1, step_started(), message_completed("hm"), tool_called())
        with pytest.raises(LogError):
            await log.append(T1, tool_started("call_9"))
        assert list(log.state.open) == ["call_1"]
        await log.append(T1, tool_completed("call_1"), turn_completed())

    async def test_an_invalid_deferred_entry_fails_the_next_append(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        log.defer(EventScope(), tool_completed("call_1"))
        with pytest.raises(LogError, match="call_1"):
            await log.append(EventScope(), log_line("not written"))
        assert await stored_messages(harness) == []
        await log.append(EventScope(), log_line("next"))
        assert await stored_messages(harness) == ["next"]

    async def test_an_append_of_nothing_can_release_the_claim(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        assert await log.append(EventScope()) == ()
        assert await log.append(EventScope(), release=True) == ()
        assert log.released
        assert events.appends == 0
        other = await LogHarness(harness.store).open()
        await other.append(EventScope(), log_line("free to take"))


class TestChanges:
    async def test_a_change_between_the_call_and_the_await_is_not_missed(self) -> None:
        log = await LogHarness().open()
        change = log.wait_for_change()
        await log.append(EventScope(), log_line("already there"))
        await asyncio.wait_for(change, 60)

    async def test_listeners_are_called_for_offered_events(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        heads: list[int] = []
        log.listeners = [lambda _: heads.append(log.head)]
        await log.append(EventScope(), log_line("mine"))
        await harness.offer(input_added("hello"), "k")
        await log.sync()
        assert heads == [1, 2]
        assert list(log.state.inputs) == ["k"]


async def test_a_turn_of_one_call_is_four_writes() -> None:
    harness, events = flaky_harness()
    log = await harness.open()
    await write_simple_turn(log)
    assert events.appends == 4
    assert log.state.turn is None
    assert log.window.last_text(T1.turn, ()) == "answer 1"
    assert Text(text="answer 1") in (await harness.stored_events())[-3].data.content  # type: ignore[attr-defined]  # a message
    await assert_same_after_reopening(harness, log)


async def test_only_an_input_that_waits_can_be_withdrawn() -> None:
    harness = LogHarness()
    log = await harness.open()
    await log.append(T1, input_added("one", "k1"), input_added("two", "k2"), turn_started("k1"))
    for key in ("k1", "k3"):
        with pytest.raises(LogError, match="unknown or was taken"):
            await log.append(EventScope(), control.InputWithdrawn(input=key))
    await log.append(EventScope(), control.InputWithdrawn(input="k2"))
    assert log.state.inputs == {}
    await assert_same_after_reopening(harness, log)
