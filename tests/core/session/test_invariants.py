"""The eleven rules of the log, one class for each."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    S,
    approval_requested,
    approval_resolved,
    assert_same_after_reopening,
    flaky_harness,
    fork_session,
    input_added,
    log_line,
    message_completed,
    rewind_session,
    scope_at,
    step_started,
    text_delta,
    tool_called,
    tool_completed,
    tool_failed,
    tool_result,
    tool_started,
    turn_completed,
    turn_started,
    visible_texts,
    write_simple_turn,
)
from vaka.core.loop.prompt import build_messages
from vaka.core.session.hash_chain import HashChain, hash_of
from vaka.core.session.log import SessionLog
from vaka.core.session.snapshot import reopen
from vaka.core.types import context, control, progress
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy, ConflictError, Corrupt, InvalidInput, LogError, NotFound
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, CallKey, Cursor, EventScope, MessageId, SessionId
from vaka.core.types.message import AssistantMessage, Text, ToolMessage, UserMessage, text_of
from vaka.core.types.state import results_for_open_calls
from vaka.stores.memory import MemoryStore


class TestRule1WriteAhead:
    async def test_an_event_is_published_after_it_is_stored(self) -> None:
        harness, events = flaky_harness("before", "before")
        log = await harness.open()
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            stored = await harness.stored_events()
            seen.append((log.head, len(stored)))

        log.listeners = [lambda _: looks.append(asyncio.create_task(look()))]
        looks: list[asyncio.Task[None]] = []
        await log.append(EventScope(), log_line("one"), log_line("two"))
        await asyncio.gather(*looks)
        assert seen == [(2, 2)]
        assert events.appends == 3

    async def test_a_refused_event_is_not_published(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        with pytest.raises(LogError):
            await log.append(T1, tool_completed("call_1"))
        await log.append(EventScope(), log_line("x"))
        assert [event.type for event in await harness.follow(1)] == ["log"]


class TestRule2OneWriterManyOffers:
    async def test_a_session_has_one_writer_and_terms_increase(self) -> None:
        harness = LogHarness()
        terms: list[int] = []
        for _ in range(3):
            log = await harness.open()
            await log.append(EventScope(), log_line("x"))
            terms.append(log.term)
            with pytest.raises(Busy):
                await LogHarness(harness.store).open()
            await harness.release(log)
        assert terms == sorted(set(terms))

    async def test_a_replaced_writer_gets_a_conflict(self) -> None:
        harness = LogHarness()
        old = await harness.open()
        await old.append(EventScope(), log_line("old"))
        await harness.release(old)
        new = await LogHarness(harness.store).open()
        with pytest.raises(ConflictError):
            await old.append(EventScope(), log_line("stale"))
        await new.append(EventScope(), log_line("new"))
        assert [event.data for event in await harness.stored_events()] == [log_line("old"), log_line("new")]

    async def test_events_offered_before_an_append_are_folded_first(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        await log.append(T1, input_added("first", "k1"), turn_started("k1"))
        for number in range(2, 5):
            await harness.offer(input_added("more", f"k{number}"), f"k{number}")
        await log.append(T1, step_started())
        assert [event.type for event in await harness.stored_events()][2:] == ["input.added"] * 3 + ["step.started"]
        assert list(log.state.inputs) == ["k2", "k3", "k4"]
        assert events.appends == 3
        await assert_same_after_reopening(harness, log)

    async def test_the_second_offer_of_a_key_returns_the_seq_of_the_first(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q", "k"), turn_started("k"), tool_called(), approval_requested())
        first = await harness.offer(approval_resolved("apr_1", "reject"), "apr_1")
        again = await harness.offer(approval_resolved("apr_1", "approve"), "apr_1")
        assert first == again == 5
        assert await harness.offer(input_added("q again", "k"), "k") == 1
        await log.sync()
        assert log.state.decisions[approval_requested().approval].resolved == approval_resolved("apr_1", "reject")
        assert log.head == 5

    @pytest.mark.parametrize(
        "body",
        [turn_completed(), log_line("x"), tool_completed(), control.SessionClosed(), control.SessionReverted(to=0)],
    )
    async def test_other_bodies_cannot_be_offered(self, body: Body) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(EventScope(), log_line("x"))
        with pytest.raises(InvalidInput):
            await harness.offer(body, "k")

    async def test_reading_and_following_do_not_claim_the_session(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        await reopen(harness.store, S)
        await harness.follow(3)
        info = await harness.store.sessions.find(S)
        assert info is not None
        assert (info.live, info.term) == (False, log.term)


async def open_log(*bodies: Body, harness: LogHarness | None = None) -> SessionLog:
    """Return a log with a turn in its first step and these bodies."""
    log = await (harness or LogHarness()).open()
    await log.append(T1, input_added("q"), turn_started("k"), step_started(), *bodies)
    return log


class TestRule3PairingIsAnInvariant:
    @pytest.mark.parametrize(
        ("before", "refused"),
        [
            ([], tool_completed("call_1")),
            ([], tool_failed("call_1")),
            ([], tool_started("call_1")),
            ([], progress.ToolReturned(result=tool_result("call_1"))),
            ([tool_called()], tool_called("call_1")),
            ([tool_called()], tool_called("call_3")),
            ([tool_called()], tool_called("call_1.1")),
            ([tool_called(), tool_completed()], tool_completed()),
            ([tool_called(), tool_completed()], tool_failed()),
            ([tool_called(), tool_completed()], tool_started()),
            ([tool_called(), tool_completed()], tool_called("call_1")),
            ([tool_called()], step_started(2)),
            ([tool_called(), tool_started()], step_started(2)),
            ([tool_called(), tool_called("call_2"), tool_completed("call_2")], step_started(2)),
            ([tool_called()], turn_completed()),
            ([tool_called()], progress.TurnFailed(code="c", message="m")),
            ([tool_called()], progress.TurnCancelled()),
            ([tool_called()], progress.TurnInterrupted()),
            ([tool_called()], context.ContextCompacted(summary="s", keep_from=1)),
            ([], turn_started("k")),
            ([turn_completed()], turn_completed()),
            ([turn_completed()], tool_called()),
            ([turn_completed()], step_started()),
            ([], text_delta("x", 0)),
        ],
    )
    async def test_an_append_that_breaks_the_pairing_is_refused(self, before: Sequence[Body], refused: Body) -> None:
        log = await open_log(*before)
        head = log.head
        with pytest.raises(LogError):
            await log.append(T1, refused)
        with pytest.raises(LogError):
            await log.append(T1, log_line("with it"), refused)
        assert log.head == head

    async def test_a_step_may_start_while_another_agent_has_an_open_call(self) -> None:
        log = await open_log(tool_called())
        await log.append(scope_at("t1", 1, ("agent-1",)), step_started(agent="child"), tool_called("call_1.1"))
        with pytest.raises(LogError):
            await log.append(T1, step_started(2))
        await log.append(scope_at("t1", 1, ("agent-1",)), tool_completed("call_1.1"), step_started(2, agent="child"))

    @pytest.mark.parametrize(
        ("effect", "phase", "reason"),
        [("once", "called", "sealed"), ("once", "started", "outcome_unknown"), ("read", "started", "sealed")],
    )
    async def test_the_result_of_a_sealed_call_states_whether_it_had_begun(
        self, effect: str, phase: str, reason: str
    ) -> None:
        log = await open_log(tool_called())
        if phase == "started":
            await log.append(T1, tool_started("call_1", effect))  # type: ignore[arg-type]  # one of the effects
        [(path, step, sealed)] = results_for_open_calls(log.state, "sealed", "Over.")
        assert (path, step, sealed.failed, sealed.reason) == ((), 1, True, reason)
        assert ("verify before repeating" in sealed.text) == (reason == "outcome_unknown")
        await log.append(T1, progress.ToolFailed(result=sealed), progress.TurnInterrupted())

    async def test_a_returned_value_that_middleware_has_not_checked_is_not_passed_on(self) -> None:
        log = await open_log(
            tool_called(), tool_started(), progress.ToolReturned(result=tool_result("call_1", "the real thing"))
        )
        sealed = results_for_open_calls(log.state, "sealed", "Over.")[0][2]
        assert (sealed.failed, sealed.text) == (True, "Over. It had returned; what it returned was not passed on.")

    async def test_the_calls_of_children_are_sealed_before_those_of_their_parents(self) -> None:
        log = await open_log(tool_called())
        child = scope_at("t1", 1, ("agent-1",))
        await log.append(child, step_started(agent="child"), tool_called("call_1.1"))
        assert [r.call for _, _, r in results_for_open_calls(log.state, "sealed", "Over.")] == ["call_1.1", "call_1"]
        assert [r.call for _, _, r in results_for_open_calls(log.state, "sealed", "Over.", ("agent-1",))] == [
            "call_1.1"
        ]

    @pytest.mark.parametrize(
        "go_back", [rewind_session, lambda harness, to: fork_session(harness, to, SessionId("new"))]
    )
    async def test_a_fork_or_rewind_through_open_calls_seals_them_in_the_same_write(
        self, go_back: Callable[[LogHarness, int], object]
    ) -> None:
        harness = LogHarness()
        calls = (message_completed("hm"), tool_called(), tool_called("call_2"))
        log = await open_log(*calls, tool_started(), harness=harness)
        cut = log.head
        await log.append(T1, tool_completed("call_1"), tool_completed("call_2"), step_started(2), tool_called("call_3"))
        await harness.release(log)
        await go_back(harness, cut)  # type: ignore[misc]  # both are coroutines
        session = S if go_back is rewind_session else SessionId("new")
        opened = await reopen(harness.store, session)
        assert (opened.state.open, opened.state.turn) == ({}, None)
        messages = build_messages(opened.window.events_at(()), ())
        assert isinstance(messages[-1], ToolMessage)
        assert [r.call for r in messages[-1].results] == ["call_1", "call_2"]
        assert all(r.failed for r in messages[-1].results)

    async def test_a_prompt_has_results_in_the_order_of_calls_and_then_new_inputs(self) -> None:
        harness = LogHarness()
        log = await open_log(message_completed("hm"), tool_called(), tool_called("call_2"), harness=harness)
        await log.append(T1, tool_completed("call_2", "two"))
        await harness.offer(input_added("by the way", "k2", "steer"), "k2")
        await log.append(T1, tool_completed("call_1", "one"), step_started(2, "k2"))
        messages = build_messages(log.window.events_at(()), ())
        assert [type(message) for message in messages] == [UserMessage, AssistantMessage, ToolMessage, UserMessage]
        assert isinstance(messages[2], ToolMessage)
        assert [r.text for r in messages[2].results] == ["one", "two"]
        assert isinstance(messages[3], UserMessage)
        assert text_of(messages[3].content) == "by the way"

    async def test_a_message_cut_short_keeps_its_text_and_loses_its_calls(self) -> None:
        cut = progress.MessageCompleted(message_id=MessageId("m1"), content=(Text(text="I was abo"),), cut=True)
        log = await open_log(cut, progress.TurnInterrupted())
        [_, message] = build_messages(log.window.events_at(()), ())
        assert message == AssistantMessage(id=MessageId("m1"), content=(Text(text="I was abo"),))


class TestRule4EffectsAreDeclared:
    async def test_the_state_has_the_key_arguments_and_deadline_of_a_started_call(self) -> None:
        start = progress.ToolStarted(
            call=tool_called(n=1).call,
            key=CallKey("s/call_1"),
            effect="idempotent",
            deadline="2026-01-01T00:01:00.000Z",
            attempt=2,
        )
        log = await open_log(tool_called(n=0), start)
        call = log.state.open[CallId("call_1")]
        assert (call.phase, call.effect, call.key, call.deadline, call.attempt) == (
            "started",
            "idempotent",
            "s/call_1",
            "2026-01-01T00:01:00.000Z",
            2,
        )
        assert call.call.arguments == {"n": 1}

    async def test_a_returned_value_stays_in_the_state_until_the_call_has_its_result(self) -> None:
        log = await open_log(tool_called(), tool_started(), progress.ToolReturned(result=tool_result("call_1", "raw")))
        assert log.state.open[CallId("call_1")].result == tool_result("call_1", "raw")
        await log.append(T1, tool_completed())
        assert log.state.open == {}

    async def test_call_ids_are_unique_also_after_a_rewind(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log, 1)
        await harness.release(log)
        await rewind_session(harness, 3)
        log = await harness.open()
        await log.append(scope_at("t2"), input_added("again", "k2"), turn_started("k2"))
        with pytest.raises(LogError, match="call_2"):
            await log.append(scope_at("t2"), tool_called("call_1"))
        await log.append(scope_at("t2"), tool_called("call_2"))


class TestRule5DeltasAreLive:
    async def test_applying_a_delta_twice_changes_nothing(self) -> None:
        first, second = text_delta("He", 0), text_delta("llo", 2)
        deltas = [first, second, second, first, second]
        assert visible_texts(Event(data=delta, session=S, ts="") for delta in deltas) == ["Hello"]

    async def test_deltas_are_published_and_not_stored(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        log.publish_live(T1, text_delta("He", 0))
        events = await harness.follow(4)
        assert [event.type for event in events] == ["input.added", "turn.started", "step.started", "message.snapshot"]
        assert (events[-1].seq, events[-1].id, events[-1].prev, events[-1].turn) == (0, "", "", "t1")
        assert len(await harness.stored_events()) == 3

    async def test_a_discarded_message_stays_discarded(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        log.publish_live(T1, text_delta("Hm", 0))
        await log.append(T1, progress.MessageDiscarded(message_id=MessageId("m1"), reason="tried again"))
        assert [event.type for event in await harness.stored_events()][-1] == "message.discarded"
        assert log.fanout.snapshots() == []


class TestRule6Cursors:
    @pytest.mark.parametrize(
        ("text", "cursor"),
        [("1.42", Cursor(1, 42)), ("42", Cursor(0, 42)), ("", Cursor()), (None, Cursor()), ("2.0", Cursor(2, 0))],
    )
    def test_a_cursor_round_trips_through_text(self, text: str | None, cursor: Cursor) -> None:
        assert Cursor.parse(text) == cursor
        assert Cursor.parse(str(cursor)) == cursor

    @pytest.mark.parametrize(
        "text",
        ["x", "1.", ".1", "1.2.3", "-1", "1.-2", "1e3", "²", "1.²", " 1", "1 ", "9" * 19, "9" * 5000 + ".1", "1_0"],
    )
    def test_an_invalid_cursor_is_an_error_with_the_format(self, text: str) -> None:
        with pytest.raises(InvalidInput, match=r"<epoch>\.<seq>"):
            Cursor.parse(text)

    def test_cursors_compare_as_numbers(self) -> None:
        places = [Cursor(1, 9), Cursor(1, 10), Cursor(2, 1), Cursor(10, 0)]
        assert sorted([places[2], places[1], places[3], places[0]]) == places

    async def test_the_id_of_an_event_is_its_cursor(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        assert [Cursor.parse(event.id) for event in await harness.stored_events()] == [
            Cursor(1, seq) for seq in range(1, log.head + 1)
        ]

    async def test_an_unknown_epoch_yields_a_reset_and_every_event(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        events = await harness.follow(log.head + 1, Cursor(2, 5))
        assert events[0].type == "stream.reset"
        assert events[1:] == await harness.stored_events()

    async def test_restart_rewind_and_fork_keep_the_epoch(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        await rewind_session(harness, 3)
        events = await fork_session(harness, 5, SessionId("new"))
        assert {event.epoch for event in [*events, *await harness.stored_events()]} == {1}


class TestRule7RevertCompactAndForkAreEvents:
    async def test_compaction_and_rewind_leave_stored_events_unchanged(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log, 1)
        await log.append(EventScope(), context.ContextCompacted(summary="short", keep_from=5))
        before = await harness.stored_events()
        await harness.release(log)
        await rewind_session(harness, 3)
        after = await harness.stored_events()
        assert after[: len(before)] == before
        assert [event.type for event in after[len(before) :]] == ["session.reverted"]
        [only] = build_messages((await reopen(harness.store, S)).window.events_at(()), ())
        assert only == UserMessage(content=(Text(text="question 1"),))

    async def test_a_fork_copies_the_bytes_and_names_its_origin(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        await harness.release(log)
        fork = await fork_session(harness, 6, SessionId("new"))
        assert [event.stored for event in fork[:6]] == [event.stored for event in (await harness.stored_events())[:6]]
        assert fork[6].data == control.SessionForked(origin="s", cursor="1.6")
        info = await harness.store.sessions.find(SessionId("new"))
        assert info is not None
        assert (info.origin, info.turn, info.head) == ("s", "", len(fork))
        chain = HashChain(SessionId("new"))
        for event in fork:
            chain.check_next(event.seq, event.stored)

    async def test_a_child_writes_to_the_log_of_its_root_under_its_own_path(self) -> None:
        log = await open_log(tool_called("call_1", "helper"), tool_started("call_1", "resume"))
        child = scope_at("t1", 1, ("agent-1",))
        await log.append(T1, progress.SubagentStarted(call=CallId("call_1"), agent="helper", child="agent-1"))
        await log.append(
            child, step_started(agent="helper"), message_completed("hm", "m2"), tool_called("call_1.1", message="m2")
        )
        assert log.state.agent_progress(("agent-1",)).agent == "helper"
        assert len(build_messages(log.window.events_at(("agent-1",)), ("agent-1",))) == 1
        await log.append(child, tool_completed("call_1.1"))
        done = progress.SubagentCompleted(call=CallId("call_1"), agent="helper", child="agent-1", text="found")
        await log.append(T1, done)
        assert log.state.agent_progress(("agent-1",)).done == done
        assert all(event.path == () for event in log.window.events)
        await log.append(T1, tool_completed("call_1"))
        assert "agent-1" not in log.state.lanes


class TestRule8ReopeningCostsTheTail:
    async def test_the_state_stays_small_in_a_long_session(self) -> None:
        harness, events = flaky_harness()
        log = await harness.open()
        for number in range(1, 101):
            await write_simple_turn(log, number)
        await log.append(EventScope(), context.ContextCompacted(summary="s" * 100, keep_from=log.head))
        events.rows = 0
        await assert_same_after_reopening(harness, log)
        assert events.rows < 300
        assert len(log.window.events) == 1


class TestRule9PlainDataOnly:
    async def test_stored_values_are_decoded_as_plain_data(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        hostile = {"__class__": "os.system", "py/reduce": ["x"], "$ref": "file:///etc/passwd", "\x00": "\u202e"}
        await log.append(EventScope(), control.StateChanged(key="k", value=hostile))
        assert decode((await harness.stored_events())[0].stored).data == control.StateChanged(key="k", value=hostile)
        await assert_same_after_reopening(harness, log)


class TestRule10TamperEvident:
    async def test_a_flipped_bit_anywhere_in_a_log_is_corrupt(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        stored = [event.stored for event in await harness.stored_events()]
        info = await harness.store.sessions.find(S)
        assert info is not None
        for number, bytes_ in enumerate(stored):
            for index in range(len(bytes_)):
                broken = bytearray(bytes_)
                broken[index] ^= 1 << (index % 8)
                with pytest.raises(Corrupt):
                    _check_chain([*stored[:number], bytes(broken), *stored[number + 1 :]], info.head, info.hash)
        _check_chain(stored, info.head, info.hash)
        assert hash_of(stored[-1]) == info.hash

    async def test_a_shortened_extended_or_reordered_log_is_corrupt(self) -> None:
        harness = LogHarness()
        log = await harness.open()
        await write_simple_turn(log)
        stored = [event.stored for event in await harness.stored_events()]
        info = await harness.store.sessions.find(S)
        assert info is not None
        for broken in (stored[:-1], stored[1:], [*stored, stored[-1]], [stored[1], stored[0], *stored[2:]], []):
            with pytest.raises(Corrupt):
                _check_chain(broken, info.head, info.hash)


def _check_chain(stored: Sequence[bytes], head: int, hash: str) -> None:
    chain = HashChain(S)
    for seq, bytes_ in enumerate(stored, 1):
        chain.check_next(seq, bytes_)
    chain.check_end(head, hash)


class TestRule11Namespaces:
    async def test_equal_session_ids_in_two_namespaces_are_two_sessions(self) -> None:
        store = MemoryStore("one")
        one, two = LogHarness(store), LogHarness(store.with_namespace("two"))
        log = await one.open()
        await write_simple_turn(log)
        with pytest.raises(NotFound):
            await two.offer(input_added("hello", "k1"), "k1")
        other = await two.open()
        await other.append(EventScope(), log_line("mine"))
        assert await two.offer(input_added("hello", "k1"), "k1") == 2
        await other.sync()
        assert len(await one.stored_events()) == log.head
        await assert_same_after_reopening(one, log)
        assert [event.seq for event in await two.follow(2)] == [1, 2]
