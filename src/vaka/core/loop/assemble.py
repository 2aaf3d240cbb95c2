"""Assemble the chunks of a model's stream into the parts of a message, and into live events. No I/O."""

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import Citation, Part, Reasoning, Text, Usage, replace_surrogates
from vaka.core.types.progress import ReasoningDelta, TextDelta, ToolArgsDelta

UNFINISHED_STOPS = ("length", "refusal")
"""Stop reasons of an incomplete answer: none of its calls may run."""


class RawToolCall(msgspec.Struct):
    """A call as the model wrote it: the arguments are not parsed yet."""

    name: str
    arguments: str
    provider_id: str
    repaired: str = ""


class _GrowingPart:
    """A part of the message that still receives chunks."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind, self.index = kind, index
        self.parts: list[str] = []
        self.length = 0
        self.signature = ""
        self.opaque: JSON = None
        self.name = self.provider_id = self.repaired = ""
        self.citations: list[Citation] = []

    def append(self, text: str) -> int:
        """Append text and return its offset in this part."""
        offset = self.length
        self.parts.append(text)
        self.length += len(text)
        return offset

    def to_part(self) -> Part | RawToolCall:
        text = "".join(self.parts)
        if self.kind == "text":
            return Text(text=text, citations=tuple(self.citations))
        if self.kind == "reasoning":
            return Reasoning(text=text, signature=self.signature, opaque=self.opaque)
        return RawToolCall(self.name, text, self.provider_id, self.repaired)


class MessageAssembly:
    """One answer of a model while it is streamed."""

    def __init__(self, message_id: MessageId) -> None:
        self.message_id = message_id
        self.usage = Usage()
        self.model = ""
        self.stop: str | None = None
        self._blocks: list[_GrowingPart] = []
        self._calls: dict[int, _GrowingPart] = {}

    @property
    def has_content(self) -> bool:
        """Whether a part of it may have been published."""
        return bool(self._blocks)

    @property
    def character_count(self) -> int:
        """Characters received so far, in all parts."""
        return sum(len(part) for block in self._blocks for part in block.parts)

    def feed(self, chunk: Chunk) -> Body | None:
        """Add a chunk; return the live event that publishes it, if there is one."""
        match chunk:
            case TextChunk():
                return self._add_text(replace_surrogates(chunk.text))
            case CallChunk():
                return self._add_call(chunk)
            case ReasoningChunk():
                return self._add_reasoning(chunk)
            case UsageChunk():
                self.usage, self.model = chunk.usage, chunk.model or self.model
            case StopChunk():
                self.stop = chunk.reason
            case CitationChunk():
                self._current_block("text").citations.append(chunk.citation)
            case _:
                pass
        return None

    def parts(self) -> list[Part | RawToolCall]:
        """Return all parts in order, calls included."""
        return [block.to_part() for block in self._blocks]

    def _current_block(self, kind: str) -> _GrowingPart:
        if self._blocks:
            block = self._blocks[-1]
            if block.kind == kind and not block.signature and block.opaque is None:
                return block
        return self._open_block(kind)

    def _open_block(self, kind: str) -> _GrowingPart:
        block = _GrowingPart(kind, len(self._blocks))
        self._blocks.append(block)
        return block

    def _add_text(self, text: str) -> Body | None:
        if not text:
            return None
        block = self._current_block("text")
        offset = block.append(text)
        return TextDelta(message_id=self.message_id, block=block.index, offset=offset, text=text)

    def _add_reasoning(self, chunk: ReasoningChunk) -> Body | None:
        block = self._current_block("reasoning")
        offset = block.append(replace_surrogates(chunk.text))
        block.signature = block.signature or chunk.signature
        block.opaque = chunk.opaque if block.opaque is None else block.opaque
        if not chunk.text:
            return None
        return ReasoningDelta(
            message_id=self.message_id, block=block.index, offset=offset, text=replace_surrogates(chunk.text)
        )

    def _add_call(self, chunk: CallChunk) -> Body | None:
        block = self._calls.get(chunk.index)
        if block is None:
            block = self._calls[chunk.index] = self._open_block("call")
        block.name = block.name or replace_surrogates(chunk.name)
        block.provider_id = block.provider_id or replace_surrogates(chunk.id)
        block.repaired = block.repaired or chunk.repaired
        text = replace_surrogates(chunk.arguments)
        offset = block.append(text)
        if not text and offset:
            return None
        return ToolArgsDelta(message_id=self.message_id, block=block.index, offset=offset, text=text, name=block.name)
