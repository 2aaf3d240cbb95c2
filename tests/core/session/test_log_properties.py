"""Properties of every session, on generated ones."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.session.log_harness import (
    NOW,
    Fault,
    LogHarness,
    S,
    assert_same_after_reopening,
    flaky_harness,
    force_snapshot,
    fork_session,
    input_added,
    log_line,
    rewind_session,
    run_event_loop,
    step_started,
    tool_called,
    tool_completed,
    tool_failed,
    turn_completed,
    turn_started,
)
from tests.core.session.random_session import RandomSessionWriter
from vaka.core.session.fold import fold
from vaka.core.session.hash_chain import HashChain, seal
from vaka.core.session.index_rows import rebuild_row, replace_fields
from vaka.core.session.invariants import InvariantChecker
from vaka.core.session.snapshot import decode_state, encode_state, reopen
from vaka.core.types import context, control, progress
from vaka.core.types.decode import decode
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, Cursor, EventScope, SessionId
from vaka.core.types.state import SessionState

choices = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)


def run_async(body: Coroutine[Any, Any, None]) -> None:
    """Run one example in an event loop of its own."""
    asyncio.run(body)


async def write_random_session(harness: LogHarness, numbers: Sequence[int]) -> list[Event]:
    """Write a session of entries that keep the invariants."""
    log = await harness.open()
    author = RandomSessionWriter(lambda: log.state)
    for number in numbers:
        for scope, body in author.next(number):
            log.defer(scope, body)
        await log.append(EventScope())
        if number % 10 == 0:
            await force_snapshot(harness, log)
    await assert_same_after_reopening(harness, log)
    await harness.release(log)
    return await harness.stored_events()


@given(choices)
def test_folding_in_any_parts_gives_the_same_state(numbers: list[int]) -> None:
    async def body() -> None:
        harness = LogHarness()
        events = await write_random_session(harness, numbers)
        whole = encode_state(fold(SessionState(), events))
        chain = HashChain(S)
        again = [decode(chain.check_next(event.seq, event.stored).stored) for event in events]
        assert encode_state(fold(SessionState(), again)) == whole
        state = SessionState()
        for index, event in enumerate(events, 1):
            fold(state, [event])
            assert encode_state(fold(decode_state(encode_state(state)), events[index:])) == whole
        info = await harness.store.sessions.find(S)
        assert info is not None
        row = rebuild_row(S, events)
        assert (info.head, info.hash, info.turn, info.inputs, info.closed) == (
            row.head,
            row.hash,
            row.turn,
            row.inputs,
            row.closed,
        )
        assert info.inputs == len(state.inputs)
        assert info.turn == (state.turn.id if state.turn else "")
        assert info.closed == state.closed

    run_async(body())


@given(choices)
def test_an_erased_session_keeps_its_hashes_and_can_be_read_and_followed(numbers: list[int]) -> None:
    async def body() -> None:
        harness = LogHarness()
        events = await write_random_session(harness, numbers)
        await harness.store.erase([S])
        stubs = await harness.stored_events()
        assert [event.hash for event in stubs[:-1]] == [event.hash for event in events]
        chain = HashChain(S)
        assert [decode(chain.check_next(stub.seq, stub.stored).stored) for stub in stubs] == stubs
        chain.check_erased(stubs[-1])
        info, opened = await harness.store.sessions.find(S), await reopen(harness.store, S)
        assert info is not None
        assert replace_fields(info, term=0) == rebuild_row(S, stubs)
        assert (
            (info.closed, info.turn, info.inputs)
            == (opened.state.closed, "", len(opened.state.inputs))
            == (True, "", 0)
        )
        assert (opened.state.turn, opened.state.open, opened.state.decisions) == (None, {}, {})
        assert opened.state.usage == fold(SessionState(), events).usage
        followed = await harness.follow(len(stubs), Cursor(1, 0))
        assert [event.stored for event in followed] == [stub.stored for stub in stubs]

    run_async(body())


@given(choices)
def test_following_from_any_cursor_gives_the_same_events(numbers: list[int]) -> None:
    async def body() -> None:
        harness = LogHarness()
        events = await write_random_session(harness, numbers)
        log = await harness.open()
        for seq in range(len(events)):
            followed = await harness.follow(len(events) - seq, Cursor(1, seq))
            assert [event.stored for event in followed] == [event.stored for event in events[seq:]]
        await harness.release(log)

    run_async(body())


@given(st.lists(st.tuples(choices, st.integers(0, 10_000), st.booleans()), min_size=1, max_size=4))
def test_after_any_rewinds_and_forks_the_state_is_that_of_the_live_branch(
    parts: list[tuple[list[int], int, bool]],
) -> None:
    async def body() -> None:
        harness, session = LogHarness(), S
        live: list[Event] = []
        branches: dict[int, list[Event]] = {0: []}
        for number, (numbers, to, forks) in enumerate(parts):
            log = await harness.open(session)
            author = RandomSessionWriter(lambda log=log: log.state)  # type: ignore[misc]  # bound now
            for choice in numbers:
                for entry in author.next(choice):
                    written = await log.append(entry[0], entry[1])
                    live = [*live, *written]
                    branches[live[-1].seq] = live
                if choice % 10 == 0:
                    await force_snapshot(harness, log)
            await harness.release(log)
            if forks:
                seq = to % len(await harness.stored_events(session)) + 1
                fork = SessionId(f"fork {number}")
                new = await fork_session(harness, seq, fork, session)
                assert [e.stored for e in new[:seq]] == [e.stored for e in (await harness.stored_events(session))[:seq]]
                session, live = fork, [*branches[seq], *new[seq:]]
                branches = {key: value for key, value in branches.items() if key <= seq}
            else:
                to = to % (len(await harness.stored_events(session)) + 1)
                before = await rewind_session(harness, to, session)
                at = next(i for i, e in enumerate(before) if isinstance(e.data, control.SessionReverted))
                for event in before[:at]:
                    live = [*live, event]
                    branches[event.seq] = live
                live = branches[to]
                for event in before[at:]:
                    live = [*live, event]
                    branches[event.seq] = live
            for event in live:
                branches.setdefault(event.seq, live[: live.index(event) + 1])
            expected = fold(SessionState(), live)
            opened = await reopen(harness.store, session)
            assert encode_state(opened.state) == encode_state(expected)
            assert opened.state.open == {}
            assert opened.state.turn is None

    run_async(body())


BODIES: st.SearchStrategy[Body] = st.one_of(
    st.integers(1, 4).map(lambda number: tool_called(f"call_{number}")),
    st.integers(1, 4).map(lambda number: tool_completed(f"call_{number}")),
    st.integers(1, 4).map(lambda number: tool_failed(f"call_{number}")),
    st.integers(1, 3).map(lambda number: tool_called(f"call_1.{number}")),
    st.integers(1, 3).map(lambda number: tool_completed(f"call_1.{number}")),
    st.just(turn_started()),
    st.just(turn_completed()),
    st.just(progress.TurnInterrupted()),
    st.just(step_started()),
    st.just(log_line("x")),
    st.just(context.ContextCompacted(summary="s", keep_from=1)),
    st.just(control.SessionReverted(to=0)),
)


def calls_are_paired(entries: Sequence[tuple[AgentPath, Body]]) -> bool:
    """Whether calls and results pair up, computed in another way than the invariants do."""
    calls: dict[str, AgentPath] = {}
    known: set[str] = set()
    for path, body in entries:
        match body:
            case progress.ToolCalled():
                if body.call.id in known:
                    return False
                known.add(body.call.id)
                calls[body.call.id] = path
            case progress.ToolCompleted() | progress.ToolFailed():
                if calls.pop(body.result.call, None) is None:
                    return False
            case progress.StepStarted() if path in calls.values():
                return False
            case progress.TurnCompleted() | progress.TurnInterrupted() if calls:
                return False
            case _:
                continue
    return True


@given(st.lists(st.lists(st.tuples(st.sampled_from([(), ("agent-1",)]), BODIES), max_size=4), max_size=25))
def test_the_invariants_accept_only_calls_with_exactly_one_result(
    groups: list[list[tuple[AgentPath, Body]]],
) -> None:
    state = SessionState()
    accepted = list[tuple[AgentPath, Body]]()
    prev = ""
    for group in groups:
        entries = [(EventScope(path=path), body) for path, body in group]
        try:
            InvariantChecker(state).check(entries)
        except LogError:
            continue
        accepted += group
        assert calls_are_paired(accepted)
        for scope, body in entries:
            event = seal(Event(data=body, session=S, ts=NOW, path=scope.path), epoch=1, seq=state.seq + 1, prev=prev)
            prev = event.hash
            fold(state, [event])


FAULTS: list[Fault] = ["", "", "", "before", "after", "late"]


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_appends_cancelled_at_random_on_a_flaky_store_are_neither_lost_nor_repeated(seed: int, count: int) -> None:
    async def body() -> None:
        chance = random.Random(seed)
        harness, events = flaky_harness(*(chance.choice(FAULTS) for _ in range(count)))
        events.slow, events.down = chance.randint(0, 3), chance.randint(0, 3)
        log = await harness.open()
        tasks: list[asyncio.Task[tuple[Event, ...]]] = []
        for number in range(count):
            if chance.random() < 0.2:
                log.defer(EventScope(), log_line(f"later {number}"))
            tasks.append(
                asyncio.create_task(log.append(EventScope(), log_line(f"{number} a"), log_line(f"{number} b")))
            )
            if chance.random() < 0.2 and log.head:
                await harness.offer(input_added("hello", f"k{number}"), f"k{number}")
            await run_event_loop(chance.randint(0, 2))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        events.faults, events.down = [], 0
        await events.deliver_late_writes()
        await log.append(EventScope(), log_line("last"))
        stored = await harness.stored_events()
        assert [event.seq for event in stored] == list(range(1, log.head + 1))
        messages = [getattr(event.data, "message", "") for event in stored]
        assert all(messages.count(message) == 1 for message in messages if message)
        for number, task in enumerate(tasks):
            if not task.cancelled():
                first, second = task.result()
                assert second.seq == first.seq + 1
                assert stored[first.seq - 1] == first
            assert (f"{number} a" in messages) == (f"{number} b" in messages)
        await assert_same_after_reopening(harness, log)

    run_async(body())


def test_thousands_of_cancellations_leave_a_consistent_log() -> None:
    async def body() -> None:
        chance = random.Random(1)
        harness, events = flaky_harness()
        events.slow = 1
        log = await harness.open()
        acknowledged: list[Event] = []

        async def write(number: int) -> None:
            acknowledged.extend(await log.append(EventScope(), log_line(str(number))))

        tasks: list[asyncio.Task[None]] = []
        for number in range(5_000):
            tasks.append(asyncio.create_task(write(number)))
            if number % 7 == 0:
                await run_event_loop(chance.randint(0, 3))
            if number % 2:
                tasks[chance.randrange(max(0, number - 20), number + 1)].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.append(EventScope(), log_line("last"))
        stored = await harness.stored_events()
        assert [event.seq for event in stored] == list(range(1, log.head + 1))
        assert set(acknowledged) <= set(stored)
        assert len({event.stored for event in acknowledged}) == len(acknowledged)
        assert events.appends < 3_000
        await assert_same_after_reopening(harness, log)

    run_async(body())
