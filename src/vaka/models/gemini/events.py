"""Decode a Gemini stream into chunks, and assemble arguments that arrive as JSON paths. Pure.

The stream has no end marker. If it ends without a finish reason, StreamCut is raised.
"""

import re
from contextlib import suppress
from typing import Any

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import BadRequest, ModelError, ModelRefused, StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.compatibility import DECODE_ERRORS, MAX_TOKENS, as_object, count_of, json_text
from vaka.models.transport import errors, sse

WIRE = "gemini"
GENERATED_ID_PREFIX = "call_gemini_"
"""The prefix of ids for calls that the provider gave none; they are not sent back."""
MAX_LIST_ITEMS = 10_000

_PATH_STEP = re.compile(
    r"""\.([^.\[\]'"\s]+) | \[(\d{1,9})\] | \['((?:[^'\\]|\\.)*)'\] | \["((?:[^"\\]|\\.)*)"\]""", re.VERBOSE
)


class PartialArgument(msgspec.Struct, gc=False, rename="camel"):
    """A piece of one value."""

    json_path: str = ""
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    will_continue: bool | None = None

    @property
    def value(self) -> Any:
        values = (self.string_value, self.number_value, self.bool_value)
        return next((value for value in values if value is not None), None)


class ArgumentsBuilder:
    """Builds an object from pieces. Raises ``StreamCut`` for pieces that contradict each other."""

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._open_path: str | None = None  # the path of an unfinished text

    def add(self, piece: PartialArgument) -> None:
        """Store the value of a piece at its path, or append it to the unfinished text."""
        steps = _parse_path(piece.json_path)
        container, last = self._locate(steps, piece.json_path)
        continues = self._open_path == piece.json_path
        if continues and not isinstance(piece.value, str):
            raise StreamCut(f"the arguments of a call make no sense: {piece.json_path!r} goes on as something else")
        self._open_path = piece.json_path if piece.will_continue else None
        container[last] = f"{container[last]}{piece.value}" if continues else piece.value

    @property
    def is_complete(self) -> bool:
        return self._open_path is None

    def to_json(self) -> str:
        return msgspec.json.encode(self._value).decode()

    def _locate(self, steps: list[str | int], path: str) -> tuple[Any, Any]:
        """Return the container of the value at a path and the key in it; missing containers are created."""
        container: Any = self._value
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            _make_room(container, step, path)
            if following is None:
                break
            if container[step] is None:
                container[step] = [] if isinstance(following, int) else {}
            container = container[step]
        return container, steps[-1]


def _make_room(container: Any, step: str | int, path: str) -> None:
    """Create the member of an object, or the next item of a list, that a step leads to."""
    value: object = container
    if isinstance(value, dict) and isinstance(step, str):
        container.setdefault(step, None)
        return
    items: list[Any] = container if isinstance(value, list) else []
    if not isinstance(value, list) or not isinstance(step, int) or step > min(len(items), MAX_LIST_ITEMS - 1):
        raise StreamCut(f"the arguments of a call make no sense: there is no place for {path!r}")
    if step == len(items):
        items.append(None)


def _parse_path(path: str) -> list[str | int]:
    matches = list(_PATH_STEP.finditer(path, 1))
    if not matches or path != "$" + "".join(match[0] for match in matches):
        raise StreamCut(f"the arguments of a call make no sense: {path!r} is not a path")
    steps: list[str | int] = []
    for name, index, single, double in (match.groups() for match in matches):
        quoted = single if double is None else double
        steps.append(int(index) if index else name or re.sub(r"\\(.)", r"\1", quoted))
    return steps


MAX_REASON = 500
"""Characters of a provider's reason in an error message."""
ABSENT = msgspec.Raw(b"")
_NO_USAGE = (ABSENT, msgspec.Raw(b"null"))
UNFINISHED_REASONS = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
STOP_REASONS = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "length"}
REFUSAL_REASONS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
        "NO_IMAGE",
        "MODEL_ARMOR",
        "JAILBREAK",
    }
)
MALFORMED_REASONS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE")
"""The model wrote a malformed call; the same request may succeed."""


class _Call(msgspec.Struct, gc=False, rename="camel"):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = ABSENT
    partial_args: list[PartialArgument] | None = None
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


_OPAQUE_FIELDS = ("executable_code", "code_execution_result", "inline_data", "file_data", "tool_call", "tool_response")
"""Parts that are not read, and sent back unchanged."""

_WIRE_NAMES = dict(zip(_Part.__struct_fields__, _Part.__struct_encode_fields__, strict=True))


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


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: msgspec.Raw = ABSENT
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Event)


