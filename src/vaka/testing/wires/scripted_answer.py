"""Shared by the wire formats: a scripted line as a value, ids derived from the request, server-sent events."""

import hashlib
import re
from typing import Any

import msgspec

from vaka.models.scripted import Scripted

MAX_PIECES = 20
"""Maximum number of pieces of a text."""
CREATED_AT = 1_767_225_600
"""The creation time of every answer: the first second of 2026."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a line."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    @property
    def pieces(self) -> list[str]:
        text = self.arguments_text
        size = -(-len(text) // 4) or 1
        return [text[at : at + size] for at in range(0, len(text), size)]


class ScriptedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a line."""

    status: int
    message: str = "the script says so"
    retry_after: float | None = None


class ScriptedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a line; cached and reasoning tokens are included in input and output."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the scripted model."""

    text: str | None = None
    chunks: tuple[str, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedFailure | None = None
    stall: float | None = None
    cut_after: int | None = None
    usage: ScriptedUsage | None = None
    stop: str | None = None

    @property
    def has_content(self) -> bool:
        """Whether the line has any part of an answer."""
        return any(value is not None for value in (self.text, self.chunks, self.reasoning)) or bool(self.tool_calls)

    @property
    def is_complete(self) -> bool:
        """Whether the answer reaches its end marker."""
        return self.has_content and self.cut_after is None and self.error is None

    @property
    def text_pieces(self) -> list[str]:
        """The pieces of the text, up to ``cut_after``."""
        return (split_words(self.text or "") if self.chunks is None else list(self.chunks))[: self.cut_after]

    @property
    def reasoning_pieces(self) -> list[str]:
        return split_words(self.reasoning or "")

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """The calls that are sent: none of an answer that is cut."""
        return self.tool_calls if self.cut_after is None else ()

    @property
    def stop_reason(self) -> str:
        """The stop reason, as vaka names it."""
        return self.stop or ("calls" if self.tool_calls else "end")

    def usage_for(self, body: Any) -> ScriptedUsage:
        """Return the usage of the line, or an estimate of one token for four characters."""
        if self.usage is not None:
            return self.usage
        reasoning = -(-len(self.reasoning or "") // 4)
        size = sum(map(len, self.text_pieces)) + sum(len(call.name) + len(call.arguments_text) for call in self.calls)
        input_tokens = -(-len(msgspec.json.encode(body)) // 4)
        return ScriptedUsage(input=input_tokens, output=-(-size // 4) + reasoning, reasoning=reasoning)


def parse_answer(answer: dict[str, Any]) -> ScriptedAnswer:
    """Return a line of the scripted model as a value. Raises ``ConfigError`` for an invalid one."""
    Scripted([answer])
    return msgspec.convert(answer, ScriptedAnswer)


def split_words(text: str) -> list[str]:
    """Split a text between words, into at most ``MAX_PIECES`` pieces."""
    words: list[str] = re.findall(r"\S+\s*|\s+", text)
    size = -(-len(words) // MAX_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def derive_id(prefix: str, body: Any, *more: object) -> str:
    """Return an id that depends only on the request."""
    seed = msgspec.json.encode([body, [str(part) for part in more]])
    return prefix + hashlib.sha256(seed).hexdigest()[:24]


def encode_sse(data: Any, kind: str = "") -> bytes:
    head = f"event: {kind}\n".encode() if kind else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"
