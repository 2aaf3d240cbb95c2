"""Decode the event stream of Anthropic Messages into chunks. Pure.

A delta without an open block, a block without its end or a message without a stop reason raises StreamCut, and no call
is emitted from it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.compatibility import DECODE_ERRORS, count_of, is_object
from vaka.models.transport import errors

WIRE = "anthropic"
"""The key of this provider's blocks in ``opaque``."""
STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
}
"""The stop reason for each of the provider's; ``refusal`` and unknown ones are passed on as they are."""
COMPLETE_REASONS = frozenset({"end_turn", "stop_sequence", "tool_use", "pause_turn"})
"""Reasons of an answer that nothing cut short."""

MAX_TOKENS = 10**12
"""An upper bound for token counts: larger ones do not fit into a log."""

_NO_CHUNKS: tuple[Chunk, ...] = ()


class _Delta(msgspec.Struct, gc=False):
    """A piece of a block, or of the message; a field that is absent differs from an empty one."""

    type: str = ""
    text: str | msgspec.UnsetType = msgspec.UNSET
    partial_json: str | msgspec.UnsetType = msgspec.UNSET
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    signature: str = ""
    citation: Any = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, gc=False):
    model: str = ""
    usage: Any = None


class _Event(msgspec.Struct):
    """The fields that are read of an event."""

    type: str = ""
    index: int | None = None
    delta: _Delta | None = None
    content_block: Any = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None


class _OpenBlock:
    """A block that has begun: its first state, and the pieces since."""

    def __init__(self, index: int, start: dict[str, Any], kind: str) -> None:
        self.index = index
        self.start = start
        self.kind = kind
        self.pieces: list[str] = []
        self.signature = ""


_EVENT = msgspec.json.Decoder(_Event)
_TOOL = "tool_use"
_ANSWER = "answer"
_OTHER = "other"


