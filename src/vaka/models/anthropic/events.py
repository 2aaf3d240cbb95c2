"""Decode the event stream of Anthropic Messages into chunks. Pure.

A delta without an open block, a block without its end or a message without a stop reason raises StreamCut, and no call comes out of it.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.anthropic.messages import WIRE
from vaka.models.transport import errors

STOP_REASONS = {
    "end_turn": "end", "stop_sequence": "end", "tool_use": "calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "pause_turn": "pause",
}  # fmt: skip
"""Why an answer ended, in our words; ``refusal`` and what comes later are the same in theirs."""
COMPLETE_REASONS = frozenset({"end_turn", "stop_sequence", "tool_use", "pause_turn"})
"""Reasons of an answer that has all that the model wanted to say."""

MAX_TOKENS = 10**12
"""Tokens; a count above it is nobody's, and too large for a log."""

_NO_CHUNKS: tuple[Chunk, ...] = ()


class _Delta(msgspec.Struct, gc=False):
    """A piece of a block, or of the message; what is not there is told from what is empty."""

    type: str = ""
    text: str | msgspec.UnsetType = msgspec.UNSET
    partial_json: str | msgspec.UnsetType = msgspec.UNSET
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    signature: str | msgspec.UnsetType = msgspec.UNSET
    citation: Any = None
    stop_reason: str | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    """Tokens so far; what is not said stays as it was."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct, gc=False):
    model: str = ""
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """What is read of an event; the rest of it is nobody's business here."""

    type: str = ""
    index: int | None = None
    delta: _Delta | None = None
    content_block: Any = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


class _OpenBlock:
    """A block that has begun: what it was then, and what was written since."""

    def __init__(self, index: int, start: dict[str, Any], kind: str) -> None:
        self.index, self.start, self.kind = index, start, kind
        self.pieces: list[str] = []
        self.signature = ""


_EVENT = msgspec.json.Decoder(_Event)
_TOOL, _ANSWER, _OTHER = "tool_use", "answer", "other"


