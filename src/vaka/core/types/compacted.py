"""The part of a conversation that its compactions have replaced, as the model sees it. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from vaka.core.types.context import ContextCompacted, ShortenedCall
from vaka.core.types.ids import CallId
from vaka.core.types.message import Audio, Content, Document, Image, Text, ToolCall, ToolResult

_MEDIA = (Image, Audio, Document)


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
