"""Reopening from the last valid snapshot: the state is the same, and only the tail is read."""

from collections.abc import Iterable

import pytest

from tests.core.session.log_harness import (
    NOW,
    T1,
    LogHarness,
    S,
    assert_same_after_reopening,
    flaky_harness,
    force_snapshot,
    input_added,
    log_line,
    rewind_session,
    scope_at,
    step_started,
    tool_called,
    tool_completed,
    turn_completed,
    turn_started,
    write_simple_turn,
)
from vaka.core.loop.prompt import Conversation, build_messages
from vaka.core.session.hash_chain import seal, seal_chain
from vaka.core.session.snapshot import FOLD_VERSION, SNAPSHOT_INTERVAL, SnapshotTail, encode_state, reopen
from vaka.core.types.context import CheckpointSaved, ContextCompacted
from vaka.core.types.control import SessionClosed, SessionReverted, StateChanged
from vaka.core.types.errors import Corrupt, LogError
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import CallId, EventScope, SessionId
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.progress import SubagentCompleted, SubagentStarted
from vaka.core.types.state import SessionState
from vaka.stores.memory import MemoryStore


def context_compacted(keep_from: int, summary: str = "what was") -> ContextCompacted:
    return ContextCompacted(summary=summary, keep_from=keep_from)


async def snapshot_seqs(harness: LogHarness) -> list[int]:
    """Return the seqs of the stored snapshots."""
    store = harness.store
    assert isinstance(store, MemoryStore)
    return sorted(seq for states in store.hub.shared.logs["", S].snapshots.values() for seq in states)


