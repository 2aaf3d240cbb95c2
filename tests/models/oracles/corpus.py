"""Prompts with everything in them that a request may have to say."""

import base64
import struct
import zlib
from typing import Any

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Part, Reasoning, Text
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.testing.models import PROMPT

FOREIGN: dict[str, Any] = {
    "chat": {"vendor": "openrouter", "reasoning_details": [{"type": "reasoning.text", "text": "secret of chat"}]},
    "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret of responses"},
    "anthropic": {"type": "thinking", "thinking": "Hm.", "signature": "secret of anthropic"},
    "gemini": {"thoughtSignature": base64.b64encode(b"secret of gemini").decode()},
}
"""Blocks that providers want back, one of each."""
MARKS = {wire: "secret of " + wire for wire in FOREIGN} | {"gemini": FOREIGN["gemini"]["thoughtSignature"]}
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


def user(*parts: str | Part) -> UserMessage:
    return UserMessage(content=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def said(*parts: str | Part, calls: tuple[ToolCall, ...] = (), id: str = "msg_1") -> AssistantMessage:
    content: Content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return AssistantMessage(id=MessageId(id), content=content, calls=calls)


def made(number: int, **more: Any) -> ToolCall:
    arguments = {} if "raw" in more else {"city": f"City {number}"}
    return ToolCall(id=CallId(f"call_{number}"), name="weather", arguments=arguments, **more)


def result(number: int, *parts: str | Part, failed: bool = False) -> ToolResult:
    content: Content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return ToolResult(call=CallId(f"call_{number}"), content=content, failed=failed)


def talk(*messages: Message, **more: Any) -> Prompt:
    return Prompt(messages=messages, tools=PROMPT.tools, system="Be brief.", **more)


def refs(*numbers: int) -> tuple[CallRef, ...]:
    return tuple(CallRef(id=CallId(f"call_{number}")) for number in numbers)


STRANGE = ToolSpec(
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
    "a question": Prompt(messages=(user("Is it raining?"),)),
    "a conversation": PROMPT,
    "no tool": msgspec.structs.replace(PROMPT, tool_choice="none"),
    "some tool": msgspec.structs.replace(PROMPT, tool_choice="required"),
    "this tool": msgspec.structs.replace(PROMPT, tool_choice="weather"),
    "one call at a time": msgspec.structs.replace(PROMPT, options={"parallel_calls": False}),
    "a strange tool": msgspec.structs.replace(PROMPT, tools=(*PROMPT.tools, STRANGE)),
    "several results": talk(
        user("Compare."),
        said("Let me look.", *refs(1, 2), calls=(made(1), made(2, provider_id="toolu_2"))),
        ToolMessage(results=(result(1, "rain"), result(2, "no such city", failed=True))),
        said(*refs(3), calls=(made(3),), id="msg_2"),
        ToolMessage(results=(result(3),)),
    ),
    "arguments that were none": talk(
        user("Look."),
        said(*refs(1, 2), calls=(made(1, raw='{"city": "Hi', truncated=True), made(2, raw="[1]"))),
        ToolMessage(results=(result(1, "cut", failed=True), result(2, "no object", failed=True))),
    ),
    "an image": talk(user("What is this?", Image(data=PNG), Image(url="https://example.com/a.png"))),
    "a document": talk(user(Document(data=PDF, media_type="application/pdf", name="a.pdf"), "Sum it up.")),
    "sound": talk(user("What is said?", Audio(data=WAV, media_type="audio/wav"))),
    "an image in a result": talk(
        user("Look."),
        said(*refs(1), calls=(made(1),)),
        ToolMessage(results=(result(1, "here it is", Image(data=PNG, media_type="image/png")),)),
    ),
    "thoughts of all providers": talk(
        user("Think."),
        said(
            *(part for wire, block in FOREIGN.items() for part in (Reasoning(text="Hm.", opaque={wire: block}),)),
            "So:",
            *refs(1),
            calls=(made(1),),
        ),
        ToolMessage(results=(result(1, "rain"),)),
        user("And now?"),
    ),
    "thoughts of nobody": talk(user("Think."), said(Reasoning(text="Hm."), "So it is."), user("And now?")),
    "a beginning by the model": talk(said("Hello, how can I help?"), user("Tell me.")),
    "two in a row": talk(user("One."), user("Two."), said("Three."), said("Four.", id="msg_2"), user("Five.")),
    "nothing said": talk(user("One."), said(), user("Two."), said("", id="msg_2"), user("")),
    "numbers": talk(
        user("Go."),
        options={
            "max_tokens": 99, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "frequency_penalty": 0.1,
            "presence_penalty": 0.2, "seed": 7, "metadata": {"a": "b"}, "user": "someone", "service_tier": "auto",
        },
    ),
    "stop words": talk(user("Go."), options={"stop": ["END", "STOP"]}),
    "a shape": talk(user("Go."), options={"output": {"schema": SCHEMA, "name": "weather_report"}}),
    "a loose shape": talk(user("Go."), options={"output": {"type": "object", "properties": {"a": {}}}}),
    "much thought": talk(user("Go."), options={"reasoning": "high", "max_tokens": 30_000}),
    "a budget of thought": talk(user("Go."), options={"reasoning": 2048, "max_tokens": 30_000}),
    "no thought": talk(user("Go."), options={"reasoning": "none"}),
    "a cache": talk(user("Go."), said("Yes."), user("On."), session="ses_1", options={"cache": True}),
    "no cache": talk(user("Go."), session="ses_1", options={"cache": False}),
}  # fmt: skip

MODELS = {
    "chat": ("some-model", "gpt-5.2", "gpt-4o"),
    "responses": ("some-model", "gpt-5.2", "gpt-4o"),
    "anthropic": ("some-model", "claude-sonnet-5-5", "claude-opus-4-6", "claude-3-5-haiku-20241022"),
    "gemini": ("some-model", "gemini-3-pro", "gemini-2.0-flash"),
}
"""Models of several generations: each takes something else."""
