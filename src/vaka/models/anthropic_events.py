"""The events of Anthropic Messages become chunks. Pure: the data of one event in, chunks out.

Blocks come one after the other, each with a beginning, pieces and an end. A piece that belongs to no open block, a
block without its end, or a message without a reason to stop is not an answer but a cut stream: no call comes out of it.
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
from vaka.core.types.content import Citation
from vaka.core.types.errors import StreamCut
from vaka.core.types.usage import Usage
from vaka.models import faults
from vaka.models.anthropic_history import WIRE

STOPS = {
    "end_turn": "end", "stop_sequence": "end", "tool_use": "calls", "max_tokens": "length",
    "model_context_window_exceeded": "length", "pause_turn": "pause",
}  # fmt: skip
"""Why an answer ended, in our words; ``refusal`` and what comes later are the same in theirs."""
WHOLE = frozenset({"end_turn", "stop_sequence", "tool_use", "pause_turn"})
"""Reasons of an answer that has all that the model wanted to say."""

MOST = 10**12
"""Tokens; a count above it is nobody's, and too large for a log."""

_NONE: tuple[Chunk, ...] = ()


class _Delta(msgspec.Struct, gc=False):
    """A piece of a block, or of the message; what is not there is told from what is empty."""

    type: str = ""
    text: str | msgspec.UnsetType = msgspec.UNSET
    partial_json: str | msgspec.UnsetType = msgspec.UNSET
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    signature: str | msgspec.UnsetType = msgspec.UNSET
    citation: Any = None
    stop_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    """Tokens so far; what is not said stays as it was."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


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


class _Block:
    """A block that has begun: what it was then, and what was written since."""

    def __init__(self, index: int, given: dict[str, Any], kind: str) -> None:
        self.index, self.given, self.kind = index, given, kind
        self.written: list[str] = []
        self.signature = ""


_EVENT = msgspec.json.Decoder(_Event)
_TOOL, _ANSWER, _OTHER = "tool_use", "answer", "other"


class Events:
    """One answer as it comes in. ``answer`` is the tool whose arguments are the answer, if there is one."""

    def __init__(self, answer: str = "") -> None:
        self.done = False
        """The end marker has come; nothing after it counts."""
        self._answer = answer
        self._model = ""
        self._usage = Usage()
        self._begun = False
        self._open: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._calls = self._answers = 0
        self._reason: str | None = None

    def feed(self, data: bytes, name: str = "message") -> Sequence[Chunk]:
        """Return the chunks of an event; ``name`` is what the stream calls it.

        Raises ``StreamCut`` for what cannot be part of a whole answer, and what an error event stands for.
        """
        event = _read(data, _EVENT)
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            block = self._block(event)
            if block.kind == "text" and delta.type == "text_delta" and delta.text is not msgspec.UNSET:
                return (TextChunk(delta.text),)
            return self._piece(block, delta, data)
        if event.error is not None or event.type == "error":
            raise faults.of_event(_read(data))
        if event.type in ("", "content_block_delta") or name not in ("message", event.type):
            raise StreamCut(f"the stream is garbled: an event is called {name!r} and says it is {event.type!r}")
        return self._other(event)

    def _other(self, event: _Event) -> Sequence[Chunk]:
        if event.type == "content_block_start":
            return self._start(event)
        if event.type == "content_block_stop":
            block = self._block(event)
            del self._open[block.index]
            return self._stop(block)
        if event.type == "message_start":
            return self._begin(event)
        if event.type == "message_delta":
            self._count(event.usage)
            if event.delta is not None and event.delta.stop_reason is not None:
                self._reason = self._reason if self._reason and self._reason not in WHOLE else event.delta.stop_reason
        elif event.type == "message_stop":
            return self._end()
        return _NONE

    def _begin(self, event: _Event) -> Sequence[Chunk]:
        if self._begun or event.message is None:
            raise StreamCut("the stream is garbled: a second message begins in it, or one with nothing in it")
        self._begun, self._model = True, event.message.model
        self._count(event.message.usage)
        return (UsageChunk(self._usage, self._model),)

    def _start(self, event: _Event) -> Sequence[Chunk]:
        given = event.content_block
        if not isinstance(given, dict) or event.index is None or event.index in self._seen or not self._begun:
            raise StreamCut(f"the stream is garbled: block {event.index!r} begins twice, or before its message")
        self._seen.add(event.index)
        found = cast("dict[str, Any]", given)
        kind = found.get("type")
        if not isinstance(kind, str) or not kind:
            raise StreamCut(f"the stream is garbled: block {event.index} says that it is a {kind!r}")
        block = self._open[event.index] = _Block(event.index, found, _OTHER)
        if kind in ("text", "thinking"):
            block.kind = kind
            return self._first(block, found.get(kind), found.get("citations"))
        if kind != _TOOL:
            return _NONE
        if self._answer and found.get("name") == self._answer:
            block.kind = _ANSWER
            self._answers += 1
            return _NONE
        block.kind = _TOOL
        self._calls += 1
        name, id = found.get("name"), found.get("id")
        if not isinstance(name, str) or not name:
            raise StreamCut("the stream is garbled: a call names no tool")
        return (CallChunk(event.index, name, "", id if isinstance(id, str) and id else f"call_{event.index}"),)

    def _first(self, block: _Block, text: Any, citations: Any) -> Sequence[Chunk]:
        """Words that a block begins with; most begin with none."""
        chunks: list[Chunk] = [_citation(one) for one in citations or ()]
        if isinstance(text, str) and text:
            block.written.append(text)
            chunks.append(TextChunk(text) if block.kind == "text" else ReasoningChunk(text))
        return chunks

    def _piece(self, block: _Block, delta: _Delta, data: bytes) -> Sequence[Chunk]:
        if block.kind in (_TOOL, _ANSWER):
            piece = delta.partial_json
            if delta.type != "input_json_delta" or piece is msgspec.UNSET:
                raise StreamCut(f"the stream is garbled: a piece of a call is a {delta.type!r} without JSON")
            block.written.append(piece)
            if block.kind == _ANSWER:
                return (TextChunk(piece),)
            return (CallChunk(block.index, "", piece),)
        if block.kind == "thinking":
            return _thought(block, delta)
        if block.kind == _OTHER:
            _grow(block, _read(data))
        elif delta.citation is not None:
            return (_citation(delta.citation),)
        elif delta.type == "text_delta":
            raise StreamCut("the stream is garbled: a piece of text has no text")
        return _NONE

    def _stop(self, block: _Block) -> Sequence[Chunk]:
        if block.kind == "text":
            return _NONE
        if block.kind in (_TOOL, _ANSWER):
            if any(block.written):
                return _NONE
            whole = msgspec.json.encode(block.given.get("input") or {}).decode()  # some write it all at the beginning
            return (TextChunk(whole) if block.kind == _ANSWER else CallChunk(block.index, "", whole),)
        if block.kind == "thinking":
            signature = block.signature or str(block.given.get("signature") or "")
            whole_block = {**block.given, "thinking": "".join(block.written), "signature": signature}
            return (ReasoningChunk(signature=signature, opaque={WIRE: whole_block}),)
        if block.written:
            block.given["input"] = _read("".join(block.written).encode())
        return (ReasoningChunk(opaque={WIRE: block.given}),)

    def _end(self) -> Sequence[Chunk]:
        reason = self._reason
        if not self._begun or self._open or not reason:
            missing = "its beginning" if not self._begun else "the end of a block" if self._open else "a reason to stop"
            raise StreamCut(f"the answer was cut: it ended without {missing}")
        if reason == "tool_use" and not self._calls and not self._answers:
            raise StreamCut("the answer was cut: it ended with a call that never came")
        self.done = True
        stop = STOPS.get(reason, reason)
        if stop in ("end", "calls"):
            stop = "calls" if self._calls else "end"
        elif self._calls and reason not in STOPS:
            stop = "refusal"  # no call may run from an answer that ended for a reason nobody knows
        return (UsageChunk(self._usage, self._model), StopChunk(stop))

    def _block(self, event: _Event) -> _Block:
        block = self._open.get(event.index) if event.index is not None else None
        if block is None:
            raise StreamCut(f"the stream is garbled: a piece belongs to block {event.index!r}, which is not open")
        return block

    def _count(self, usage: _Usage | None) -> None:
        """Take the tokens so far; they only grow, and the cached ones are a part of the input here."""
        if usage is None:
            return
        was = self._usage
        read = _more(was.cache_read, usage.cache_read_input_tokens)
        write = _more(was.cache_write, usage.cache_creation_input_tokens)
        fresh = _more(was.input - was.cache_read - was.cache_write, usage.input_tokens)
        thought = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
        self._usage = Usage(
            input=fresh + read + write, output=_more(was.output, usage.output_tokens), cache_read=read,
            cache_write=write, reasoning=_more(was.reasoning, thought),
        )  # fmt: skip


def _more(was: int, count: int | None) -> int:
    return min(max(was, count or 0), MOST)


def _thought(block: _Block, delta: _Delta) -> Sequence[Chunk]:
    if delta.thinking is not msgspec.UNSET:
        block.written.append(delta.thinking)
        return (ReasoningChunk(delta.thinking),)
    if delta.signature is not msgspec.UNSET:
        block.signature += delta.signature
    return _NONE


def _grow(block: _Block, event: Any) -> None:
    """A block we know nothing of grows by its pieces, so that it goes back whole."""
    for name, value in event["delta"].items():
        if name == "partial_json":
            block.written.append(str(value))
        elif name != "type":
            was = block.given.get(name)
            block.given[name] = was + value if isinstance(was, str) and isinstance(value, str) else value


def _citation(given: Any) -> CitationChunk:
    if not isinstance(given, dict):
        raise StreamCut(f"the stream is garbled: a citation is {type(given).__name__}")
    found = cast("dict[str, Any]", given)
    where = {"url": "url", "title": "title", "text": "cited_text"}
    known = {ours: found[theirs] for ours, theirs in where.items() if isinstance(found.get(theirs), str)}
    title = known.get("title") or found.get("document_title")
    known["title"] = title if isinstance(title, str) else ""
    return CitationChunk(Citation(**known, opaque={WIRE: given}))


def _read(data: bytes, decoder: Any = msgspec.json) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StreamCut(f"the stream is garbled: an event is not what it should be ({error})") from error
