"""Content parts, messages, tool calls and results, and token usage."""

from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.ids import JSON, CallId, Digest, MessageId


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one or several model calls cost. Adding two gives their sum."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0
    """US dollars, 0 when the price is unknown."""

    @property
    def total(self) -> int:
        """Input and output together; cached and reasoning tokens are already part of them."""
        return self.input + self.output

    def __add__(self, other: "Usage") -> "Usage":
        if other == NO_USAGE:
            return self
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost=self.cost + other.cost,
        )


NO_USAGE = Usage()


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """A piece of a message."""


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where words come from."""

    url: str = ""
    title: str = ""
    text: str = ""
    """The quoted text of the source."""
    opaque: JSON = None
    """The provider's own record under the name of its wire, unchanged, to be sent back."""


class Text(_Part, frozen=True, kw_only=True, gc=False, tag="text"):
    """Words."""

    text: str
    citations: tuple[Citation, ...] = ()


class _Media(_Part, frozen=True, kw_only=True, gc=False):
    """Bytes of some kind: exactly one of ``data`` (base64), ``url`` or ``blob`` is set."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    blob: Digest | None = None


class Image(_Media, frozen=True, kw_only=True, gc=False, tag="image"):
    """A picture."""


class Audio(_Media, frozen=True, kw_only=True, gc=False, tag="audio"):
    """Sound."""


class Document(_Media, frozen=True, kw_only=True, gc=False, tag="document"):
    """A file, such as a PDF."""

    name: str = ""


class Stored(_Part, frozen=True, kw_only=True, gc=False, tag="stored"):
    """A text too large for an event: its bytes are the blob ``blob``, ``preview`` is how it begins."""

    blob: Digest
    size: int
    preview: str = ""
    media_type: str = "text/plain"
    cut: bool = False
    """True when the model gets the preview alone, which names the way to read the rest."""


class Reasoning(_Part, frozen=True, kw_only=True, gc=False, tag="reasoning"):
    """What a model thought aloud.

    ``opaque`` has the provider's own block under the name of its wire, such as ``{"anthropic": {…}, "from": "…"}``,
    kept word for word to be sent back to where it came ``from``; other providers never see it.
    """

    text: str = ""
    signature: str = ""
    opaque: JSON = None
    blob: Digest | None = None
    """The whole text, when it is too large for an event."""


class CallRef(_Part, frozen=True, kw_only=True, gc=False, tag="call"):
    """The place of a tool call between the other parts of an answer; the call itself is in ``tool.called``."""

    id: CallId


Part: TypeAlias = Text | Image | Audio | Document | Stored | Reasoning | CallRef

Content: TypeAlias = tuple[Part, ...]


def replace_surrogates(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    if text.isascii():  # known without a look at the text
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_of(content: Content) -> str:
    """Return the text of ``content``, without reasoning."""
    if content and not content[1:] and type(content[0]) is Text:  # most messages
        return content[0].text
    return "".join(
        part.text if isinstance(part, Text) else part.preview for part in content if isinstance(part, Text | Stored)
    )


def as_content(value: "str | Part | Content | list[Part]") -> Content:
    """Return ``value`` as content: a string becomes one text."""
    if isinstance(value, str):
        return (Text(text=replace_surrogates(value)),)
    parts = (value,) if isinstance(value, msgspec.Struct) else tuple(value)
    return tuple(
        msgspec.structs.replace(part, text=replace_surrogates(part.text)) if isinstance(part, Text) else part
        for part in parts
    )


FailureReason: TypeAlias = Literal[
    "",
    "error",
    "unknown_tool",
    "invalid_arguments",
    "denied",
    "expired",
    "timeout",
    "cancelled",
    "interrupted",
    "sealed",
    "outcome_unknown",
    "repeated",
    "limit",
    "middleware",
]
"""Why a call failed; ``""`` when it did not."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A model's wish to run a tool. ``id`` is ours and unique in the session; ``provider_id`` is the model's."""

    id: CallId
    name: str
    arguments: dict[str, Any] = {}
    raw: str = ""
    """The arguments as the model wrote them, set only when they were not valid JSON."""
    repaired: str = ""
    """What was repaired in ``raw``."""
    provider_id: str = ""
    truncated: bool = False
    """True when the answer reached its length limit: the call may be incomplete and must not run."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a call came to: the one answer the model gets to it."""

    call: CallId
    content: Content = ()
    failed: bool = False
    reason: FailureReason = ""
    value: JSON = None
    """The result as data, for programs; the model reads ``content``."""
    value_in_content: bool = False
    """True when the content is the value as JSON, which is too large to be repeated in ``value``."""

    @property
    def text(self) -> str:
        """The text of the result."""
        return text_of(self.content)


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="user", tag_field="role"):
    """What a person, or a program in their place, said."""

    content: Content


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="assistant", tag_field="role"):
    """What a model said, with the calls it made in order."""

    id: MessageId
    content: Content = ()
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    stop: str = ""

    @property
    def text(self) -> str:
        """The text of the message, without reasoning."""
        return text_of(self.content)


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="tool", tag_field="role"):
    """The results of the calls of the message before, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
