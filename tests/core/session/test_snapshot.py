"""Reopening: from the last good snapshot, at the cost of the tail, to exactly the same state."""

import pytest

from tests.core.session.desk import (
    NOW,
    T1,
    Desk,
    S,
    at,
    begun,
    called,
    ended,
    flaky,
    note,
    ok,
    rewind,
    said,
    same_after_reopening,
    simple_turn,
    stepped,
)
from vaka.core.loop.prompt import messages
from vaka.core.session.branch import chained
from vaka.core.session.place import Place
from vaka.core.session.snapshot import EVERY, reopen
from vaka.core.session.state import FOLD, State, dump
from vaka.core.types.content import Text
from vaka.core.types.control import CheckpointSaved, ContextCompacted, SessionClosed, SessionReverted, StateChanged
from vaka.core.types.errors import Corrupt, LogError
from vaka.core.types.event import VERSION, Event, seal
from vaka.core.types.ids import SessionId
from vaka.core.types.message import UserMessage
from vaka.stores.memory import MemoryStore


def compacted(keep_from: int, summary: str = "what was") -> ContextCompacted:
    return ContextCompacted(summary=summary, keep_from=keep_from)


async def seqs(desk: Desk) -> list[int]:
    """The snapshots there are."""
    store = desk.store
    assert isinstance(store, MemoryStore)
    return sorted(seq for states in store.hub.shared.logs["", S].snapshots.values() for seq in states)