class TestWhenASnapshotIsSaved:
    async def test_a_snapshot_needs_more_than_256_new_events(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x" * 50)] * SNAPSHOT_INTERVAL)
        assert await snapshot_seqs(harness) == []
        await log.append(EventScope(), log_line("one more"))
        assert await snapshot_seqs(harness) == [257]
        await log.append(EventScope(), *[log_line("x" * 50)] * SNAPSHOT_INTERVAL)
        assert await snapshot_seqs(harness) == [257]
        await log.append(EventScope(), log_line("one more"))
        assert await snapshot_seqs(harness) == [257, 514]

    async def test_a_snapshot_needs_more_new_bytes_than_it_has(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(
            EventScope(), StateChanged(key="large", value="x" * 1_000_000), *[log_line("x")] * SNAPSHOT_INTERVAL
        )
        first = await snapshot_seqs(harness)
        for _ in range(10):
            await log.append(EventScope(), *[log_line("x")] * SNAPSHOT_INTERVAL)
        assert await snapshot_seqs(harness) == first == [257]
        await log.append(EventScope(), log_line("y" * 600_000), log_line("y" * 600_000))
        assert len(await snapshot_seqs(harness)) == 2

    async def test_a_new_process_continues_the_count(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x" * 50)] * 200)
        await harness.release(log)
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x" * 50)] * 57)
        assert await snapshot_seqs(harness) == [257]


class TestInvalidSnapshots:
    async def _snapshot(self, harness: LogHarness) -> tuple[bytes, bytes]:
        log = await harness.open()
        for number in range(1, 31):
            await write_simple_turn(log, number)
        await log.append(
            scope_at("t99"), input_added("and now?", "k99"), turn_started("k99"), step_started(), tool_called("call_31")
        )
        await harness.release(log)
        row = await harness.store.snapshots.load(S, version=FOLD_VERSION)
        assert row is not None
        return row[1], encode_state(log.state)

    async def test_a_snapshot_with_a_flipped_bit_is_ignored(self) -> None:
        harness = LogHarness()
        data, state = await self._snapshot(harness)
        seq = (await snapshot_seqs(harness))[-1]
        for index in range(0, len(data), 3):
            broken = bytearray(data)
            broken[index] ^= 1 << (index % 8)
            await harness.store.snapshots.save(S, seq=seq, version=FOLD_VERSION, data=bytes(broken))
            assert encode_state((await reopen(harness.store, S)).state) == state

    @pytest.mark.parametrize(
        "data", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"hash":"","sum":"","state":{"seq":"x"}}']
    )
    async def test_a_snapshot_that_cannot_be_decoded_is_ignored(self, data: bytes) -> None:
        harness = LogHarness()
        _, state = await self._snapshot(harness)
        for seq in (*await snapshot_seqs(harness), 1):
            await harness.store.snapshots.save(S, seq=seq, version=FOLD_VERSION, data=data)
        assert encode_state((await reopen(harness.store, S)).state) == state

    async def test_a_snapshot_of_another_log_or_seq_is_ignored(self) -> None:
        harness = LogHarness()
        data, state = await self._snapshot(harness)
        seq = (await snapshot_seqs(harness))[-1]
        for other_seq in (seq - 1, seq + 1, 10_000):
            await harness.store.snapshots.save(S, seq=other_seq, version=FOLD_VERSION, data=data)
        assert encode_state((await reopen(harness.store, S)).state) == state
        other = SessionId("other")
        log = await harness.open(other)
        await log.append(EventScope(), *[log_line("something else")] * (seq + 3))
        await harness.store.snapshots.save(other, seq=seq, version=FOLD_VERSION, data=data)
        await assert_same_after_reopening(harness, log)
        opened = await reopen(harness.store, other, upto=seq)
        assert encode_state(opened.state) == encode_state(SessionState(seq=seq))

    async def test_a_snapshot_of_another_fold_version_is_ignored(self) -> None:
        harness = LogHarness()
        data, state = await self._snapshot(harness)
        await harness.store.snapshots.save(S, seq=240, version="0", data=data)
        assert encode_state((await reopen(harness.store, S)).state) == state

    async def test_a_snapshot_that_may_hold_events_of_a_newer_version_is_ignored(self) -> None:
        harness = LogHarness()
        data, state = await self._snapshot(harness)
        seq = (await snapshot_seqs(harness))[-1]
        newer = data.replace(f'"v":{VERSION},'.encode(), f'"v":{VERSION + 1},'.encode(), 1)
        assert newer != data
        await harness.store.snapshots.save(S, seq=seq, version=FOLD_VERSION, data=newer)
        assert encode_state((await reopen(harness.store, S)).state) == state

    async def test_a_changed_event_of_the_window_is_corrupt(self) -> None:
        harness = LogHarness()
        await self._snapshot(harness)
        store = harness.store
        assert isinstance(store, MemoryStore)
        events = store.hub.shared.logs["", S].events
        position = next(at for at, event in enumerate(events) if event.type == "input.added")
        event = events[position]
        other = Event(data=input_added("never said"), session=S, ts=NOW)
        events[position] = seal(other, epoch=1, seq=event.seq, prev=event.prev)
        with pytest.raises(Corrupt, match="digest"):
            await reopen(store, S)


class TestContextWindow:
    async def test_a_snapshot_lists_the_window_after_a_child_has_ended(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started(), tool_called())
        child = scope_at("t1", 1, ("agent-1",))
        started = SubagentStarted(call=CallId("call_1"), child="agent-1", agent="child", content=(Text(text="do it"),))
        await log.append(T1, started)
        await log.append(child, step_started(agent="child"), tool_called("call_1.1"), tool_completed("call_1.1"))
        await force_snapshot(harness, log)
        await assert_same_after_reopening(harness, log)
        seqs = [event.seq for event in log.window.events]
        await log.append(T1, SubagentCompleted(call=CallId("call_1"), agent="child", child="agent-1"), tool_completed())
        assert len(log.window.events) < len(seqs)
        await assert_same_after_reopening(harness, log)
        await force_snapshot(harness, log)
        await log.append(T1, turn_completed())
        await assert_same_after_reopening(harness, log)

    async def test_children_that_continue_one_conversation_share_its_view_and_their_number_has_no_limit(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        count, made = 1_200, 0

        def make(events: Iterable[Event]) -> Conversation:
            nonlocal made
            made += 1
            return Conversation(("agent-1",), events)

        for number in range(1, count + 1):
            call, child = CallId(f"call_{number}"), f"agent-{number}"
            after = f"agent-{number - 1}" if number > 1 else ""
            started = SubagentStarted(
                call=call, child=child, agent="child", content=(Text(text=f"do {number}"),), after=after
            )
            completed = SubagentCompleted(call=call, agent="child", child=child, text="done", kept=True)
            await log.append(T1, tool_called(call), started)
            log.window.view((child,), make)
            await log.append(T1, completed, tool_completed(call))
        path = (f"agent-{count}",)
        expected = tuple(UserMessage(content=(Text(text=f"do {number}"),)) for number in range(1, count + 1))
        assert (log.window.view(path, make).messages(), made) == (expected, 1)
        assert log.window.conversation_start(path) == ("agent-1",)
        assert len(log.window.conversation_paths(path)) == count
        assert build_messages(log.window.events_at(path), path) == expected
        opened = await reopen(harness.store, S)
        assert build_messages(opened.window.events_at(path), path) == expected
        assert opened.window.conversation_start(path) == ("agent-1",)

    async def test_an_input_queued_before_a_compaction_is_in_the_prompt_after_a_restart(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("first", "k1"), turn_started("k1"))
        await harness.offer(input_added("meanwhile", "k2"), "k2")
        await log.append(T1, turn_completed())
        await log.append(EventScope(), context_compacted(log.head))
        assert list(log.state.inputs) == ["k2"]
        await assert_same_after_reopening(harness, log)
        await log.append(scope_at("t2"), turn_started("k2"))
        await assert_same_after_reopening(harness, log)
        opened = await reopen(harness.store, S)
        assert build_messages(opened.window.events_at(()), ())[-1] == UserMessage(content=(Text(text="meanwhile"),))

    async def test_a_window_that_starts_at_a_turn_has_the_input_of_that_turn(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log, 1)
        await log.append(
            scope_at("t2"), input_added("second", "k2"), log_line("between"), turn_started("k2"), turn_completed()
        )
        turn = next(e for e in await harness.stored_events() if e.type == "turn.started" and e.turn == "t2")
        await log.append(EventScope(), context_compacted(turn.seq))
        assert build_messages(log.window.events_at(()), ())[-1] == UserMessage(content=(Text(text="second"),))
        await assert_same_after_reopening(harness, log)
        await log.append(EventScope(), context_compacted(log.head + 1, "all of it"))
        assert log.state.taken == {}
        assert len(build_messages(log.window.events_at(()), ())) == 1
        await assert_same_after_reopening(harness, log)

    @pytest.mark.parametrize("keep_from", [-1, 0, 1, 9, 10_000])
    async def test_the_window_moves_only_forward_and_not_past_the_end(self, keep_from: int) -> None:
        log = await LogHarness().open()
        await write_simple_turn(log)
        await log.append(EventScope(), context_compacted(10))
        with pytest.raises(LogError, match="keeps from"):
            await log.append(EventScope(), context_compacted(keep_from))

    async def test_a_child_may_compact_its_own_conversation_while_its_parent_waits(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        child = scope_at("t1", 1, ("agent-1",))
        await log.append(T1, input_added("q"), turn_started("k"), step_started(), tool_called())
        await log.append(child, step_started(agent="child"), tool_called("call_1.1"))
        with pytest.raises(LogError, match=r"call_1\.1"):
            await log.append(child, context_compacted(5))
        await log.append(child, tool_called("call_1.2"))
        with pytest.raises(LogError):
            await log.append(T1, context_compacted(2))
        window = log.state.window
        await log.append(child, tool_completed("call_1.1"), tool_completed("call_1.2"), context_compacted(5))
        assert log.state.window == window
        await assert_same_after_reopening(harness, log)


class TestCost:
    async def test_opening_a_session_of_100k_events_reads_only_its_tail(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x" * 20)] * 98_000)
        for number in range(1, 81):
            await write_simple_turn(log, number)
        await log.append(EventScope(), *[log_line("x" * 20)] * (99_050 - log.head))
        await log.append(EventScope(), context_compacted(log.head - 3))
        while log.head < 99_990:
            await log.append(EventScope(), *[log_line("x" * 20)] * 10)
        await log.append(scope_at("t"), input_added("still here?", "k"), turn_started("k"))
        events.rows = 0
        opened = await reopen(harness.store, S)
        assert opened.state.seq == log.head >= 99_992
        assert events.rows < 1_300
        await assert_same_after_reopening(harness, log)

    async def test_a_compaction_after_the_last_snapshot_limits_the_rows_read(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        await log.append(EventScope(), *[log_line("x" * 50)] * 5_000)
        assert await snapshot_seqs(harness) == [5_000]
        await log.append(EventScope(), context_compacted(5_001), log_line("after"))
        events.rows = 0
        await assert_same_after_reopening(harness, log)
        assert events.rows <= 5

    async def test_opening_a_session_of_1000_turns_decodes_its_messages_and_the_tail(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        for number in range(1, 1_001):
            await write_simple_turn(log, number)
        assert log.head >= 9_000
        (last_snapshot, *_), window = (await snapshot_seqs(harness))[::-1], log.window.events
        events.rows = 0
        opened = await reopen(harness.store, S)
        tail = log.head - last_snapshot + 1  # with the last event of the snapshot
        assert events.rows == tail + sum(event.seq <= last_snapshot for event in window) <= tail + 0.7 * log.head
        assert tail <= SNAPSHOT_INTERVAL + 20
        assert [event.seq for event in opened.window.events] == [event.seq for event in window]
        assert build_messages(opened.window.events_at(())) == build_messages(log.window.events_at(()))

    async def test_an_old_queued_input_costs_one_row(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        await log.append(T1, input_added("first", "k1"), turn_started("k1"))
        await harness.offer(input_added("meanwhile", "k2"), "k2")
        await log.append(EventScope(), *[log_line("x" * 50)] * 5_000)
        await log.append(EventScope(), context_compacted(log.head))
        events.rows = 0
        await assert_same_after_reopening(harness, log)
        assert events.rows <= 10

    async def test_snapshots_take_less_space_than_the_log(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        for number in range(1, 400):
            await log.append(EventScope(), CheckpointSaved(label=f"place {number}"), *[log_line("x")] * 9)
        store = harness.store
        assert isinstance(store, MemoryStore)
        memory_log = store.hub.shared.logs["", S]
        snapshots = sum(len(data) for states in memory_log.snapshots.values() for data in states.values())
        assert 0 < snapshots < sum(len(event.stored) for event in memory_log.events)


class TestRewind:
    async def test_rewind_to_before_a_snapshot(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log, 1)
        before = log.head
        for number in range(2, 40):
            await write_simple_turn(log, number)
        assert await snapshot_seqs(harness)
        await harness.release(log)
        await rewind_session(harness, before)
        opened = await reopen(harness.store, S)
        prefix = await reopen(harness.store, S, upto=before)
        assert opened.state.calls == 39
        assert opened.state.usage == prefix.state.usage
        assert [e.seq for e in opened.window.events] == [e.seq for e in prefix.window.events]
        log = await harness.open()
        await write_simple_turn(log, 50)
        await assert_same_after_reopening(harness, log)
        assert "call_40" in str([e.stored for e in log.window.events])

    async def test_rewind_to_a_branch_that_an_earlier_rewind_left(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        ends: list[int] = []
        for number in (1, 2, 3):
            await write_simple_turn(log, number)
            ends.append(log.head)
        await harness.release(log)
        branch = await reopen(harness.store, S, upto=ends[1])
        await rewind_session(harness, ends[0])
        log = await harness.open()
        await write_simple_turn(log, 4)
        await harness.release(log)
        await rewind_session(harness, ends[1])
        opened = await reopen(harness.store, S)
        assert [e.seq for e in opened.window.events] == [e.seq for e in branch.window.events]
        assert build_messages(opened.window.events_at(()), ()) == build_messages(branch.window.events_at(()), ())
        assert opened.state.calls == 4
        log = await harness.open()
        for number in range(5, 40):
            await write_simple_turn(log, number)
        assert await snapshot_seqs(harness)
        await assert_same_after_reopening(harness, log)

    async def test_rewinding_a_closed_session_reopens_it_in_state_and_index(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await log.append(EventScope(), SessionClosed())
        await harness.release(log)
        await rewind_session(harness, 3)
        info = await harness.store.sessions.find(S)
        assert info is not None
        assert info.closed is (await reopen(harness.store, S)).state.closed is False

    @pytest.mark.parametrize("to", [-1, 3, 4, 10**12])
    async def test_a_rewind_to_an_invalid_seq_is_corrupt(self, to: int) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(EventScope(), log_line("one"), log_line("two"), release=True)
        events = seal_chain(S, (await harness.stored_events())[-1], [(EventScope(), SessionReverted(to=to))], NOW)
        term = await harness.store.events.claim(S)
        await harness.store.events.append(S, events, head=2, term=term, release=True)
        with pytest.raises(Corrupt, match="not before it"):
            await reopen(harness.store, S)

    async def test_rewind_to_the_beginning(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        await rewind_session(harness, 0)
        opened = await reopen(harness.store, S)
        assert opened.window.events == []
        assert opened.state.calls == 1


async def test_an_event_of_a_newer_version_is_reported() -> None:
    harness = LogHarness()
    log = await harness.open()
    await log.append(EventScope(), log_line("one"), release=True)
    body, last = log_line("two"), (await harness.stored_events())[-1]
    newer = seal(Event(data=body, session=S, ts=NOW, v=VERSION + 1), epoch=1, seq=2, prev=last.hash)
    term = await harness.store.events.claim(S)
    await harness.store.events.append(S, [newer], head=1, term=term, release=True)
    assert (await reopen(harness.store, S)).too_new == VERSION + 1
    assert (await reopen(harness.store, S, upto=1)).too_new == 0


async def test_a_session_without_events_is_empty() -> None:
    opened = await reopen(LogHarness().store, S)
    assert (opened.last, opened.window.events, opened.state.seq) == (None, [], 0)


async def test_a_snapshot_without_a_window_gives_the_same_session() -> None:
    harness = LogHarness()
    log = await harness.open()
    for number in range(1, 4):
        await write_simple_turn(log, number)
    await log.append(EventScope(), release=True)
    whole = await reopen(harness.store, S)
    bare = await reopen(harness.store, S, with_window=False)
    assert bare.window.events == []
    assert not bare.tail.has_window
    assert (encode_state(bare.state), bare.last) == (encode_state(whole.state), whole.last)
    tail = SnapshotTail(None, SNAPSHOT_INTERVAL)
    tail.add([event async for event in harness.store.events.read(S)])
    assert whole.last is not None
    await tail.save_if_due(harness.store, S, bare.state, whole.last.hash)
    assert await snapshot_seqs(harness) == [whole.last.seq]
    again = await reopen(harness.store, S)
    assert build_messages(again.window.events_at(())) == build_messages(whole.window.events_at(()))
    assert encode_state(again.state) == encode_state(whole.state)
