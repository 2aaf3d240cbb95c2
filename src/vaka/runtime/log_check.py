"""Check what a session has stored: its hash chain, its blobs, its values, and whether it can be opened."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.ports.values import session_values_prefix
from vaka.core.session.snapshot import reopen
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import Digest
from vaka.stores.blob_references import blobs_of

MAX_EVENTS_OF_BLOB = 20
"""The number of events that a ``BlobProblem`` names; a system prompt may be used by every step."""

_NAMED_PROBLEMS = 3
"""The number of blobs that a message names."""


class BlobProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A blob that cannot be read, and the events that use it."""

    digest: Digest
    problem: Literal["missing", "damaged"]
    events: tuple[int, ...]
    """The first events that use it."""
    uses: int
    """The number of all events that use it."""

    def describe(self) -> str:
        others = self.uses - len(self.events)
        more = f" and {others} more" if others else ""
        noun = "event" if self.uses == 1 else "events"
        return f"blob {self.digest} is {self.problem}, used by {noun} {', '.join(map(str, self.events))}{more}"


class LogCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one session."""

    session_id: str
    ok: bool
    head: int = 0
    hash: str = ""
    expected_at: int | None = None
    """The event whose hash was expected."""
    erased: int = 0
    """The number of events whose data were erased."""
    blobs: int = 0
    """The number of different blobs that were read."""
    blob_problems: tuple[BlobProblem, ...] = ()
    error: str | None = None


class _BlobReader:
    """Reads each blob that events use once, one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._problems: dict[Digest, Literal["missing", "damaged"] | None] = {}
        self._uses: dict[Digest, list[int]] = {}

    async def read_blobs_of(self, event: Event) -> None:
        for digest in dict.fromkeys(blobs_of(event)):
            if digest not in self._problems:
                self._problems[digest] = await self._find_problem(digest)
            if self._problems[digest] is not None:
                self._uses.setdefault(digest, []).append(event.seq)

    async def _find_problem(self, digest: Digest) -> Literal["missing", "damaged"] | None:
        try:
            await self._store.blobs.get(digest)
        except NotFound:
            return "missing"
        except Corrupt:
            return "damaged"
        return None

    @property
    def count(self) -> int:
        return len(self._problems)

    def problems(self) -> tuple[BlobProblem, ...]:
        return tuple(
            BlobProblem(digest=digest, problem=found, events=tuple(seqs[:MAX_EVENTS_OF_BLOB]), uses=len(seqs))
            for digest, seqs in self._uses.items()
            if (found := self._problems[digest]) is not None
        )


async def list_sessions(store: Store) -> AsyncGenerator[SessionInfo]:
    """Yield the index rows of all sessions, page by page."""
    after = ""
    while True:
        page = await store.sessions.list(SessionQuery(limit=200, after=after))
        for info in page.sessions:
            yield info
        if not page.next:
            return
        after = page.next


async def check_log(
    store: Store, info: SessionInfo, *, expect: str | None = None, on_event: Callable[[Event], None] | None = None
) -> LogCheck:
    """Read a whole session as ``info`` shows it. Each event and each blob is read once, one after the other.

    ``expect`` is a hash that one of its events must have.
    """
    head = 0
    hash = ""
    at = None
    erased = 0
    blobs = _BlobReader(store)
    try:
        async with aclosing(store.events.read(info.id, upto=info.head)) as events:
            async for event in events:
                head, hash = event.seq, event.hash
                at = head if hash == expect else at
                erased += bool(event.erased)
                await blobs.read_blobs_of(event)
                if on_event is not None:
                    on_event(event)
        error = await _find_error(store, info, head, hash)
    except Corrupt as corrupt:
        error = str(corrupt)
    problems = blobs.problems()
    if error is None and expect is not None and at is None:
        error = f"no event has the hash {expect}; the head is {hash}"
    if error is None and problems:
        error = describe_problems(problems)
    return LogCheck(
        session_id=info.id,
        ok=error is None,
        head=head,
        hash=hash,
        expected_at=at,
        erased=erased,
        blobs=blobs.count,
        blob_problems=problems,
        error=error,
    )


def describe_problems(problems: Sequence[BlobProblem]) -> str:
    """Return a line that names the first problems, and the number of the others."""
    named = "; ".join(problem.describe() for problem in problems[:_NAMED_PROBLEMS])
    others = len(problems) - _NAMED_PROBLEMS
    return f"{named}; and {others} more blobs" if others > 0 else named


async def _find_error(store: Store, info: SessionInfo, head: int, hash: str) -> str | None:
    """Compare a log with its index row, and read what else a run would read. Raises ``Corrupt``."""
    if (head, hash) != (info.head, info.hash):
        return f"the log ends at {head} ({hash}), the index says {info.head} ({info.hash})"
    await reopen(store, info.id, upto=info.head)
    for key in await store.values.keys(session_values_prefix(info.id)):
        await store.values.get(key)
    return None


async def restore_blobs(store: Store, backup: Store, check: LogCheck) -> tuple[Digest, ...]:
    """Copy the blobs that cannot be read from another store; return the digests of the copied ones.

    The digest of a blob proves that the copy has the right bytes.
    """
    copied: list[Digest] = []
    for problem in check.blob_problems:
        try:
            data = await backup.blobs.get(problem.digest)
        except (NotFound, Corrupt):
            continue
        await store.blobs.put(data, session=check.session_id)
        copied.append(problem.digest)
    return tuple(copied)
