"""The eleven rules of the log, one by one. Each rule has tests of its own elsewhere too; here they stand together."""

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
from vaka.core.session.fold import results_for_open_calls
from vaka.core.session.hash_chain import HashChain, hash_of
from vaka.core.session.log import Log
from vaka.core.session.snapshot import reopen
from vaka.core.types import control, progress
from vaka.core.types.errors import Busy, ConflictError, Corrupt, InvalidInput, LogError, NotFound
from vaka.core.types.event import Body, Event, decode
from vaka.core.types.ids import CallId, Cursor, EventScope, MessageId, SessionId
from vaka.core.types.message import AssistantMessage, Text, ToolMessage, UserMessage, text_of
from vaka.stores.memory import MemoryStore


class TestRule1WriteAhead:
    async def test_nobody_sees_an_event_before_the_store_has_it(self) -> None:
        desk, events = flaky_harness("before", "before")
        log = await desk.open()
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            stored = await desk.stored_events()
            seen.append((log.head, len(stored)))

        log.listeners = [lambda: looks.append(asyncio.create_task(look()))]
        looks: list[asyncio.Task[None]] = []
        await log.append(EventScope(), log_line("one"), log_line("two"))
        await asyncio.gather(*looks)
        assert seen == [(2, 2)]
        assert events.appends == 3

    async def test_what_was_refused_is_shown_to_nobody(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        with pytest.raises(LogError):
            await log.append(T1, tool_completed("call_1"))
        await log.append(EventScope(), log_line("x"))
        assert [event.type for event in await desk.follow(1)] == ["log"]


class TestRule2OneWriterManyPetitioners:
    async def test_there_is_one_writer_and_its_term_only_grows(self) -> None:
        desk = LogHarness()
        terms: list[int] = []
        for _ in range(3):
            log = await desk.open()
            await log.append(EventScope(), log_line("x"))
            terms.append(log.term)
            with pytest.raises(Busy):
                await LogHarness(desk.store).open()
            await desk.release(log)
        assert terms == sorted(set(terms))

    async def test_who_was_replaced_gets_a_conflict_and_never_a_merge(self) -> None:
        desk = LogHarness()
        old = await desk.open()
        await old.append(EventScope(), log_line("old"))
        await desk.release(old)
        new = await LogHarness(desk.store).open()
        with pytest.raises(ConflictError):
            await old.append(EventScope(), log_line("stale"))
        await new.append(EventScope(), log_line("new"))
        assert [event.data for event in await desk.stored_events()] == [log_line("old"), log_line("new")]

    async def test_offers_that_came_first_are_folded_and_the_write_follows_them(self) -> None:
        desk, events = flaky_harness()
        log = await desk.open()
        await log.append(T1, input_added("first", "k1"), turn_started("k1"))
        for number in range(2, 5):
            await desk.offer(input_added("more", f"k{number}"), f"k{number}")
        await log.append(T1, step_started())
        assert [event.type for event in await desk.stored_events()][2:] == ["input.added"] * 3 + ["step.started"]
        assert list(log.state.inputs) == ["k2", "k3", "k4"]
        assert events.appends == 3
        await assert_same_after_reopening(desk, log)

    async def test_the_first_of_a_key_wins_and_the_second_is_told_of_it(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q", "k"), turn_started("k"), tool_called(), approval_requested())
        first = await desk.offer(approval_resolved("apr_1", "reject"), "apr_1")
        again = await desk.offer(approval_resolved("apr_1", "approve"), "apr_1")
        assert first == again == 5
        assert await desk.offer(input_added("q again", "k"), "k") == 1
        await log.sync()
        assert log.state.decisions[approval_requested().approval].resolved == approval_resolved("apr_1", "reject")
        assert log.head == 5

    @pytest.mark.parametrize(
        "body",
        [turn_completed(), log_line("x"), tool_completed(), control.SessionClosed(), control.SessionReverted(to=0)],
    )
    async def test_only_four_things_can_be_offered(self, body: Body) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(EventScope(), log_line("x"))
        with pytest.raises(InvalidInput):
            await desk.offer(body, "k")

    async def test_reading_and_following_never_claim(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        await desk.release(log)
        await reopen(desk.store, S)
        await desk.follow(3)
        info = await desk.store.sessions.find(S)
        assert info is not None
        assert (info.live, info.term) == (False, log.term)


async def open_log(*bodies: Body) -> Log:
    log = await LogHarness().open()
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
            ([tool_called()], control.ContextCompacted(summary="s", keep_from=1)),
            ([], turn_started("k")),
            ([turn_completed()], turn_completed()),
            ([turn_completed()], tool_called()),
            ([turn_completed()], step_started()),
            ([], text_delta("x", 0)),
        ],
    )
    async def test_what_would_break_it_is_refused(self, before: Sequence[Body], refused: Body) -> None:
        log = await open_log(*before)
        head = log.head
        with pytest.raises(LogError):
            await log.append(T1, refused)
        with pytest.raises(LogError):
            await log.append(T1, log_line("with it"), refused)
        assert log.head == head

    async def test_another_agents_open_call_is_no_obstacle_to_a_step(self) -> None:
        log = await open_log(tool_called())
        await log.append(scope_at("t1", 1, ("agent-1",)), step_started(agent="child"), tool_called("call_1.1"))
        with pytest.raises(LogError):
            await log.append(T1, step_started(2))
        await log.append(scope_at("t1", 1, ("agent-1",)), tool_completed("call_1.1"), step_started(2, agent="child"))

    @pytest.mark.parametrize(
        ("effect", "phase", "reason"),
        [("once", "called", "sealed"), ("once", "started", "outcome_unknown"), ("read", "started", "sealed")],
    )
    async def test_a_sealed_call_says_what_is_known_of_it(self, effect: str, phase: str, reason: str) -> None:
        log = await open_log(tool_called())
        if phase == "started":
            await log.append(T1, tool_started("call_1", effect))  # type: ignore[arg-type]  # one of the effects
        [(path, step, sealed)] = results_for_open_calls(log.state, "sealed", "Over.")
        assert (path, step, sealed.failed, sealed.reason) == ((), 1, True, reason)
        assert ("verify before repeating" in sealed.text) == (reason == "outcome_unknown")
        await log.append(T1, progress.ToolFailed(result=sealed), progress.TurnInterrupted())

    async def test_what_had_returned_but_was_not_looked_at_is_not_passed_on(self) -> None:
        log = await open_log(
            tool_called(), tool_started(), progress.ToolReturned(result=tool_result("call_1", "the real thing"))
        )
        sealed = results_for_open_calls(log.state, "sealed", "Over.")[0][2]
        assert (sealed.failed, sealed.text) == (True, "Over. It had returned; what it returned was not passed on.")

    async def test_the_calls_of_children_are_sealed_before_those_they_hang_on(self) -> None:
        log = await open_log(tool_called())
        child = scope_at("t1", 1, ("agent-1",))
        await log.append(child, step_started(agent="child"), tool_called("call_1.1"))
        assert [r.call for _, _, r in results_for_open_calls(log.state, "sealed", "Over.")] == ["call_1.1", "call_1"]
        assert [r.call for _, _, r in results_for_open_calls(log.state, "sealed", "Over.", ("agent-1",))] == [
            "call_1.1"
        ]

    @pytest.mark.parametrize("go_back", [rewind_session, lambda desk, to: fork_session(desk, to, SessionId("new"))])
    async def test_a_fork_or_rewind_through_open_calls_seals_them_in_the_same_write(
        self, go_back: Callable[[LogHarness, int], object]
    ) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(
            T1,
            input_added("q"),
            turn_started("k"),
            step_started(),
            message_completed("hm"),
            tool_called(),
            tool_called("call_2"),
            tool_started(),
        )
        cut = log.head
        await log.append(T1, tool_completed("call_1"), tool_completed("call_2"), step_started(2), tool_called("call_3"))
        await desk.release(log)
        await go_back(desk, cut)  # type: ignore[misc]  # both are coroutines
        session = S if go_back is rewind_session else SessionId("new")
        found = await reopen(desk.store, session)
        assert (found.state.open, found.state.turn) == ({}, None)
        said_ = build_messages(found.window.events_at(()), ())
        assert isinstance(said_[-1], ToolMessage)
        assert [r.call for r in said_[-1].results] == ["call_1", "call_2"]
        assert all(r.failed for r in said_[-1].results)

    async def test_the_prompt_has_results_in_the_order_of_the_calls_and_then_what_was_said_meanwhile(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(
            T1,
            input_added("q"),
            turn_started("k"),
            step_started(),
            message_completed("hm"),
            tool_called(),
            tool_called("call_2"),
        )
        await log.append(T1, tool_completed("call_2", "two"))
        await desk.offer(input_added("by the way", "k2", "steer"), "k2")
        await log.append(T1, tool_completed("call_1", "one"), step_started(2, "k2"))
        shown = build_messages(log.window.events_at(()), ())
        assert [type(message) for message in shown] == [UserMessage, AssistantMessage, ToolMessage, UserMessage]
        assert isinstance(shown[2], ToolMessage)
        assert [r.text for r in shown[2].results] == ["one", "two"]
        assert isinstance(shown[3], UserMessage)
        assert text_of(shown[3].content) == "by the way"

    async def test_a_message_cut_short_keeps_its_text_and_loses_its_calls(self) -> None:
        cut = progress.MessageCompleted(message_id=MessageId("m1"), content=(Text(text="I was abo"),), cut=True)
        log = await open_log(cut, progress.TurnInterrupted())
        [_, message] = build_messages(log.window.events_at(()), ())
        assert message == AssistantMessage(id=MessageId("m1"), content=(Text(text="I was abo"),))


class TestRule4EffectsAreDeclared:
    async def test_the_start_with_key_arguments_and_deadline_is_in_the_state(self) -> None:
        start = progress.ToolStarted(
            call=tool_called(n=1).call,
            key="s/call_1",
            effect="idempotent",
            deadline="2026-01-01T00:01:00.000Z",
            attempt=2,
        )
        log = await open_log(tool_called(n=0), start)
        call = log.state.open[CallId("call_1")]
        assert (call.phase, call.effect, call.key, call.deadline, call.attempt) == (
            "started", "idempotent", "s/call_1", "2026-01-01T00:01:00.000Z", 2
        )  # fmt: skip
        assert call.call.arguments == {"n": 1}

    async def test_what_it_returned_is_kept_until_it_has_its_result(self) -> None:
        log = await open_log(tool_called(), tool_started(), progress.ToolReturned(result=tool_result("call_1", "raw")))
        assert log.state.open[CallId("call_1")].result == tool_result("call_1", "raw")
        await log.append(T1, tool_completed())
        assert log.state.open == {}

    async def test_call_ids_are_never_used_twice_not_even_after_a_rewind(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log, 1)
        await desk.release(log)
        await rewind_session(desk, 3)
        log = await desk.open()
        await log.append(scope_at("t2"), input_added("again", "k2"), turn_started("k2"))
        with pytest.raises(LogError, match="call_2"):
            await log.append(scope_at("t2"), tool_called("call_1"))
        await log.append(scope_at("t2"), tool_called("call_2"))


class TestRule5DeltasAreLive:
    async def test_applying_a_delta_twice_changes_nothing(self) -> None:
        pieces = [
            text_delta("He", 0),
            text_delta("llo", 2),
            text_delta("llo", 2),
            text_delta("He", 0),
            text_delta("llo", 2),
        ]
        assert visible_texts(Event(data=piece, session=S, ts="") for piece in pieces) == ["Hello"]

    async def test_deltas_are_shown_and_not_stored(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        log.publish_live(T1, text_delta("He", 0))
        came = await desk.follow(4)
        assert [event.type for event in came] == ["input.added", "turn.started", "step.started", "message.snapshot"]
        assert (came[-1].seq, came[-1].id, came[-1].prev, came[-1].turn) == (0, "", "", "t1")
        assert len(await desk.stored_events()) == 3

    async def test_a_message_tried_again_is_discarded_for_ever(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await log.append(T1, input_added("q"), turn_started("k"), step_started())
        log.publish_live(T1, text_delta("Hm", 0))
        await log.append(T1, progress.MessageDiscarded(message_id=MessageId("m1"), reason="tried again"))
        assert [event.type for event in await desk.stored_events()][-1] == "message.discarded"
        assert log.fanout.snapshots() == []


class TestRule6ACursorIsTwoNumbers:
    @pytest.mark.parametrize(
        ("text", "cursor"),
        [("1.42", Cursor(1, 42)), ("42", Cursor(0, 42)), ("", Cursor()), (None, Cursor()), ("2.0", Cursor(2, 0))],
    )
    def test_it_is_read_and_written(self, text: str | None, cursor: Cursor) -> None:
        assert Cursor.parse(text) == cursor
        assert Cursor.parse(str(cursor)) == cursor

    @pytest.mark.parametrize(
        "text",
        ["x", "1.", ".1", "1.2.3", "-1", "1.-2", "1e3", "²", "1.²", " 1", "1 ", "9" * 19, "9" * 5000 + ".1", "1_0"],
    )
    def test_anything_else_is_an_error_that_says_what_a_cursor_is(self, text: str) -> None:
        with pytest.raises(InvalidInput, match=r"<epoch>\.<seq>"):
            Cursor.parse(text)

    def test_they_compare_as_numbers(self) -> None:
        places = [Cursor(1, 9), Cursor(1, 10), Cursor(2, 1), Cursor(10, 0)]
        assert sorted([places[2], places[1], places[3], places[0]]) == places

    async def test_it_is_the_id_of_the_event(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        assert [Cursor.parse(event.id) for event in await desk.stored_events()] == [
            Cursor(1, seq) for seq in range(1, log.head + 1)
        ]

    async def test_an_unknown_epoch_is_answered_with_a_reset_and_everything(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        await desk.release(log)
        came = await desk.follow(log.head + 1, Cursor(2, 5))
        assert came[0].type == "stream.reset"
        assert came[1:] == await desk.stored_events()

    async def test_the_epoch_stays_on_restart_rewind_and_fork(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        await desk.release(log)
        await rewind_session(desk, 3)
        events = await fork_session(desk, 5, SessionId("new"))
        assert {event.epoch for event in [*events, *await desk.stored_events()]} == {1}


class TestRule7RevertCompactAndForkAreEvents:
    async def test_nothing_is_rewritten(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log, 1)
        await log.append(EventScope(), control.ContextCompacted(summary="short", keep_from=5))
        before = await desk.stored_events()
        await desk.release(log)
        await rewind_session(desk, 3)
        after = await desk.stored_events()
        assert after[: len(before)] == before
        assert [event.type for event in after[len(before) :]] == ["session.reverted"]
        [only] = build_messages((await reopen(desk.store, S)).window.events_at(()), ())
        assert only == UserMessage(content=(Text(text="question 1"),))

    async def test_a_fork_has_the_same_bytes_and_says_where_it_comes_from(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        await desk.release(log)
        made = await fork_session(desk, 6, SessionId("new"))
        assert [event.stored for event in made[:6]] == [event.stored for event in (await desk.stored_events())[:6]]
        assert made[6].data == control.SessionForked(origin="s", cursor="1.6")
        info = await desk.store.sessions.find(SessionId("new"))
        assert info is not None
        assert (info.origin, info.turn, info.head) == ("s", "", len(made))
        chain = HashChain(SessionId("new"))
        for event in made:
            chain.check_next(event.seq, event.stored)

    async def test_a_child_writes_into_its_roots_log_under_its_own_path(self) -> None:
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
    async def test_the_state_is_small_however_much_was_said(self) -> None:
        desk, events = flaky_harness()
        log = await desk.open()
        for number in range(1, 101):
            await write_simple_turn(log, number)
        await log.append(EventScope(), control.ContextCompacted(summary="s" * 100, keep_from=log.head))
        events.rows = 0
        await assert_same_after_reopening(desk, log)
        assert events.rows < 300
        assert len(log.window.events) == 1


class TestRule9PlainDataOnly:
    async def test_what_is_stored_is_json_and_nothing_runs_when_it_is_read(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        hostile = {"__class__": "os.system", "py/reduce": ["x"], "$ref": "file:///etc/passwd", "\x00": "\u202e"}
        await log.append(EventScope(), control.StateChanged(key="k", value=hostile))
        assert decode((await desk.stored_events())[0].stored).data == control.StateChanged(key="k", value=hostile)
        await assert_same_after_reopening(desk, log)


class TestRule10TamperEvident:
    async def test_a_flipped_bit_anywhere_in_a_log_is_an_error(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        stored = [event.stored for event in await desk.stored_events()]
        info = await desk.store.sessions.find(S)
        assert info is not None
        for number, bytes_ in enumerate(stored):
            for index in range(len(bytes_)):
                broken = bytearray(bytes_)
                broken[index] ^= 1 << (index % 8)
                with pytest.raises(Corrupt):
                    _check_chain([*stored[:number], bytes(broken), *stored[number + 1 :]], info.head, info.hash)
        _check_chain(stored, info.head, info.hash)
        assert hash_of(stored[-1]) == info.hash

    async def test_so_is_a_log_that_was_cut_lengthened_or_put_in_another_order(self) -> None:
        desk = LogHarness()
        log = await desk.open()
        await write_simple_turn(log)
        stored = [event.stored for event in await desk.stored_events()]
        info = await desk.store.sessions.find(S)
        assert info is not None
        for broken in (stored[:-1], stored[1:], [*stored, stored[-1]], [stored[1], stored[0], *stored[2:]], []):
            with pytest.raises(Corrupt):
                _check_chain(broken, info.head, info.hash)


def _check_chain(stored: Sequence[bytes], head: int, hash: str) -> None:
    chain = HashChain(S)
    for seq, bytes_ in enumerate(stored, 1):
        chain.check_next(seq, bytes_)
    chain.check_end(head, hash)


class TestRule11AHandleBelongsToOneNamespace:
    async def test_the_same_names_in_two_of_them_are_two_things(self) -> None:
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
