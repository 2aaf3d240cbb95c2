"""Sealed events for tests."""

from datetime import UTC, datetime, timedelta

from vaka.core.ports.store import Store
from vaka.core.types.content import Text
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, InputAdded, QuestionAsked
from vaka.core.types.event import Body, Event, seal
from vaka.core.types.ids import CallId, DecisionId, Digest, SessionId, Term, TurnId
from vaka.core.types.message import ToolCall
from vaka.core.types.progress import TurnCompleted, TurnStarted

START = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float = 0) -> str:
    """Return a time of day as events carry it."""
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def said(text: str, key: str = "k") -> InputAdded:
    """Return an input."""
    return InputAdded(key=key, content=(Text(text=text),))


def asks(approval: str) -> ApprovalRequested:
    """Return a request for approval."""
    call = ToolCall(id=CallId("1"), name="rm", arguments={"path": "/"})
    return ApprovalRequested(approval=DecisionId(approval), call=call, digest=Digest("d"), spec=Digest("s"))


def asks_what(question: str) -> QuestionAsked:
    """Return a question."""
    return QuestionAsked(question=DecisionId(question), text="Which one?")


def approves(approval: str, by: str = "") -> ApprovalResolved:
    """Return an approval."""
    return ApprovalResolved(approval=DecisionId(approval), decision="approve", by=by)


def unsealed(session: str, body: Body, *, at: float = 0, turn: str = "") -> Event:
    """Return an event without a place, as a petitioner offers it."""
    return Event(data=body, session=SessionId(session), ts=moment(at), turn=TurnId(turn))


class Pen:
    """Seals bodies one after the other, as the log of one session does."""

    def __init__(self, session: str, *, at: float = 0) -> None:
        self.session = SessionId(session)
        self.at, self.head, self.hash = at, 0, ""
        self.events: list[Event] = []

    def seal(self, *bodies: Body, turn: str = "") -> list[Event]:
        """Return the bodies as the next events."""
        made: list[Event] = []
        for body in bodies:
            event = unsealed(self.session, body, at=self.at + self.head / 1000, turn=turn)
            event = seal(event, epoch=1, seq=self.head + 1, prev=self.hash)
            self.take(event)
            made.append(event)
        return made

    def take(self, event: Event) -> None:
        """Go on after an event somebody else has appended."""
        self.head, self.hash = event.seq, event.hash
        self.events.append(event)

    async def write(self, store: Store, term: Term, *bodies: Body, turn: str = "", release: bool = False) -> int:
        """Append the bodies and return the head."""
        head = self.head
        return await store.events.append(
            self.session, self.seal(*bodies, turn=turn), head=head, term=term, release=release
        )


async def begun(store: Store, session: str, *bodies: Body, at: float = 0) -> tuple[Pen, Term]:
    """Claim a session and append its first events (one input unless told)."""
    pen = Pen(session, at=at)
    term = await store.events.claim(pen.session)
    await pen.write(store, term, *(bodies or (said("hello"),)))
    return pen, term


async def kept(store: Store, session: str, *bodies: Body, at: float = 0, turn: str = "") -> Pen:
    """Write a session and let go of it."""
    pen = Pen(session, at=at)
    term = await store.events.claim(pen.session)
    await pen.write(store, term, *(bodies or (said("hello"),)), turn=turn, release=True)
    return pen


async def log(store: Store, session: str, *, after: int = 0, upto: int | None = None) -> list[bytes]:
    """Return the stored bytes of a log."""
    return [event.stored async for event in store.events.read(SessionId(session), after=after, upto=upto)]


def turn_of(agent: str = "assistant") -> tuple[TurnStarted, TurnCompleted]:
    """Return the first and the last event of a turn that takes the input ``k``."""
    return TurnStarted(agent=agent, inputs=("k",)), TurnCompleted(text="done")