class AnthropicStreamDecoder:
    """One answer as it comes in. ``answer`` is the tool whose arguments are the answer, if there is one."""

    def __init__(self, answer: str = "") -> None:
        self.done = False
        """The end marker has come; nothing after it counts."""
        self._answer_tool = answer
        self._model = ""
        self._usage = Usage()
        self._message_started = False
        self._open_blocks: dict[int, _OpenBlock] = {}
        self._seen_indexes: set[int] = set()
        self._calls = self._answers = 0
        self._stop_reason: str | None = None

    def feed(self, data: bytes, name: str = "message") -> Sequence[Chunk]:
        """Return the chunks of an event; ``name`` is what the stream calls it.

        Raises ``StreamCut`` for what cannot be part of a whole answer, and what an error event stands for.
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
            if event.delta is not None and event.delta.stop_reason is not None:
                self._stop_reason = (
                    self._stop_reason
                    if self._stop_reason and self._stop_reason not in COMPLETE_REASONS
                    else event.delta.stop_reason
                )
        elif event.type == "message_stop":
            return self._finish_message()
        return _NO_CHUNKS

    def _start_message(self, event: _Event) -> Sequence[Chunk]:
        if self._message_started or event.message is None:
            raise StreamCut("the stream is garbled: a second message begins in it, or one with nothing in it")
        self._message_started, self._model = True, event.message.model
        self._update_usage(event.message.usage)
        return (UsageChunk(self._usage, self._model),)

    def _start_block(self, event: _Event) -> Sequence[Chunk]:
        given = event.content_block
        if (
            not isinstance(given, dict)
            or event.index is None
            or event.index in self._seen_indexes
            or not self._message_started
        ):
            raise StreamCut(f"the stream is garbled: block {event.index!r} begins twice, or before its message")
        self._seen_indexes.add(event.index)
        found = cast("dict[str, Any]", given)
        kind = found.get("type")
        if not isinstance(kind, str) or not kind:
            raise StreamCut(f"the stream is garbled: block {event.index} says that it is a {kind!r}")
        block = self._open_blocks[event.index] = _OpenBlock(event.index, found, _OTHER)
        if kind in ("text", "thinking"):
            block.kind = kind
            return self._initial_chunks(block, found.get(kind), found.get("citations"))
        if kind != _TOOL:
            return _NO_CHUNKS
        if self._answer_tool and found.get("name") == self._answer_tool:
            block.kind = _ANSWER
            self._answers += 1
            return _NO_CHUNKS
        block.kind = _TOOL
        self._calls += 1
        name, id = found.get("name"), found.get("id")
        if not isinstance(name, str) or not name:
            raise StreamCut("the stream is garbled: a call names no tool")
        return (CallChunk(event.index, name, "", id if isinstance(id, str) and id else f"call_{event.index}"),)

    def _initial_chunks(self, block: _OpenBlock, text: Any, citations: Any) -> Sequence[Chunk]:
        """Words that a block begins with; most begin with none."""
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
            if block.kind == _ANSWER:
                return (TextChunk(piece),)
            return (CallChunk(block.index, "", piece),)
        if block.kind == "thinking":
            return _thinking_chunks(block, delta)
        if block.kind == _OTHER:
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
            whole = msgspec.json.encode(block.start.get("input") or {}).decode()  # some write it all at the beginning
            return (TextChunk(whole) if block.kind == _ANSWER else CallChunk(block.index, "", whole),)
        if block.kind == "thinking":
            signature = block.signature or str(block.start.get("signature") or "")
            whole_block = {**block.start, "thinking": "".join(block.pieces), "signature": signature}
            return (ReasoningChunk(signature=signature, opaque={WIRE: whole_block}),)
        if block.pieces:
            block.start["input"] = _decode_json("".join(block.pieces).encode())
        return (ReasoningChunk(opaque={WIRE: block.start}),)

    def _finish_message(self) -> Sequence[Chunk]:
        reason = self._stop_reason
        if not self._message_started or self._open_blocks or not reason:
            missing = (
                "its beginning"
                if not self._message_started
                else "the end of a block"
                if self._open_blocks
                else "a reason to stop"
            )
            raise StreamCut(f"the answer was cut: it ended without {missing}")
        if reason == "tool_use" and not self._calls and not self._answers:
            raise StreamCut("the answer was cut: it ended with a call that never came")
        self.done = True
        stop = STOP_REASONS.get(reason, reason)
        if stop in ("end", "calls"):
            stop = "calls" if self._calls else "end"
        elif self._calls and reason not in STOP_REASONS:
            stop = "refusal"  # no call may run from an answer that ended for a reason nobody knows
        return (UsageChunk(self._usage, self._model), StopChunk(stop))

    def _block_of(self, event: _Event) -> _OpenBlock:
        block = self._open_blocks.get(event.index) if event.index is not None else None
        if block is None:
            raise StreamCut(f"the stream is garbled: a piece belongs to block {event.index!r}, which is not open")
        return block

    def _update_usage(self, usage: _Usage | None) -> None:
        """Take the tokens so far; they only grow, and the cached ones are a part of the input here."""
        if usage is None:
            return
        was = self._usage
        read = _larger_count(was.cache_read, usage.cache_read_input_tokens)
        write = _larger_count(was.cache_write, usage.cache_creation_input_tokens)
        fresh = _larger_count(was.input - was.cache_read - was.cache_write, usage.input_tokens)
        thought = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
        self._usage = Usage(
            input=fresh + read + write, output=_larger_count(was.output, usage.output_tokens), cache_read=read,
            cache_write=write, reasoning=_larger_count(was.reasoning, thought),
        )  # fmt: skip


def _larger_count(previous: int, count: int | None) -> int:
    return min(max(previous, count or 0), MAX_TOKENS)


def _thinking_chunks(block: _OpenBlock, delta: _Delta) -> Sequence[Chunk]:
    if delta.thinking is not msgspec.UNSET:
        block.pieces.append(delta.thinking)
        return (ReasoningChunk(delta.thinking),)
    if delta.signature is not msgspec.UNSET:
        block.signature += delta.signature
    return _NO_CHUNKS


def _merge_delta(block: _OpenBlock, event: Any) -> None:
    """A block we know nothing of grows by its pieces, so that it goes back whole."""
    for name, value in event["delta"].items():
        if name == "partial_json":
            block.pieces.append(str(value))
        elif name != "type":
            was = block.start.get(name)
            block.start[name] = was + value if isinstance(was, str) and isinstance(value, str) else value


def _citation_chunk(given: Any) -> CitationChunk:
    if not isinstance(given, dict):
        raise StreamCut(f"the stream is garbled: a citation is {type(given).__name__}")
    found = cast("dict[str, Any]", given)
    where = {"url": "url", "title": "title", "text": "cited_text"}
    known = {ours: found[theirs] for ours, theirs in where.items() if isinstance(found.get(theirs), str)}
    title = known.get("title") or found.get("document_title")
    known["title"] = title if isinstance(title, str) else ""
    return CitationChunk(Citation(**known, opaque={WIRE: given}))


def _decode_json(data: bytes, decoder: Any = msgspec.json) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StreamCut(f"the stream is garbled: an event is not what it should be ({error})") from error
