"""Prompts for tests of Chat Completions, and the requests for them."""

from typing import Any

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_chat.model import to_request
from vaka.models.openai_chat.vendors import PROFILES, VendorProfile

PNG = "iVBORw0KGgo="
PDF = "JVBERi0="
WEATHER_TOOL = ToolSpec(
    name="weather",
    description="Return the weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
    strict=True,
)
LOOSE_TOOL = ToolSpec(name="loose", parameters={"type": "object", "additionalProperties": True})
OUTPUT_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def user_message(*parts: "Part | str") -> UserMessage:
    return UserMessage(content=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def assistant_message(*parts: "Part | str", calls: tuple[ToolCall, ...] = ()) -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=user_message(*parts).content, calls=calls)


def tool_call(number: int = 1, name: str = "weather", **fields: Any) -> ToolCall:
    return ToolCall(id=CallId(f"call_{number}"), name=name, arguments={"city": "Hilo"}, **fields)


def tool_message(*contents: Content) -> ToolMessage:
    return ToolMessage(
        results=tuple(ToolResult(call=CallId(f"call_{n}"), content=content) for n, content in enumerate(contents, 1))
    )


def prompt_of(*messages: Message, **fields: Any) -> Prompt:
    return Prompt(messages=messages or (user_message("Well?"),), **fields)


def request_body(prompt: Prompt, profile: "str | VendorProfile" = "openai-chat") -> dict[str, Any]:
    return to_request("m", prompt, PROFILES[profile] if isinstance(profile, str) else profile)


def request_messages(prompt: Prompt, profile: "str | VendorProfile" = "openai-chat") -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = request_body(prompt, profile)["messages"]
    return made


FULL_PROMPT = prompt_of(
    user_message("Look.", Image(data=PNG), Audio(data="UklGRg=="), Document(data=PDF, name="a.pdf")),
    assistant_message(
        Reasoning(text="Hm."), "Let me see.", CallRef(id=CallId("call_1")), calls=(tool_call(), tool_call(2, raw="{"))
    ),
    tool_message((Text(text="rain"),), (Image(url="https://a.example/b.png"),)),
    assistant_message(calls=(tool_call(3, name="a.b c"),)),
    ToolMessage(results=(ToolResult(call=CallId("call_3"), failed=True, reason="unknown_tool"),)),
    assistant_message("It rains."),
    user_message("Thanks."),
    system="Be brief.",
    tools=(WEATHER_TOOL, LOOSE_TOOL),
    tool_choice="weather",
    options={
        "max_tokens": 10,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "frequency_penalty": 1,
        "presence_penalty": 1,
        "stop": ["a", "b"],
        "seed": 1,
        "parallel_calls": False,
        "reasoning": "low",
        "user": "u",
        "service_tier": "flex",
        "output": OUTPUT_SCHEMA,
        "metadata": {"a": "b"},
        "extra": {"store": True, "stream_options": {"include_obfuscation": False}},
    },
    session="ses_1",
)