class AnthropicStreamDecoder:
    """Decodes one answer. ``answer`` is the tool whose arguments are the answer, if there is one."""

    def __init__(self, answer: str = "", name: str = "the model") -> None:
        self.done = False
        """The end marker has arrived; everything after it is ignored."""
        self._answer_tool, self._name = answer, name
        self._model, self._usage = "", Usage()
        self._message_started = False
        self._open_blocks: dict[int, _OpenBlock] = {}
        self._used_indexes: set[int] = set()
        self._calls = self._answers = 0
        self._stop_reason = ""

    def feed(self, data: bytes, name: str = "message") -> Sequence[Chunk]:
        """Return the chunks of an event; ``name`` is the value of its ``event:`` field.

        Raises ``StreamCut`` for an event that cannot be part of a complete answer, and the error of an error event.
        """
        event = _decode_json(data, _EVENT)
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            block = self._block_of(event)
            if block.kind == "text" and delta.type == "text_delta" and delta.text is not msgspec.UNSET:
                return (TextChunk(delta.text),)
            return self._read_delta(block, delta, data)
        if event.error is not None or event.type == "error":
            raise errors.error_from_event(_decode_json(data))
        if event.type in ("", "content_block_delta") or name not in ("message", event.type):
            raise StreamCut(f"the stream is garbled: an event is called {name!r} and says it is {event.type!r}")
        return self._read_other_event(event)

    def end(self) -> Sequence[Chunk]:
        """Raise ``StreamCut``: the stream ended before its end marker."""
        raise StreamCut(f"the answer of {self._name} was cut: it ended without message_stop")

    def _read_other_event(self, event: _Event) -> Sequence[Chunk]:
        if event.type == "content_block_start":
            return self._start_block(event)
        if event.type == "content_block_stop":
            block = self._block_of(event)
            del self._open_blocks[block.index]
            return self._finish_block(block)
        if event.type == "message_start":
            return self._start_message(event)
        if event.type == "message_delta":
            self._update_usage(event.usage)
            reason = event.delta.stop_reason if event.delta is not None else None
            if reason is not None and (not self._stop_reason or self._stop_reason in COMPLETE_REASONS):
                self._stop_reason = reason
        elif event.type == "message_stop":
            return self._finish_message()
        return _NO_CHUNKS

    def _start_message(self, event: _Event) -> Sequence[Chunk]:
        if self._message_started or event.message is None:
            raise StreamCut("the stream is garbled: a second message begins in it, or an empty message")
        self._message_started, self._model = True, event.message.model
        self._update_usage(event.message.usage)
        return (UsageChunk(self._usage, self._model),)

    def _start_block(self, event: _Event) -> Sequence[Chunk]:
        start, index = event.content_block, event.index
        if not is_object(start) or index is None or index in self._used_indexes or not self._message_started:
            raise StreamCut(f"the stream is garbled: block {index!r} begins twice, or before its message")
        self._used_indexes.add(index)
        kind = start.get("type")
        if not isinstance(kind, str) or not kind:
            raise StreamCut(f"the stream is garbled: block {index} has the type {kind!r}")
        block = self._open_blocks[index] = _OpenBlock(index, start, _OTHER)
        if kind in ("text", "thinking"):
            block.kind = kind
            return self._initial_chunks(block, start.get(kind), start.get("citations"))
        if kind != _TOOL:
            return _NO_CHUNKS
        name, id = start.get("name"), start.get("id")
        if self._answer_tool and name == self._answer_tool:
            block.kind = _ANSWER
            self._answers += 1
            return _NO_CHUNKS
        block.kind = _TOOL
        self._calls += 1
        if not isinstance(name, str) or not name:
            raise StreamCut("the stream is garbled: a call names no tool")
        return (CallChunk(index, name, "", id if isinstance(id, str) and id else f"call_{index}"),)

    def _initial_chunks(self, block: _OpenBlock, text: Any, citations: Any) -> Sequence[Chunk]:
        """Return the text that a block begins with; most begin with none."""
        chunks: list[Chunk] = [_citation_chunk(one) for one in citations or ()]
        if isinstance(text, str) and text:
            block.pieces.append(text)
            chunks.append(TextChunk(text) if block.kind == "text" else ReasoningChunk(text))
        return chunks

    def _read_delta(self, block: _OpenBlock, delta: _Delta, data: bytes) -> Sequence[Chunk]:
        if block.kind in (_TOOL, _ANSWER):
            piece = delta.partial_json
            if delta.type != "input_json_delta" or piece is msgspec.UNSET:
                raise StreamCut(f"the stream is garbled: a piece of a call is a {delta.type!r} without JSON")
            block.pieces.append(piece)
            return (TextChunk(piece) if block.kind == _ANSWER else CallChunk(block.index, "", piece),)
        if block.kind == "thinking" and delta.thinking is not msgspec.UNSET:
            block.pieces.append(delta.thinking)
            return (ReasoningChunk(delta.thinking),)
        if block.kind == "thinking":
            block.signature += delta.signature
        elif block.kind == _OTHER:
            _merge_delta(block, _decode_json(data))
        elif delta.citation is not None:
            return (_citation_chunk(delta.citation),)
        elif delta.type == "text_delta":
            raise StreamCut("the stream is garbled: a piece of text has no text")
        return _NO_CHUNKS

    def _finish_block(self, block: _OpenBlock) -> Sequence[Chunk]:
        if block.kind == "text":
            return _NO_CHUNKS
        if block.kind in (_TOOL, _ANSWER):
            if any(block.pieces):
                return _NO_CHUNKS
            # some servers send all arguments with the start of the block
            arguments = msgspec.json.encode(block.start.get("input") or {}).decode()
            return (TextChunk(arguments) if block.kind == _ANSWER else CallChunk(block.index, "", arguments),)
        if block.kind == "thinking":
            signature = block.signature or str(block.start.get("signature") or "")
            thought = {**block.start, "thinking": "".join(block.pieces), "signature": signature}
            return (ReasoningChunk(signature=signature, opaque={WIRE: thought}),)
        if block.pieces:
            block.start["input"] = _decode_json("".join(block.pieces).encode())
        return (ReasoningChunk(opaque={WIRE: block.start}),)

    def _finish_message(self) -> Sequence[Chunk]:
        reason = self._stop_reason
        if not self._message_started or self._open_blocks or not reason:
            missing = "the end of a block" if self._open_blocks else "a reason to stop"
            raise StreamCut(
                f"the answer was cut: it ended without {missing if self._message_started else 'its beginning'}"
            )
        if reason == "tool_use" and not self._calls and not self._answers:
            raise StreamCut("the answer was cut: it ended with a call that never arrived")
        self.done = True
        stop = STOP_REASONS.get(reason, reason)
        if stop in ("end", "calls"):
            stop = "calls" if self._calls else "end"
        elif self._calls and reason not in STOP_REASONS:
            stop = "refusal"  # no call may run from an answer that ended for an unknown reason
        return (UsageChunk(self._usage, self._model), StopChunk(stop))

    def _block_of(self, event: _Event) -> _OpenBlock:
        block = self._open_blocks.get(event.index) if event.index is not None else None
        if block is None:
            raise StreamCut(f"the stream is garbled: a piece belongs to block {event.index!r}, which is not open")
        return block

    def _update_usage(self, usage: Any) -> None:
        """Take the tokens so far; they only grow, and ``Usage.input`` includes the cached ones."""

        def larger(previous: int, *path: str) -> int:
            return min(max(previous, count_of(usage, *path)), MAX_TOKENS)

        before = self._usage
        read = larger(before.cache_read, "cache_read_input_tokens")
        write = larger(before.cache_write, "cache_creation_input_tokens")
        uncached = larger(before.input - before.cache_read - before.cache_write, "input_tokens")
        self._usage = Usage(
            input=uncached + read + write,
            output=larger(before.output, "output_tokens"),
            cache_read=read,
            cache_write=write,
            reasoning=larger(before.reasoning, "output_tokens_details", "thinking_tokens"),
        )


def _merge_delta(block: _OpenBlock, event: Any) -> None:
    """Append a piece to a block of an unknown type, so that it is sent back complete."""
    for name, value in event["delta"].items():
        if name == "partial_json":
            block.pieces.append(str(value))
        elif name != "type":
            before = block.start.get(name)
            block.start[name] = before + value if isinstance(before, str) and isinstance(value, str) else value


def _citation_chunk(citation: Any) -> CitationChunk:
    if not is_object(citation):
        raise StreamCut(f"the stream is garbled: a citation is {type(citation).__name__}")
    texts = {name: value for name, value in citation.items() if isinstance(value, str)}
    title = texts.get("title") or texts.get("document_title", "")
    text = texts.get("cited_text", "")
    return CitationChunk(Citation(url=texts.get("url", ""), title=title, text=text, opaque={WIRE: citation}))


def _decode_json(data: bytes, decoder: Any = msgspec.json) -> Any:
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise StreamCut(f"the stream is garbled: an event cannot be decoded ({error})") from error
