"""What the wire formats share: a line of the scripted model as a value, ids derived from the request, server-sent events."""

import hashlib
import re
from typing import Any

import msgspec

from vaka.models.scripted import Scripted

MAX_PIECES = 20
"""Into how many pieces a text is cut at most."""
CREATED_AT = 1_767_225_600
"""When every answer was made: the first second of 2026."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a line."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""

    @property
    def arguments_text(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    @property
    def pieces(self) -> list[str]:
        """The arguments in the pieces they come in."""
        text = self.arguments_text
        size = -(-len(text) // 4) or 1
        return [text[at : at + size] for at in range(0, len(text), size)]


class ScriptedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a line."""

    status: int
    message: str = "the script says so"
    retry_after: float | None = None


class ScriptedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a line says that its answer costs; the parts of input and output are in them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

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
        """Whether anything of an answer is on the line."""
        return any(value is not None for value in (self.text, self.chunks, self.reasoning)) or bool(self.tool_calls)

    @property
    def is_complete(self) -> bool:
        """Whether the answer comes to its end marker."""
        return self.has_content and self.cut_after is None and self.error is None

    @property
    def text_pieces(self) -> list[str]:
        """The text in the pieces it comes in, as far as it comes."""
        return (split_words(self.text or "") if self.chunks is None else list(self.chunks))[: self.cut_after]

    @property
    def reasoning_pieces(self) -> list[str]:
        """The reasoning in the pieces it comes in."""
        return split_words(self.reasoning or "")

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """The calls that come: none of an answer that is cut."""
        return self.tool_calls if self.cut_after is None else ()

    @property
    def stop_reason(self) -> str:
        """Why the answer ends, in the words of vaka."""
        return self.stop or ("calls" if self.tool_calls else "end")

    def usage_for(self, body: Any) -> ScriptedUsage:
        """Return what the line says, or an estimate: four characters are a token."""
        if self.usage is not None:
            return self.usage
        thought = -(-len(self.reasoning or "") // 4)
        said = sum(map(len, self.text_pieces)) + sum(len(call.name) + len(call.arguments_text) for call in self.calls)
        return ScriptedUsage(
            input=-(-len(msgspec.json.encode(body)) // 4), output=-(-said // 4) + thought, reasoning=thought
        )


def parse_answer(answer: dict[str, Any]) -> ScriptedAnswer:
    """Return an answer as a value. Raises ``ConfigError`` when it is not a line of the scripted model."""
    Scripted([answer])
    return msgspec.convert(answer, ScriptedAnswer)


def split_words(text: str) -> list[str]:
    """Cut a text between words, into a few pieces."""
    words: list[str] = re.findall(r"\S+\s*|\s+", text)
    size = -(-len(words) // MAX_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def derive_id(prefix: str, body: Any, *more: object) -> str:
    """Return an id that is the same for the same request and another for any other."""
    seed = msgspec.json.encode([body, [str(part) for part in more]])
    return prefix + hashlib.sha256(seed).hexdigest()[:24]


def encode_sse(data: Any, kind: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {kind}\n".encode() if kind else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"
