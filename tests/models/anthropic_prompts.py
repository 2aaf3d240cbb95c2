"""Prompts for tests of the adapter for Anthropic Messages, and their requests, read by the vendor's own types."""

import base64
from typing import Any

import msgspec
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Content, Part, Text
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic import to_request
from vaka.models.anthropic_request import Ttl

THEIRS: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
OLD, BUDGET, EFFORT, OPEN, NEVER_QUIET = (
    "claude-3-5-haiku-20241022", "claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-opus-5", "claude-opus-5-5",
)  # fmt: skip
MARK = {"type": "ephemeral"}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
PNG, PDF = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), base64.b64encode(b"%PDF-1.7").decode()


def body(
    model: str, prompt: Prompt, *, max_tokens: int | None = None, cache: bool = False, cache_ttl: Ttl = "5m"
) -> dict[str, Any]:
    """Return the request for a prompt, once the vendor's types have read it."""
    before = msgspec.json.encode(prompt)
    made = to_request(model, prompt, max_tokens=max_tokens, cache=cache, cache_ttl=cache_ttl).body
    msgspec.json.encode(THEIRS.validate_python(made), enc_hook=list)  # they read lists only when somebody looks
    again = to_request(model, prompt, max_tokens=max_tokens, cache=cache, cache_ttl=cache_ttl).body
    assert msgspec.json.encode(made) == msgspec.json.encode(again)
    assert msgspec.json.encode(prompt) == before
    return made


def user(*parts: Part | str) -> UserMessage:
    return UserMessage(content=_content(parts))


def said(*parts: Part | str, calls: tuple[ToolCall, ...] = (), stop: str = "end", model: str = "") -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=_content(parts), calls=calls, stop=stop, model=model)


def _content(parts: tuple[Part | str, ...]) -> Content:
    return tuple(Text(text=part) if isinstance(part, str) else part for part in parts)


def call(id: str, name: str = "look", **more: Any) -> ToolCall:
    return ToolCall(id=CallId(id), name=name, **more)


def results(*given: ToolResult) -> ToolMessage:
    return ToolMessage(results=given)


def result(id: str, *parts: Part | str, failed: bool = False) -> ToolResult:
    return ToolResult(call=CallId(id), content=_content(parts), failed=failed)


def ask(*messages: Message, **more: Any) -> Prompt:
    return Prompt(messages=messages or (user("Hi."),), **more)


def sent(*messages: Message, model: str = BUDGET) -> list[dict[str, Any]]:
    """Return the messages of a request."""
    made: list[dict[str, Any]] = body(model, ask(*messages))["messages"]
    return made


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def with_options(model: str, tool_choice: str = "auto", tools: tuple[ToolSpec, ...] = (LOOK,), **options: Any) -> Any:
    return body(model, ask(tools=tools, tool_choice=tool_choice, options=options))
