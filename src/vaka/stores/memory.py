"""A store in memory: plain dictionaries under the same contract as the durable stores.

No other program can change its bytes, so reading does not verify hashes.
"""

import hashlib
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.ports import store
from vaka.core.ports.store import GcResult, PendingDecision, Retention, SessionInfo, SessionPage, SessionQuery
from vaka.core.ports.values import BlobStore, KeyValueStore, session_values_prefix
from vaka.core.session.hash_chain import seal
from vaka.core.session.index_rows import advance_row, replace_fields, require_data
from vaka.core.types.control import SessionErased, key_of
from vaka.core.types.errors import Busy, Closed, ConflictError, Corrupt, HeadMoved, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, DecisionId, Digest, SessionId, Term
from vaka.stores.blob_references import blobs_of, select_keyed_or_blob_events
from vaka.stores.common import (
    check_batch,
    check_offer,
    current_time,
    decision_changes,
    encode_present_value,
    encode_value,
    has_metadata,
    metadata_filter,
    page_of,
    parse_cursor,
    sort_decisions,
)
from vaka.stores.followers import BlockGetter, HeadWaiters, Mailboxes, SharedBlocks

if TYPE_CHECKING:
    from vaka.core.ports.erasure import EraseResult
    from vaka.core.ports.messages import MessageIndex
    from vaka.core.ports.vectors import VectorStore
    from vaka.stores.memory_vectors import VectorTables

MemoryKey = tuple[str, SessionId]


class MemoryIndex:
    """Data that is computed on demand from the events of a log, without its row."""

    def __init__(self) -> None:
        self.seen = 0
        """The number of events that were looked at."""
        self.keys: dict[str, int] = {}
        self.pending: dict[DecisionId, PendingDecision] = {}
        self.blobs: set[Digest] = set()
        self.indexed = 0
        """The number of events whose messages are in ``messages``."""
        self.messages: list[Any] = []

    def add(self, session: SessionId, events: Sequence[Event]) -> None:
        """Take the next events."""
        self.seen = events[-1].seq
        opened, settled, settles_all = decision_changes(session, events)
        for decision in list(self.pending) if settles_all else settled:
            self.pending.pop(decision, None)
        self.pending.update((row.id, row) for row in opened)
        for event in select_keyed_or_blob_events(events):
            if key := key_of(event.data):
                self.keys.setdefault(key, event.seq)
            self.blobs.update(blobs_of(event))


class MemoryLog:
    """One session: its events, and what is computed from them when it is asked for. Few runs ask."""

    __slots__ = ("_index", "_row", "events", "id", "snapshots", "term")  # a program may hold many in one process

    def __init__(self, id: SessionId, term: Term) -> None:
        self.id, self.term = id, term
        self.events: list[Event] = []
        self.snapshots: dict[str, dict[int, bytes]] = {}
        self._row: SessionInfo | None = None
        self._index: MemoryIndex | None = None

    @property
    def head(self) -> int:
        return len(self.events)

    @property
    def hash(self) -> str:
        return self.events[-1].hash if self.events else ""

    @property
    def is_erased(self) -> bool:
        return bool(self.events) and type(self.events[-1].data) is SessionErased

    @property
    def info(self) -> SessionInfo:
        """The row of the session."""
        row = self._row or SessionInfo(id=self.id)
        if events := self.events[row.head :]:
            row = advance_row(row, events)
        if row.term != self.term:
            row = replace_fields(row, term=self.term)
        self._row = row
        return row

    @property
    def index(self) -> MemoryIndex:
        """The index, up to date."""
        index = self._index = self._index or MemoryIndex()
        if events := self.events[index.seen :]:
            index.add(self.id, events)
        return index

    def is_removable(self, before: str) -> bool:
        """Return whether the session has no work left and was not changed since a time."""
        row = self.info
        return row.updated < before and not (row.turn or row.inputs or row.pending or self.index.pending)


