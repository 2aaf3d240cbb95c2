"""The eleven rules of the log, one by one. Each rule has tests of its own elsewhere too; here they stand together."""

import asyncio
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
    delta,
    ended,
    flaky,
    fork,
    note,
    ok,
    resolved,
    result,
    rewind,
    said,
    same_after_reopening,
    simple_turn,
    started,
    stepped,
    texts,
)
from vaka.core.loop.prompt import messages
from vaka.core.session.chain import Chain, hash_of
from vaka.core.session.cursor import Cursor
from vaka.core.session.fold import seals
from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.session.snapshot import reopen
from vaka.core.types import control, progress
from vaka.core.types.content import Text, text_of
from vaka.core.types.errors import Busy, ConflictError, Corrupt, InvalidInput, LogError, NotFound
from vaka.core.types.event import Body, Event, decode
from vaka.core.types.ids import CallId, MessageId, SessionId
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage
from vaka.stores.memory import MemoryStore


class TestRule1WriteAhead:
    async def test_nobody_sees_an_event_before_the_store_has_it(self) -> None:
        desk, events = flaky("before", "before")
        log = await desk.open()
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            stored = await desk.stored()
            seen.append((log.head, len(stored)))

        log.listeners = [lambda: looks.append(asyncio.create_task(look()))]
        looks: list[asyncio.Task[None]] = []
        await log.append(Place(), note("one"), note("two"))
        await asyncio.gather(*looks)
        assert seen == [(2, 2)]
        assert events.appends == 3

    async def test_what_was_refused_is_shown_to_nobody(self) -> None:
        desk = Desk()
        log = await desk.open()
        with pytest.raises(LogError):
            await log.append(T1, ok("call_1"))
        await log.append(Place(), note("x"))
        assert [event.type for event in await desk.read(1)] == ["log"]


