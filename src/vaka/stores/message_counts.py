"""Counts of messages that a handle keeps: counting a session again reads only its newer messages."""

from collections import OrderedDict
from typing import NamedTuple

from vaka.core.ports.messages import MessageStats
from vaka.core.types.ids import SessionId

MAX_COUNTED_SESSIONS = 1024


class CountedMessages(NamedTuple):
    """The counts of a session's messages up to one of them.

    They hold as long as that message has its seq and mark: rows are only added behind it.
    """

    seq: int
    mark: int
    """The checksum or the number of its row, by which a session that was deleted and written again is recognized."""
    stats: MessageStats

    def add(self, newer: MessageStats) -> MessageStats:
        """Return the counts with the counts of later messages added."""
        known = self.stats
        return MessageStats(
            message_count=known.message_count + newer.message_count,
            user_message_count=known.user_message_count + newer.user_message_count,
            assistant_message_count=known.assistant_message_count + newer.assistant_message_count,
            tool_message_count=known.tool_message_count + newer.tool_message_count,
            first_message_at=known.first_message_at or newer.first_message_at,
            last_message_at=newer.last_message_at,
            size_bytes=known.size_bytes + newer.size_bytes,
        )


NOTHING_COUNTED = CountedMessages(0, 0, MessageStats())


class MessageCounts:
    """The counts of the sessions that were counted last."""

    def __init__(self) -> None:
        self._counted: OrderedDict[SessionId, CountedMessages] = OrderedDict()

    def get(self, session: SessionId) -> CountedMessages:
        """Return what is known of a session, ``NOTHING_COUNTED`` without anything."""
        return self._counted.get(session, NOTHING_COUNTED)

    def put(self, session: SessionId, counted: CountedMessages) -> MessageStats:
        """Keep the counts of a session that has messages, and return them."""
        self._counted.pop(session, None)
        if counted.seq:
            self._counted[session] = counted
        if len(self._counted) > MAX_COUNTED_SESSIONS:
            self._counted.popitem(last=False)
        return counted.stats
