"""Sealed events for store tests: bodies, and a sealer that chains them as a session's log does."""

from datetime import UTC, datetime, timedelta

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.hash_chain import seal
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, InputAdded, QuestionAsked, key_of
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import CallId, DecisionId, Digest, SessionId, Term, TurnId
from vaka.core.types.message import Text, ToolCall
from vaka.core.types.progress import TurnCompleted, TurnStarted

START_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def format_time(seconds: float = 0) -> str:
    """Return a time as events carry it."""
    return (START_TIME + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def input_added(text: str, key: str = "k") -> InputAdded:
    return InputAdded(key=key, content=(Text(text=text),))


def approval_requested(approval: str) -> ApprovalRequested:
    call = ToolCall(id=CallId("1"), name="rm", arguments={"path": "/"})
    return ApprovalRequested(approval=DecisionId(approval), call=call, digest=Digest("d"), spec=Digest("s"))


def question_asked(question: str) -> QuestionAsked:
    return QuestionAsked(question=DecisionId(question), text="Which one?")


def approval_resolved(approval: str, by: str = "") -> ApprovalResolved:
    return ApprovalResolved(approval=DecisionId(approval), decision="approve", by=by)


def unsealed_event(session: str, body: Body, *, at: float = 0, turn: str = "") -> Event:
    """Return an event without a seq, as it is offered."""
    return Event(data=body, session=SessionId(session), ts=format_time(at), turn=TurnId(turn))


async def offer_event(store: Store, body: Body, *, session: str = "s") -> int:
    """Offer an event under its own key; return its seq."""
    return await store.events.offer(SessionId(session), unsealed_event(session, body), key=key_of(body))


class EventSealer:
    """Seals bodies one after the other, as the log of one session does; it continues after ``events``."""

    def __init__(self, session: str, *events: Event, at: float = 0) -> None:
        self.session = SessionId(session)
        self.at = at
        self.events = list(events)

    @property
    def head(self) -> int:
        return self.events[-1].seq if self.events else 0

    @property
    def hash(self) -> str:
        return self.events[-1].hash if self.events else ""

    @property
    def stored(self) -> list[bytes]:
        """The stored bytes of all events."""
        return [event.stored for event in self.events]

    def seal(self, *bodies: Body, turn: str = "") -> list[Event]:
        """Return the bodies as the next events."""
        first = len(self.events)
        for body in bodies:
            event = unsealed_event(self.session, body, at=self.at + self.head / 1000, turn=turn)
            self.events.append(seal(event, epoch=1, seq=self.head + 1, prev=self.hash))
        return self.events[first:]

    async def catch_up(self, store: Store) -> "EventSealer":
        """Continue after the events that other writers have appended."""
        self.events += [event async for event in store.events.read(self.session, after=self.head)]
        return self

    async def append_to(self, store: Store, term: Term, *bodies: Body, turn: str = "", release: bool = False) -> int:
        """Append the bodies and return the head."""
        head = self.head
        return await store.events.append(
            self.session, self.seal(*bodies, turn=turn), head=head, term=term, release=release
        )


async def begin_session(store: Store, session: str, *bodies: Body, at: float = 0) -> tuple[EventSealer, Term]:
    """Claim a session and append its first events (one input by default)."""
    log = EventSealer(session, at=at)
    term = await store.events.claim(log.session)
    await log.append_to(store, term, *(bodies or (input_added("hello"),)))
    return log, term


async def write_session(store: Store, session: str, *bodies: Body, at: float = 0, turn: str = "") -> EventSealer:
    """Write a session and release it."""
    log = EventSealer(session, at=at)
    term = await store.events.claim(log.session)
    await log.append_to(store, term, *(bodies or (input_added("hello"),)), turn=turn, release=True)
    return log


async def find_session(store: Store, session: str = "s") -> SessionInfo:
    """Return the index row of a session that exists."""
    found = await store.sessions.find(SessionId(session))
    if found is None:
        raise AssertionError(f"there is no session {session!r}")
    return found


async def read_log(store: Store, session: str, *, after: int = 0, upto: int | None = None) -> list[bytes]:
    """Return the stored bytes of a log."""
    return [event.stored async for event in store.events.read(SessionId(session), after=after, upto=upto)]


def turn_events(agent: str = "assistant") -> tuple[TurnStarted, TurnCompleted]:
    """Return the first and the last event of a turn that takes the input ``k``."""
    return TurnStarted(agent=agent, inputs=("k",)), TurnCompleted(text="done")
