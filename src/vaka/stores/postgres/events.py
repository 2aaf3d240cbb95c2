"""The logs: claim, append, offer, read, wait."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from vaka.core.ports.store import SessionInfo
from vaka.core.session.hash_chain import HashChain, SelectedEvents, hash_of, seal
from vaka.core.session.index_rows import advance_row, replace_fields, require_data
from vaka.core.types.decode import decode
from vaka.core.types.errors import (
    Busy,
    Closed,
    ConflictError,
    Corrupt,
    HeadMoved,
    NotFound,
    StoreError,
    Unavailable,
    VakaError,
)
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId, Term
from vaka.stores.common import check_batch, check_offer
from vaka.stores.postgres.database import PostgresRecord, boot_time
from vaka.stores.postgres.encoding import PostgresKey, digest_text, encode_name, info_of, postgres_key
from vaka.stores.postgres.hub import PostgresHub, PostgresPort
from vaka.stores.postgres.leases import Lease
from vaka.stores.postgres.message_rows import encode_messages
from vaka.stores.postgres.writer import PendingWrite

READ_PAGE_SIZE = 256

_SELECT_OWNED = "select *, true as live from vaka.sessions where namespace = $1 and id = $2"
_SELECT_OFFER = (
    "select *, false as live, "
    "(select seq from vaka.keys k where k.namespace = $1 and k.session = $2 and k.key = $3) as known "
    "from vaka.sessions where namespace = $1 and id = $2"
)
_SELECT_HEAD = "select head from vaka.sessions where namespace = $1 and id = $2"
# Includes the event before the first one: the chain continues from its hash.
_SELECT_FIRST_PAGE = (
    "select s.head, s.hash, e.seq, e.body from vaka.sessions s left join lateral ("
    "select seq, body from vaka.events where namespace = $1 and session = $2 and seq >= $3 "
    "and seq <= least(s.head, $4) order by seq limit $5) e on true where s.namespace = $1 and s.id = $2 order by e.seq"
)
_SELECT_NEXT_PAGE = (
    "select seq, body from vaka.events where namespace = $1 and session = $2 and seq > $3 and seq <= $4 "
    "order by seq limit $5"
)
_SELECT_EVENTS = (
    "select body from vaka.events where namespace = $1 and session = $2 and seq = any($3::bigint[]) order by seq"
)
_SELECT_ERASED = (
    "select e.body from vaka.sessions s join vaka.events e on e.namespace = s.namespace and e.session = s.id "
    "and e.seq = s.erased where s.namespace = $1 and s.id = $2"
)
_MAX_SEQ = 2**63 - 1


def _lease_of_claim(session: SessionId, where: PostgresKey, owner: UUID, sent: float, row: PostgresRecord) -> Lease:
    if row["status"] == "busy":
        raise Busy(f"session {session!r} has a writer")
    if row["status"] == "free":
        return Lease(where, SessionInfo(id=session, term=1), Term(1), owner)
    info = info_of(row)
    return Lease(where, info, Term(info.term), owner, sent)


class PostgresEvents(PostgresPort):
    """The logs of one namespace."""

    def __init__(self, namespace: bytes, hub: PostgresHub) -> None:
        super().__init__(namespace, hub)
        self._leases: dict[SessionId, Lease] = {}
        self._undoing: dict[SessionId, asyncio.Task[None]] = {}
        """Claims whose callers were cancelled, until the server has ended them."""
        self._offer_locks: dict[SessionId, asyncio.Lock] = {}

    async def claim(self, session: SessionId) -> Term:
        hub = self._hub
        if undo := self._undoing.get(session):
            await asyncio.wait([undo])
        ours = self._leases.get(session)
        if ours is not None and self._is_valid(ours):
            raise Busy(f"session {session!r} has a writer in this process")
        await hub.heartbeat.require_connection()
        where = postgres_key(self._namespace, session)
        owner = uuid4()
        sent = boot_time()
        answer = hub.claims.submit((where, owner))
        try:
            row = await asyncio.shield(answer)
        except asyncio.CancelledError:  # the caller does not learn of a claim that the server may still make
            undo = self._undoing[session] = hub.tasks.start(self._undo_claim(where, owner, answer))
            undo.add_done_callback(lambda _: self._undoing.pop(session, None))
            raise
        claim = _lease_of_claim(session, where, owner, sent, row)
        if claim.info.erased:
            await hub.delete_lease(where, owner)
            require_data(claim.info)
        if not claim.tried and self._leases.get(session) is not ours:
            raise Busy(f"session {session!r} has a writer in this process")
        if ours is not None:
            hub.leases.pop(ours.owner, None)
        self._leases[session] = hub.leases[owner] = claim
        hub.heartbeat.wake()
        hub.renewal.wake()
        return claim.term

    async def _undo_claim(self, where: PostgresKey, owner: UUID, answer: "asyncio.Future[PostgresRecord]") -> None:
        with suppress(VakaError):
            await answer
        with suppress(VakaError):  # the server is unreachable: the lease expires there
            await self._hub.delete_lease(where, owner)

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        claim = self._lease_of(session, term)
        if head != claim.info.head:
            await self._refresh_info(claim, session)
        if head != claim.info.head:
            raise HeadMoved(f"session {session!r}: the head is {claim.info.head}, not {head}")
        check_batch(session, events, head=head, head_hash=claim.info.hash)
        if not events:
            if release:
                await self.release(session, term)
            return head
        write = PendingWrite(claim.place, events, base=head, info=advance_row(claim.info, events))
        write.claim, write.release = claim, release
        write.messages = await encode_messages(self._database.fetch, claim.place, events)
        if self._hub.followers.may_follow(claim.place.key):
            write.notice = self._hub.followers.head_message(claim.place.key, write.info.head)
        status, _ = await self._hub.writer.write(write)
        if status == "moved":
            raise HeadMoved(f"session {session!r}: the head is not {head}")
        if status != "ok":
            self._drop_lease(session, claim)
            raise ConflictError(f"session {session!r} has another writer; term {term} is over")
        if release:
            self._drop_lease(session, claim)
        return write.info.head

    async def append_idle(self, info: SessionInfo, events: Sequence[Event]) -> int:
        session, where = info.id, postgres_key(self._namespace, info.id)
        ours = self._leases.get(session)
        if ours is not None and self._is_valid(ours):
            raise Busy(f"session {session!r} has a writer in this process")
        require_data(info)
        check_batch(session, events, head=info.head, head_hash=info.hash)
        if not events:
            return info.head
        claimed = replace_fields(info, term=info.term + 1)
        write = PendingWrite(where, events, base=info.head, info=advance_row(claimed, events))
        write.idle = write.release = True
        write.messages = await encode_messages(self._database.fetch, where, events)
        if self._hub.followers.may_follow(where.key):
            write.notice = self._hub.followers.head_message(where.key, write.info.head)
        status, _ = await self._hub.writer.write(write)
        if status == "busy":
            raise Busy(f"session {session!r} has a writer")
        if status != "ok":
            raise HeadMoved(f"session {session!r} has changed since it was read")
        return write.info.head

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        check_offer(event, key)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._database.retry_seconds
        lock = self._offer_locks.setdefault(session, asyncio.Lock())
        try:
            async with lock:  # serialize the offers of this process: each one moves the head of the next
                while True:
                    try:
                        seq = await self._try_offer(session, event, digest_text(key))
                    except Unavailable:
                        if loop.time() > deadline:
                            raise
                        continue
                    if seq:
                        return seq
        finally:
            if not lock.locked():
                self._offer_locks.pop(session, None)

    async def _try_offer(self, session: SessionId, event: Event, key: bytes) -> int:
        """Return the seq of the offer, 0 when the head has moved."""
        where = postgres_key(self._namespace, session)
        row = await self._fetch_row(_SELECT_OFFER, where.session, key)
        if row is None:
            raise NotFound(f"there is no session {session!r}")
        if row["known"]:
            return int(row["known"])
        info = info_of(row)
        require_data(info)
        sealed = seal(event, epoch=info.epoch, seq=info.head + 1, prev=info.hash)
        write = PendingWrite(where, [sealed], base=info.head, info=advance_row(info, [sealed]))
        write.messages = await encode_messages(self._database.fetch, where, [sealed])
        write.key, write.notice = key, self._hub.followers.head_message(where.key, sealed.seq)
        status, seq = await self._hub.writer.write(write)
        return 0 if status in {"moved", "gone"} else seq

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        name = encode_name(session)
        after = max(after, 0)
        last = _MAX_SEQ if upto is None else upto
        checked = min(last, _MAX_SEQ - 1) + 1  # the event after the last one carries its hash
        rows = await self._fetch(_SELECT_FIRST_PAGE, name, after, checked, READ_PAGE_SIZE + 1)
        head = rows[0]["head"] if rows else 0
        if min(head, last) <= after:
            return
        end = min(head, checked)
        page = [(row["seq"], row["body"]) for row in rows if row["seq"] is not None]
        chain, listing = _begin_chain(session, after, page), None
        while page:
            for seq, body in page:
                event = chain.check_next(seq, body)
                if event.erased:
                    listing = listing or await self._read_listing(name)
                    chain.check_erased(listing)
                if seq <= last:
                    yield event
            page = []
            if chain.seq < end:
                rest = await self._fetch(_SELECT_NEXT_PAGE, name, chain.seq, end, READ_PAGE_SIZE)
                page = [tuple(row) for row in rest]
        if chain.seq < end and await self._fetch_row(_SELECT_HEAD, name) is None:
            raise NotFound(f"session {session!r} was deleted while it was read")
        if chain.erased:
            chain.check_erased(listing)
        chain.check_end(end, rows[0]["hash"] if head <= last else chain.prev)

    async def _read_listing(self, name: bytes) -> Event | None:
        """Return the event that accounts for the erased events of a session."""
        row = await self._fetch_row(_SELECT_ERASED, name)
        return decode(row["body"]) if row is not None else None

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        name, selected = encode_name(session), SelectedEvents(session, len(seqs), digest)
        for begin in range(0, len(seqs), READ_PAGE_SIZE):
            part = list(seqs[begin : begin + READ_PAGE_SIZE])
            rows = await self._fetch(_SELECT_EVENTS, name, part)
            if len(rows) < len(part) and await self._fetch_row(_SELECT_HEAD, name) is None:
                raise NotFound(f"there is no session {session!r}")
            selected.add([row["body"] for row in rows])
        return selected.check_end()

    async def wait(self, session: SessionId, *, after: int) -> int:
        where, followers = postgres_key(self._namespace, session), self._hub.followers
        if followers.closed:
            raise Closed("this store was closed")
        claim = self._leases.get(session)
        if claim is not None and claim.info.head > after:
            return claim.info.head
        grown = followers.add_waiter(where, after)
        try:
            head = await self._hub.heads.submit(where)
            if head > after:
                return head
            self._hub.heartbeat.wake()
            return await grown
        finally:
            followers.remove_waiter(where, grown)

    async def release(self, session: SessionId, term: Term) -> None:
        claim = self._leases.get(session)
        if claim is not None and claim.term == term:
            del self._leases[session]
            await self._hub.tasks.finish(self._hub.release(claim))

    def is_held(self, session: SessionId, term: Term) -> bool:
        """Whether the lease holds by this machine's monotonic clock, without asking the server."""
        claim = self._leases.get(session)
        return claim is not None and claim.term == term and self._is_valid(claim)

    def predecessor_died(self, session: SessionId, term: Term) -> bool:
        return False  # a lease expires also when its process only cannot reach the server

    async def close(self) -> None:
        try:
            while self._leases:
                await self._hub.release(self._leases.popitem()[1])
        except StoreError:  # the server is unreachable: the leases expire there
            self._leases.clear()

    def _lease_of(self, session: SessionId, term: Term) -> Lease:
        if self._hub.followers.closed:
            raise Closed("this store was closed")
        claim = self._leases.get(session)
        if claim is None or claim.term != term:
            raise ConflictError(f"session {session!r} is not claimed here with term {term}")
        return claim

    def _is_valid(self, claim: Lease) -> bool:
        return claim.owner in self._hub.leases and claim.is_held(self._hub.lease_seconds)

    def _drop_lease(self, session: SessionId, claim: Lease) -> None:
        self._hub.leases.pop(claim.owner, None)
        if self._leases.get(session) is claim:
            del self._leases[session]

    async def _refresh_info(self, claim: Lease, session: SessionId) -> None:
        """Reload the session's row into the claim: other processes may have offered events."""
        row = await self._fetch_row(_SELECT_OWNED, claim.place.session)
        if row is None and not claim.info.head:
            return
        if row is None or row["owner"] != claim.owner:
            self._drop_lease(session, claim)
            raise ConflictError(f"session {session!r} has another writer; term {claim.term} is over")
        claim.info = replace_fields(info_of(row), live=True)


def _begin_chain(session: SessionId, after: int, page: list[tuple[int, bytes]]) -> HashChain:
    """Return the chain up to event ``after``, and take that event from the page. Raises ``Corrupt`` without it."""
    if not after:
        return HashChain(session)
    if not page or page[0][0] != after:
        raise Corrupt(f"session {session!r}: event {after} is missing")
    return HashChain(session, after, hash_of(page.pop(0)[1]))
