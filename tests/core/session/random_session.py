"""Generate random sessions that keep the invariants of the log."""

from collections.abc import Callable, Sequence

from tests.core.session.log_harness import (
    approval_requested,
    approval_resolved,
    input_added,
    log_line,
    message_completed,
    scope_at,
    step_started,
    tool_called,
    tool_completed,
    tool_failed,
    tool_result,
    tool_started,
    turn_started,
)
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Custom, Unknown
from vaka.core.types.ids import AgentPath, DecisionId, EventScope, TurnId
from vaka.core.types.message import Usage
from vaka.core.types.state import AgentProgress, OpenCall, SessionState, call_id, child_name, results_for_open_calls
from vaka.core.types.tool import Effect

Entries = list[tuple[EventScope, Body]]
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "once", "resume")


class RandomSessionWriter:
    """Chooses entries that may follow in a session with a given state."""

    def __init__(self, state: Callable[[], SessionState]) -> None:
        self._state, self._id_count = state, 0

    def next(self, choice: int) -> Entries:
        """Return entries that may be appended now."""
        moves = self._moves_between_turns() if self._state().turn is None else self._moves_within_turn()
        rest, move = divmod(choice, len(moves))
        return moves[move](rest)

    def _new_id(self, prefix: str) -> str:
        self._id_count += 1
        return f"{prefix}_{self._state().seq}_{self._id_count}"

    # ------------------------------------------------------------------------------------------- between turns

    def _moves_between_turns(self) -> list[Callable[[int], Entries]]:
        return [
            self._start_turn,
            self._start_turn,
            self._start_turn,
            self._add_input,
            self._compact,
            self._add_any_event,
        ]

    def _start_turn(self, choice: int) -> Entries:
        scope, waiting = scope_at(self._new_id("turn")), list(self._state().inputs)
        if waiting and choice % 2:
            return [(scope, turn_started(waiting[choice % len(waiting)]))]
        key = self._new_id("key")
        return [(EventScope(), input_added(f"question {choice}", key)), (scope, turn_started(key))]

    def _add_input(self, choice: int) -> Entries:
        policy: control.InputPolicy = ("queue", "steer", "interrupt")[choice % 3]
        return [(EventScope(), input_added(f"input {choice}", self._new_id("key"), policy))]

    def _compact(self, choice: int) -> Entries:
        state = self._state()
        if state.open:
            return self._add_any_event(choice)
        keep_from = state.window + choice % (state.seq + 2 - state.window)
        return [(EventScope(), context.ContextCompacted(summary="so far", keep_from=keep_from))]

    def _add_any_event(self, choice: int) -> Entries:
        bodies: Sequence[Body] = (
            log_line("x" * (choice % 50)),
            context.CheckpointSaved(label=f"here {choice % 3}"),
            control.StateChanged(key=f"k{choice % 3}", value=[None, {"n": choice}, "", 1.5][choice % 4]),
            control.InterruptRequested(key=self._new_id("int"), note="enough"),
            control.SessionClosed() if self._state().turn is None else log_line("open"),
            Custom(name="mine", value={"n": choice}),
            Unknown(name="from.tomorrow", raw=b'{"n":1}', of="progress"),
            monitor.UsageRecorded(model="m", usage=Usage(input=choice % 7, output=1, cost=0.25)),
            monitor.ModelFailed(model="m", code="c", message="again", agent="a", retried=bool(choice % 2)),
            control.Handoff(source="a", target="b"),
        )
        return [(EventScope(), bodies[choice % len(bodies)])]

    # ------------------------------------------------------------------------------------------- within a turn

    def _moves_within_turn(self) -> list[Callable[[int], Entries]]:
        moves: list[Callable[[int], Entries]] = [
            self._run_step,
            self._run_step,
            self._add_input,
            self._add_any_event,
            self._end_turn,
            self._compact,
        ]
        if self._state().open:
            moves += [self._advance_call, self._advance_call, self._advance_call, self._ask_person, self._advance_child]
        if any(decision.waiting for decision in self._state().decisions.values()):
            moves += [self._decide, self._decide]
        return moves

    def _turn_id(self) -> TurnId:
        turn = self._state().turn
        assert turn is not None
        return turn.id

    def _pick_open_call(self, choice: int) -> OpenCall:
        calls = list(self._state().open.values())
        return calls[choice % len(calls)]

    def _run_step(self, choice: int) -> Entries:
        """Return a step of an agent without open calls, with up to three calls."""
        state, turn = self._state(), self._turn_id()
        paths: list[AgentPath] = [tuple(key.split("/")) if key else () for key in state.lanes]
        paths = [
            path for path in paths if not state.open_calls_of(path) and state.agent_progress(path).done is None
        ] or [()]
        path = paths[choice % len(paths)]
        if state.open_calls_of(path):
            return self._advance_call(choice)
        lane: AgentProgress = state.agent_progress(path)
        scope, message = EventScope(turn, lane.step + 1, path), self._new_id("msg")
        steered = [queued.key for queued in state.inputs.values() if queued.policy == "steer"] if not path else []
        calls = [
            tool_called(
                call_id(path, state.calls_made_by(path) + number), "look" if choice % 2 else "do", message, n=choice % 3
            )
            for number in range(1, choice % 4 + 1)
        ]
        usage = monitor.UsageRecorded(model="m", usage=Usage(input=2, output=3))
        bodies = [
            step_started(lane.step + 1, *steered, agent=lane.agent or "a"),
            message_completed(f"t{choice}", message),
            usage,
        ]
        return [(scope, body) for body in (*bodies, *calls)]

    def _advance_call(self, choice: int) -> Entries:
        call = self._pick_open_call(choice)
        scope, id = EventScope(self._turn_id(), call.step, call.path), call.call.id
        if call.phase == "called":
            return [(scope, tool_started(id, EFFECTS[choice % 4], n=1))]
        if call.phase == "started" and choice % 3 == 0:
            return [(scope, progress.ToolReturned(result=tool_result(id, "raw")))]
        sealed = results_for_open_calls(self._state(), "sealed", "over", (*call.path, child_name(call.number)))
        below: Entries = [
            (EventScope(scope.turn, step, path), progress.ToolFailed(result=r)) for path, step, r in sealed
        ]
        return [*below, (scope, tool_completed(id, f"r{choice}") if choice % 2 else tool_failed(id))]

    def _ask_person(self, choice: int) -> Entries:
        call = self._pick_open_call(choice)
        scope, id = EventScope(self._turn_id(), call.step, call.path), call.call.id
        if choice % 2:
            question = DecisionId(self._new_id("qst"))
            return [(scope, control.QuestionAsked(question=question, text="?", call=id))]
        expires = "2020-01-01T00:00:00.000Z" if choice % 8 == 0 else ""
        return [(scope, approval_requested(self._new_id("apr"), id, expires, rule=f"r{choice % 3}"))]

    def _decide(self, choice: int) -> Entries:
        waiting = [decision for decision in self._state().decisions.values() if decision.waiting]
        decision = waiting[choice % len(waiting)]
        if decision.question is not None:
            return [(EventScope(), control.QuestionAnswered(question=decision.id, answer=[1, {"x": None}]))]
        if choice % 5 == 0:
            return [(EventScope(), control.ApprovalExpired(approval=decision.id))]
        return [
            (
                EventScope(),
                approval_resolved(
                    decision.id, "approve" if choice % 2 else "reject", "session" if choice % 3 == 0 else "once"
                ),
            )
        ]

    def _advance_child(self, choice: int) -> Entries:
        call = self._pick_open_call(choice)
        scope, name = EventScope(self._turn_id(), call.step, call.path), child_name(call.number, choice % 2 + 1)
        lane = self._state().lanes.get("/".join((*call.path, name)))
        if len(call.path) > 2:
            return self._advance_call(choice)
        if lane is None:
            return [(scope, progress.SubagentStarted(call=call.call.id, agent="child", child=name))]
        path = (*call.path, name)
        if lane.done is not None or self._state().open_calls_of(path):
            return self._advance_call(choice)
        done = progress.SubagentCompleted(call=call.call.id, agent="child", child=name, text="found", value={"n": 1})
        return [(scope, done)]

    def _end_turn(self, choice: int) -> Entries:
        turn = self._turn_id()
        sealed: Entries = [
            (EventScope(turn, step, path), progress.ToolFailed(result=result))
            for path, step, result in results_for_open_calls(self._state(), "sealed", "over")
        ]
        ends: Sequence[Body] = (
            progress.TurnCompleted(text="done"),
            progress.TurnFailed(code="c", message="m"),
            progress.TurnCancelled(),
            progress.TurnInterrupted(note="n"),
        )
        return [*sealed, (EventScope(turn), ends[choice % len(ends)])]
