"""The events from which prompts are built, from the last compaction on, and views that follow them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import accumulate, islice
from operator import attrgetter, sub
from typing import Any, NamedTuple, TypeVar

import msgspec

from vaka.core.ports.log import WindowView
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, Digest, TurnId
from vaka.core.types.message import text_of
from vaka.core.types.state import SessionState

_SCRIPT_BODIES = {monitor.ScriptCalled, monitor.ScriptAnswered}
_VISIBLE_BODIES = _SCRIPT_BODIES | {
    control.InputAdded,
    context.ContextCompacted,
    context.CheckpointSaved,
    progress.TurnStarted,
    progress.TurnFailed,
    progress.StepStarted,
    progress.MessageCompleted,
    progress.ToolCalled,
    progress.ToolCompleted,
    progress.ToolFailed,
    progress.SubagentStarted,
    progress.SubagentCompleted,
    progress.OutputRejected,
    progress.AgentContinued,
}


_STORED_BYTES, _SEQ = attrgetter("stored"), attrgetter("seq")
_SPECIAL_BODIES = {progress.SubagentCompleted, monitor.ScriptAnswered, context.CheckpointSaved, progress.StepStarted}


V = TypeVar("V", bound=WindowView)


def _moved_to(path: AgentPath, earlier: AgentPath, event: Event) -> Event:
    """Return an event of the child at ``earlier`` as one of the child at ``path``."""
    body = event.data
    if isinstance(body, progress.SubagentStarted) and (*event.path, body.child) == earlier:
        body = msgspec.structs.replace(body, child=path[-1], after="")
        return msgspec.structs.replace(event, data=body, path=path[:-1])
    return msgspec.structs.replace(event, path=path)


class WindowIndex(msgspec.Struct):
    """The events of a context window, as snapshots hold them."""

    steps: list[int]
    """The seq of the first event, then for each later event the distance of its seq from the previous event's."""
    digest: str
    """SHA-256 of the stored bytes of the events, one after the other."""

    @property
    def seqs(self) -> list[int]:
        return list(accumulate(self.steps))


class _ChildStart(NamedTuple):
    """Where a child agent started."""

    seq: int
    earlier: AgentPath
    """The child whose conversation it continues; empty for none."""
    origin: AgentPath
    """The child that began its conversation."""


