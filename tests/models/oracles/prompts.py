"""Prompts that cover everything a request may contain."""

import base64
import struct
import zlib
from typing import Any

import msgspec

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
from vaka.testing.models import PROMPT

PROVIDER_BLOCKS: dict[str, Any] = {
    "chat": {"vendor": "openrouter", "reasoning_details": [{"type": "reasoning.text", "text": "secret of chat"}]},
    "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret of responses"},
    "anthropic": {"type": "thinking", "thinking": "Hm.", "signature": "secret of anthropic"},
    "gemini": {"thoughtSignature": base64.b64encode(b"secret of gemini").decode()},
}
"""Blocks that providers want back, one of each."""
BLOCK_MARKS = {wire: "secret of " + wire for wire in PROVIDER_BLOCKS} | {
    "gemini": PROVIDER_BLOCKS["gemini"]["thoughtSignature"]
}
"""By what each is known wherever it turns up."""

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "rain": {"type": "boolean"}},
    "required": ["city", "rain"],
    "additionalProperties": False,
}


def _png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixel = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + pixel + chunk(b"IEND", b"")).decode()


PNG, PDF = _png(), base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt ").decode()


def user_message(*parts: str | Part) -> UserMessage:
    return UserMessage(content=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def assistant_message(*parts: str | Part, calls: tuple[ToolCall, ...] = (), id: str = "msg_1") -> AssistantMessage:
    content: Content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return AssistantMessage(id=MessageId(id), content=content, calls=calls)


def tool_call(number: int, **more: Any) -> ToolCall:
    arguments = {} if "raw" in more else {"city": f"City {number}"}
    return ToolCall(id=CallId(f"call_{number}"), name="weather", arguments=arguments, **more)


def tool_result(number: int, *parts: str | Part, failed: bool = False) -> ToolResult:
    content: Content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return ToolResult(call=CallId(f"call_{number}"), content=content, failed=failed)


def prompt_of(*messages: Message, **more: Any) -> Prompt:
    return Prompt(messages=messages, tools=PROMPT.tools, system="Be brief.", **more)


def call_refs(*numbers: int) -> tuple[CallRef, ...]:
    return tuple(CallRef(id=CallId(f"call_{number}")) for number in numbers)


STRANGE_TOOL = ToolSpec(
    name="strange-tool_1",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "minItems": 1},
            "size": {"enum": ["s", "m", "l"], "type": "string"},
            "more": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "$defs": {"Tag": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        "required": ["tags"],
    },
)

PROMPTS: dict[str, Prompt] = {
    "a question": Prompt(messages=(user_message("Is it raining?"),)),
    "a conversation": PROMPT,
    "no tool": msgspec.structs.replace(PROMPT, tool_choice="none"),
    "some tool": msgspec.structs.replace(PROMPT, tool_choice="required"),
    "this tool": msgspec.structs.replace(PROMPT, tool_choice="weather"),
    "one call at a time": msgspec.structs.replace(PROMPT, options={"parallel_calls": False}),
    "a strange tool": msgspec.structs.replace(PROMPT, tools=(*PROMPT.tools, STRANGE_TOOL)),
    "several results": prompt_of(
        user_message("Compare."),
        assistant_message("Let me look.", *call_refs(1, 2), calls=(tool_call(1), tool_call(2, provider_id="toolu_2"))),
        ToolMessage(results=(tool_result(1, "rain"), tool_result(2, "no such city", failed=True))),
        assistant_message(*call_refs(3), calls=(tool_call(3),), id="msg_2"),
        ToolMessage(results=(tool_result(3),)),
    ),
    "arguments that were none": prompt_of(
        user_message("Look."),
        assistant_message(
            *call_refs(1, 2), calls=(tool_call(1, raw='{"city": "Hi', truncated=True), tool_call(2, raw="[1]"))
        ),
        ToolMessage(results=(tool_result(1, "cut", failed=True), tool_result(2, "no object", failed=True))),
    ),
    "an image": prompt_of(user_message("What is this?", Image(data=PNG), Image(url="https://example.com/a.png"))),
    "a document": prompt_of(user_message(Document(data=PDF, media_type="application/pdf", name="a.pdf"), "Sum it up.")),
    "sound": prompt_of(user_message("What is said?", Audio(data=WAV, media_type="audio/wav"))),
    "an image in a result": prompt_of(
        user_message("Look."),
        assistant_message(*call_refs(1), calls=(tool_call(1),)),
        ToolMessage(results=(tool_result(1, "here it is", Image(data=PNG, media_type="image/png")),)),
    ),
    "thoughts of all providers": prompt_of(
        user_message("Think."),
        assistant_message(
            *(
                part
                for wire, block in PROVIDER_BLOCKS.items()
                for part in (Reasoning(text="Hm.", opaque={wire: block}),)
            ),
            "So:",
            *call_refs(1),
            calls=(tool_call(1),),
        ),
        ToolMessage(results=(tool_result(1, "rain"),)),
        user_message("And now?"),
    ),
    "reasoning without a provider": prompt_of(
        user_message("Think."), assistant_message(Reasoning(text="Hm."), "So it is."), user_message("And now?")
    ),
    "a beginning by the model": prompt_of(assistant_message("Hello, how can I help?"), user_message("Tell me.")),
    "two in a row": prompt_of(
        user_message("One."),
        user_message("Two."),
        assistant_message("Three."),
        assistant_message("Four.", id="msg_2"),
        user_message("Five."),
    ),
    "nothing said": prompt_of(
        user_message("One."),
        assistant_message(),
        user_message("Two."),
        assistant_message("", id="msg_2"),
        user_message(""),
    ),
    "numbers": prompt_of(
        user_message("Go."),
        options={
            "max_tokens": 99,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "seed": 7,
            "metadata": {"a": "b"},
            "user": "someone",
            "service_tier": "auto",
        },
    ),
    "stop words": prompt_of(user_message("Go."), options={"stop": ["END", "STOP"]}),
    "a shape": prompt_of(user_message("Go."), options={"output": {"schema": SCHEMA, "name": "weather_report"}}),
    "a loose shape": prompt_of(user_message("Go."), options={"output": {"type": "object", "properties": {"a": {}}}}),
    "much thought": prompt_of(user_message("Go."), options={"reasoning": "high", "max_tokens": 30_000}),
    "a budget of thought": prompt_of(user_message("Go."), options={"reasoning": 2048, "max_tokens": 30_000}),
    "no thought": prompt_of(user_message("Go."), options={"reasoning": "none"}),
    "a cache": prompt_of(
        user_message("Go."), assistant_message("Yes."), user_message("On."), session="ses_1", options={"cache": True}
    ),
    "no cache": prompt_of(user_message("Go."), session="ses_1", options={"cache": False}),
}

MODELS = {
    "chat": ("some-model", "gpt-5.2", "gpt-4o"),
    "responses": ("some-model", "gpt-5.2", "gpt-4o"),
    "anthropic": ("some-model", "claude-sonnet-5-5", "claude-opus-4-6", "claude-3-5-haiku-20241022"),
    "gemini": ("some-model", "gemini-3-pro", "gemini-2.0-flash"),
}
"""Models of several generations: each takes something else."""
