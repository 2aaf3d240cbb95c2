"""What the model sees of a conversation: the settings and the events of compactions, and named checkpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Control
from vaka.core.types.ids import CallId, Digest
from vaka.core.types.message import Audio, Content, Document, Image, Text, ToolCall, ToolResult

_MEDIA = (Image, Audio, Document)

CompactionTrigger: TypeAlias = Literal["auto", "manual"]
"""The size of the context, or a caller."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """When the context of an agent is compacted, and what is kept."""

    enabled: bool = True
    """``False``: never by itself. A caller may still compact a session."""
    ratio: float = 0.85
    """The part of the model's window from which on the context is compacted."""
    reserved: int | None = None
    """Tokens that must be free for the next answer, at most half of the window; default: a quarter, at most 50,000."""
    keep_turns: int = 3
    """The most turns at the end that are kept word for word. The last one is always kept, at least in part."""
    keep_tokens: int = 20_000
    """The most tokens of those turns; at most a quarter of the window."""
    opening_messages: int = 1
    """The number of first inputs that stay at the beginning."""
    user_text_tokens: int = 4_000
    """The most tokens of later inputs that are kept besides the summary; at most a tenth of the window."""
    keep_media: int = 3
    """The number of images, sounds and documents that stay; older ones become a note."""
    summary_model: str = ""
    """The model of summaries; default: the model of the tier ``low``, or else the agent's own."""
    fallback_model: str = ""
    """The model of the attempts after the first; default: the agent's own."""
    max_retries: int = 1
    """How often a failed summary is asked for again."""
    retry_delay: float = 0.0
    """Seconds before it is asked for again."""
    timeout: float = 120.0
    """Seconds that one attempt may take."""
    rollout_dir: str = ""
    """A folder that gets a JSON file for each compaction."""

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InvalidInput(f"ratio {self.ratio!r} must be above 0 and at most 1, such as 0.85")
        if self.keep_turns < 1:
            raise InvalidInput(f"keep_turns {self.keep_turns!r} must be at least 1: the last turn is always kept")
        for name in _COUNTS:
            if (getattr(self, name) or 0) < 0:
                raise InvalidInput(f"{name} {getattr(self, name)!r} must be at least 0")
        if not self.timeout > 0:
            raise InvalidInput(f"timeout {self.timeout!r} must be seconds above zero")

    def is_due(self, tokens: int, window: int) -> bool:
        """Return whether a context of so many tokens is to be compacted in a window of so many."""
        return tokens >= self.limit_in(window)

    def limit_in(self, window: int) -> float:
        """Return the tokens from which on a context is to be compacted in a window."""
        return min(self.ratio * window, window - self.reserved_in(window))

    def reserved_in(self, window: int) -> int:
        """Return the tokens of a window that must be free for the next answer."""
        return min(50_000, window // 4) if self.reserved is None else min(self.reserved, window // 2)


_COUNTS = (
    "reserved",
    "keep_tokens",
    "opening_messages",
    "user_text_tokens",
    "keep_media",
    "max_retries",
    "retry_delay",
)


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that is about to happen, as observers see it."""

    trigger: CompactionTrigger = "auto"
    instructions: str = ""
    """Further content for the summary to keep."""
    tokens: int = 0
    """The tokens of the context, as estimated."""
    window: int = 0
    """The tokens that the model can read."""
    ratio: float = 0.0
    """The part of the window from which on the context is compacted by itself."""
    keep_turns: int = 0
    """The most turns at the end that are kept word for word."""
    skip: str = ""
    """Why the context is not compacted; ``""``: it is."""


class ShortenedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call and its result as the model sees them after a compaction; the events of the call have all of it."""

    call: CallId
    arguments: dict[str, Any] | None = None
    """The arguments with shortened texts; ``None`` when they are unchanged."""
    blobs: tuple[Digest, ...] = ()
    """The blobs that the shortened arguments name."""
    content: Content | None = None
    """The content of the result, with ``Stored`` parts that are cut; ``None`` when it is unchanged."""


class ContextCompacted(Control, tag="context.compacted"):
    """From here on the model sees ``opening``, ``summary`` and ``inputs`` in place of what came before ``keep_from``.

    Without a summary the messages stay, with the calls of ``calls`` and the media before ``media_from`` shortened.
    """

    summary: str
    keep_from: int
    before: int = 0
    after: int = 0
    """The tokens of the context before and after, as estimated."""
    trigger: CompactionTrigger = "auto"
    instructions: str = ""
    """Content that the caller or a middleware asked the summary to keep."""
    model: str = ""
    """The model that wrote the summary; ``""`` when none did."""
    opening: tuple[Content, ...] = ()
    """The first inputs of the conversation, shown before the summary."""
    inputs: tuple[Content, ...] = ()
    """Later inputs that are kept word for word, shown after the summary."""
    calls: tuple[ShortenedCall, ...] = ()
    media_from: int = 0
    """Media of messages that begin before this event are left out of the prompt."""
    failure: str = ""
    """Why no model wrote the summary, although one was asked."""
    messages: int = 0
    """The number of messages before it."""
    kept_messages: int = 0
    """How many of them stay: the opening, the kept inputs, and the messages from ``keep_from`` on."""


class CheckpointSaved(Control, tag="checkpoint.saved"):
    """This place has a name to come back to."""

    label: str
    number: int | None = None
    """The number of the checkpoint, if the model may go back to it; such checkpoints last until the next turn."""
    told: Content = ()
    """The text about it in the prompt."""


class CompactedHead:
    """What the compactions of a conversation show instead of its first messages, and which later calls they shorten."""

    def __init__(self) -> None:
        self.opening: tuple[Content, ...] = ()
        self.summary = ""
        self.messages: list[Content] = []
        self.calls: dict[CallId, ShortenedCall] = {}
        self.media_from = 0

    def extend(self, body: ContextCompacted) -> "CompactedHead":
        """Add the next compaction."""
        if body.summary:
            self.opening, self.summary = body.opening, body.summary
            self.messages = [*body.opening, (Text(text=body.summary),), *body.inputs]
        self.calls.update((call.call, call) for call in body.calls)
        self.media_from = max(self.media_from, body.media_from)
        return self

    def shorten(
        self, calls: Sequence[ToolCall], results: Mapping[CallId, ToolResult], seq: int
    ) -> tuple[tuple[ToolCall, ...], dict[CallId, ToolResult]]:
        """Return the calls and results of the answer that begins with event ``seq`` as the model sees them."""
        shown = dict(results)
        for call in calls:
            short = self.calls.get(call.id)
            result = shown[call.id]
            content = result.content if short is None or short.content is None else short.content
            content = self.without_old_media(content, seq)
            if content is not result.content:
                shown[call.id] = msgspec.structs.replace(result, content=content)
        return tuple([self._shorten_arguments(call) for call in calls]), shown

    def without_old_media(self, content: Content, seq: int) -> Content:
        """Return the content of a message that begins with event ``seq``; old media become a note."""
        if seq >= self.media_from or not any(isinstance(part, _MEDIA) for part in content):
            return content
        return tuple([media_note(part) if isinstance(part, _MEDIA) else part for part in content])

    def _shorten_arguments(self, call: ToolCall) -> ToolCall:
        short = self.calls.get(call.id)
        if short is None or short.arguments is None:
            return call
        return msgspec.structs.replace(call, arguments=short.arguments, raw="", repaired="")


def media_note(part: Image | Audio | Document) -> Text:
    """Return the text that stands for media in an older message."""
    name = f" {part.name}" if isinstance(part, Document) and part.name else ""
    return Text(text=f"[{type(part).__name__.lower()}{name} left out: it was shown earlier in the conversation]")