class TestRule2OneWriterManyPetitioners:
    async def test_there_is_one_writer_and_its_term_only_grows(self) -> None:
        desk = Desk()
        terms: list[int] = []
        for _ in range(3):
            log = await desk.open()
            await log.append(Place(), note("x"))
            terms.append(log.term)
            with pytest.raises(Busy):
                await Desk(desk.store).open()
            await desk.shut(log)
        assert terms == sorted(set(terms))

    async def test_who_was_replaced_gets_a_conflict_and_never_a_merge(self) -> None:
        desk = Desk()
        old = await desk.open()
        await old.append(Place(), note("old"))
        await desk.shut(old)
        new = await Desk(desk.store).open()
        with pytest.raises(ConflictError):
            await old.append(Place(), note("stale"))
        await new.append(Place(), note("new"))
        assert [event.data for event in await desk.stored()] == [note("old"), note("new")]

    async def test_offers_that_came_first_are_folded_and_the_write_follows_them(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        await log.append(T1, said("first", "k1"), begun("k1"))
        for number in range(2, 5):
            await desk.offer(said("more", f"k{number}"), f"k{number}")
        await log.append(T1, stepped())
        assert [event.type for event in await desk.stored()][2:] == ["input.added"] * 3 + ["step.started"]
        assert list(log.state.inputs) == ["k2", "k3", "k4"]
        assert events.appends == 3
        await same_after_reopening(desk, log)

    async def test_the_first_of_a_key_wins_and_the_second_is_told_of_it(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("q", "k"), begun("k"), called(), asked())
        first = await desk.offer(resolved("apr_1", "reject"), "apr_1")
        again = await desk.offer(resolved("apr_1", "approve"), "apr_1")
        assert first == again == 5
        assert await desk.offer(said("q again", "k"), "k") == 1
        await log.sync()
        assert log.state.decisions[asked().approval].resolved == resolved("apr_1", "reject")
        assert log.head == 5

    @pytest.mark.parametrize("body", [ended(), note("x"), ok(), control.SessionClosed(), control.SessionReverted(to=0)])
    async def test_only_four_things_can_be_offered(self, body: Body) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(Place(), note("x"))
        with pytest.raises(InvalidInput):
            await desk.offer(body, "k")

    async def test_reading_and_following_never_claim(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        await reopen(desk.store, S)
        await desk.read(3)
        info = await desk.store.sessions.find(S)
        assert info is not None
        assert (info.live, info.term) == (False, log.term)


async def opened(*bodies: Body) -> Log:
    log = await Desk().open()
    await log.append(T1, said("q"), begun("k"), stepped(), *bodies)
    return log


class TestRule3PairingIsAnInvariant:
    @pytest.mark.parametrize(
        ("before", "refused"),
        [
            ([], ok("call_1")),
            ([], bad("call_1")),
            ([], started("call_1")),
            ([], progress.ToolReturned(result=result("call_1"))),
            ([called()], called("call_1")),
            ([called()], called("call_3")),
            ([called()], called("call_1.1")),
            ([called(), ok()], ok()),
            ([called(), ok()], bad()),
            ([called(), ok()], started()),
            ([called(), ok()], called("call_1")),
            ([called()], stepped(2)),
            ([called(), started()], stepped(2)),
            ([called(), called("call_2"), ok("call_2")], stepped(2)),
            ([called()], ended()),
            ([called()], progress.TurnFailed(code="c", message="m")),
            ([called()], progress.TurnCancelled()),
            ([called()], progress.TurnInterrupted()),
            ([called()], control.ContextCompacted(summary="s", keep_from=1)),
            ([], begun("k")),
            ([ended()], ended()),
            ([ended()], called()),
            ([ended()], stepped()),
            ([], delta("x", 0)),
        ],
    )
    async def test_what_would_break_it_is_refused(self, before: Sequence[Body], refused: Body) -> None:
        log = await opened(*before)
        head = log.head
        with pytest.raises(LogError):
            await log.append(T1, refused)
        with pytest.raises(LogError):
            await log.append(T1, note("with it"), refused)
        assert log.head == head

    async def test_another_agents_open_call_is_no_obstacle_to_a_step(self) -> None:
        log = await opened(called())
        await log.append(at("t1", 1, ("agent-1",)), stepped(agent="child"), called("call_1.1"))
        with pytest.raises(LogError):
            await log.append(T1, stepped(2))
        await log.append(at("t1", 1, ("agent-1",)), ok("call_1.1"), stepped(2, agent="child"))

    @pytest.mark.parametrize(
        ("effect", "phase", "reason"),
        [("once", "called", "sealed"), ("once", "started", "outcome_unknown"), ("read", "started", "sealed")],
    )
    async def test_a_sealed_call_says_what_is_known_of_it(self, effect: str, phase: str, reason: str) -> None:
        log = await opened(called())
        if phase == "started":
            await log.append(T1, started("call_1", effect))  # type: ignore[arg-type]  # one of the effects
        [(path, step, sealed)] = seals(log.state, "sealed", "Over.")
        assert (path, step, sealed.failed, sealed.reason) == ((), 1, True, reason)
        assert ("verify before repeating" in sealed.text) == (reason == "outcome_unknown")
        await log.append(T1, progress.ToolFailed(result=sealed), progress.TurnInterrupted())

    async def test_what_had_returned_but_was_not_looked_at_is_not_passed_on(self) -> None:
        log = await opened(called(), started(), progress.ToolReturned(result=result("call_1", "the real thing")))
        sealed = seals(log.state, "sealed", "Over.")[0][2]
        assert (sealed.failed, sealed.text) == (True, "Over. It had returned; what it returned was not passed on.")

    async def test_the_calls_of_children_are_sealed_before_those_they_hang_on(self) -> None:
        log = await opened(called())
        child = at("t1", 1, ("agent-1",))
        await log.append(child, stepped(agent="child"), called("call_1.1"))
        assert [r.call for _, _, r in seals(log.state, "sealed", "Over.")] == ["call_1.1", "call_1"]
        assert [r.call for _, _, r in seals(log.state, "sealed", "Over.", ("agent-1",))] == ["call_1.1"]

    @pytest.mark.parametrize("go_back", [rewind, lambda desk, to: fork(desk, to, SessionId("new"))])
    async def test_a_fork_or_rewind_through_open_calls_seals_them_in_the_same_write(
        self, go_back: Callable[[Desk, int], object]
    ) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped(), answered("hm"), called(), called("call_2"), started())
        cut = log.head
        await log.append(T1, ok("call_1"), ok("call_2"), stepped(2), called("call_3"))
        await desk.shut(log)
        await go_back(desk, cut)  # type: ignore[misc]  # both are coroutines
        session = S if go_back is rewind else SessionId("new")
        found = await reopen(desk.store, session)
        assert (found.state.open, found.state.turn) == ({}, None)
        said_ = messages(found.window.at(()), ())
        assert isinstance(said_[-1], ToolMessage)
        assert [r.call for r in said_[-1].results] == ["call_1", "call_2"]
        assert all(r.failed for r in said_[-1].results)

    async def test_the_prompt_has_results_in_the_order_of_the_calls_and_then_what_was_said_meanwhile(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped(), answered("hm"), called(), called("call_2"))
        await log.append(T1, ok("call_2", "two"))
        await desk.offer(said("by the way", "k2", "steer"), "k2")
        await log.append(T1, ok("call_1", "one"), stepped(2, "k2"))
        shown = messages(log.window.at(()), ())
        assert [type(message) for message in shown] == [UserMessage, AssistantMessage, ToolMessage, UserMessage]
        assert isinstance(shown[2], ToolMessage)
        assert [r.text for r in shown[2].results] == ["one", "two"]
        assert isinstance(shown[3], UserMessage)
        assert text_of(shown[3].content) == "by the way"

    async def test_a_message_cut_short_keeps_its_text_and_loses_its_calls(self) -> None:
        cut = progress.MessageCompleted(message_id=MessageId("m1"), content=(Text(text="I was abo"),), cut=True)
        log = await opened(cut, progress.TurnInterrupted())
        [_, message] = messages(log.window.at(()), ())
        assert message == AssistantMessage(id=MessageId("m1"), content=(Text(text="I was abo"),))


class TestRule4EffectsAreDeclared:
    async def test_the_start_with_key_arguments_and_deadline_is_in_the_state(self) -> None:
        start = progress.ToolStarted(
            call=called(n=1).call, key="s/call_1", effect="idempotent", deadline="2026-01-01T00:01:00.000Z", attempt=2
        )
        log = await opened(called(n=0), start)
        call = log.state.open[CallId("call_1")]
        assert (call.phase, call.effect, call.key, call.deadline, call.attempt) == (
            "started", "idempotent", "s/call_1", "2026-01-01T00:01:00.000Z", 2
        )  # fmt: skip
        assert call.call.arguments == {"n": 1}

    async def test_what_it_returned_is_kept_until_it_has_its_result(self) -> None:
        log = await opened(called(), started(), progress.ToolReturned(result=result("call_1", "raw")))
        assert log.state.open[CallId("call_1")].result == result("call_1", "raw")
        await log.append(T1, ok())
        assert log.state.open == {}

    async def test_call_ids_are_never_used_twice_not_even_after_a_rewind(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log, 1)
        await desk.shut(log)
        await rewind(desk, 3)
        log = await desk.open()
        await log.append(at("t2"), said("again", "k2"), begun("k2"))
        with pytest.raises(LogError, match="call_2"):
            await log.append(at("t2"), called("call_1"))
        await log.append(at("t2"), called("call_2"))


class TestRule5DeltasAreLive:
    async def test_applying_a_delta_twice_changes_nothing(self) -> None:
        pieces = [delta("He", 0), delta("llo", 2), delta("llo", 2), delta("He", 0), delta("llo", 2)]
        assert texts(Event(data=piece, session=S, ts="") for piece in pieces) == ["Hello"]

    async def test_deltas_are_shown_and_not_stored(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        log.live(T1, delta("He", 0))
        came = await desk.read(4)
        assert [event.type for event in came] == ["input.added", "turn.started", "step.started", "message.snapshot"]
        assert (came[-1].seq, came[-1].id, came[-1].prev, came[-1].turn) == (0, "", "", "t1")
        assert len(await desk.stored()) == 3

    async def test_a_message_tried_again_is_discarded_for_ever(self) -> None:
        desk = Desk()
        log = await desk.open()
        await log.append(T1, said("q"), begun("k"), stepped())
        log.live(T1, delta("Hm", 0))
        await log.append(T1, progress.MessageDiscarded(message_id=MessageId("m1"), reason="tried again"))
        assert [event.type for event in await desk.stored()][-1] == "message.discarded"
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
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        assert [Cursor.parse(event.id) for event in await desk.stored()] == [
            Cursor(1, seq) for seq in range(1, log.head + 1)
        ]

    async def test_an_unknown_epoch_is_answered_with_a_reset_and_everything(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        came = await desk.read(log.head + 1, Cursor(2, 5))
        assert came[0].type == "stream.reset"
        assert came[1:] == await desk.stored()

    async def test_the_epoch_stays_on_restart_rewind_and_fork(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        await rewind(desk, 3)
        events = await fork(desk, 5, SessionId("new"))
        assert {event.epoch for event in [*events, *await desk.stored()]} == {1}


class TestRule7RevertCompactAndForkAreEvents:
    async def test_nothing_is_rewritten(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log, 1)
        await log.append(Place(), control.ContextCompacted(summary="short", keep_from=5))
        before = await desk.stored()
        await desk.shut(log)
        await rewind(desk, 3)
        after = await desk.stored()
        assert after[: len(before)] == before
        assert [event.type for event in after[len(before) :]] == ["session.reverted"]
        [only] = messages((await reopen(desk.store, S)).window.at(()), ())
        assert only == UserMessage(content=(Text(text="question 1"),))

    async def test_a_fork_has_the_same_bytes_and_says_where_it_comes_from(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        await desk.shut(log)
        made = await fork(desk, 6, SessionId("new"))
        assert [event.stored for event in made[:6]] == [event.stored for event in (await desk.stored())[:6]]
        assert made[6].data == control.SessionForked(origin="s", cursor="1.6")
        info = await desk.store.sessions.find(SessionId("new"))
        assert info is not None
        assert (info.origin, info.turn, info.head) == ("s", "", len(made))
        chain = Chain(SessionId("new"))
        for event in made:
            chain.take(event.seq, event.stored)

    async def test_a_child_writes_into_its_roots_log_under_its_own_path(self) -> None:
        log = await opened(called("call_1", "helper"), started("call_1", "resume"))
        child = at("t1", 1, ("agent-1",))
        await log.append(T1, progress.SubagentStarted(call=CallId("call_1"), agent="helper", child="agent-1"))
        await log.append(child, stepped(agent="helper"), answered("hm", "m2"), called("call_1.1", message="m2"))
        assert log.state.lane(("agent-1",)).agent == "helper"
        assert len(messages(log.window.at(("agent-1",)), ("agent-1",))) == 1
        await log.append(child, ok("call_1.1"))
        done = progress.SubagentCompleted(call=CallId("call_1"), agent="helper", child="agent-1", text="found")
        await log.append(T1, done)
        assert log.state.lane(("agent-1",)).done == done
        assert all(event.path == () for event in log.window.events)
        await log.append(T1, ok("call_1"))
        assert "agent-1" not in log.state.lanes


class TestRule8ReopeningCostsTheTail:
    async def test_the_state_is_small_however_much_was_said(self) -> None:
        desk, events = flaky()
        log = await desk.open()
        for number in range(1, 101):
            await simple_turn(log, number)
        await log.append(Place(), control.ContextCompacted(summary="s" * 100, keep_from=log.head))
        events.rows = 0
        await same_after_reopening(desk, log)
        assert events.rows < 300
        assert len(log.window.events) == 1


class TestRule9PlainDataOnly:
    async def test_what_is_stored_is_json_and_nothing_runs_when_it_is_read(self) -> None:
        desk = Desk()
        log = await desk.open()
        hostile = {"__class__": "os.system", "py/reduce": ["x"], "$ref": "file:///etc/passwd", "\x00": "\u202e"}
        await log.append(Place(), control.StateChanged(key="k", value=hostile))
        assert decode((await desk.stored())[0].stored).data == control.StateChanged(key="k", value=hostile)
        await same_after_reopening(desk, log)


class TestRule10TamperEvident:
    async def test_a_flipped_bit_anywhere_in_a_log_is_an_error(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        stored = [event.stored for event in await desk.stored()]
        info = await desk.store.sessions.find(S)
        assert info is not None
        for number, bytes_ in enumerate(stored):
            for index in range(len(bytes_)):
                broken = bytearray(bytes_)
                broken[index] ^= 1 << (index % 8)
                with pytest.raises(Corrupt):
                    _walk([*stored[:number], bytes(broken), *stored[number + 1 :]], info.head, info.hash)
        _walk(stored, info.head, info.hash)
        assert hash_of(stored[-1]) == info.hash

    async def test_so_is_a_log_that_was_cut_lengthened_or_put_in_another_order(self) -> None:
        desk = Desk()
        log = await desk.open()
        await simple_turn(log)
        stored = [event.stored for event in await desk.stored()]
        info = await desk.store.sessions.find(S)
        assert info is not None
        for broken in (stored[:-1], stored[1:], [*stored, stored[-1]], [stored[1], stored[0], *stored[2:]], []):
            with pytest.raises(Corrupt):
                _walk(broken, info.head, info.hash)


def _walk(stored: Sequence[bytes], head: int, hash: str) -> None:
    chain = Chain(S)
    for seq, bytes_ in enumerate(stored, 1):
        chain.take(seq, bytes_)
    chain.end(head, hash)


class TestRule11AHandleBelongsToOneNamespace:
    async def test_the_same_names_in_two_of_them_are_two_things(self) -> None:
        store = MemoryStore("one")
        one, two = Desk(store), Desk(store.scoped("two"))
        log = await one.open()
        await simple_turn(log)
        with pytest.raises(NotFound):
            await two.offer(said("hello", "k1"), "k1")
        other = await two.open()
        await other.append(Place(), note("mine"))
        assert await two.offer(said("hello", "k1"), "k1") == 2
        await other.sync()
        assert len(await one.stored()) == log.head
        await same_after_reopening(one, log)
        assert [event.seq for event in await two.read(2)] == [1, 2]