class ContextWindow:
    def __init__(self, events: Iterable[Event], state: SessionState, *, visible: Iterable[Event] = ()) -> None:
        """Begin with the ``visible`` events of an index, and add the ``events`` after them."""
        self.events: list[Event] = list(visible)
        self._size = 0
        self._sized_count = 0
        """``_size`` is the bytes of so many of the first events."""
        self.held_texts: set[Digest | None] = {None}  # of ``messages.prompt_texts``: no erasure elsewhere removes them
        self._views: dict[AgentPath, Any] = {}
        self._restored: dict[AgentPath, list[Event]] = {}
        """The conversations that children continue and that were read from the store, by the path of the child."""
        self._steps: list[int] = []
        """The steps of the events that an index was made of."""
        self._digests = [(0, sha256())]
        """The digest of the first events, for each index that was made."""
        self._children: dict[AgentPath, _ChildStart] = {}
        if self.events:
            self._note_starts(self.events)
        self.add(events, state)
        if self.events:
            self._trim(state)

    @property
    def size(self) -> int:
        """Bytes of the events; only events that are new since the last call are looked at."""
        new = self.events[self._sized_count :]
        self._size += sum(map(len, map(_STORED_BYTES, new)))
        self._sized_count += len(new)
        return self._size

    def index(self) -> WindowIndex:
        """Return the index of the window; only events that are new since the last one are looked at."""
        known, events = len(self._steps), self.events
        if known < len(events):
            seqs = [event.seq for event in events[max(known - 1, 0) :]]
            self._steps += map(sub, seqs[1:], seqs) if known else map(sub, seqs, [0, *seqs])
            digest = self._digests[-1][1].copy()
            digest.update(b"".join(map(_STORED_BYTES, events[known:])))
            self._digests.append((len(events), digest))
        return WindowIndex(self._steps, self._digests[-1][1].hexdigest())

    def _forget_index(self, position: int) -> None:
        """Forget the part of the index that is made of events from a position on, which have changed."""
        while self._digests[-1][0] > position:
            self._digests.pop()
        del self._steps[self._digests[-1][0] :]

    def add(self, events: Iterable[Event], state: SessionState) -> None:
        """Add the next events of the log; ``state`` already includes them."""
        for event in events:
            kind = type(event.data)
            if kind not in _VISIBLE_BODIES or (kind in _SPECIAL_BODIES and not self._add_special(event)):
                continue
            self.events += (event,)
            if kind is context.ContextCompacted:
                self._views.pop(event.path, None)
                self._trim(state)
            elif event.path in self._views:
                self._views[event.path].add(event)
            if kind is progress.SubagentStarted:
                self._begin_child(event, event.data)

    def view(self, path: AgentPath, make: Callable[[Iterable[Event]], V]) -> V:
        """Return the view of the agent at ``path``; ``make`` makes it from the events so far, later ones are added."""
        if path not in self._views:  # one kind of view exists for a path
            self._views[path] = make(self.events_at(path))
        view: V = self._views[path]
        return view

    def forget_loaded(self) -> None:
        """Drop what the views have loaded besides the events."""
        for view in self._views.values():
            view.forget_loaded()

    def _begin_child(self, event: Event, body: Any) -> None:
        """Note the start of a child. The view of the conversation that it continues becomes its own."""
        path, earlier = self._note_start(event, body)
        own, continued = self._views.pop(path, None), self._views.pop(earlier, None) if earlier else None
        view = continued if earlier else own  # its own view lacks the continued conversation
        if view is not None:
            self._views[path], view.path = view, path
            view.add(event)

    def _note_start(self, event: Event, body: progress.SubagentStarted) -> tuple[AgentPath, AgentPath]:
        path, after = (*event.path, body.child), body.after
        earlier = () if after in ("", body.child) else tuple(after.split("/")) if "/" in after else (*event.path, after)
        origin = self.conversation_start(earlier) if earlier else path
        self._children[path] = _ChildStart(event.seq, earlier, origin)
        return path, earlier

    def _note_starts(self, events: Iterable[Event], dropped: Iterable[Event] = ()) -> None:
        for event in dropped:
            if type(event.data) is progress.SubagentStarted:
                self._children.pop((*event.path, event.data.child), None)
        for event in events:
            if type(event.data) is progress.SubagentStarted:
                self._note_start(event, event.data)

    def _add_special(self, event: Event) -> bool:
        """Apply what an event ends; return whether the event itself is visible."""
        match event.data:
            case progress.StepStarted(inputs=inputs):
                return bool(inputs)
            case progress.SubagentCompleted(child=child, kept=kept):
                if not kept:
                    self._drop_child((*event.path, child))
                return False
            case monitor.ScriptAnswered(name=name):
                if name == monitor.SCRIPT_END:
                    self._drop_script(event)
                return name != monitor.SCRIPT_END
            case context.CheckpointSaved(told=told):
                return bool(told)
            case _:
                return True

    def events_at(self, path: AgentPath) -> Iterable[Event]:
        """Return the events of one agent, and the ``subagent.started`` that holds its input.

        Before them come the events of the children whose conversation it continues, as if they were its own.
        """
        return self._events_below(path) if path else [event for event in self.events if not event.path]

    def _events_below(self, path: AgentPath) -> Iterator[Event]:
        paths = [path]
        while paths[-1] not in self._restored and (earlier := self._continued_path(paths[-1])):
            paths.append(earlier)
        first, members = paths[-1], frozenset(paths)
        for event in self._restored.get(first, ()):
            yield event if first == path else _moved_to(path, first, event)
        for event in islice(self.events, self._start_of(first), None):
            body, owner = event.data, event.path
            if type(body) is progress.SubagentStarted and (child := (*owner, body.child)) in members:
                owner = child
            if owner in members:
                yield event if owner == path else _moved_to(path, owner, event)

    def restore(self, path: AgentPath, earlier: AgentPath, events: Iterable[Event]) -> None:
        """Make the agent at ``path`` continue the conversation of ``earlier``, a child whose events were dropped here.

        ``events`` are the events of the log; the conversation is kept until the agent has completed.
        """
        past = ContextWindow((), SessionState(), visible=[e for e in events if type(e.data) in _VISIBLE_BODIES])
        self._restored[path] = [_moved_to(path, earlier, event) for event in past.events_at(earlier)]

    def conversation_start(self, path: AgentPath) -> AgentPath:
        """Return the path of the child that began the conversation of the agent at ``path``; mostly its own."""
        start = self._children.get(path)
        return path if start is None else start.origin

    def conversation_paths(self, path: AgentPath) -> list[AgentPath]:
        """Return ``path`` and the paths of the children whose conversations it continues, the first one last."""
        paths = [path]
        while earlier := self._continued_path(paths[-1]):
            paths.append(earlier)
        return paths

    def conversation_seq(self, path: AgentPath) -> int:
        """Return the seq of the event that began the conversation of a child, 0 if this window does not have it."""
        start = self._children.get(self.conversation_start(path))
        return 0 if start is None else start.seq

    def _continued_path(self, path: AgentPath) -> AgentPath:
        """Return the path of the child whose conversation the agent at ``path`` continues, an empty one for none."""
        start = self._children.get(path)
        return () if start is None else start.earlier

    def _start_of(self, path: AgentPath) -> int:
        """Return the position of the event that starts the agent at ``path``; 0 if this window does not have it."""
        start = self._children.get(path)
        return 0 if start is None else bisect_left(self.events, start.seq, key=_SEQ)

    def last_text(self, turn: TurnId, path: AgentPath) -> str:
        """Return the last text of the agent in a turn, ``""`` when there is none."""
        for event in reversed(self.events):
            body = event.data if (event.turn, event.path) == (turn, path) else None
            if isinstance(body, progress.MessageCompleted) and (text := text_of(body.content)):
                return text
        return ""

    def _drop_child(self, child: AgentPath) -> None:
        """Drop the events of a finished child: no prompt needs them again."""
        self._restored.pop(child, None)
        start, events = self._start_of(child), self.events
        dropped = [event for event in islice(events, start, None) if event.path[: len(child)] == child]
        if dropped:
            self._size = self.size - sum(map(len, map(_STORED_BYTES, dropped)))
            self._sized_count -= len(dropped)
            self._forget_index(start)
        self._note_starts((), dropped)
        events[start:] = [event for event in islice(events, start, None) if event.path[: len(child)] != child]
        self._views = {path: view for path, view in self._views.items() if path[: len(child)] != child}

    def _drop_script(self, end: Event) -> None:
        """Drop the requests and calls of a finished script: no replay needs them again; its end stays."""
        start = self._start_of(end.path)
        tail = self.events[start:]
        bodies = [event.data for event in tail if event.path == end.path]
        calls = {body.call.id for body in bodies if isinstance(body, progress.ToolCalled) and not body.message_id}
        depth = len(end.path)

        def is_dropped(event: Event) -> bool:
            body = event.data
            if event.path != end.path:
                return event.path[:depth] == end.path  # a conversation of the script with a child agent
            if isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                return body.result.call in calls
            return type(body) in _SCRIPT_BODIES or (isinstance(body, progress.ToolCalled) and body.call.id in calls)

        self._set_events([*(event for event in tail if not is_dropped(event)), end], start)
        self._views = {path: view for path, view in self._views.items() if path[:depth] != end.path}

    def _trim(self, state: SessionState) -> None:
        if self.events and self.events[0].seq < state.window:
            early = set(state.early_input_seqs)
            self._set_events([event for event in self.events if event.seq >= state.window or event.seq in early])

    def _set_events(self, events: list[Event], start: int = 0) -> None:
        old = self.events[start:]
        pairs, shorter = enumerate(zip(old, events, strict=False), start), start + min(len(old), len(events))
        self._forget_index(next((at for at, (before, after) in pairs if before is not after), shorter))
        self._size = self.size + sum(map(len, map(_STORED_BYTES, events))) - sum(map(len, map(_STORED_BYTES, old)))
        self._sized_count += len(events) - len(old)
        self.events[start:] = events
        self._note_starts(events, old)