class MemoryClaim(msgspec.Struct, frozen=True, eq=False):
    """The current writer of a session."""

    hub: "MemoryHub"
    term: Term
    store: "MemoryStore"


class SharedMemory:
    """The data that all handles on one memory share."""

    def __init__(self) -> None:
        self.hubs: list[MemoryHub] = []
        self.logs: dict[MemoryKey, MemoryLog] = {}
        self.claims: dict[MemoryKey, MemoryClaim] = {}
        self.blobs: dict[tuple[str, Digest], tuple[bytes, str]] = {}
        self.held: dict[MemoryKey, set[Digest]] = {}
        """The blobs that sessions have put; their events name them, or will."""
        self.values: dict[tuple[str, str], bytes] = {}
        self.expiries: dict[tuple[str, str], str] = {}
        """The times at which values expire, if they do."""

    def put_value(self, key: tuple[str, str], raw: bytes | None, expires: str = "") -> None:
        """Store or remove a value and its time of expiry."""
        self.expiries.pop(key, None)
        if raw is None:
            self.values.pop(key, None)
            return
        self.values[key] = raw
        if expires:
            self.expiries[key] = expires

    @cached_property
    def vectors(self) -> "VectorTables":
        from vaka.stores.memory_vectors import VectorTables  # noqa: PLC0415  # most programs store none

        return VectorTables()

    def delete_session_values(self, keys: Collection[MemoryKey]) -> None:
        """Delete the values that belong to sessions, and what they hold of blobs."""
        for key in keys:
            self.held.pop(key, None)
        prefixes = {(namespace, session_values_prefix(session)) for namespace, session in keys}
        self.values = {
            key: value
            for key, value in self.values.items()
            if not any(key[0] == namespace and key[1].startswith(prefix) for namespace, prefix in prefixes)
        }
        self.expiries = {key: expires for key, expires in self.expiries.items() if key in self.values}

    def wake(self, key: MemoryKey, head: int) -> None:
        """Wake the waits for a session in all handles."""
        for hub in self.hubs:
            if hub.waiters.waiting:
                hub.waiters.wake(key, head)


