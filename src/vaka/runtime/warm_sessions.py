"""The states of recently used sessions, so that the next turn of a session reads only what is new."""

from collections import OrderedDict

from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.ids import SessionId

MAX_SESSIONS = 512
"""Sessions held at most."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of stored events held at most; the decoded events take about three times as much memory."""
SESSION_OVERHEAD = 4096
"""Bytes that count for a session besides its events."""


class WarmSessions:
    """Sessions without a writer in this process, least recently used first.

    An entry may be out of date: ``reopen_warm`` compares it with the store. A running driver takes its session out.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_bytes: int = MAX_BYTES) -> None:
        self._max_sessions, self._max_bytes = max_sessions, max_bytes
        self._entries: OrderedDict[SessionId, OpenedSession] = OrderedDict()
        self.size = 0
        """Bytes that the sessions count for."""

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, session: SessionId) -> OpenedSession | None:
        """Remove and return a session, ``None`` when it is not held."""
        entry = self._entries.pop(session, None)
        if entry is not None:
            self.size -= _size_of(entry)
        return entry

    def put(self, session: SessionId, opened: OpenedSession) -> None:
        """Hold a session; the least recently used ones are dropped when there are too many or they are too large."""
        self.take(session)
        self._entries[session] = opened
        self.size += _size_of(opened)
        while len(self._entries) > self._max_sessions or self.size > self._max_bytes:
            self.take(next(iter(self._entries)))

    def clear(self) -> None:
        self._entries.clear()
        self.size = 0


def _size_of(opened: OpenedSession) -> int:
    return opened.window.size + SESSION_OVERHEAD
