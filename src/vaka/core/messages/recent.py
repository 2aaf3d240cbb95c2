"""Choose the last messages of a conversation for a prompt."""

from collections.abc import Callable

from vaka.core.types.message import AssistantMessage, Message, ToolMessage, UserMessage

MessageAt = Callable[[int], Message]
"""Returns the message at a position."""


def recent_positions(total: int, recent: int, message_at: MessageAt) -> list[int]:
    """Return the positions of at most ``recent`` of ``total`` messages, but never less than the last call and result.

    The first one is an input: if the answers to it are too many, those after it are left out. From 20 messages on the
    choice begins at the same message for ``recent // 10`` messages, so that providers can cache prompts.
    """
    excess, step = total - max(recent, 1), max(recent // 10, 1)
    if excess <= 0:
        return [*range(total)]
    first = _first_position(-(-excess // step) * step, total, recent, message_at)
    if isinstance(message_at(first), UserMessage):
        return [*range(first, total)]
    inputs = (at for at in range(first - 1, -1, -1) if isinstance(message_at(at), UserMessage))
    return [*[at for at in [next(inputs, -1)] if at >= 0], *range(first, total)]


def _first_position(start: int, total: int, recent: int, message_at: MessageAt) -> int:
    """Return the first input from ``start`` on, or the first answer that leaves room for its input."""
    for at in range(start, total):
        kind = type(message_at(at))
        if kind is UserMessage or (kind is AssistantMessage and total - at < recent):
            return at
    return next(at for at in range(total - 1, -1, -1) if type(message_at(at)) is not ToolMessage)
