"""Prompts for vendors of Chat Completions, and what is sent for them."""

from typing import Any

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Part, Reasoning, Text
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_chat_request import to_request
from vaka.models.profiles import PROFILES, Profile

PNG = "iVBORw0KGgo="
PDF = "JVBERi0="
WEATHER = ToolSpec(
    name="weather",
    description="Return the weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
    strict=True,
)
LOOSE = ToolSpec(name="loose", parameters={"type": "object", "additionalProperties": True})
SHAPE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def user(*parts: "Part | str") -> UserMessage:
    return UserMessage(content=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def model(*parts: "Part | str", calls: tuple[ToolCall, ...] = ()) -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=user(*parts).content, calls=calls)


def call(number: int = 1, name: str = "weather", **fields: Any) -> ToolCall:
    return ToolCall(id=CallId(f"call_{number}"), name=name, arguments={"city": "Hilo"}, **fields)


def results(*contents: Content) -> ToolMessage:
    return ToolMessage(
        results=tuple(ToolResult(call=CallId(f"call_{n}"), content=content) for n, content in enumerate(contents, 1))
    )


def ask(*messages: Message, **fields: Any) -> Prompt:
    return Prompt(messages=messages or (user("Well?"),), **fields)


def body(prompt: Prompt, profile: "str | Profile" = "openai-chat") -> dict[str, Any]:
    return to_request("m", prompt, PROFILES[profile] if isinstance(profile, str) else profile)


def messages(prompt: Prompt, profile: "str | Profile" = "openai-chat") -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = body(prompt, profile)["messages"]
    return made


EVERYTHING = ask(
    user("Look.", Image(data=PNG), Audio(data="UklGRg=="), Document(data=PDF, name="a.pdf")),
    model(Reasoning(text="Hm."), "Let me see.", CallRef(id=CallId("call_1")), calls=(call(), call(2, raw="{"))),
    results((Text(text="rain"),), (Image(url="https://a.example/b.png"),)),
    model(calls=(call(3, name="a.b c"),)),
    ToolMessage(results=(ToolResult(call=CallId("call_3"), failed=True, reason="unknown_tool"),)),
    model("It rains."),
    user("Thanks."),
    system="Be brief.",
    tools=(WEATHER, LOOSE),
    tool_choice="weather",
    options={
        "max_tokens": 10, "temperature": 0, "top_p": 0.5, "top_k": 3, "frequency_penalty": 1, "presence_penalty": 1,
        "stop": ["a", "b"], "seed": 1, "parallel_calls": False, "reasoning": "low", "user": "u", "service_tier": "flex",
        "output": SHAPE, "metadata": {"a": "b"},
        "extra": {"store": True, "stream_options": {"include_obfuscation": False}},
    },
    session="ses_1",
)  # fmt: skip
