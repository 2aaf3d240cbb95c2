"""Writes sessions nobody has thought of: whatever the log allows next, chosen by numbers."""

from collections.abc import Callable, Sequence

from tests.core.session.desk import (
    answered,
    asked,
    at,
    bad,
    begun,
    called,
    note,
    ok,
    resolved,
    result,
    said,
    started,
    stepped,
)
from vaka.core.session.fold import seals
from vaka.core.session.place import Place
from vaka.core.session.state import Lane, OpenCall, State, call_id, child_name
from vaka.core.types import control, monitor, progress
from vaka.core.types.event import Body, Custom, Unknown
from vaka.core.types.ids import DecisionId, Path, TurnId
from vaka.core.types.tool import Effect
from vaka.core.types.usage import Usage

Entries = list[tuple[Place, Body]]
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "once", "resume")


class Author:
    """Knows what may come next in a session that is as ``state`` says."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state, self._made = state, 0

    def next(self, choice: int) -> Entries:
        """Return something that may be appended now."""
        moves = self._between() if self._state().turn is None else self._within()
        rest, move = divmod(choice, len(moves))
        return moves[move](rest)

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}_{self._state().seq}_{self._made}"

    # ------------------------------------------------------------------------------------------- between turns

    def _between(self) -> list[Callable[[int], Entries]]:
        return [self._turn, self._turn, self._turn, self._say, self._compact, self._anything]

    def _turn(self, choice: int) -> Entries:
        place, waiting = at(self._name("turn")), list(self._state().inputs)
        if waiting and choice % 2:
            return [(place, begun(waiting[choice % len(waiting)]))]
        key = self._name("key")
        return [(Place(), said(f"question {choice}", key)), (place, begun(key))]

    def _say(self, choice: int) -> Entries:
        policy: control.Conflict = ("queue", "steer", "interrupt")[choice % 3]
        return [(Place(), said(f"input {choice}", self._name("key"), policy))]

    def _compact(self, choice: int) -> Entries:
        state = self._state()
        if state.open:
            return self._anything(choice)
        keep_from = state.window + choice % (state.seq + 2 - state.window)
        return [(Place(), control.ContextCompacted(summary="so far", keep_from=keep_from))]

    def _anything(self, choice: int) -> Entries:
        bodies: Sequence[Body] = (
            note("x" * (choice % 50)),
            control.CheckpointSaved(label=f"here {choice % 3}"),
            control.StateChanged(key=f"k{choice % 3}", value=[None, {"n": choice}, "", 1.5][choice % 4]),
            control.InterruptRequested(key=self._name("int"), note="enough"),
            control.SessionClosed() if self._state().turn is None else note("open"),
            Custom(name="mine", value={"n": choice}),
            Unknown(name="from.tomorrow", raw=b'{"n":1}', of="progress"),
            monitor.UsageRecorded(model="m", usage=Usage(input=choice % 7, output=1, cost=0.25)),
            monitor.ModelFailed(model="m", code="c", message="again", agent="a", retried=bool(choice % 2)),
            control.Handoff(source="a", target="b"),
        )
        return [(Place(), bodies[choice % len(bodies)])]

    # ------------------------------------------------------------------------------------------- within a turn

    def _within(self) -> list[Callable[[int], Entries]]:
        moves: list[Callable[[int], Entries]] = [
            self._step,
            self._step,
            self._say,
            self._anything,
            self._end,
            self._compact,
        ]
        if self._state().open:
            moves += [self._progress, self._progress, self._progress, self._ask, self._child]
        if any(decision.waiting for decision in self._state().decisions.values()):
            moves += [self._decide, self._decide]
        return moves

    def _turn_id(self) -> TurnId:
        turn = self._state().turn
        assert turn is not None
        return turn.id

    def _open(self, choice: int) -> OpenCall:
        calls = list(self._state().open.values())
        return calls[choice % len(calls)]

    def _step(self, choice: int) -> Entries:
        """An agent without an open call takes a step, with up to three calls."""
        state, turn = self._state(), self._turn_id()
        paths: list[Path] = [tuple(key.split("/")) if key else () for key in state.lanes]
        paths = [path for path in paths if not state.calls_at(path) and state.lane(path).done is None] or [()]
        path = paths[choice % len(paths)]
        if state.calls_at(path):
            return self._progress(choice)
        lane: Lane = state.lane(path)
        place, message = Place(turn, lane.step + 1, path), self._name("msg")
        steered = [queued.key for queued in state.inputs.values() if queued.policy == "steer"] if not path else []
        calls = [
            called(call_id(path, state.made(path) + number), "look" if choice % 2 else "do", message, n=choice % 3)
            for number in range(1, choice % 4 + 1)
        ]
        usage = monitor.UsageRecorded(model="m", usage=Usage(input=2, output=3))
        bodies = [stepped(lane.step + 1, *steered, agent=lane.agent or "a"), answered(f"t{choice}", message), usage]
        return [(place, body) for body in (*bodies, *calls)]

    def _progress(self, choice: int) -> Entries:
        call = self._open(choice)
        place, id = Place(self._turn_id(), call.step, call.path), call.call.id
        if call.phase == "called":
            return [(place, started(id, EFFECTS[choice % 4], n=1))]
        if call.phase == "started" and choice % 3 == 0:
            return [(place, progress.ToolReturned(result=result(id, "raw")))]
        sealed = seals(self._state(), "sealed", "over", (*call.path, child_name(call.number)))
        below: Entries = [(Place(place.turn, step, path), progress.ToolFailed(result=r)) for path, step, r in sealed]
        return [*below, (place, ok(id, f"r{choice}") if choice % 2 else bad(id))]

    def _ask(self, choice: int) -> Entries:
        call = self._open(choice)
        place, id = Place(self._turn_id(), call.step, call.path), call.call.id
        if choice % 2:
            question = DecisionId(self._name("qst"))
            return [(place, control.QuestionAsked(question=question, text="?", call=id))]
        expires = "2020-01-01T00:00:00.000Z" if choice % 8 == 0 else ""
        return [(place, asked(self._name("apr"), id, expires, rule=f"r{choice % 3}"))]

    def _decide(self, choice: int) -> Entries:
        waiting = [decision for decision in self._state().decisions.values() if decision.waiting]
        decision = waiting[choice % len(waiting)]
        if decision.question is not None:
            return [(Place(), control.QuestionAnswered(question=decision.id, answer=[1, {"x": None}]))]
        if choice % 5 == 0:
            return [(Place(), control.ApprovalExpired(approval=decision.id))]
        return [
            (
                Place(),
                resolved(decision.id, "approve" if choice % 2 else "reject", "session" if choice % 3 == 0 else "once"),
            )
        ]

    def _child(self, choice: int) -> Entries:
        call = self._open(choice)
        place, name = Place(self._turn_id(), call.step, call.path), child_name(call.number, choice % 2 + 1)
        lane = self._state().lanes.get("/".join((*call.path, name)))
        if len(call.path) > 2:
            return self._progress(choice)
        if lane is None:
            return [(place, progress.SubagentStarted(call=call.call.id, agent="child", child=name))]
        path = (*call.path, name)
        if lane.done is not None or self._state().calls_at(path):
            return self._progress(choice)
        done = progress.SubagentCompleted(call=call.call.id, agent="child", child=name, text="found", value={"n": 1})
        return [(place, done)]

    def _end(self, choice: int) -> Entries:
        turn = self._turn_id()
        sealed: Entries = [
            (Place(turn, step, path), progress.ToolFailed(result=result))
            for path, step, result in seals(self._state(), "sealed", "over")
        ]
        ends: Sequence[Body] = (
            progress.TurnCompleted(text="done"),
            progress.TurnFailed(code="c", message="m"),
            progress.TurnCancelled(),
            progress.TurnInterrupted(note="n"),
        )
        return [*sealed, (Place(turn), ends[choice % len(ends)])]
