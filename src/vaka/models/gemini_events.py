"""What Gemini streams, as chunks. Pure: the bytes of events in, chunks out.

Every event is a whole answer so far as it goes: some parts, the usage, and in the end a reason why it ended. Nothing
marks the end of the stream but its end; one that ends without a reason was cut.
"""

from typing import Any

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
from vaka.core.types.errors import BadRequest, ModelError, StreamCut
from vaka.core.types.usage import Usage
from vaka.models import faults, sse
from vaka.models.gemini_arguments import Arguments, Partial
from vaka.models.gemini_request import MADE, WIRE

SHOWN = 500
"""Characters of a provider's reason that are told."""
MOST = 2**53
"""Tokens that anyone can have used."""
NONE = msgspec.Raw(b"")
OPEN = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
REASONS = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "length"}
REFUSALS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_OTHER", "NO_IMAGE", "MODEL_ARMOR", "JAILBREAK",
})  # fmt: skip
BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})
"""Reasons after which the same request may well succeed: the model stumbled over its own call."""


class _Call(msgspec.Struct, gc=False, rename="camel"):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = NONE
    partial_args: list[Partial] | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None
    executable_code: Any = None
    code_execution_result: Any = None
    inline_data: Any = None
    file_data: Any = None
    tool_call: Any = None
    tool_response: Any = None


_KEPT = ("executable_code", "code_execution_result", "inline_data", "file_data", "tool_call", "tool_response")
"""Parts that are nothing to us and sent back word for word."""
_NAMES = dict(zip(_Part.__struct_fields__, _Part.__struct_encode_fields__, strict=True))


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Source(msgspec.Struct, gc=False, rename="camel"):
    uri: str | None = None
    title: str | None = None
    text: str | None = None


class _GroundingChunk(msgspec.Struct, gc=False, rename="camel"):
    web: _Source | None = None
    retrieved_context: _Source | None = None
    maps: _Source | None = None


class _Support(msgspec.Struct, gc=False, rename="camel"):
    grounding_chunk_indices: list[int] | None = None
    segment: Any = None


class _Grounding(msgspec.Struct, gc=False, rename="camel"):
    grounding_chunks: list[_GroundingChunk] | None = None
    grounding_supports: list[_Support] | None = None


class _Citations(msgspec.Struct, gc=False, rename="camel"):
    citations: list[_Source] | None = None
    citation_sources: list[_Source] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: _Grounding | None = None
    citation_metadata: _Citations | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    total_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: msgspec.Raw = NONE


_DECODER = msgspec.json.Decoder(_Event)