class GeminiStreamDecoder:
    """Decodes one answer; ``forced`` is the tool whose call is the answer itself."""

    def __init__(self, model: str, forced: str = "") -> None:
        self.done = False
        """Always false: the stream has no end marker."""
        self._model, self._answer_tool = model, forced
        self._usage = ABSENT
        self._usage_sent = False
        self._finish_reason = self._finish_message = self._block_reason = ""
        self._has_text = False
        self._calls = 0
        self._ids: set[str] = set()
        self._open_call: tuple[_Call, ArgumentsBuilder] | None = None  # a call whose arguments come in pieces
        self._cited_sources: set[tuple[str, str]] = set()

    def feed(self, data: bytes, name: str = "") -> list[Chunk]:
        """Return the chunks of an event. Raises ``ModelError`` for an invalid event and for an error event."""
        try:
            event = _DECODER.decode(data)
        except DECODE_ERRORS as error:
            if data.strip() == b"[DONE]":  # the end marker of another wire, which some gateways add
                return []
            raise _error_of_bytes(data) from error
        if event.error is not None or event.prompt_feedback is not None:
            self._read_error(event)
        chunks: list[Chunk] = []
        for candidate in event.candidates or ():
            if not candidate.index:
                self._read_candidate(candidate, chunks)
        if event.model_version:
            self._model = event.model_version
        if event.usage_metadata not in _NO_USAGE:
            self._usage = event.usage_metadata
            if not self._usage_sent:  # an answer that is cut later has its input cost
                self._usage_sent = True
                chunks.append(self._usage_chunk())
        return chunks

    def end(self) -> list[Chunk]:
        """Return the last chunks, at the end of the stream. Raises ``StreamCut`` and ``ModelRefused``."""
        chunks: list[Chunk] = []
        if self._block_reason:
            raise ModelRefused(f"the prompt was blocked: {self._block_reason}")
        if not self._finish_reason:
            raise StreamCut("the stream was cut: it ended before its finish reason")
        reason = f"{self._finish_reason}: {self._finish_message}" if self._finish_message else self._finish_reason
        if self._finish_reason in MALFORMED_REASONS:
            raise StreamCut(f"the model's answer is malformed: {reason}")
        if self._finish_reason == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"a call of this conversation has lost its signature: {reason}")
        stop = self._stop_reason()
        if self._open_call is not None:
            if stop != "length":
                raise StreamCut("the stream was cut: it ended inside the arguments of a call")
            self._close_call(self._open_call, chunks)
        if stop == "refusal" and not self._has_text:
            chunks.append(TextChunk(f"The answer was refused: {reason}"))
        return [*chunks, self._usage_chunk(), StopChunk(stop)]

    def _stop_reason(self) -> str:
        stop = STOP_REASONS.get(self._finish_reason, "")
        if stop == "end" and self._calls:
            return "calls"
        # no call may run from an answer that ended for an unknown reason
        refused = self._finish_reason in REFUSAL_REASONS or self._calls
        return stop or ("refusal" if refused else self._finish_reason.lower())

    def _read_candidate(self, candidate: _Candidate, chunks: list[Chunk]) -> None:
        content = candidate.content
        if content is not None and content.parts:
            for part in content.parts:
                if part.function_call is None and part.thought_signature is None and not part.thought and part.text:
                    self._has_text = True
                    chunks.append(TextChunk(part.text))
                else:
                    self._read_part(part, chunks)
        reason = candidate.finish_reason or ""
        if reason not in UNFINISHED_REASONS and self._finish_reason in ("", "STOP"):
            self._finish_reason, self._finish_message = reason, _shorten_message(candidate.finish_message)
        if candidate.grounding_metadata is not None:
            self._emit_grounding(candidate.grounding_metadata, chunks)
        if candidate.citation_metadata is not None:
            cited = candidate.citation_metadata
            for source in (*(cited.citations or ()), *(cited.citation_sources or ())):
                self._emit_citation(source, None, chunks)

    def _read_part(self, part: _Part, chunks: list[Chunk]) -> None:
        """Emit a part that is more than text; a signature precedes the part it belongs to."""
        signature = {"thoughtSignature": part.thought_signature} if part.thought_signature else {}
        if part.thought:
            own = {WIRE: {"thought": True, **signature}} if signature else None
            if part.text or own:
                chunks.append(ReasoningChunk(part.text or "", opaque=own))
            return
        opaque = {_WIRE_NAMES[name]: value for name in _OPAQUE_FIELDS if (value := getattr(part, name)) is not None}
        if opaque:
            chunks.append(ReasoningChunk(opaque={WIRE: {**opaque, **signature}}))
            return
        if signature:
            chunks.append(ReasoningChunk(opaque={WIRE: signature}))
        if part.function_call is not None:
            self._read_call(part.function_call, chunks)
        elif part.text:
            self._has_text = True
            chunks.append(TextChunk(part.text))

    def _read_call(self, call: _Call, chunks: list[Chunk]) -> None:
        """Emit a call. If its arguments come in pieces, emit it after the last piece."""
        if self._open_call is None and not call.partial_args and not call.will_continue:
            self._emit_call(call, _arguments_text(call.args), chunks)
            return
        if self._open_call is not None and call.name and self._open_call[0].name:
            raise StreamCut(
                f"a call to {call.name!r} begins inside the arguments of a call to {self._open_call[0].name!r}"
            )
        first, arguments = self._open_call or (call, ArgumentsBuilder())
        first.name, first.id = first.name or call.name, first.id or call.id
        for piece in call.partial_args or ():
            arguments.add(piece)
        self._open_call = (first, arguments)
        if not call.will_continue:
            if not arguments.is_complete:
                raise StreamCut(f"a call to {first.name!r} ends inside one of its arguments")
            self._close_call(self._open_call, chunks)

    def _close_call(self, opened: tuple[_Call, ArgumentsBuilder], chunks: list[Chunk]) -> None:
        self._open_call = None
        call, arguments = opened
        self._emit_call(call, arguments.to_json(), chunks)

    def _emit_call(self, call: _Call, arguments: str, chunks: list[Chunk]) -> None:
        name = call.name or ""
        if not name:
            raise StreamCut("the answer is garbled: a call names no tool")
        if name == self._answer_tool:
            self._has_text = True
            chunks.append(TextChunk(arguments))
            return
        id = call.id or ""
        if not id or id in self._ids:
            id = f"{GENERATED_ID_PREFIX}{self._calls}"
        self._ids.add(id)
        chunks.append(CallChunk(self._calls, name, arguments, id))
        self._calls += 1

    def _emit_grounding(self, grounding: _Grounding, chunks: list[Chunk]) -> None:
        segments: dict[int, list[Any]] = {}
        for support in grounding.grounding_supports or ():
            for index in support.grounding_chunk_indices or ():
                segments.setdefault(index, []).append(support.segment)
        for index, chunk in enumerate(grounding.grounding_chunks or ()):
            source = chunk.web or chunk.retrieved_context or chunk.maps
            if source is not None:
                self._emit_citation(source, segments.get(index), chunks)

    def _emit_citation(self, source: _Source, segments: list[Any] | None, chunks: list[Chunk]) -> None:
        """Emit a source once: each event may repeat the earlier ones."""
        url, title = source.uri or "", source.title or ""
        if (url, title) in self._cited_sources or not (url or title):
            return
        self._cited_sources.add((url, title))
        where = {WIRE: {"segments": segments}} if segments else None
        chunks.append(CitationChunk(Citation(url=url, title=title, text=source.text or "", opaque=where)))

    def _read_error(self, event: _Event) -> None:
        if event.error is not None:
            raise errors.error_from_event({"error": event.error})
        feedback = event.prompt_feedback
        if feedback is not None and feedback.block_reason:
            message = _shorten_message(feedback.block_reason_message)
            self._block_reason = f"{feedback.block_reason}: {message}" if message else feedback.block_reason

    def _usage_chunk(self) -> UsageChunk:
        usage: object = None
        with suppress(*DECODE_ERRORS):
            usage = msgspec.json.decode(self._usage)
        reasoning = count_of(usage, "thoughtsTokenCount")
        input = count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount")
        output = count_of(usage, "candidatesTokenCount") + reasoning
        total = count_of(usage, "totalTokenCount")
        if total and as_object(usage).get("candidatesTokenCount") is None:
            output = max(total - input, reasoning)
        return UsageChunk(
            Usage(
                input=min(input, MAX_TOKENS),
                output=min(output, MAX_TOKENS),
                reasoning=reasoning,
                cache_read=count_of(usage, "cachedContentTokenCount"),
            ),
            self._model,
        )


def _error_of_bytes(data: bytes) -> ModelError:
    """Return the error for an event that is not valid: an error in a list, or garbage."""
    report = errors.parse_error_body(data)
    if report.message and report.kinds:
        return errors.to_model_error(report)
    return StreamCut(f"expected an event of an answer, got {sse.describe_body(data)}")


def _arguments_text(arguments: msgspec.Raw) -> str:
    """Return arguments as the provider wrote them; some gateways put them into a string."""
    try:
        return json_text(arguments) or "{}"
    except DECODE_ERRORS as error:
        raise StreamCut("the arguments of a call are not UTF-8") from error


def _shorten_message(text: str | None) -> str:
    text = " ".join((text or "").split())
    return sse.redact_secrets(text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…")
