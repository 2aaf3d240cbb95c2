"""Assemble the chunks of a model's stream into a message with parsed calls, and into live events. No I/O."""

from collections.abc import Mapping

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import ModelError
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, AgentPath, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Citation,
    Content,
    Part,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    replace_surrogates,
)
from vaka.core.types.progress import ReasoningDelta, TextDelta, ToolArgsDelta
from vaka.core.types.state import call_id
from vaka.core.types.tool import ParsedArguments, ToolChoice

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

    def __init__(self, message_id: MessageId, model: str = "", began: float = 0.0) -> None:
        self.message_id, self.began = message_id, began
        self.usage = Usage()
        self.model = model
        """The model that was called, or the model that the stream names."""
        self.called_model = model
        """The model that was called: its usage is counted under this name, whatever the provider calls it."""
        self.miss_price = 0.0
        self.stop: str | None = None
        self.first_ms: int | None = None
        """Milliseconds until the first piece came."""
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
                self.usage = chunk.usage
                self.model = chunk.model or self.model
                self.miss_price = chunk.miss_price
                self.called_model = chunk.counted_as or self.called_model
            case StopChunk():
                self.stop = chunk.reason
            case CitationChunk():
                self._current_block("text").citations.append(chunk.citation)
            case _:
                pass
        return None

    def check_tool_choice(self, choice: ToolChoice) -> None:
        """Raise ``ModelError`` for a complete answer that ignores the tool choice of its prompt."""
        if choice == "auto" or self.stop in UNFINISHED_STOPS:
            return
        names = [block.name for block in self._calls.values()]
        if choice == "none" and names:
            raise ModelError(f"the model called {names[0]!r}, although tool_choice is 'none'")
        if choice not in ("none", "required", *names) or (choice == "required" and not names):
            called = f"called {names[0]!r}" if names else "called no tool"
            raise ModelError(f"the model {called}, although tool_choice is {choice!r}")

    def parts(self) -> list[Part | RawToolCall]:
        """Return all parts in order, calls included."""
        return [block.to_part() for block in self._blocks]

    def text_parts(self) -> Content:
        """Return the parts that stay when the message was cut: no calls, no reasoning."""
        return tuple(part for part in self.parts() if not isinstance(part, RawToolCall | Reasoning))

    def build_message(self, parser: "CallParser") -> AssistantMessage:
        """Return the complete message."""
        content: list[Part] = []
        calls: list[ToolCall] = []
        for block in self._blocks:
            part = block.to_part()
            if isinstance(part, RawToolCall):
                call = parser.parse(part, len(calls) + 1)
                if self.stop in UNFINISHED_STOPS:  # no call runs from an unfinished message
                    call = msgspec.structs.replace(call, raw=part.arguments, arguments={}, truncated=True)
                calls.append(call)
                content.append(CallRef(id=call.id))
            else:
                content.append(part)
        return AssistantMessage(
            id=self.message_id, content=tuple(content), calls=tuple(calls), model=self.model, stop=self.stop or ""
        )

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
        if chunk.name or chunk.id:
            block.name = block.name or replace_surrogates(chunk.name)
            block.provider_id = block.provider_id or replace_surrogates(chunk.id)
        block.repaired = block.repaired or chunk.repaired
        text = replace_surrogates(chunk.arguments)
        offset = block.append(text)
        if not text and offset:
            return None
        return ToolArgsDelta(message_id=self.message_id, block=block.index, offset=offset, text=text, name=block.name)


class CallParser:
    """Parses the calls of one message; ``earlier`` is the number of calls that the agent has made before it."""

    def __init__(self, tools: Mapping[str, Tool], path: AgentPath, earlier: int) -> None:
        self._tools = tools
        self._path = path
        self._earlier = earlier

    def parse(self, written: RawToolCall, number: int) -> ToolCall:
        """Parse the ``number``-th call of the message; arguments that cannot be parsed are kept as raw text."""
        id = call_id(self._path, self._earlier + number)
        tool = self._tools.get(written.name)
        parsed = tool.parse(written.arguments) if tool else None
        if isinstance(parsed, ParsedArguments):
            raw = written.arguments if parsed.repaired else ""
            repaired = "; ".join(filter(None, (written.repaired, parsed.repaired)))
            return ToolCall(
                id=id,
                name=written.name,
                arguments=parsed.value,
                raw=raw,
                repaired=repaired,
                provider_id=written.provider_id,
            )
        return ToolCall(id=id, name=written.name, raw=written.arguments or "{}", provider_id=written.provider_id)

    def parse_changed(self, message: AssistantMessage, known: tuple[ToolCall, ...]) -> AssistantMessage:
        """Return the message with all calls parsed and numbered, also those that a middleware has added or changed."""
        if message.calls == known:
            return message
        calls: list[ToolCall] = []
        for number, call in enumerate(message.calls, start=1):
            if call not in known:
                arguments = call.raw or msgspec.json.encode(call.arguments).decode()
                call = self.parse(RawToolCall(call.name, arguments, call.provider_id), number)
            calls.append(msgspec.structs.replace(call, id=call_id(self._path, self._earlier + number)))
        return msgspec.structs.replace(message, calls=tuple(calls))


def match_call_refs(content: Content, calls: list[ToolCall]) -> Content:
    """Return the content with one ``CallRef`` for each call: a middleware may have added or removed calls."""
    ids = {call.id for call in calls}
    kept = tuple(part for part in content if not isinstance(part, CallRef) or part.id in ids)
    named = {part.id for part in kept if isinstance(part, CallRef)}
    return kept + tuple(CallRef(id=call.id) for call in calls if call.id not in named)
