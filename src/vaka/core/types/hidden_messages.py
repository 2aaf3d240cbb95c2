"""The messages of a session that are not listed any more, as the metadata of its row has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

HIDDEN_KEY = "thread.hidden"
"""The key of the deleted messages in the metadata. Only a deletion writes it."""


class HiddenMessages(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events whose messages are not listed any more, from ``first`` to ``last``; and how many messages they are."""

    first: int
    last: int
    user: int = 0
    assistant: int = 0
    tool: int = 0


def hidden_messages_of(metadata: Mapping[str, Any]) -> tuple[HiddenMessages, ...]:
    """Return the parts of a log whose messages were deleted or follow again; none if the metadata is damaged."""
    value = metadata.get(HIDDEN_KEY)
    try:
        return () if value is None else msgspec.convert(value, tuple[HiddenMessages, ...])
    except msgspec.ValidationError:
        return ()


def is_hidden(hidden: Sequence[HiddenMessages], seq: int) -> bool:
    """Return whether the message of an event is in a part that is not listed."""
    return any(part.first <= seq <= part.last for part in hidden)
