"""The live branch of a log, and the events that fork or rewind a session. Pure."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from vaka.core.types.control import (
    InputAdded,
    InputWithdrawn,
    InterruptRequested,
    SessionForked,
    SessionReverted,
    SessionUpdated,
)
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, SessionId, TurnId
from vaka.core.types.progress import ToolFailed, TurnInterrupted
from vaka.core.types.state import SessionState, results_for_open_calls

TimedEntry: TypeAlias = tuple[str, EventScope, Body]
"""The time of an event (``""``: now), its scope and its body."""


class _Node(NamedTuple):
    """An event and its predecessor on the branch."""

    event: Event | None
    """``None`` for a position before the events that were read."""
    parent: "_Node | None"
    seq: int


class LiveBranch:
    """The tree of events after ``base``. A rewind may go back to any event, also on a branch that was left."""

    def __init__(self, base: int = 0) -> None:
        self._base = base
        self._nodes: dict[int, _Node | None] = {base: None}
        self._tip: _Node | None = None

    def add(self, event: Event) -> None:
        parent = self._tip
        if isinstance(event.data, SessionReverted):
            to = event.data.to
            if not 0 <= to < event.seq:
                raise Corrupt(f"event {event.seq} goes back to event {to}, which is not before it")
            parent = self._nodes[to] if to >= self._base else _Node(None, None, to)
            if event.data.onward is not None and to >= self._base:
                parent = self._keep_inputs(to, parent)
        self._tip = self._nodes[event.seq] = _Node(event, parent, event.seq)

    def _keep_inputs(self, to: int, parent: _Node | None) -> _Node | None:
        """Return ``parent`` followed by the inputs and updates since ``to``: a turn that rewinds itself keeps them."""
        inputs: list[_Node] = []
        node = self._tip
        while node is not None and node.event is not None and node.seq > to:
            if isinstance(node.event.data, InputAdded | InputWithdrawn | InterruptRequested | SessionUpdated):
                inputs.append(node)
            node = node.parent
        for added in reversed(inputs):
            parent = _Node(added.event, parent, added.seq)
        return parent

    def live_events(self) -> tuple[list[Event], int | None]:
        """Return the events of the branch in order, and the seq they follow when that is before ``base``."""
        events: list[Event] = []
        node = self._tip
        while node is not None and node.event is not None:
            events.append(node.event)
            node = node.parent
        events.reverse()
        return events, node.seq if node else None


def live_events_of(events: Iterable[Event]) -> list[Event]:
    """Return the events of a whole log that are on its live branch."""
    branch = LiveBranch()
    for event in events:
        branch.add(event)
    return branch.live_events()[0]


_REWOUND_TEXT = "The conversation was taken back to before this call had a result."


def fork_entries(state: SessionState, origin: SessionId, cursor: str) -> list[tuple[EventScope, Body]]:
    """Return the entries after the copied prefix of a fork; ``state`` is the state after the prefix.

    They end an unfinished turn and take back the inputs that wait: the origin runs them, not the copy.
    """
    withdrawn = [(EventScope(), InputWithdrawn(input=key, by="fork")) for key in state.inputs]
    forked: tuple[EventScope, Body] = (EventScope(), SessionForked(origin=origin, cursor=cursor))
    return [forked, *end_turn_entries(state, "forked here"), *withdrawn]


def rewind_entries(prefix: SessionState, now: SessionState, reason: str) -> list[tuple[EventScope, Body]]:
    """Return the entries that rewind a session from ``now`` to ``prefix``; grants that have ended since stay ended."""
    grants = tuple(grant for grant in prefix.grants if grant in now.grants) if prefix.grants else None
    body = SessionReverted(to=prefix.seq, calls=now.calls, reason=reason, grants=grants)
    kept: list[tuple[EventScope, Body]] = []
    was, is_now = ((state.workspace, state.run, state.metadata) for state in (prefix, now))
    if was != is_now:  # a rewind moves the session not back, and keeps its metadata
        updated = SessionUpdated(workspace=now.workspace, run=now.run, metadata=now.metadata or None)
        kept.append((EventScope(), updated))
    return [(EventScope(), body), *_seal_open_calls(prefix), *kept]


def end_turn_entries(state: SessionState, note: str) -> list[tuple[EventScope, Body]]:
    """Return the entries that end an unfinished turn; none when there is no such turn."""
    if state.turn is None:
        return []
    return [*_seal_open_calls(state), (EventScope(state.turn.id), TurnInterrupted(note=note, usage=state.turn.usage))]


def _seal_open_calls(state: SessionState) -> list[tuple[EventScope, Body]]:
    turn = state.turn.id if state.turn else TurnId("")
    return [
        (EventScope(turn, step, path), ToolFailed(result=result))
        for path, step, result in results_for_open_calls(state, "sealed", _REWOUND_TEXT)
    ]
