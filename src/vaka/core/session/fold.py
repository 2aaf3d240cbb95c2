"""The fold: events in, state out; the same events give the same state for ever.

The state is small: open calls, grants, counters, and the start of the context window. Messages stay in the log.
"""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.session import fold_offers
from vaka.core.session.fold_offers import take_inputs
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import NO_USAGE
from vaka.core.types.state import (
    AgentProgress,
    CachedPrompt,
    OpenCall,
    ReportedContext,
    RunningTurn,
    SessionState,
    agent_key,
    child_name,
    count_repeats,
)


def fold(state: SessionState, events: Iterable[Event]) -> SessionState:
    """Apply ``events`` to ``state`` (in place) and return it. Unknown types change nothing."""
    event = None
    for event in events:
        kind = type(event.data)
        if kind in _HANDLERS:
            _HANDLERS[kind](state, event, event.data)
        if state.grants:
            fold_offers.drop_expired_grants(state, event.ts)
    if event is not None:
        state.seq = event.seq
        if state.epoch != 1 or event.id[:2] != "1.":
            state.epoch = event.epoch
    return state


def _turn_started(state: SessionState, event: Event, body: progress.TurnStarted) -> None:
    state.agent = body.agent
    state.turn = RunningTurn(id=event.turn, agent=body.agent, started=event.seq)
    state.lanes, state.marks = {"": AgentProgress(agent=body.agent)}, {}
    take_inputs(state, event.seq, body.inputs)


def _turn_resumed(state: SessionState, event: Event, body: progress.TurnResumed) -> None:
    if state.turn:
        state.turn.resumed += 1


def _turn_ended(state: SessionState, event: Event, body: object) -> None:
    state.turn = None
    state.lanes = {}
    state.open = {}
    state.decisions = {}
    if len(state.contexts) > 1:  # conversations of children have ended
        state.contexts = {key: known for key, known in state.contexts.items() if not key}
    if len(state.caches) > 1:
        state.caches = {key: cached for key, cached in state.caches.items() if not key}


def _step_started(state: SessionState, event: Event, body: progress.StepStarted) -> None:
    lane = _agent_progress(state, event.path, body.agent)
    lane.step = body.number
    lane.phase = "asking"
    lane.calls = 0
    lane.earlier_streaks, lane.streaks = lane.streaks, {}
    lane.planned_system = lane.system = body.system
    lane.menu = body.tools
    if body.model != progress.GIVEN_CALLS:
        lane.number = state.models[body.agent] = state.models.get(body.agent, 0) + 1
    if state.turn and not event.path:
        state.turn.rejected = ""  # in older logs a turn goes on after a rejection without a message
    if body.inputs:
        take_inputs(state, event.seq, body.inputs)


def _step_completed(state: SessionState, event: Event, body: progress.StepCompleted) -> None:
    _agent_progress(state, event.path).phase = "idle"


def _message_completed(state: SessionState, event: Event, body: progress.MessageCompleted) -> None:
    lane = _agent_progress(state, event.path)
    lane.phase = "answered"
    lane.system, lane.menu = body.system or lane.system, body.tools or lane.menu


def _output_rejected(state: SessionState, event: Event, body: progress.OutputRejected) -> None:
    lane = _agent_progress(state, event.path)
    lane.phase, lane.rejected = "rejected", body.number


def _agent_continued(state: SessionState, event: Event, body: progress.AgentContinued) -> None:
    lane = _agent_progress(state, event.path)
    lane.phase, lane.continued = "rejected", body.number


def _model_failed(state: SessionState, event: Event, body: monitor.ModelFailed) -> None:
    if body.number:
        state.count_model_call(body.agent, body.number, body.call)
        call = state.open.get(body.call) if body.retried and body.call is not None else None
        if call:  # the next attempt counts instead
            call.asked = tuple(number for number in call.asked if number != body.number)
    elif body.retried:
        number = state.models[body.agent] = state.models.get(body.agent, 0) + 1
        _agent_progress(state, event.path, body.agent).number = number


def _usage_recorded(state: SessionState, event: Event, body: monitor.UsageRecorded) -> None:
    usage = body.usage
    lane = _agent_progress(state, event.path)
    if usage != NO_USAGE:
        state.usage = state.usage + usage
        if state.turn:
            state.turn.usage = state.turn.usage + usage
        lane.usage = lane.usage + usage
        if lane.phase == "answered" and not body.number and usage.total:  # a call of a tool has a number
            state.contexts[agent_key(event.path)] = ReportedContext(usage.total, event.seq)
        for depth in range(1, len(event.path)):
            above = state.lanes.get(agent_key(event.path[:depth]))
            if above:
                above.below = above.below + usage
    if body.number:
        state.count_model_call(body.agent, body.number, body.call)
    if state.caches or usage.cache_read or usage.cache_write:
        _note_cached_prompt(state, event, body, lane)


