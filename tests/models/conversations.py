"""Conversations for tests of requests, and the wires that write them."""

from collections.abc import Callable
from typing import Any

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.models.anthropic import model as anthropic
from vaka.models.gemini import model as gemini
from vaka.models.openai_chat import model as chat
from vaka.models.openai_chat.vendors import VendorProfile
from vaka.models.openai_responses import model as responses
from vaka.models.prefixes import MAX_CONVERSATION_SIZE
from vaka.models.request_items import RequestMemo, encode_body

THOUGHTS = (
    Reasoning(text="hm", opaque={"anthropic": {"type": "thinking", "thinking": "hm", "signature": "s"}}),
    Reasoning(opaque={"gemini": {"thoughtSignature": "sig"}}),
    Reasoning(text="so", opaque={"openai": {"type": "reasoning", "id": "r", "encrypted_content": "e"}}),
)
"""Blocks of providers."""


class Wire(msgspec.Struct, frozen=True):
    """Writes requests: ``write`` returns the body of one, ``new_writer`` a writer for a memo."""

    field: str
    """The list in a body."""
    write: Callable[[Prompt, Any], dict[str, Any]]
    new_writer: Callable[[], Any]

    def new_memo(self, max_conversation_size: int = MAX_CONVERSATION_SIZE) -> RequestMemo[Any]:
        return RequestMemo(self.new_writer, max_conversation_size=max_conversation_size)

    def encode(self, prompt: Prompt, memo: RequestMemo[Any] | None = None) -> bytes:
        return encode_body(self.write(prompt, memo))


def _anthropic(model: str) -> Wire:
    return Wire(
        "messages",
        lambda prompt, memo: anthropic.to_request(model, prompt, memo=memo).body,
        lambda: anthropic.AnthropicWriter(model),
    )


def _chat(profile: VendorProfile) -> Wire:
    return Wire(
        "messages",
        lambda prompt, memo: chat.to_request("m", prompt, profile, memo=memo),
        lambda: chat.ChatWriter("m", profile),
    )


def _responses(facts: responses.ResponsesCapabilities) -> Wire:
    return Wire(
        "input",
        lambda prompt, memo: responses.to_request("gpt-6", prompt, facts, memo),
        lambda: responses.ResponsesWriter("gpt-6", facts),
    )


def _gemini(model: str) -> Wire:
    return Wire(
        "contents",
        lambda prompt, memo: gemini.to_request(model, prompt, memo=memo),
        lambda: gemini.GeminiWriter(model),
    )


WIRES = {
    "anthropic": _anthropic("claude-sonnet-5-5"),
    "anthropic prefill": _anthropic("claude-3-haiku-20240307"),
    "chat": _chat(VendorProfile()),
    "chat merged": _chat(VendorProfile(merge=True, bridge=True, images=False, reasoning_back="reasoning_content")),
    "responses": _responses(responses.ResponsesCapabilities()),
    "responses plain": _responses(responses.LLAMA),
    "gemini": _gemini("gemini-2.5-pro"),
    "gemini 3": _gemini("gemini-3-pro"),
}


def exchange(number: int) -> tuple[Message, ...]:
    """Return a question, an answer with a call, its result and the final answer."""
    call = ToolCall(id=CallId(f"call_{number}"), name="read", arguments={"path": f"/{number}", "all": True})
    return (
        UserMessage(content=(Text(text=f"Read file {number}."),)),
        AssistantMessage(
            id=MessageId(f"m{number}"),
            content=(*THOUGHTS, Text(text="I look. "), CallRef(id=call.id)),
            calls=(call,),
            model="claude-sonnet-5-5",
            stop="calls",
        ),
        ToolMessage(results=(ToolResult(call=call.id, content=(Text(text=f"content {number}"),)),)),
        AssistantMessage(id=MessageId(f"n{number}"), content=(Text(text=f"It says {number}. "),), stop="end"),
    )


def conversation(count: int) -> tuple[Message, ...]:
    """Return ``count`` messages."""
    return tuple([message for number in range(count // 4 + 1) for message in exchange(number)][:count])
