"""About how many tokens a prompt has, before anyone has counted them. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Stored
from vaka.core.types.message import AssistantMessage, Message, ToolMessage

CHARACTERS = 4
"""Of text, in a token."""
MEDIA = 1600
"""Tokens of a picture or a sound."""
DOCUMENT = 500
"""Tokens of a document, besides one for each six characters of its base64."""


def of_prompt(prompt: Prompt) -> int:
    """Return about how many tokens a whole prompt has."""
    tools = sum(of_text(len(encoded(tool))) for tool in prompt.tools)
    return of_messages(prompt.messages) + of_text(len(prompt.system)) + tools


def of_messages(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages have."""
    return sum(_message(message) for message in messages)


def of_text(characters: int) -> int:
    """Return about how many tokens a text of so many characters has."""
    return -(-characters // CHARACTERS)


def encoded(value: Any) -> bytes:
    """Return a value as JSON; nothing for one that will be refused where it is sent, and has no size here."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return b""


def _message(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return sum(_content(result.content) for result in message.results)
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return _content(message.content) + sum(
        of_text(len(call.name) + (len(call.raw) or len(encoded(call.arguments)))) for call in calls
    )


def _content(content: Content) -> int:
    tokens = characters = 0
    for part in content:
        if isinstance(part, Image | Audio):
            tokens += MEDIA
        elif isinstance(part, Document):
            tokens += len(part.data) // 6 + DOCUMENT
        elif isinstance(part, Stored):
            characters += len(part.preview)
        elif not isinstance(part, CallRef):
            characters += len(part.text)
    return tokens + of_text(characters)
