"""The store ports: events, index, snapshots and live blocks, beside blobs and values.

A ``Store`` is a handle on one namespace: its name is part of every key, so namespaces are isolated from each other.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from vaka.core.ports.values import BlobStore, KeyValueStore
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId, Term

if TYPE_CHECKING:
    from vaka.core.ports.erasure import EraseResult
    from vaka.core.ports.messages import MessageIndex
    from vaka.core.ports.vectors import VectorStore

SessionStatus: TypeAlias = Literal["idle", "queued", "running", "waiting", "closed"]
"""The activity of a session, derived from its turns and inputs."""

ThreadState: TypeAlias = Literal["active", "paused", "ended", "terminated", "archived"]
"""The state of a session as a thread, which people and policies set."""
THREAD_STATES: tuple[ThreadState, ...] = get_args(ThreadState)

BACKGROUND_TAG = "background"
"""The tag of sessions in which agents work on memories; lists of conversations leave them out."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The index row of a session for listings and queues, derived from its log (``core.session.index_rows``)."""

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
    """The number of inputs that no turn has taken yet."""
    pending: int = 0
    """The number of open decisions."""
    closed: bool = False
    created: str = ""
    updated: str = ""
    origin: str = ""
    """The session this one was forked from."""
    folder: str = ""
    """The root of its workspace; ``""`` when it is not bound to a folder."""
    owner: str = ""
    """The person or program it belongs to, as the caller names them."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    """Its metadata; empty if they have more than 16 KiB as JSON: larger metadata are only in the log."""
    state: str = "active"
    """The stage of its life that ``session.updated`` gave it: active, paused, ended, terminated or archived."""
    erased: int = 0
    """The seq of the ``session.erased`` event that lists what was erased; 0 if nothing was."""
    version: int = 0
    """The seq of the event that last changed title, owner, tags, metadata or state; 0 in rows of older versions."""
    live: bool = False
    """True while a process holds the session's claim. Not stored, but looked up on each read."""

    @property
    def status(self) -> SessionStatus:
        if self.closed:
            return "closed"
        if not self.turn:
            return "queued" if self.inputs else "idle"
        return "waiting" if self.pending else "running"


class PendingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The index row of an open decision. ``event`` is the request."""

    id: DecisionId
    session: SessionId
    seq: int
    event: Event


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list: latest change first, ``limit`` per page; ``after`` is the ``next`` of the page before."""

    status: SessionStatus | None = None
    agent: str = ""
    text: str = ""
    """A part of the title; case does not matter."""
    prefix: str = ""
    """The beginning of the id."""
    origin: str = ""
    folder: str = ""
    """Sessions of this folder and of its subfolders, and sessions that are not bound to a folder."""
    owner: str = ""
    tag: str = ""
    """Sessions that have this tag."""
    state: str = ""
    metadata: dict[str, Any] = {}
    """Sessions whose metadata have all these keys with these values: texts, numbers or booleans.

    They are compared as JSON: 1 equals 1.0, and a number never equals a boolean.
    """
    updated_after: str = ""
    updated_before: str = ""
    limit: int = 50
    after: str = ""


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions, and the cursor of the next page (``""`` on the last)."""

    sessions: tuple[SessionInfo, ...]
    next: str = ""


class EventStore(Protocol):
    """The logs.

    ``append`` is atomic and durable on return; a stale term gets ``ConflictError``, a moved head ``HeadMoved``.
    """

    async def claim(self, session: SessionId) -> Term:
        """Become the session's writer, with a term above all earlier ones. ``Busy`` while another writer lives.

        An unknown session can be claimed; it exists from its first append on. The claim ends with the process.
        """
        ...

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        """Write sealed events right after ``head``, all or none, with their index rows; return the new head.

        With ``release`` the claim ends in the same transaction.
        """
        ...

    async def append_idle(self, info: SessionInfo, events: Sequence[Event]) -> int:
        """Claim a session as ``info`` shows it, append events and release it in one transaction; return the new head.

        ``Busy`` while it has a writer, ``HeadMoved`` when it has changed. ``info`` without a head is a new session.
        """
        ...

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        """Seal and append one event without being the writer; return its seq.

        The first event with a key wins; another one returns its seq and writes nothing. ``NotFound``: no such session.
        """
        ...

    def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events stored now after ``after``, up to ``upto``; hashes and seqs are verified (``Corrupt``)."""
        ...

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        """Return the events with these seqs, which ascend. ``NotFound`` for an unknown session.

        ``Corrupt`` unless all are there and the SHA-256 of their stored bytes, one after the other, is ``digest``.
        """
        ...

    async def wait(self, session: SessionId, *, after: int) -> int:
        """Return the head as soon as it is above ``after``; writes of any process count."""
        ...

    async def release(self, session: SessionId, term: Term) -> None:
        """End the claim; does nothing when it has already ended."""
        ...

    def is_held(self, session: SessionId, term: Term) -> bool:
        """Whether the claim certainly still holds, by the monotonic clock; without I/O."""
        ...

    def predecessor_died(self, session: SessionId, term: Term) -> bool:
        """Whether the process of the claim before this one certainly died while it held the claim; without I/O."""
        ...


