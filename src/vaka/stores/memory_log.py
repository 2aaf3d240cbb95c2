"""One session of the store in memory."""

from typing import Any

from vaka.core.ports.store import PendingDecision, SessionInfo
from vaka.core.session.index_rows import advance_row, blobs_of, replace_fields, select_keyed_or_blob_events
from vaka.core.types.control import key_of
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, Digest, SessionId, Term
from vaka.stores.common import decision_changes


class MemoryLog:
    """One session: its events, and an index of them, up to date after ``update_index()``."""

    def __init__(self, id: SessionId, term: Term) -> None:
        self.id, self.term = id, term
        self.events: list[Event] = []
        self.snapshots: dict[str, dict[int, bytes]] = {}
        self.row = SessionInfo(id=id)
        self.keys: dict[str, int] = {}
        self.pending: dict[DecisionId, PendingDecision] = {}
        self.blobs: set[Digest] = set()
        self.indexed = 0
        """The number of events whose messages are in ``messages``."""
        self.messages: list[Any] = []

    @property
    def head(self) -> int:
        return len(self.events)

    @property
    def hash(self) -> str:
        return self.events[-1].hash if self.events else ""

    @property
    def info(self) -> SessionInfo:
        return replace_fields(self.update_index().row, term=self.term)

    def update_index(self) -> "MemoryLog":
        """Bring the index up to date."""
        if events := self.events[self.row.head :]:
            self.row = advance_row(self.row, events)
            opened, settled, settles_all = decision_changes(self.id, events)
            for decision in list(self.pending) if settles_all else settled:
                self.pending.pop(decision, None)
            self.pending.update((row.id, row) for row in opened)
            for event in select_keyed_or_blob_events(events):
                if key := key_of(event.data):
                    self.keys.setdefault(key, event.seq)
                self.blobs.update(blobs_of(event))
        return self

    def is_removable(self, before: str) -> bool:
        """Return whether the session has no work left and was not changed since a time."""
        row = self.update_index().row
        return row.updated < before and not (row.turn or row.inputs or row.pending or self.pending)
