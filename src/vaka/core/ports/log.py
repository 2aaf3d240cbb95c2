"""The log of a session, as far as the loop knows it.

The loop writes events and reads the folded state. How events are checked, sealed, stored, folded and published is
behind this port.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.store import Store
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, AgentPath, Digest, EventScope, SessionId, TurnId
from vaka.core.types.pending import Entry, PendingView
from vaka.core.types.state import SessionState, agent_key

S = TypeVar("S", bound=msgspec.Struct)


class Log(Protocol):
    """The log of one session, whose only writer is this process."""

    @property
    def session(self) -> SessionId:
        """The id of the session."""
        ...

    @property
    def state(self) -> SessionState:
        """The fold of the stored events; always the same object, which each write changes."""
        ...

    @property
    def pending(self) -> PendingView:
        """The fold of the events that wait for the next write: what a turn knows is ``state`` with this on top."""
        ...

    @property
    def deferred(self) -> Sequence[Entry]:
        """The events that wait for the next write."""
        ...

    @property
    def window(self) -> "EventWindow":
        """The stored events from which prompts are built."""
        ...

    @property
    def secrets(self) -> "SecretRedactor":
        """The secrets that are removed from everything that is stored."""
        ...

    @property
    def store(self) -> Store:
        """The store of the session, for its blobs."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the timestamps."""
        ...

    @property
    def fanout(self) -> "LiveView":
        """What the followers in this process see besides the stored events."""
        ...

    def get_value(self, key: str) -> JSON:
        """Return a value of the session's state, deferred changes included."""
        ...

    def defer(self, scope: EventScope, *bodies: Body) -> None:
        """Write these events with the next append, before its own."""
        ...

    async def append(self, scope: EventScope, *bodies: Body, release: bool = False) -> tuple[Event, ...]:
        """Write events after the deferred ones: durable, folded and published on return. ``LogError`` if they break
        an invariant; ``StoreError`` if they cannot be written. With ``release`` the claim ends with them.
        """
        ...

    async def revert(self, scope: EventScope, *bodies: Body) -> None:
        """Write the rewind of a turn, and go on with the state that the log has then."""
        ...

    def publish_live(self, scope: EventScope, body: Body) -> None:
        """Publish an event that is not stored, with secrets redacted."""
        ...

    def wait_for_change(self) -> Coroutine[Any, Any, bool]:
        """Return a coroutine that ends after the next write, counted from this call and not from its first await."""
        ...

    def require_writer(self) -> None:
        """Raise ``ConflictError`` unless the claim of this process certainly still holds."""
        ...

    def predecessor_died(self) -> bool:
        """Whether the process that had the claim before has certainly ended, so that none of its tools still runs."""
        ...

    def add_secret_finders(self, finders: "Sequence[SecretFinder]") -> None:
        """Redact the matches of more finders in all further events."""
        ...

    async def read_branch(self, after: int) -> list[Event]:
        """Return the stored events after ``after`` that no rewind has taken back."""
        ...


class SecretFinder(Protocol):
    """Finds secrets of one or more kinds, in a text that is complete or still streaming."""

    context: int
    """The number of characters before a match on which it may depend."""

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        """Yield start and end of each match from ``start`` on, in order and disjoint; the text before is context."""
        ...

    def possible_start(self, text: str, start: int) -> int:
        """Return the first position from ``start`` on of a match that more text may complete or extend."""
        ...

    def clear_context(self, text: str, start: int) -> int:
        """Return -1 if the text from ``start`` on may be part of a match; a quick check before the others.

        Else return how many characters at the end of the text are the context of what follows.
        """
        ...


class SecretRedactor(Protocol):
    """Removes secrets from values."""

    @property
    def is_active(self) -> bool:
        """Whether there is anything to redact."""
        ...

    @property
    def clean_digests(self) -> set[Digest | None]:
        """The digests of texts that contain no secret; a caller adds those that it has looked at."""
        ...

    def redact_data(self, value: Any) -> Any:
        """Return plain data without secrets."""
        ...

    def redact_struct(self, value: S) -> S:
        """Return a struct without secrets."""
        ...


class WindowView(Protocol):
    """Something that is made from the events of one agent, and extended by each new one."""

    path: AgentPath
    """The path of the agent; it changes when another child continues the conversation."""

    def add(self, event: Event) -> None:
        """Take the next event of the window."""
        ...

    def forget_loaded(self) -> None:
        """Drop what was loaded from elsewhere than the log."""
        ...


V = TypeVar("V", bound=WindowView)


class EventWindow(Protocol):
    """The events from which prompts are built, from the last compaction on, for the agents of a session."""

    @property
    def events(self) -> Sequence[Event]:
        """All events of the window, in the order of the log."""
        ...

    @property
    def held_texts(self) -> set[Digest | None]:
        """The digests of prompt texts that the session holds; a caller adds those that it has stored."""
        ...

    def events_at(self, path: AgentPath) -> Iterable[Event]:
        """Return the events of one agent, after the events of the conversation that it continues."""
        ...

    def view(self, path: AgentPath, make: Callable[[Iterable[Event]], V]) -> V:
        """Return the view of the agent at ``path``; ``make`` makes it from the events so far, later ones are added."""
        ...

    def last_text(self, turn: TurnId, path: AgentPath) -> str:
        """Return the last text of the agent in a turn, ``""`` when there is none."""
        ...

    def restore(self, path: AgentPath, earlier: AgentPath, events: Iterable[Event]) -> None:
        """Make the agent at ``path`` continue the conversation of ``earlier``, whose ``events`` the log has."""
        ...

    def conversation_start(self, path: AgentPath) -> AgentPath:
        """Return the path of the child that began the conversation of the agent at ``path``; mostly its own."""
        ...

    def conversation_paths(self, path: AgentPath) -> list[AgentPath]:
        """Return ``path`` and the paths of the children whose conversations it continues, the first one last."""
        ...

    def conversation_seq(self, path: AgentPath) -> int:
        """Return the seq of the event that began the conversation of a child, 0 if this window does not have it."""
        ...


class LiveView(Protocol):
    """The live events of a session in this process."""

    @property
    def followers(self) -> set[Any]:
        """The set of followers that each event wakes."""
        ...

    def snapshots(self) -> Iterable[Event]:
        """Return a ``message.snapshot`` of each open block."""
        ...


def conversation_key(window: EventWindow, path: AgentPath, name: str) -> str:
    """Return the key of the value ``name`` of the conversation of the agent at ``path``.

    A child that continues the conversation of another has the same key. ``name`` begins with ``$``, so that scripts
    cannot set it.
    """
    return f"$agent/{agent_key(window.conversation_start(path))}/:{name}" if path else name
