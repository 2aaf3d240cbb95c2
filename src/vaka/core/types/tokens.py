"""Estimates of the tokens of messages. Texts, reasoning, calls, results and media count."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath, EventScope
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
)

BYTES_PER_TOKEN = 4
MEDIA_TOKENS = 1600
"""Tokens of an image or of audio."""
DOCUMENT_TOKENS = 500
"""Tokens of a document, besides one for each six characters of its base64."""


def estimate_text_tokens(size: int) -> int:
    """Return the tokens of a text of ``size`` bytes."""
    return -(-size // BYTES_PER_TOKEN)


def text_size(text: str) -> int:
    """Return the bytes of a text; a character of Chinese or Japanese has three, and is about one token."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_message_tokens(messages: Sequence[Message]) -> int:
    return sum(tokens_of_message(message) for message in messages)


def tokens_of_message(message: Message) -> int:
    tokens = 0
    match message:
        case ToolMessage(results=results):
            for result in results:
                tokens += tokens_of_content(result.content)
        case AssistantMessage(content=content, calls=calls) if calls:
            tokens = tokens_of_content(content) + sum(map(tokens_of_call, calls))
        case _:
            tokens = tokens_of_content(message.content)
    return tokens


def tokens_of_call(call: ToolCall) -> int:
    return estimate_text_tokens(len(call.name) + (len(call.raw) or len(encode_json(call.arguments))))


def tokens_of_content(content: Content) -> int:
    tokens = size = 0
    for part in content:
        if type(part) is Text:  # most parts are, and this runs before each step
            text = part.text
            size += len(text) if text.isascii() else text_size(text)
        elif type(part) is CallRef:
            continue
        elif isinstance(part, Image | Audio):
            tokens += MEDIA_TOKENS
        elif isinstance(part, Document):
            tokens += len(part.data) // 6 + DOCUMENT_TOKENS
        elif isinstance(part, Stored):
            size += text_size(part.preview) if part.cut else part.size
        elif isinstance(part, Reasoning):
            size += text_size(part.text) or (len(encode_json(part.opaque)) if part.opaque is not None else 0)
    return tokens + -(-size // BYTES_PER_TOKEN)


def encode_json(value: Any) -> bytes:
    """Return a value as JSON; nothing if it cannot be encoded, which the request will report."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return b""


_PROMPT_BODIES = frozenset[type](
    {
        progress.SubagentStarted,
        progress.ToolCompleted,
        progress.ToolFailed,
        InputAdded,
        progress.MessageCompleted,
        progress.ToolCalled,
        progress.OutputRejected,
        progress.AgentContinued,
    }
)


def tokens_of_entries(path: AgentPath, entries: Iterable[tuple[EventScope, Body]]) -> int:
    """Return the tokens that events add to the prompts of the agent at ``path``."""
    tokens = 0
    for scope, body in entries:
        if type(body) in _PROMPT_BODIES:
            tokens += _tokens_of_body(path, scope, body)
    return tokens


def _tokens_of_body(path: AgentPath, scope: EventScope, body: Body) -> int:
    match body:
        case progress.SubagentStarted(child=child, content=content):
            return tokens_of_content(content) if (*scope.path, child) == path else 0
        case _ if scope.path != path:
            return 0
        case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
            return tokens_of_content(result.content)
        case InputAdded(content=content) | progress.MessageCompleted(content=content):
            return tokens_of_content(content)
        case progress.ToolCalled(call=call):
            return tokens_of_call(call)
        case progress.AgentContinued(text=text) | progress.OutputRejected(feedback=text):
            return estimate_text_tokens(text_size(text))
        case _:
            return 0