class Events:
    """One answer as it comes in; ``forced`` is the tool whose call is the answer itself."""

    def __init__(self, model: str, forced: str = "") -> None:
        self._model, self._forced = model, forced
        self._usage: _Usage | None = None
        self._told = False  # what the prompt costs was said
        self._reason = ""
        self._message = ""
        self._blocked = ""
        self._said = False
        self._calls = 0
        self._ids: set[str] = set()
        self._open: tuple[_Call, Arguments] | None = None  # a call whose arguments come in pieces
        self._sources: set[tuple[str, str]] = set()

    def feed(self, data: bytes) -> list[Chunk]:
        """Return what an event says. Raises ``ModelError`` for one that is none, or an error."""
        try:
            event = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._strange(data, error)
        if event.error is not NONE or event.prompt_feedback is not None:
            self._trouble(event)
        chunks: list[Chunk] = []
        for candidate in event.candidates or ():
            if not candidate.index:
                self._candidate(candidate, chunks)
        if event.model_version:
            self._model = event.model_version
        if event.usage_metadata is not None:
            self._usage = event.usage_metadata
            if not self._told:  # so that an answer that breaks off has a price
                self._told = True
                chunks.append(self._cost())
        return chunks

    def end(self) -> list[Chunk]:
        """Return how the answer ends, when no more comes. Raises ``StreamCut`` when that is before its end."""
        chunks: list[Chunk] = []
        if self._blocked:
            words = f"The request was refused: {self._blocked}"
            return [TextChunk(words), self._cost(), StopChunk("refusal")]
        if not self._reason:
            raise StreamCut("the stream was cut: it ended before its finish reason")
        if self._reason in BROKEN:
            raise StreamCut(f"the model's answer is no answer: {self._words()}")
        if self._reason == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"a call of this conversation has lost its signature: {self._words()}")
        stop = self._stop()
        if self._open is not None:
            if stop != "length":
                raise StreamCut("the stream was cut: it ended inside the arguments of a call")
            self._close(self._open, chunks)
        if stop == "refusal" and not self._said:
            chunks.append(TextChunk(f"The answer was refused: {self._words()}"))
        return [*chunks, self._cost(), StopChunk(stop)]

    def _stop(self) -> str:
        stop = REASONS.get(self._reason, "")
        if stop == "end" and self._calls:
            return "calls"
        # No call may run from an answer that ended for a reason nobody knows.
        unsure = self._reason in REFUSALS or self._calls
        return stop or ("refusal" if unsure else self._reason.lower())

    def _words(self) -> str:
        return f"{self._reason}: {self._message}" if self._message else self._reason

    def _candidate(self, candidate: _Candidate, chunks: list[Chunk]) -> None:
        content = candidate.content
        if content is not None and content.parts:
            for part in content.parts:
                if part.function_call is None and part.thought_signature is None and not part.thought and part.text:
                    self._said = True
                    chunks.append(TextChunk(part.text))
                else:
                    self._part(part, chunks)
        if candidate.finish_reason and candidate.finish_reason not in OPEN and self._reason in ("", "STOP"):
            self._reason = candidate.finish_reason
            self._message = _shown(candidate.finish_message)
        if candidate.grounding_metadata is not None:
            self._grounding(candidate.grounding_metadata, chunks)
        if candidate.citation_metadata is not None:
            cited = candidate.citation_metadata
            for source in (*(cited.citations or ()), *(cited.citation_sources or ())):
                self._cite(source, None, chunks)

    def _part(self, part: _Part, chunks: list[Chunk]) -> None:
        """Add a part that is more than words; a signature comes right before what it belongs to."""
        signature = {"thoughtSignature": part.thought_signature} if part.thought_signature else {}
        if part.thought:
            own = {WIRE: {"thought": True, **signature}} if signature else None
            if part.text or own:
                chunks.append(ReasoningChunk(part.text or "", opaque=own))
            return
        kept = {_NAMES[name]: value for name in _KEPT if (value := getattr(part, name)) is not None}
        if kept:
            chunks.append(ReasoningChunk(opaque={WIRE: {**kept, **signature}}))
            return
        if signature:
            chunks.append(ReasoningChunk(opaque={WIRE: signature}))
        if part.function_call is not None:
            self._call(part.function_call, chunks)
        elif part.text:
            self._said = True
            chunks.append(TextChunk(part.text))

    def _call(self, call: _Call, chunks: list[Chunk]) -> None:
        """Add a call; one whose arguments come in pieces is added when the last is there."""
        if self._open is None and not call.partial_args and not call.will_continue:
            self._write(call, _text(call.args), chunks)
            return
        if self._open is not None and call.name and self._open[0].name:
            raise StreamCut(f"a call to {call.name!r} begins inside the arguments of a call to {self._open[0].name!r}")
        first, arguments = self._open or (call, Arguments())
        first.name, first.id = first.name or call.name, first.id or call.id
        for piece in call.partial_args or ():
            arguments.add(piece)
        self._open = (first, arguments)
        if not call.will_continue:
            if not arguments.whole:
                raise StreamCut(f"a call to {first.name!r} ends inside one of its arguments")
            self._close(self._open, chunks)

    def _close(self, opened: tuple[_Call, Arguments], chunks: list[Chunk]) -> None:
        self._open = None
        call, arguments = opened
        self._write(call, arguments.text(), chunks)

    def _write(self, call: _Call, arguments: str, chunks: list[Chunk]) -> None:
        name = call.name or ""
        if not name:
            raise StreamCut("the answer is garbled: a call names no tool")
        if name == self._forced:
            self._said = True
            chunks.append(TextChunk(arguments))
            return
        id = call.id or ""
        if not id or id in self._ids:
            id = f"{MADE}{self._calls}"
        self._ids.add(id)
        chunks.append(CallChunk(self._calls, name, arguments, id))
        self._calls += 1

    def _grounding(self, grounding: _Grounding, chunks: list[Chunk]) -> None:
        segments: dict[int, list[Any]] = {}
        for support in grounding.grounding_supports or ():
            for index in support.grounding_chunk_indices or ():
                segments.setdefault(index, []).append(support.segment)
        for index, chunk in enumerate(grounding.grounding_chunks or ()):
            source = chunk.web or chunk.retrieved_context or chunk.maps
            if source is not None:
                self._cite(source, segments.get(index), chunks)

    def _cite(self, source: _Source, segments: list[Any] | None, chunks: list[Chunk]) -> None:
        """Name a source once: every event may repeat those before."""
        url, title = source.uri or "", source.title or ""
        if (url, title) in self._sources or not (url or title):
            return
        self._sources.add((url, title))
        where = {WIRE: {"segments": segments}} if segments else None
        chunks.append(CitationChunk(Citation(url=url, title=title, text=source.text or "", opaque=where)))

    def _trouble(self, event: _Event) -> None:
        if event.error is not NONE and bytes(event.error) != b"null":
            raise faults.of_event({"error": _any(event.error)})
        feedback = event.prompt_feedback
        if feedback is not None and feedback.block_reason:
            message = _shown(feedback.block_reason_message)
            self._blocked = f"{feedback.block_reason}: {message}" if message else feedback.block_reason

    def _strange(self, data: bytes, error: Exception) -> list[Chunk]:
        """An event that is none: the marker of another wire that a gateway adds, an error in a list, or garbage."""
        if data.strip() == b"[DONE]":
            return []
        raise _error(data) from error

    def _cost(self) -> UsageChunk:
        said = self._usage or _Usage()
        thoughts = _count(said.thoughts_token_count)
        heard = _count(said.prompt_token_count) + _count(said.tool_use_prompt_token_count)
        spoken = _count(said.candidates_token_count) + thoughts
        if said.candidates_token_count is None and said.total_token_count is not None:
            spoken = max(_count(said.total_token_count) - heard, thoughts)
        usage = Usage(
            input=_count(heard),
            output=_count(spoken),
            reasoning=thoughts,
            cache_read=_count(said.cached_content_token_count),
        )
        return UsageChunk(usage, self._model)


def _error(data: bytes) -> ModelError:
    said = faults.read(data)
    if said.message and said.kinds:
        return faults.error(said)
    return StreamCut(f"expected an event of an answer, got {sse.looks_like(data)}")


def _text(arguments: msgspec.Raw) -> str:
    """Return arguments as they were written; a gateway may have put them into a string."""
    data = bytes(arguments)
    try:
        if data.startswith(b'"'):
            return msgspec.json.decode(data, type=str)
        return data.decode() if data and data != b"null" else "{}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StreamCut("the arguments of a call are not UTF-8") from error


def _any(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "an error that cannot be read"


def _shown(words: str | None) -> str:
    words = " ".join((words or "").split())
    return sse.hide(words if len(words) <= SHOWN else f"{words[:SHOWN]}…")


def _count(tokens: int | None) -> int:
    """Return a count that can be one: a provider must not be able to give a budget back, or to break the log."""
    return min(max(tokens or 0, 0), MOST)
