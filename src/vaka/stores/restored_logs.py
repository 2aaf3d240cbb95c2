"""Logs that come from a backup: verified, and with an event that begins their next epoch."""

from collections.abc import Sequence

from vaka.core.ports.backup import BackupCounts, SavedSession
from vaka.core.ports.store import SessionInfo
from vaka.core.session.hash_chain import HashChain, Position, seal_chain
from vaka.core.session.index_rows import advance_row
from vaka.core.types.errors import AlreadyExists, Corrupt
from vaka.core.types.event import Custom, Event
from vaka.core.types.ids import EventScope, SessionId

RESTORED = "restored"
"""The name of the event with which a restored log goes on: ``custom.restored``."""


class RestoredLog:
    """Verifies the events of one session as they come, and derives its index row from them."""

    def __init__(self, saved: SavedSession) -> None:
        self.namespace, self.id = saved.namespace, SessionId(saved.id)
        self.info = SessionInfo(id=self.id, term=saved.term)
        self._chain = HashChain(self.id)
        self._erasure: Event | None = None

    def add(self, bodies: Sequence[bytes]) -> list[Event]:
        """Return the next events. Raises ``Corrupt``."""
        events = [self._chain.check_next(self._chain.seq + 1, body) for body in bodies]
        if events:
            self.info = advance_row(self.info, events)
            self._erasure = next((event for event in events if event.seq == self.info.erased), self._erasure)
        return events

    def begin_epoch(self, made: str) -> list[Event]:
        """Return the event that ends the restored log; none for an erased one, to which nothing is appended.

        It has the time of the event before, so that sessions are listed in the same order as before.
        """
        if self._chain.erased:
            self._chain.check_erased(self._erasure)
        if not self.info.head:
            raise Corrupt(f"session {self.id!r}: the backup has no events of it")
        if self.info.erased:
            return []
        last = Position(self.info.head, self.info.epoch + 1, self.info.hash)
        events = seal_chain(
            self.id, last, [(EventScope(), Custom(name=RESTORED, value={"backup": made}))], self.info.updated
        )
        self.info = advance_row(self.info, events)
        return events


def check_counts(expected: BackupCounts, found: BackupCounts) -> None:
    """Raise ``Corrupt`` unless a restored database has what was written to it."""
    if expected != found:
        raise Corrupt(f"the restored database has {found}, expected {expected}; nothing was changed")


def not_empty(url: str) -> AlreadyExists:
    return AlreadyExists(
        f"the store {url} is not empty; restore into another one, or give --replace to remove what it has"
    )
