"""Estimates of the tokens of a prompt before it is sent; those of earlier messages are kept."""

from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Stored,
    ToolMessage,
)
from vaka.models.prefixes import PrefixMemo

CHARACTERS_PER_TOKEN = 4
MEDIA_TOKENS = 1600
"""Tokens of an image or of audio."""
DOCUMENT_TOKENS = 500
"""Tokens of a document, besides one for each six characters of its base64."""


def estimate_prompt_tokens(prompt: Prompt) -> int:
    return estimate_message_tokens(prompt.messages) + estimate_instruction_tokens(prompt)


def estimate_instruction_tokens(prompt: Prompt) -> int:
    """Return the tokens of a prompt without those of its messages."""
    tools = sum(estimate_text_tokens(len(encode_json(tool))) for tool in prompt.tools)
    return estimate_text_tokens(len(prompt.system)) + tools


def estimate_message_tokens(messages: Sequence[Message]) -> int:
    return sum(_tokens_of_message(message) for message in messages)


def estimate_text_tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def encode_json(value: Any) -> bytes:
    """Return a value as JSON; nothing for one that cannot be encoded, which the request will report."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return b""


class TokenTotals:
    """The tokens of the first messages of a conversation, for each number of messages."""

    def __init__(self) -> None:
        self.totals = [0]

    def add(self, message: Message) -> None:
        self.totals.append(self.totals[-1] + _tokens_of_message(message))

    def mark(self) -> int:
        return len(self.totals)

    def rollback(self, mark: int) -> None:
        del self.totals[mark:]

    def settle(self, mark: int) -> None:
        pass


class TokenCounter:
    """Estimates the tokens of prompts; each message of a conversation is counted once."""

    def __init__(self) -> None:
        self._counted = PrefixMemo(TokenTotals)

    def count(self, prompt: Prompt) -> int:
        """Return ``estimate_prompt_tokens(prompt)``."""
        kept = self._counted.take(prompt)
        tokens = kept.fold.totals[-1]
        self._counted.put(prompt, kept)
        return tokens + estimate_instruction_tokens(prompt)


def _tokens_of_message(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return sum(_tokens_of_content(result.content) for result in message.results)
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return _tokens_of_content(message.content) + sum(
        estimate_text_tokens(len(call.name) + (len(call.raw) or len(encode_json(call.arguments)))) for call in calls
    )


def _tokens_of_content(content: Content) -> int:
    tokens = characters = 0
    for part in content:
        if isinstance(part, Image | Audio):
            tokens += MEDIA_TOKENS
        elif isinstance(part, Document):
            tokens += len(part.data) // 6 + DOCUMENT_TOKENS
        elif isinstance(part, Stored):
            characters += len(part.preview)
        elif not isinstance(part, CallRef):
            characters += len(part.text)
    return tokens + estimate_text_tokens(characters)
