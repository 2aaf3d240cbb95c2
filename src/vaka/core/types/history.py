"""A conversation as lines of text."""

from collections.abc import Iterable

import msgspec

from vaka.core.types.message import Message, ToolMessage, UserMessage, text_of


def format_history(messages: Iterable[Message]) -> str:
    """Return ``[role]: content`` lines, one for each message of ``user`` and ``model``, and each result of a ``tool``.

    Calls follow the text of their message as ``name({"argument": …})``. Line breaks become spaces.
    """
    return "\n".join(line for message in messages for line in _history_lines(message))


def _history_lines(message: Message) -> list[str]:
    if isinstance(message, ToolMessage):
        return [history_line("tool", result.text) for result in message.results]
    text = text_of(message.content)
    if isinstance(message, UserMessage):
        return [history_line("user", text)]
    calls = [f"{call.name}({call.raw or msgspec.json.encode(call.arguments).decode()})" for call in message.calls]
    return [history_line("model", " ".join([text, *calls] if text else calls))]


def history_line(role: str, text: str) -> str:
    """Return the line of one message."""
    return f"[{role}]: {' '.join(text.splitlines())}"
