"""The logs of one namespace."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from vaka.core.ports.store import SessionInfo
from vaka.core.session.index import advance, replace
from vaka.core.types.errors import Busy, ConflictError, HeadMoved, NotFound
from vaka.core.types.event import Event, seal
from vaka.core.types.ids import SessionId, Term
from vaka.stores.batch import check_batch, check_offer
from vaka.stores.sqlite import logs, rows
from vaka.stores.sqlite.hub import Claim
from vaka.stores.sqlite.part import Part
from vaka.stores.sqlite.rows import Key, Row
from vaka.stores.sqlite.transaction import Failed


class Events(Part):
    """Claim, append, offer, read, wait."""

    async def claim(self, session: SessionId) -> Term:
        """Become the session's writer."""
        database, key = self._database, self._key(session)
        if key in self._hub.claims or key in self._hub.claiming:
            raise Busy(f"session {session!r} has a writer in this process")
        self._hub.claiming.add(key)
        try:
            row = await database.ask(partial(rows.load, key=key))
            await self._hub.ready()
            info = None
            if row is not None:
                info = await database.write(partial(self._take, key))
            info = info or SessionInfo(id=session, term=1)  # nothing is written for a session nobody has begun
            self._hub.claims[key] = Claim(Term(info.term), info, self._store)
            return Term(info.term)
        finally:
            self._hub.claiming.discard(key)

    async def append(
        self, session: SessionId, events: Sequence[Event], *, head: int, term: Term, release: bool = False
    ) -> int:
        """Write sealed events right after ``head``."""
        database, key = self._database, self._key(session)
        claim = self._hub.claims.get(key)
        if claim is None or claim.term != term:
            raise ConflictError(f"session {session!r}: the claim with term {term} is over")
        size = sum([len(event.stored) for event in events])
        work = partial(self._append, key, claim, events, head, release)
        done = partial(self._appended, key, claim, claim.news, release)
        try:
            outcome: SessionInfo | Failed | None = (
                database.append_now(work, size) if len(self._hub.claims) == 1 else None
            )
            if outcome is None:
                info: SessionInfo = await database.write(work, rows=len(events) + 1, size=size, appends=True, done=done)
                return info.head
            if isinstance(outcome, Failed):
                raise outcome.error
        except BaseException:
            claim.doubt()
            raise
        done(outcome)
        return outcome.head

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        """Append one event without being the writer."""
        check_offer(event, key)
        place = self._key(session)

        def done(outcome: tuple[int, Row | None]) -> None:
            seq, row = outcome
            if row is not None:
                self._hub.doubt(place)
                self._hub.changed(place, seq)
                if row.owner not in {"", self._hub.owner.name}:
                    self._hub.links.wake(place, row.owner, seq)

        seq, _ = await self._database.write(partial(_offer, place, event, key), rows=2, appends=True, done=done)
        return seq

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events after ``after``, each checked before it is shown."""
        key = self._key(session)
        reading = await self._database.ask(partial(logs.begin, key=key, after=after, upto=upto))
        while reading is not None:
            shown = reading.events if reading.ended else reading.events[:-1]
            rest = reading.events[len(shown) :]
            for event in shown:
                yield event
            if reading.ended:
                return
            await asyncio.sleep(0)
            reading.events[:] = rest
            reading = await self._database.ask(partial(logs.go_on, key=key, reading=reading))

    async def wait(self, session: SessionId, *, after: int) -> int:
        """Return the head as soon as it is above ``after``."""
        database, key = self._database, self._key(session)
        row, head = None, self._hub.head(key)
        if head is None:
            row = await database.ask(partial(rows.load, key=key))
            head = row.info.head if row is not None else 0
        if head > after:
            return head
        self._hub.follow(key, row)
        return await self._hub.waiters.wait(key, after)

    async def release(self, session: SessionId, term: Term) -> None:
        """End the claim."""
        if self.held(session, term):
            await self._hub.release([self._key(session)])

    def held(self, session: SessionId, term: Term) -> bool:
        """Whether the claim still holds."""
        claim = self._hub.claims.get(self._key(session))
        return claim is not None and claim.term == term

    def _take(self, key: Key, connection: sqlite3.Connection) -> SessionInfo | None:
        row = rows.load(connection, key)
        if row is None:
            return None
        me = self._hub.owner.name
        if self._hub.writes(key, row.owner):
            raise Busy(f"session {key[1]!r} has a writer in another process")
        info = replace(row.info, term=row.info.term + 1)
        rows.update(connection, key, info, me, row)
        return info

    def _append(
        self, key: Key, claim: Claim, events: Sequence[Event], head: int, release: bool, connection: sqlite3.Connection
    ) -> SessionInfo:
        me, info = self._hub.owner.name, claim.info
        if info.head != head:
            info = self._current(connection, key, claim, head)
        check_batch(key[1], events, head=head, hash=info.hash)
        after = advance(info, events) if events else info
        if not events and (not release or not head):
            return after
        owner = "" if release else me
        if head:
            written = rows.update(connection, key, after, owner, Row(info, me))
        else:
            written = rows.insert(connection, key, after, owner)
        if not written:
            self._current(connection, key, claim, head)
            raise ConflictError(f"session {key[1]!r}: its row has changed in an unexpected way")
        if events:
            logs.write(connection, key, events)
        return after

    def _appended(self, key: Key, claim: Claim, news: int, release: bool, info: SessionInfo) -> None:
        claim.settle(info, news)
        if release and self._hub.claims.get(key) is claim:
            del self._hub.claims[key]
        self._hub.changed(key, info.head)

    def _current(self, connection: sqlite3.Connection, key: Key, claim: Claim, head: int) -> SessionInfo:
        """Return the row as it is now, if we are still its writer and it is at ``head``."""
        row = rows.load(connection, key)
        if row is None and not claim.info.head:
            row = Row(claim.info, self._hub.owner.name)
        if row is None or row.info.term != claim.term or row.owner != self._hub.owner.name:
            raise ConflictError(f"session {key[1]!r}: the claim with term {claim.term} is over")
        if row.info.head != head:
            raise HeadMoved(f"session {key[1]!r}: the log is at {row.info.head}, not at {head}")
        return row.info


def _offer(key: Key, event: Event, name: str, connection: sqlite3.Connection) -> tuple[int, Row | None]:
    """Return the seq of the event with this key, and the row if it was written just now."""
    row = rows.load(connection, key)
    if row is None:
        raise NotFound(f"there is no session {key[1]!r}")
    seq = logs.seq_of(connection, key, name)
    if seq is not None:
        return seq, None
    sealed = seal(event, epoch=row.info.epoch, seq=row.info.head + 1, prev=row.info.hash)
    rows.update(connection, key, advance(row.info, [sealed]), row.owner, row)
    logs.write(connection, key, [sealed])
    return sealed.seq, row