class SessionIndex(Protocol):
    """The index of sessions and open decisions."""

    async def find(self, session: SessionId) -> SessionInfo | None:
        """Return the session's row, ``None`` when there is no such session."""
        ...

    async def list(self, query: SessionQuery) -> SessionPage: ...

    async def delete(self, session: SessionId) -> None:
        """Delete a session, its data and values. ``Busy`` while it has a writer, ``NotFound`` when there is none."""
        ...

    async def decisions(self, session: SessionId | None = None, *, id: str | None = None) -> Sequence[PendingDecision]:
        """Return the open decisions of one session or of all, oldest first; with ``id``, only the decision with it."""
        ...


class SnapshotStore(Protocol):
    """A cache of folded states, so that reopening a session reads only its tail."""

    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        """Save the state of a session as of ``seq``, computed by fold ``version``."""
        ...

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the seq and data of the latest state of this fold version, not after ``upto``."""
        ...


class LiveChannel(Protocol):
    """Sends the open blocks of a writer, which are not stored, to other processes, at most every 100 ms."""

    def share(self, session: SessionId, blocks: "Callable[[], Sequence[Event]] | None") -> None:
        """Register the writer's function that returns a ``message.snapshot`` of each open block; ``None`` to stop."""
        ...

    def touch(self, session: SessionId) -> None:
        """Announce that an open block of the writer has grown. Cheap, and free without followers elsewhere."""
        ...

    def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        """Yield the snapshots that a writer of another handle shares, until closed."""
        ...


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The data that ``gc`` may remove."""

    idle_before: str = ""
    """Sessions that are idle or closed and have not changed since (RFC 3339); none when empty."""
    blobs_before: str = ""
    """Unreferenced blobs that are older than this."""
    expired_before: str = ""
    """Values whose time of expiry is before this; none when empty."""
    dry_run: bool = False


class GcResult(msgspec.Struct, frozen=True, kw_only=True):
    """The data that ``gc`` removed, or would remove."""

    sessions: tuple[SessionId, ...] = ()
    blobs: int = 0
    values: int = 0
    """The number of expired values."""
    bytes: int = 0


class Store(Protocol):
    """One namespace of one database, opened on first use."""

    namespace: str
    url: str
    """The URL that opens it again, without a password."""
    events: EventStore
    sessions: SessionIndex
    snapshots: SnapshotStore
    blobs: BlobStore
    values: KeyValueStore
    live: LiveChannel

    @property
    def vectors(self) -> "VectorStore": ...

    @property
    def messages(self) -> "MessageIndex": ...

    def with_namespace(self, namespace: str) -> "Store":
        """Return a handle on another namespace of the same database."""
        ...

    async def gc(self, retention: Retention) -> GcResult:
        """Remove old data; never a session that has a writer, unfinished work or open decisions."""
        ...

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> "EraseResult":
        """Erase the contents of sessions, each in one transaction. An erased session stays unchanged.

        The data of events go, their hashes stay (``stores.erased_events``), and a ``session.erased`` ends the log.
        Blobs that no other session has put or names, and snapshots, decisions, labels and values of it are removed.
        """
        ...

    async def reindex(self) -> int:
        """Rebuild every index row from the logs; return the number of sessions."""
        ...

    async def close(self) -> None:
        """End all claims of this handle and close its files and connections."""
        ...
