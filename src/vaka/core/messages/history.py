"""A conversation as lines of text."""

from collections.abc import Iterable

import msgspec

from vaka.core.types.message import AssistantMessage, Message, ToolMessage, UserMessage, text_of


def format_history(messages: Iterable[Message]) -> str:
    """Return ``[role]: content`` lines, one for each message of ``user`` and ``model``, and each result of a ``tool``.

    Calls follow the text of their message as ``name({"argument": …})``. Line breaks become spaces.
    """
    return "\n".join(line for message in messages for line in history_lines(message))


def history_lines(message: Message) -> list[str]:
    """Return the lines of one message; only results of several calls are more than one."""
    if isinstance(message, ToolMessage):
        return [f"[tool]: {_on_one_line(result.text)}" for result in message.results]
    if isinstance(message, UserMessage):
        return [f"[user]: {_on_one_line(text_of(message.content))}"]
    return [f"[model]: {_on_one_line(' '.join([text_of(message.content), *_call_texts(message)]).strip())}"]


def _call_texts(message: AssistantMessage) -> list[str]:
    return [f"{call.name}({call.raw or msgspec.json.encode(call.arguments).decode()})" for call in message.calls]


def _on_one_line(text: str) -> str:
    return " ".join(text.splitlines())
