"""The logs of one namespace."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from vaka.core.ports.store import SessionInfo
from vaka.core.session.hash_chain import SelectedEvents, seal
from vaka.core.session.index_rows import advance_row, replace_fields, require_data
from vaka.core.types.errors import Busy, ConflictError, HeadMoved, NotFound, Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId, Term
from vaka.stores.common import check_batch, check_offer, split_seqs
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.database import FailedWork
from vaka.stores.sqlite.hub import SqliteClaim, SqlitePort
from vaka.stores.sqlite.rows import SessionRow, SqliteKey


class SqliteEvents(SqlitePort):
    async def claim(self, session: SessionId) -> Term:
        database, key = self._database, self._key(session)
        if key in self._hub.claims or key in self._hub.claiming:
            raise Busy(f"session {session!r} has a writer in this process")
        self._hub.claiming.add(key)
        try:
            row = await database.read(partial(rows.load_row, key=key))
            died = row is not None and self._hub.has_died(row.owner)
            await self._hub.start_owning()
            info = await self._write_claim(key) if row is not None else None
            info = info or SessionInfo(id=session, term=1)  # a new session has no row until its first append
            claim = self._hub.claims[key] = SqliteClaim(Term(info.term), info, self._store)
            claim.predecessor_died = died and row is not None and info.term == row.info.term + 1
            return Term(info.term)
        finally:
            self._hub.claiming.discard(key)

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        database, key = self._database, self._key(session)
        claim = self._hub.claims.get(key)
        if claim is None or claim.term != term:
            raise ConflictError(f"session {session!r}: the claim with term {term} is over")
        size = sum([len(event.stored) for event in events])
        work = partial(self._write_append, key, claim, events, head, release)
        done = partial(self._finish_append, key, claim, claim.news, release)
        try:
            outcome = database.append_now(work, size) if len(self._hub.claims) == 1 else None
            if outcome is None:
                info: SessionInfo = await database.write(
                    work, rows=len(events) + 1, size=size, appends=True, on_commit=done
                )
                return info.head
            if isinstance(outcome, FailedWork):
                raise outcome.error
        except BaseException:
            claim.mark_stale()
            raise
        done(outcome)
        return outcome.head

    async def append_idle(self, info: SessionInfo, events: Sequence[Event]) -> int:
        if not events:
            return info.head
        written: SessionInfo = await self._database.write(
            partial(self._write_idle, self._key(info.id), info, events),
            rows=len(events) + 1,
            size=sum([len(event.stored) for event in events]),
            appends=True,
            on_commit=partial(self._finish_idle, self._key(info.id)),
        )
        return written.head

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        check_offer(event, key)
        place = self._key(session)

        def announce(outcome: tuple[int, SessionRow | None]) -> None:
            seq, row = outcome
            if row is not None:
                self._hub.mark_stale(place)
                self._hub.notify_head(place, seq)
                if row.owner not in {"", self._hub.writer_lock.name}:
                    self._hub.client.wake_writer(place, row.owner, seq)

        seq, _ = await self._database.write_again(
            partial(_write_offer, place, event, key), rows=2, appends=True, on_commit=announce
        )
        return seq

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        key = self._key(session)
        reading = await self._database.read(partial(rows.begin_read, key=key, after=after, upto=upto))
        while reading is not None:
            # The last event of a chunk is yielded once its successor, which carries its hash, has been read.
            checked = reading.events if reading.is_complete else reading.events[:-1]
            rest = reading.events[len(checked) :]
            for event in checked:
                yield event
            if reading.is_complete:
                return
            await asyncio.sleep(0)
            reading.events[:] = rest
            reading = await self._database.read(partial(rows.continue_read, key=key, reading=reading))

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        key, selected = self._key(session), SelectedEvents(session, len(seqs), digest)
        for part in split_seqs(seqs):
            selected.add(await self._database.read(partial(rows.read_bodies, key=key, seqs=part)))
            await asyncio.sleep(0)
        return selected.check_end()

    async def wait(self, session: SessionId, *, after: int) -> int:
        database, key = self._database, self._key(session)
        row, head = None, self._hub.known_head(key)
        if head is None:
            row = await database.read(partial(rows.load_row, key=key))
            head = row.info.head if row is not None else 0
        if head > after:
            return head
        self._hub.follow(key, row)
        return await self._hub.waiters.wait(key, after)

    async def release(self, session: SessionId, term: Term) -> None:
        if self._has_claim(session, term):
            await self._hub.release([self._key(session)])

    def is_held(self, session: SessionId, term: Term) -> bool:
        return self._has_claim(session, term) and self._hub.keep_lock()

    def _has_claim(self, session: SessionId, term: Term) -> bool:
        claim = self._hub.claims.get(self._key(session))
        return claim is not None and claim.term == term

    def predecessor_died(self, session: SessionId, term: Term) -> bool:
        claim = self._hub.claims.get(self._key(session))
        return claim is not None and claim.term == term and claim.predecessor_died

    async def _write_claim(self, key: SqliteKey) -> SessionInfo | None:
        committed: asyncio.Future[SessionInfo | None] = asyncio.get_running_loop().create_future()
        try:
            return await self._database.write_again(partial(self._take_claim, key), on_commit=committed.set_result)
        except asyncio.CancelledError:  # the transaction may be committed, now or later
            committed.add_done_callback(partial(self._hub.undo_claim, key))
            raise
        except Unavailable:
            self._hub.end_claims({key: Term(0)})
            raise

    def _take_claim(self, key: SqliteKey, connection: sqlite3.Connection) -> SessionInfo | None:
        row = rows.load_row(connection, key)
        if row is None:
            return None
        require_data(row.info)
        me = self._hub.writer_lock.name
        if row.owner != me and self._hub.writer_lock.is_alive(row.owner):
            raise Busy(f"session {key[1]!r} has a writer in another process")
        info = replace_fields(row.info, term=row.info.term + 1)
        rows.update_row(connection, key, info, me, row)
        return info

    def _write_append(
        self,
        key: SqliteKey,
        claim: SqliteClaim,
        events: Sequence[Event],
        head: int,
        release: bool,
        connection: sqlite3.Connection,
    ) -> SessionInfo:
        me, info = self._hub.writer_lock.name, claim.info
        if info.head != head:
            info = self._check_claim(connection, key, claim, head)
        check_batch(key[1], events, head=head, head_hash=info.hash)
        after = advance_row(info, events) if events else info
        if not events and (not release or not head):
            return after
        owner = "" if release else me
        if head:
            written = rows.update_row(connection, key, after, owner, SessionRow(info, me))
        else:
            written = rows.insert_row(connection, key, after, owner)
        if not written:
            self._check_claim(connection, key, claim, head)
            raise ConflictError(f"session {key[1]!r}: its index row was changed by another program")
        if events:
            self._hub.count_messages(connection, rows.insert_events(connection, key, events))
        return after

    def _write_idle(
        self, key: SqliteKey, known: SessionInfo, events: Sequence[Event], connection: sqlite3.Connection
    ) -> SessionInfo:
        row = rows.load_row(connection, key)
        if key in self._hub.claims or (row is not None and self._hub.is_written_by(key, row.owner)):
            raise Busy(f"session {key[1]!r} has a writer")
        info = row.info if row is not None else SessionInfo(id=key[1])
        require_data(info)
        if (info.head, info.term) != (known.head, known.term):
            raise HeadMoved(f"session {key[1]!r} has changed since it was read")
        check_batch(key[1], events, head=info.head, head_hash=info.hash)
        after = advance_row(replace_fields(info, term=info.term + 1), events)
        if row is None:
            rows.insert_row(connection, key, after, "")
        else:
            rows.update_row(connection, key, after, "", row)
        self._hub.count_messages(connection, rows.insert_events(connection, key, events))
        return after

    def _finish_idle(self, key: SqliteKey, info: SessionInfo) -> None:
        self._hub.notify_head(key, info.head)
        self._hub.index_words()

    def _finish_append(self, key: SqliteKey, claim: SqliteClaim, news: int, release: bool, info: SessionInfo) -> None:
        claim.set_info(info, news)
        if release and self._hub.claims.get(key) is claim:
            del self._hub.claims[key]
        self._hub.notify_head(key, info.head)
        self._hub.index_words()

    def _check_claim(
        self, connection: sqlite3.Connection, key: SqliteKey, claim: SqliteClaim, head: int
    ) -> SessionInfo:
        """Return the current row if this handle is still the writer and the log is at ``head``."""
        row = rows.load_row(connection, key)
        if row is None and not claim.info.head:
            row = SessionRow(claim.info, self._hub.writer_lock.name)
        if row is None or row.info.term != claim.term or row.owner != self._hub.writer_lock.name:
            raise ConflictError(f"session {key[1]!r}: the claim with term {claim.term} is over")
        if row.info.head != head:
            raise HeadMoved(f"session {key[1]!r}: the log is at {row.info.head}, not at {head}")
        return row.info


def _write_offer(
    key: SqliteKey, event: Event, name: str, connection: sqlite3.Connection
) -> tuple[int, SessionRow | None]:
    """Return the seq of the event with this key, and the session's row if the event was written now."""
    row = rows.load_row(connection, key)
    if row is None:
        raise NotFound(f"there is no session {key[1]!r}")
    require_data(row.info)
    seq = rows.seq_of(connection, key, name)
    if seq is not None:
        return seq, None
    sealed = seal(event, epoch=row.info.epoch, seq=row.info.head + 1, prev=row.info.hash)
    rows.update_row(connection, key, advance_row(row.info, [sealed]), row.owner, row)
    rows.insert_events(connection, key, [sealed])
    return sealed.seq, row
