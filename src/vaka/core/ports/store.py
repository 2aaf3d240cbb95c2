"""The sockets for what is kept.

A ``Store`` is a handle on one namespace: its name is part of every key, so two namespaces never see each other.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath, DecisionId, Digest, SessionId, Term

SessionStatus: TypeAlias = Literal["idle", "queued", "running", "waiting", "closed"]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The index row of a session: what listings and queues need, derived from its log (``core.session.index``)."""

    id: SessionId
    head: int = 0
    hash: str = ""
    """SHA-256 of the last event's bytes."""
    epoch: int = 1
    term: int = 0
    title: str = ""
    agent: str = ""
    turn: str = ""
    """The unfinished turn, if there is one."""
    inputs: int = 0
    """Inputs no turn has taken yet."""
    pending: int = 0
    """Decisions a person still has to take."""
    closed: bool = False
    created: str = ""
    updated: str = ""
    origin: str = ""
    """The session this one was forked from."""
    live: bool = False
    """True while some process holds the session's claim. Not stored: looked up when asked."""

    @property
    def status(self) -> SessionStatus:
        """One word for a list."""
        if self.closed:
            return "closed"
        if not self.turn:
            return "queued" if self.inputs else "idle"
        return "waiting" if self.pending else "running"


class PendingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The index row of a decision nobody has taken yet. ``event`` is what asked."""

    id: DecisionId
    session: SessionId
    seq: int
    event: Event


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list: newest change first, ``limit`` at a time, going on ``after`` a page's ``next``."""

    status: SessionStatus | None = None
    agent: str = ""
    text: str = ""
    """Part of the title, upper and lower case alike."""
    prefix: str = ""
    """How the id begins."""
    origin: str = ""
    updated_after: str = ""
    updated_before: str = ""
    limit: int = 50
    after: str = ""


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some sessions, and the cursor of the page after them (``""`` on the last)."""

    sessions: tuple[SessionInfo, ...]
    next: str = ""


class EventStore(Protocol):
    """The logs.

    ``append`` is atomic and durable on return; a stale term gets ``ConflictError``, a moved head ``HeadMoved``.
    """

    async def claim(self, session: SessionId) -> Term:
        """Become the session's writer, with a term above all before. ``Busy`` while another writer lives.

        An unknown session can be claimed; it exists from its first append on. The claim dies with the process.
        """
        ...

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        """Write sealed events right after ``head``, all or none, with their index rows; return the new head.

        With ``release`` the claim ends in the same transaction.
        """
        ...

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        """Petition: seal and append one event without being the writer; return its seq.

        The first event with a key wins; the same key again returns the first one's seq and writes nothing.
        ``NotFound`` for an unknown session.
        """
        ...

    def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events after ``after`` (up to ``upto``) as of now; every hash and seq is checked (``Corrupt``)."""
        ...

    async def wait(self, session: SessionId, *, after: int) -> int:
        """Return the head as soon as it is above ``after``, whoever in whichever process wrote it."""
        ...

    async def release(self, session: SessionId, term: Term) -> None:
        """End the claim; nothing happens when it is already over."""
        ...

    def is_held(self, session: SessionId, term: Term) -> bool:
        """Whether the claim surely still holds, by the monotonic clock; asks nobody."""
        ...


class SessionIndex(Protocol):
    """The index: which sessions there are and what they wait for."""

    async def find(self, session: SessionId) -> SessionInfo | None:
        """Return the session's row, ``None`` when there is no such session."""
        ...

    async def list(self, query: SessionQuery) -> SessionPage:
        """Return one page of sessions."""
        ...

    async def delete(self, session: SessionId) -> None:
        """Forget a session and all it holds. ``Busy`` while it has a writer, ``NotFound`` when there is none."""
        ...

    async def decisions(self, session: SessionId | None = None) -> Sequence[PendingDecision]:
        """Return what people still have to decide, oldest first, in one session or in all."""
        ...


class SnapshotStore(Protocol):
    """Folded states kept so that reopening costs only the tail. Losing them loses nothing."""

    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        """Keep the state of a session as of ``seq``, made by fold ``version``."""
        ...

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest state of this fold version (not after ``upto``) and its seq."""
        ...


class BlobStore(Protocol):
    """Bytes by their SHA-256, for what is too large for an event or may have to be erased."""

    async def put(self, data: bytes) -> Digest:
        """Keep ``data``, durable on return, and return its digest."""
        ...

    async def get(self, digest: Digest) -> bytes:
        """Return the bytes; ``NotFound`` when they are not kept (any more), ``Corrupt`` when they do not match."""
        ...


class KeyValueStore(Protocol):
    """Small JSON values by name."""

    async def get(self, key: str) -> JSON:
        """Return the value, ``None`` when there is none."""
        ...

    async def put(self, key: str, value: JSON) -> None:
        """Keep the value, durable on return; ``None`` removes it."""
        ...

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with ``prefix``, sorted."""
        ...


class LiveChannel(Protocol):
    """What is not stored, carried to followers in other processes: open blocks, at most every 100 ms."""

    def share(self, session: SessionId, blocks: "Callable[[], Sequence[Event]] | None") -> None:
        """As the writer: say where the ``message.snapshot`` of each open block can be had; ``None`` to stop."""
        ...

    def touch(self, session: SessionId) -> None:
        """As the writer: an open block has grown. Cheap, and free when nobody elsewhere follows."""
        ...

    def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        """As a follower: yield the snapshots a writer in another handle shares, until closed."""
        ...


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gc`` may remove."""

    idle_before: str = ""
    """Sessions that are idle or closed and have not changed since (RFC 3339); none when empty."""
    blobs_before: str = ""
    """Blobs nobody names that are older than this."""
    dry_run: bool = False


class GcResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gc`` removed, or would remove."""

    sessions: tuple[SessionId, ...] = ()
    blobs: int = 0
    bytes: int = 0


class Store(Protocol):
    """One namespace of one database. Opens itself on first use."""

    namespace: str
    url: str
    """How to open it again, without a password."""
    events: EventStore
    sessions: SessionIndex
    snapshots: SnapshotStore
    blobs: BlobStore
    values: KeyValueStore
    live: LiveChannel

    def with_namespace(self, namespace: str) -> "Store":
        """Return a handle on another namespace of the same database."""
        ...

    async def gc(self, retention: Retention) -> GcResult:
        """Remove what may go; never a session that has a writer, unfinished work or open decisions."""
        ...

    async def reindex(self) -> int:
        """Rebuild every index row from the logs; return how many sessions there are."""
        ...

    async def close(self) -> None:
        """End all claims of this handle and let go of files and connections."""
        ...


__all__ = [
    "AgentPath",
    "BlobStore",
    "EventStore",
    "GcResult",
    "KeyValueStore",
    "LiveChannel",
    "PendingDecision",
    "Retention",
    "SessionIndex",
    "SessionInfo",
    "SessionPage",
    "SessionQuery",
    "SessionStatus",
    "SnapshotStore",
    "Store",
]