class TestWhenOneIsTaken:
    async def test_not_before_the_tail_is_over_256_events(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(Place(), *[note("x" * 50)] * EVERY)
        assert await seqs(desk) == []
        await log.append(Place(), note("one more"))
        assert await seqs(desk) == [257]
        await log.append(Place(), *[note("x" * 50)] * EVERY)
        assert await seqs(desk) == [257]
        await log.append(Place(), note("one more"))
        assert await seqs(desk) == [257, 514]

    async def test_not_before_the_tail_has_more_bytes_than_it(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(Place(), StateChanged(key="large", value="x" * 1_000_000), *[note("x")] * EVERY)
        first = await seqs(desk)
        for _ in range(10):
            await log.append(Place(), *[note("x")] * EVERY)
        assert await seqs(desk) == first == [257]
        await log.append(Place(), note("y" * 600_000), note("y" * 600_000))
        assert len(await seqs(desk)) == 2

    async def test_a_process_that_opens_the_session_goes_on_counting(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(Place(), *[note("x" * 50)] * 200)
        await desk.shut(log)
        log = await desk.open()
        await log.append(Place(), *[note("x" * 50)] * 57)
        assert await seqs(desk) == [257]


class TestWhatIsIgnored:
    async def _snapshot(self, desk: Desk) -> tuple[bytes, bytes]:
        log = await desk.open()
        for number in range(1, 31):
            await simple_turn(log, number)
        await log.append(at("t99"), said("and now?", "k99"), begun("k99"), stepped(), called("call_31"))
        await desk.shut(log)
        found = await desk.store.snapshots.load(S, version=FOLD)
        assert found is not None
        return found[1], dump(log.state)

    async def test_a_flipped_bit_anywhere_in_a_snapshot_changes_nothing(self) -> None:
        desk = Desk()
        data, state = await self._snapshot(desk)
        seq = (await seqs(desk))[-1]
        for index in range(0, len(data), 3):
            broken = bytearray(data)
            broken[index] ^= 1 << (index % 8)
            await desk.store.snapshots.save(S, seq=seq, version=FOLD, data=bytes(broken))
            assert dump((await reopen(desk.store, S)).state) == state

    @pytest.mark.parametrize(
        "data", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"hash":"","sum":"","state":{"seq":"x"}}']
    )
    async def test_garbage_is_no_snapshot(self, data: bytes) -> None:
        desk = Desk()
        _, state = await self._snapshot(desk)
        for seq in (*await seqs(desk), 1):
            await desk.store.snapshots.save(S, seq=seq, version=FOLD, data=data)
        assert dump((await reopen(desk.store, S)).state) == state

    async def test_the_snapshot_of_another_log_or_place_is_not_believed(self) -> None:
        desk = Desk()
        data, state = await self._snapshot(desk)
        seq = (await seqs(desk))[-1]
        for place in (seq - 1, seq + 1, 10_000):
            await desk.store.snapshots.save(S, seq=place, version=FOLD, data=data)
        assert dump((await reopen(desk.store, S)).state) == state
        other = SessionId("other")
        log = await desk.open(other)
        await log.append(Place(), *[note("something else")] * (seq + 3))
        await desk.store.snapshots.save(other, seq=seq, version=FOLD, data=data)
        await same_after_reopening(desk, log)
        found = await reopen(desk.store, other, upto=seq)
        assert dump(found.state) == dump(State(seq=seq))

    async def test_another_version_of_the_fold_is_ignored(self) -> None:
        desk = Desk()
        data, state = await self._snapshot(desk)
        await desk.store.snapshots.save(S, seq=240, version="0", data=data)
        assert dump((await reopen(desk.store, S)).state) == state


class TestWhatTheModelStillSees:
    async def test_an_input_that_waited_through_a_compaction_is_still_said_after_a_restart(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("first", "k1"), begun("k1"))
        await desk.offer(said("meanwhile", "k2"), "k2")
        await log.append(T1, ended())
        await log.append(Place(), compacted(log.head))
        assert list(log.state.inputs) == ["k2"]
        await same_after_reopening(desk, log)
        await log.append(at("t2"), begun("k2"))
        await same_after_reopening(desk, log)
        found = await reopen(desk.store, S)
        assert messages(found.window.at(()), ())[-1] == UserMessage(content=(Text(text="meanwhile"),))

    async def test_a_window_that_starts_at_a_turn_has_the_input_of_that_turn(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log, 1)
        await log.append(at("t2"), said("second", "k2"), note("between"), begun("k2"), ended())
        turn = next(e for e in await desk.stored() if e.type == "turn.started" and e.turn == "t2")
        await log.append(Place(), compacted(turn.seq))
        assert messages(log.window.at(()), ())[-1] == UserMessage(content=(Text(text="second"),))
        await same_after_reopening(desk, log)
        await log.append(Place(), compacted(log.head + 1, "all of it"))
        assert log.state.taken == {}
        assert len(messages(log.window.at(()), ())) == 1
        await same_after_reopening(desk, log)

    @pytest.mark.parametrize("keep_from", [-1, 0, 1, 9, 10_000])
    async def test_the_window_only_moves_on_and_never_past_the_end(self, keep_from: int) -> None:
        log = await Desk().open()
        await simple_turn(log)
        await log.append(Place(), compacted(10))
        with pytest.raises(LogError, match="keeps from"):
            await log.append(Place(), compacted(keep_from))

    async def test_a_child_may_compact_its_own_conversation_while_its_parent_waits(self) -> None:
        desk = Desk()
        log = await desk.open()
        child = at("t1", 1, ("agent-1",))
        await log.append(T1, said("q"), begun("k"), stepped(), called())
        await log.append(child, stepped(agent="child"), called("call_1.1"))
        with pytest.raises(LogError, match=r"call_1\.1"):
            await log.append(child, compacted(5))
        await log.append(child, called("call_1.2"))
        with pytest.raises(LogError):
            await log.append(T1, compacted(2))
        window = log.state.window
        await log.append(child, ok("call_1.1"), ok("call_1.2"), compacted(5))
        assert log.state.window == window
        await same_after_reopening(desk, log)


class TestWhatItCosts:
    async def test_a_session_of_100k_events_opens_with_its_tail(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        await log.append(Place(), *[note("x" * 20)] * 98_000)
        for number in range(1, 81):
            await simple_turn(log, number)
        await log.append(Place(), *[note("x" * 20)] * (99_050 - log.head))
        await log.append(Place(), compacted(log.head - 3))
        while log.head < 99_990:
            await log.append(Place(), *[note("x" * 20)] * 10)
        await log.append(at("t"), said("still here?", "k"), begun("k"))
        events.rows = 0
        found = await reopen(desk.store, S)
        assert found.state.seq == log.head >= 99_992
        assert events.rows < 1_300
        await same_after_reopening(desk, log)

    async def test_a_compaction_counts_before_the_next_snapshot_is_taken(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        await log.append(Place(), *[note("x" * 50)] * 5_000)
        assert await seqs(desk) == [5_000]
        await log.append(Place(), compacted(5_001), note("after"))
        events.rows = 0
        await same_after_reopening(desk, log)
        assert events.rows <= 5

    async def test_an_input_that_waits_since_long_ago_costs_one_row(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        await log.append(T1, said("first", "k1"), begun("k1"))
        await desk.offer(said("meanwhile", "k2"), "k2")
        await log.append(Place(), *[note("x" * 50)] * 5_000)
        await log.append(Place(), compacted(log.head))
        events.rows = 0
        await same_after_reopening(desk, log)
        assert events.rows <= 10

    async def test_storage_grows_with_what_was_said_and_not_with_its_square(self) -> None:
        desk = Desk()
        log = await desk.open()
        for number in range(1, 400):
            await log.append(Place(), CheckpointSaved(label=f"place {number}"), *[note("x")] * 9)
        store = desk.store
        assert isinstance(store, MemoryStore)
        kept = store.hub.shared.logs["", S]
        snapshots = sum(len(data) for states in kept.snapshots.values() for data in states.values())
        assert 0 < snapshots < kept.size


class TestGoingBack:
    async def test_to_before_a_snapshot(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log, 1)
        before = log.head
        for number in range(2, 40):
            await simple_turn(log, number)
        assert await seqs(desk)
        await desk.shut(log)
        await rewind(desk, before)
        found = await reopen(desk.store, S)
        prefix = await reopen(desk.store, S, upto=before)
        assert found.state.calls == 39
        assert found.state.usage == prefix.state.usage
        assert [e.seq for e in found.window.events] == [e.seq for e in prefix.window.events]
        log = await desk.open()
        await simple_turn(log, 50)
        await same_after_reopening(desk, log)
        assert "call_40" in str([e.stored for e in log.window.events])

    async def test_to_a_place_an_earlier_rewind_left(self) -> None:
        desk = Desk()
        log = await desk.open()
        ends: list[int] = []
        for number in (1, 2, 3):
            await simple_turn(log, number)
            ends.append(log.head)
        await desk.shut(log)
        there = await reopen(desk.store, S, upto=ends[1])
        await rewind(desk, ends[0])
        log = await desk.open()
        await simple_turn(log, 4)
        await desk.shut(log)
        await rewind(desk, ends[1])
        found = await reopen(desk.store, S)
        assert [e.seq for e in found.window.events] == [e.seq for e in there.window.events]
        assert messages(found.window.at(()), ()) == messages(there.window.at(()), ())
        assert found.state.calls == 4
        log = await desk.open()
        for number in range(5, 40):
            await simple_turn(log, number)
        assert await seqs(desk)
        await same_after_reopening(desk, log)

    async def test_a_closed_session_that_goes_back_is_open_in_the_log_and_in_the_list(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await log.append(Place(), SessionClosed())
        await desk.shut(log)
        await rewind(desk, 3)
        info = await desk.store.sessions.find(S)
        assert info is not None
        assert info.closed is (await reopen(desk.store, S)).state.closed is False

    @pytest.mark.parametrize("to", [-1, 3, 4, 10**12])
    async def test_to_nowhere_is_corrupt_and_no_endless_loop(self, to: int) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(Place(), note("one"), note("two"), release=True)
        events = chained(S, (await desk.stored())[-1], [(Place(), SessionReverted(to=to))], NOW)
        term = await desk.store.events.claim(S)
        await desk.store.events.append(S, events, head=2, term=term, release=True)
        with pytest.raises(Corrupt, match="not before it"):
            await reopen(desk.store, S)

    async def test_to_the_very_beginning(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        await rewind(desk, 0)
        found = await reopen(desk.store, S)
        assert found.window.events == []
        assert found.state.calls == 1


async def test_an_event_only_newer_code_may_act_on_is_noticed_wherever_it_stands() -> None:
    desk = Desk()
    log = await desk.open()
    await log.append(Place(), note("one"), release=True)
    body, last = note("two"), (await desk.stored())[-1]
    newer = seal(Event(data=body, session=S, ts=NOW, v=VERSION + 1), epoch=1, seq=2, prev=last.hash)
    term = await desk.store.events.claim(S)
    await desk.store.events.append(S, [newer], head=1, term=term, release=True)
    assert (await reopen(desk.store, S)).too_new == VERSION + 1
    assert (await reopen(desk.store, S, upto=1)).too_new == 0


async def test_a_session_nobody_has_begun_is_empty() -> None:
    found = await reopen(Desk().store, S)
    assert (found.last, found.base, found.window.events, found.state.seq) == (None, 0, [], 0)
