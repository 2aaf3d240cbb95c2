"""Prompts for tests of Anthropic Messages, and their requests, validated by the vendor's own types."""

import base64
from typing import Any

import msgspec

from tests.models.oracles.vendor_clients import request_type
from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic.model import CacheTtl, to_request

NO_THINKING_MODEL = "claude-3-5-haiku-20241022"
BUDGET_MODEL = "claude-sonnet-4-5-20250929"
EFFORT_MODEL = "claude-opus-4-6"
DEFAULT_THINKING_MODEL = "claude-opus-5"
ALWAYS_THINKING_MODEL = "claude-opus-5-5"
CACHE_MARK = {"type": "ephemeral"}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOK_TOOL = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
PNG, PDF = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), base64.b64encode(b"%PDF-1.7").decode()


def request_body(
    model: str, prompt: Prompt, *, max_tokens: int | None = None, cache: bool = False, cache_ttl: CacheTtl = "5m"
) -> dict[str, Any]:
    """Return the request for a prompt, once the vendor's types have read it."""
    before = msgspec.json.encode(prompt)
    made = to_request(model, prompt, max_tokens=max_tokens, cache=cache, cache_ttl=cache_ttl).body
    read = request_type("anthropic").validate_python(made)
    msgspec.json.encode(read, enc_hook=list)  # pydantic validates lists lazily
    again = to_request(model, prompt, max_tokens=max_tokens, cache=cache, cache_ttl=cache_ttl).body
    assert msgspec.json.encode(made) == msgspec.json.encode(again)
    assert msgspec.json.encode(prompt) == before
    return made


def user_message(*parts: Part | str) -> UserMessage:
    return UserMessage(content=_content(parts))


def assistant_message(
    *parts: Part | str, calls: tuple[ToolCall, ...] = (), stop: str = "end", model: str = ""
) -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=_content(parts), calls=calls, stop=stop, model=model)


def _content(parts: tuple[Part | str, ...]) -> Content:
    return tuple(Text(text=part) if isinstance(part, str) else part for part in parts)


def tool_call(id: str, name: str = "look", **more: Any) -> ToolCall:
    return ToolCall(id=CallId(id), name=name, **more)


def tool_message(*given: ToolResult) -> ToolMessage:
    return ToolMessage(results=given)


def tool_result(id: str, *parts: Part | str, failed: bool = False) -> ToolResult:
    return ToolResult(call=CallId(id), content=_content(parts), failed=failed)


def prompt_of(*messages: Message, **more: Any) -> Prompt:
    return Prompt(messages=messages or (user_message("Hi."),), **more)


def sent_messages(*messages: Message, model: str = BUDGET_MODEL) -> list[dict[str, Any]]:
    """Return the messages of a request."""
    made: list[dict[str, Any]] = request_body(model, prompt_of(*messages))["messages"]
    return made


def text_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def body_with_options(
    model: str, tool_choice: str = "auto", tools: tuple[ToolSpec, ...] = (LOOK_TOOL,), **options: Any
) -> Any:
    return request_body(model, prompt_of(tools=tools, tool_choice=tool_choice, options=options))
