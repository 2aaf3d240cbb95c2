"""How much was said in a thread, and for how long."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from vaka.core.ports.messages import MessageQuery, MessageRow, MessageStats
from vaka.core.ports.store import Store
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.threads.deletion import count_visible, list_visible
from vaka.threads.thread import Thread

MEASURED_MESSAGES = 100
"""The last messages whose answers are measured."""


class ThreadStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much was said in a thread, and for how long."""

    message_count: int
    user_message_count: int
    assistant_message_count: int
    tool_message_count: int
    created_at: str
    last_message_at: str
    size_bytes: int
    duration: float
    """Seconds from the creation to the last message."""
    average_response_seconds: float | None
    """How long the answers of the last messages took, on average; ``None`` without one."""
    topic: str
    open_action_items: int
    completed_action_items: int


async def read_stats(store: Store, thread: Thread) -> ThreadStats:
    """Return how much was said in a thread."""
    counts, items = await count_messages(store, thread), thread.context.action_items
    last = await _read_last_messages(store, thread)
    said = counts.last_message_at
    if thread.hidden:  # the store counts deleted messages, too
        said = last[0].ts if last else ""
    return ThreadStats(
        message_count=counts.message_count,
        user_message_count=counts.user_message_count,
        assistant_message_count=counts.assistant_message_count,
        tool_message_count=counts.tool_message_count,
        created_at=thread.created_at,
        last_message_at=said,
        size_bytes=counts.size_bytes,
        duration=round(max(seconds_of(said) - seconds_of(thread.created_at), 0.0), 3) if said else 0.0,
        average_response_seconds=_measure_responses(last),
        topic=thread.context.topic,
        open_action_items=sum(not item.completed for item in items),
        completed_action_items=sum(item.completed for item in items),
    )


async def count_messages(store: Store, thread: Thread) -> MessageStats:
    """Return the counts of the messages of a thread that are not deleted."""
    return count_visible(await store.messages.stats(SessionId(thread.id)), thread.hidden)


async def _read_last_messages(store: Store, thread: Thread) -> Sequence[MessageRow]:
    """Return the last messages, the newest first."""
    query = MessageQuery(limit=MEASURED_MESSAGES, reverse=True, include_content=False)
    return (await list_visible(store, thread, query)).messages


def _measure_responses(last: Sequence[MessageRow]) -> float | None:
    """Return the average time from a message of the user to the next answer, of messages, the newest first."""
    asked, times = "", list[float]()
    for row in reversed(last):
        if row.role == "user":
            asked = row.ts
        elif row.role == "assistant" and asked:
            times.append(max(seconds_of(row.ts) - seconds_of(asked), 0.0))
            asked = ""
    return round(sum(times) / len(times), 3) if times else None


def seconds_of(ts: str) -> float:
    """Return a time as Unix seconds, 0 for ``""``. Raises ``InvalidInput``."""
    try:
        moment = datetime.fromisoformat(ts or "1970-01-01")
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"the time {ts[:40]!r} must be RFC 3339, such as 2026-01-31T12:00:00Z") from error