def _tool_called(state: SessionState, event: Event, body: progress.ToolCalled) -> None:
    lane = _agent_progress(state, event.path)
    if event.path:
        lane.made += 1
    else:
        state.calls += 1
    [(digest, streak)] = count_repeats(lane, [body.call])
    lane.streaks[digest] = streak
    lane.calls += 1
    lane.tools[body.call.name] = lane.tools.get(body.call.name, 0) + 1
    state.open[body.call.id] = OpenCall(
        call=body.call,
        path=event.path,
        message=body.message_id,
        step=event.step,
        streak=streak,
        number=state.calls_made_by(event.path),
    )


def _tool_started(state: SessionState, event: Event, body: progress.ToolStarted) -> None:
    call = state.open.get(body.call.id)
    if call:
        call.call = body.call
        call.phase = "started"
        call.effect = body.effect
        call.key = body.key
        call.deadline = body.deadline
        call.attempt = body.attempt


def _tool_returned(state: SessionState, event: Event, body: progress.ToolReturned) -> None:
    call = state.open.get(body.result.call)
    if call:
        call.phase, call.result = "returned", body.result


def _tool_ended(state: SessionState, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
    call = state.open.pop(body.result.call, None)
    if call and (len(state.lanes) > 1 or state.decisions):  # one lane is the root agent's
        _drop_children(state, agent_key((*call.path, child_name(call.number))))
        state.decisions = {key: d for key, d in state.decisions.items() if d.call != body.result.call}


def _drop_children(state: SessionState, child: str) -> None:
    """Drop the children of a call, and the values of the session that belong to them: those named ``NAME/PATH``.

    The values of a child whose conversation may be continued stay.
    """
    below, lane = (child + "/", child + "-"), state.lanes.get(child)
    is_kept = lane is not None and lane.done is not None and lane.done.kept
    lanes = {key: lane for key, lane in state.lanes.items() if key != child and not key.startswith(below)}
    if len(lanes) < len(state.lanes) and not is_kept:
        for key in [key for key in state.values if f"{key.partition('/')[2]}/".startswith(below)]:
            del state.values[key]
    state.lanes = lanes
    state.contexts = {k: known for k, known in state.contexts.items() if k != child and not k.startswith(below)}
    if state.caches:
        _drop_caches(state, child, below)


def _subagent_started(state: SessionState, event: Event, body: progress.SubagentStarted) -> None:
    state.lanes[agent_key((*event.path, body.child))] = AgentProgress(agent=body.agent)
    if state.turn and body.content:  # a script starts without content
        state.turn.children += 1


def _subagent_completed(state: SessionState, event: Event, body: progress.SubagentCompleted) -> None:
    _agent_progress(state, (*event.path, body.child)).done = body


def _script_called(state: SessionState, event: Event, body: monitor.ScriptCalled) -> None:
    if body.model:
        state.models[_agent_progress(state, event.path).agent] = body.model


def _session_opened(state: SessionState, event: Event, body: control.SessionOpened) -> None:
    state.agent = body.agent
    state.workspace = body.workspace
    state.run = body.run


def _session_updated(state: SessionState, event: Event, body: control.SessionUpdated) -> None:
    state.run = body.run or state.run
    if body.metadata:
        state.metadata = {**state.metadata, **body.metadata}
    if body.workspace is not None:
        old, new = state.workspace, body.workspace
        if old is None or not old.is_same_folder(new):
            fold_offers.leave_folder(state, old, new)
        state.workspace = new


def _session_forked(state: SessionState, event: Event, body: control.SessionForked) -> None:
    state.grants = []  # a grant holds only in the session it was given in
    state.caches = {}  # providers may keep a cache for each session


def _session_reverted(state: SessionState, event: Event, body: control.SessionReverted) -> None:
    """Rewind; ``state`` is already the state after the prefix: ``snapshot.reopen`` folds the live branch only."""
    state.calls, state.closed = body.calls, False
    if body.onward is not None:
        _continue_turn(state, body.onward)
        return
    # In older logs a rewind may lead into a turn: that turn is over, and its open calls are sealed by the next events.
    state.turn = None
    state.lanes = {}
    state.inputs = {}
    state.decisions = {}
    if body.grants is not None:
        state.grants = list(body.grants)


def _continue_turn(state: SessionState, onward: control.Onward) -> None:
    """Go on with the turn of the prefix: its conversation is rewound, its usage and counters are not."""
    running = state.turn or RunningTurn(id=onward.turn, agent=state.agent)
    running.rewinds = onward.rewinds
    running.usage = onward.spent
    running.children = onward.children
    lane = _agent_progress(state, (), state.agent)
    lane.step = onward.step
    lane.phase = "idle"
    lane.calls = 1
    lane.usage, lane.tools = onward.usage, dict(onward.tools)
    state.turn = running
    state.usage = onward.total
    state.models = dict(onward.models)
    state.open = {}
    state.grants = list(onward.grants)


def _session_closed(state: SessionState, event: Event, body: control.SessionClosed | control.SessionErased) -> None:
    state.closed = True


def _context_compacted(state: SessionState, event: Event, body: context.ContextCompacted) -> None:
    state.contexts.pop(agent_key(event.path), None)
    _note_compaction(state, event.path)
    lane = state.lanes.get(agent_key(event.path))
    if lane is not None and lane.phase == "asking":  # its prompt was too long: the next one is another model call
        lane.number = state.models[lane.agent] = state.models.get(lane.agent, 0) + 1
    if not event.path:
        state.window, started = body.keep_from, state.turn.started if state.turn else 0
        state.early_turn = started if started < body.keep_from else 0
        state.taken = {at: by for at, by in state.taken.items() if by >= body.keep_from or by == state.early_turn}


def _checkpoint_saved(state: SessionState, event: Event, body: context.CheckpointSaved) -> None:
    if body.number is None:
        state.checkpoints[body.label] = event.seq
    else:
        state.marks[body.label], state.marked = event.seq, body.number + 1


def _state_changed(state: SessionState, event: Event, body: control.StateChanged) -> None:
    if body.value is None:
        state.values.pop(body.key, None)
    else:
        state.values[body.key] = body.value


def _note_cached_prompt(state: SessionState, event: Event, body: monitor.UsageRecorded, lane: AgentProgress) -> None:
    """Note what the prompt of a step left in the cache; calls of tools have prompts of their own."""
    if body.number or body.call is not None:
        return
    tokens = body.usage.cache_read + body.usage.cache_write
    key = agent_key(event.path)
    if tokens:
        state.caches[key] = CachedPrompt(
            model=body.model, tokens=tokens, ts=event.ts, system=lane.system, tools=lane.menu
        )
    elif lane.phase == "answered" and body.usage.output:  # not a failed call, and not an embedding
        state.caches.pop(key, None)


def _note_compaction(state: SessionState, path: AgentPath) -> None:
    """Note that the next prompt of a conversation has other messages."""
    cached = state.caches.get(agent_key(path))
    if cached is not None:
        cached.compacted = True


def _drop_caches(state: SessionState, key: str, below: tuple[str, ...]) -> None:
    """Forget the conversations of a child and of its own children."""
    state.caches = {
        other: cached for other, cached in state.caches.items() if other != key and not other.startswith(below)
    }


_HANDLERS: dict[type[Body], Callable[[SessionState, Event, Any], None]] = {
    progress.TurnStarted: _turn_started,
    progress.TurnResumed: _turn_resumed,
    **dict.fromkeys(progress.TURN_ENDS, _turn_ended),
    progress.StepStarted: _step_started,
    progress.StepCompleted: _step_completed,
    progress.MessageCompleted: _message_completed,
    progress.OutputRejected: _output_rejected,
    progress.AgentContinued: _agent_continued,
    progress.ToolCalled: _tool_called,
    progress.ToolStarted: _tool_started,
    progress.ToolReturned: _tool_returned,
    progress.ToolCompleted: _tool_ended,
    progress.ToolFailed: _tool_ended,
    progress.SubagentStarted: _subagent_started,
    progress.SubagentCompleted: _subagent_completed,
    monitor.ScriptCalled: _script_called,
    monitor.ModelFailed: _model_failed,
    monitor.UsageRecorded: _usage_recorded,
    control.SessionOpened: _session_opened,
    control.SessionUpdated: _session_updated,
    control.SessionForked: _session_forked,
    control.SessionReverted: _session_reverted,
    control.SessionClosed: _session_closed,
    control.SessionErased: _session_closed,
    context.ContextCompacted: _context_compacted,
    context.CheckpointSaved: _checkpoint_saved,
    control.StateChanged: _state_changed,
    **fold_offers.HANDLERS,
}


def _agent_progress(state: SessionState, path: AgentPath, agent: str = "") -> AgentProgress:
    key = agent_key(path) if path else ""
    if key not in state.lanes:
        state.lanes[key] = AgentProgress(agent=agent)
    return state.lanes[key]