class MemoryHub:
    """One handle with all its namespaces; a second hub on the same memory stands for another process."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared, self.closed = shared, False
        self.waiters: HeadWaiters[MemoryKey] = HeadWaiters()
        self.mailboxes: Mailboxes[MemoryKey] = Mailboxes()
        self.blocks: SharedBlocks[MemoryKey] = SharedBlocks(self._is_watched, self._send_blocks)
        shared.hubs.append(self)

    def other_hubs(self) -> "list[MemoryHub]":
        return [hub for hub in self.shared.hubs if hub is not self]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.shared.hubs.remove(self)
            self.waiters.fail(self.waiters.keys(), Closed("the store was closed"))
            self.mailboxes.close()
            self.blocks.close()

    def _is_watched(self, key: MemoryKey) -> bool:
        for hub in self.shared.hubs:  # noqa: SIM110  # faster than a generator
            if hub is not self and key in hub.mailboxes:
                return True
        return False

    def _send_blocks(self, key: MemoryKey, events: Sequence[Event]) -> None:
        for hub in self.other_hubs():
            for event in events:
                hub.mailboxes.put(key, event)


class MemoryPort:
    """Base of the ports of a store."""

    def __init__(self, owner: "MemoryStore") -> None:
        self._store = owner
        self._namespace = owner.namespace
        self._hub = owner.hub

    @property
    def _shared(self) -> SharedMemory:
        if self._store.closed or self._hub.closed:
            raise Closed("the store was closed")
        return self._hub.shared


class MemoryEvents(MemoryPort):
    async def claim(self, session: SessionId) -> Term:
        shared, key = self._shared, (self._namespace, session)
        if key in shared.claims:
            raise Busy(f"session {session!r} has a writer")
        log = shared.logs.get(key)
        if log and log.is_erased:
            require_data(log.info)
        term = Term(log.term + 1 if log else 1)
        if log:
            log.term = term
        shared.claims[key] = MemoryClaim(self._hub, term, self._store)
        return term

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        if self._store.closed or self._hub.closed:
            raise Closed("the store was closed")
        shared, key = self._hub.shared, (self._namespace, session)
        claim = shared.claims.get(key)
        if claim is None or claim.hub is not self._hub or claim.term != term:
            raise ConflictError(f"session {session!r}: the claim with term {term} is over")
        log = shared.logs[key] if key in shared.logs else MemoryLog(session, term)
        stored = log.events
        last = stored[-1] if stored else None
        current = last.seq if last is not None else 0
        if current != head:
            raise HeadMoved(f"session {session!r}: the log is at {current}, not at {head}")
        check_batch(session, events, head=head, head_hash=last.digest or last.hash if last is not None else "")
        if events:
            stored += events
            shared.logs[key] = log
        if release:
            del shared.claims[key]
        head = stored[-1].seq if stored else 0
        shared.wake(key, head)
        return head

    async def append_idle(self, info: SessionInfo, events: Sequence[Event]) -> int:
        shared, key = self._shared, (self._namespace, info.id)
        if key in shared.claims:
            raise Busy(f"session {info.id!r} has a writer")
        log = shared.logs.get(key) or MemoryLog(info.id, Term(0))
        if log.events:
            require_data(log.info)
        if (len(log.events), log.term) != (info.head, info.term):
            raise HeadMoved(f"session {info.id!r} has changed since it was read")
        check_batch(info.id, events, head=info.head, head_hash=info.hash)
        if events:
            log.events += events
            shared.logs[key], log.term = log, Term(log.term + 1)
            shared.wake(key, log.head)
        return info.head + len(events)

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        log = self._shared.logs.get((self._namespace, session))
        check_offer(event, key)
        if log is None:
            raise NotFound(f"there is no session {session!r}")
        require_data(log.info)
        if key not in log.index.keys:
            log.events.append(seal(event, epoch=log.events[-1].epoch, seq=log.head + 1, prev=log.hash))
            self._shared.wake((self._namespace, session), log.head)
        return log.index.keys[key]

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        log = self._shared.logs.get((self._namespace, session))
        for event in log.events[after:upto] if log else ():
            yield event

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        log = self._shared.logs.get((self._namespace, session))
        if log is None:
            raise NotFound(f"there is no session {session!r}")
        events = [log.events[seq - 1] for seq in seqs if 0 < seq <= log.head]
        found = hashlib.sha256(b"".join([event.stored for event in events])).hexdigest()
        if len(events) < len(seqs) or found != digest:
            raise Corrupt(f"session {session!r}: the selected events differ from the events of the digest")
        return events

    async def wait(self, session: SessionId, *, after: int) -> int:
        log = self._shared.logs.get((self._namespace, session))
        if log and log.head > after:
            return log.head
        return await self._hub.waiters.wait((self._namespace, session), after)

    async def release(self, session: SessionId, term: Term) -> None:
        if self.is_held(session, term):
            del self._hub.shared.claims[self._namespace, session]

    def is_held(self, session: SessionId, term: Term) -> bool:
        claim = self._hub.shared.claims.get((self._namespace, session))
        return claim is not None and claim.hub is self._hub and claim.term == term

    def predecessor_died(self, session: SessionId, term: Term) -> bool:
        return False  # all handles on one memory are in one process


class MemorySessions(MemoryPort):
    async def find(self, session: SessionId) -> SessionInfo | None:
        log = self._shared.logs.get((self._namespace, session))
        return self._info_of(log) if log else None

    async def list(self, query: SessionQuery) -> SessionPage:
        after = parse_cursor(query)
        rows = [self._info_of(log) for (space, _), log in self._shared.logs.items() if space == self._namespace]
        rows = [
            info for info in rows if (after is None or (info.updated, info.id) < after) and _matches_query(info, query)
        ]
        return page_of(sorted(rows, key=lambda info: (info.updated, info.id), reverse=True), query)

    async def delete(self, session: SessionId) -> None:
        key = (self._namespace, session)
        if key not in self._shared.logs:
            raise NotFound(f"there is no session {session!r}")
        if key in self._shared.claims:
            raise Busy(f"session {session!r} has a writer; end its turn first")
        del self._shared.logs[key]
        self._shared.delete_session_values({key})

    async def decisions(self, session: SessionId | None = None, *, id: str | None = None) -> Sequence[PendingDecision]:
        logs = self._shared.logs.items()
        found = [log for (space, name), log in logs if space == self._namespace and session in {None, name}]
        rows = (row for log in found for row in log.index.pending.values())
        return sort_decisions(row for row in rows if id in {None, row.id})

    def _info_of(self, log: MemoryLog) -> SessionInfo:
        live = (self._namespace, log.id) in self._shared.claims
        return replace_fields(log.info, live=True) if live else log.info


class MemorySnapshots(MemoryPort):
    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        log = self._shared.logs.get((self._namespace, session))
        if log:
            log.snapshots = {version: {**log.snapshots.get(version, {}), seq: bytes(data)}}

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        log = self._shared.logs.get((self._namespace, session))
        states = log.snapshots.get(version, {}) if log else {}
        return max((item for item in states.items() if upto is None or item[0] <= upto), default=None)


class MemoryBlobs(MemoryPort):
    async def put(self, data: bytes, *, session: str = "") -> Digest:
        digest, key = Digest(hashlib.sha256(data).hexdigest()), (self._namespace, SessionId(session))
        if session:
            if log := self._shared.logs.get(key):
                require_data(log.info)
            self._shared.held.setdefault(key, set()).add(digest)
        self._shared.blobs[self._namespace, digest] = (bytes(data), current_time())
        return digest

    async def find_missing(self, digests: Iterable[Digest]) -> set[Digest]:
        blobs = self._shared.blobs
        return {digest for digest in digests if (self._namespace, digest) not in blobs}

    async def get(self, digest: Digest) -> bytes:
        entry = self._shared.blobs.get((self._namespace, digest))
        if entry is None:
            raise NotFound(f"there is no blob {digest[:64]!r}")
        return entry[0]


class MemoryValues(MemoryPort):
    async def get(self, key: str) -> JSON:
        raw = self._shared.values.get((self._namespace, key))
        return None if raw is None else msgspec.json.decode(raw)

    async def put(self, key: str, value: JSON) -> None:
        self._shared.put_value((self._namespace, key), None if value is None else encode_value(key, value))

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        raw = self._shared.values.setdefault((self._namespace, key), encode_present_value(key, value))
        return msgspec.json.decode(raw)

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        raw_old, raw_new = (None if value is None else encode_value(key, value) for value in (old, new))
        name = (self._namespace, key)
        if self._shared.values.get(name) == raw_old:
            self._shared.put_value(name, raw_new, expires)
        return self._shared.values.get(name) == raw_new

    async def keys(self, prefix: str = "") -> Sequence[str]:
        return sorted(key for space, key in self._shared.values if space == self._namespace and key.startswith(prefix))


class MemoryLive(MemoryPort):
    def share(self, session: SessionId, blocks: BlockGetter | None) -> None:
        self._hub.blocks.share((self._namespace, session), blocks)

    def touch(self, session: SessionId) -> None:
        if self._hub.shared.hubs[1:]:  # another handle may watch
            self._hub.blocks.touch((self._namespace, session))

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        key, shared = (self._namespace, session), self._shared
        with self._hub.mailboxes.open(key) as box:
            for hub in shared.hubs:
                hub.blocks.touch(key)
            async with aclosing(box.receive()) as events:
                async for event in events:
                    yield event


class MemoryStore:
    """A store without a file. ``open_handle()`` returns a second handle on the same memory, as another process has."""

    def __init__(self, namespace: str = "", shared: SharedMemory | MemoryHub | None = None) -> None:
        self.namespace = namespace
        self.url = "memory:"
        self.closed = False
        self.hub = shared if isinstance(shared, MemoryHub) else MemoryHub(shared or SharedMemory())
        self._shares_hub = isinstance(shared, MemoryHub)
        self.events: store.EventStore = MemoryEvents(self)
        self.sessions: store.SessionIndex = MemorySessions(self)
        self.snapshots: store.SnapshotStore = MemorySnapshots(self)
        self.blobs: BlobStore = MemoryBlobs(self)
        self.values: KeyValueStore = MemoryValues(self)
        self.live: store.LiveChannel = MemoryLive(self)
        self._vectors: VectorStore | None = None
        self._messages: MessageIndex | None = None

    @property
    def vectors(self) -> "VectorStore":
        """The vectors of the namespace."""
        if self._vectors is None:
            from vaka.stores.memory_vectors import MemoryVectors  # noqa: PLC0415  # most programs store none

            self._vectors = MemoryVectors(self)
        return self._vectors

    @property
    def messages(self) -> "MessageIndex":
        """The messages of the sessions."""
        if self._messages is None:
            from vaka.stores.memory_messages import MemoryMessages  # noqa: PLC0415  # most runs do not search

            self._messages = MemoryMessages(self)
        return self._messages

    def with_namespace(self, namespace: str) -> "MemoryStore":
        """Return a handle on another namespace of the same memory."""
        return MemoryStore(namespace, self.hub)

    def open_handle(self) -> "MemoryStore":
        """Return another handle on the same memory and namespace."""
        return MemoryStore(self.namespace, self.hub.shared)

    async def gc(self, retention: Retention) -> GcResult:
        from vaka.stores.memory_gc import remove_garbage  # noqa: PLC0415  # most programs collect none

        return remove_garbage(self.hub.shared, self.namespace, retention)

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> "EraseResult":
        """Erase what sessions hold; their hashes stay."""
        from vaka.stores.memory_erasure import erase_sessions  # noqa: PLC0415  # most programs erase nothing

        return erase_sessions(self.hub.shared, self.namespace, sessions, by)

    async def reindex(self) -> int:
        keys = [key for key in self.hub.shared.logs if key[0] == self.namespace]
        for key in keys:
            old = self.hub.shared.logs[key]
            log = self.hub.shared.logs[key] = MemoryLog(old.id, old.term)
            log.events, log.snapshots = old.events, old.snapshots
        return len(keys)

    async def close(self) -> None:
        """End all claims of this handle."""
        self.closed = True
        shared = self.hub.shared
        for key, claim in list(shared.claims.items()):
            if claim.store is self or (claim.hub is self.hub and not self._shares_hub):
                del shared.claims[key]
                self.hub.blocks.share(key, None)
        if not self._shares_hub:
            self.hub.close()


def _matches_query(info: SessionInfo, query: SessionQuery) -> bool:
    return (
        (query.status is None or info.status == query.status)
        and (not query.agent or info.agent == query.agent)
        and (not query.origin or info.origin == query.origin)
        and (not query.folder or f"{info.folder or query.folder}/".startswith(f"{query.folder.rstrip('/')}/"))
        and (not query.owner or info.owner == query.owner)
        and (not query.tag or query.tag in info.tags)
        and (not query.state or info.state == query.state)
        and has_metadata(info.metadata, metadata_filter(query))
        and info.id.startswith(query.prefix)
        and query.text.casefold() in info.title.casefold()
        and info.updated > query.updated_after
        and (not query.updated_before or info.updated < query.updated_before)
    )
