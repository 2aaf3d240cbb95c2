"""Decode a Chat Completions stream of any vendor into chunks. Pure.

An answer is complete when choice 0 has a finish reason and [DONE] has arrived, unless the vendor's profile says that
it sends none.
"""

import re
from typing import Any

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.compatibility import DECODE_ERRORS, as_list, as_object, count_of, json_text
from vaka.models.openai_chat.vendors import VendorProfile
from vaka.models.transport import errors

WIRE = "chat"
STOP_REASONS = {
    "stop": "end",
    "eos": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
}
_LENGTH_REASON = re.compile(r"length|max_|limit|exceeded")
_FILTER_REASON = re.compile(r"filter|safety|blocked|moderation")
FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})
"""Finish reasons of an answer that the vendor could not finish."""

_MINIMAX_CODES = {
    1000: "server_error",
    1001: "timeout",
    1002: "rate_limit",
    1004: "authentication_error",
    1008: "insufficient_balance",
    1013: "server_error",
}
"""The kind of error for each of MiniMax's status codes."""


class CallFragment(msgspec.Struct, gc=False):
    """A piece of a call in a delta."""

    index: int | None = None
    id: str | None = None
    function: dict[str, msgspec.Raw] | None = None


class _Delta(msgspec.Struct, gc=False):
    """Only the fields that are read; vendors add others, and may send null for any."""

    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[CallFragment] | None = None
    function_call: dict[str, msgspec.Raw] | None = None
    annotations: list[Any] | None = None
    audio: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None
    usage: Any = None


class _MiniMaxStatus(msgspec.Struct, gc=False):
    status_code: int = 0
    status_msg: str = ""


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None
    object: str | None = None
    x_groq: Any = None
    base_resp: _MiniMaxStatus | None = None
    citations: list[Any] | None = None
    search_results: list[Any] | None = None


_EVENT = msgspec.json.Decoder(_Event)


class _PartialCall:
    """A call that is still growing."""

    def __init__(self, number: int, provider_id: str) -> None:
        self.number, self.provider_id = number, provider_id
        self.name = ""
        self.pieces: list[str] = []
        self.emitted_pieces = 0
        self.is_announced = False

    def is_complete(self) -> bool:
        """Whether the arguments are a complete object, so that further ones belong to another call."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.pieces))
        except DECODE_ERRORS:
            return False
        return True


class CallAssembler:
    """The calls of one answer. The arguments of the tool ``answer`` are emitted as text, not as a call."""

    def __init__(self, answer: str = "") -> None:
        self.call_count = 0
        """Calls that have begun, without the answer."""
        self.has_answer = False
        self._answer_tool = answer
        self._calls: list[_PartialCall] = []
        self._latest_by_index: dict[int, _PartialCall] = {}
        self._used_ids: set[str] = set()

    def add(self, fragment: CallFragment, position: int, chunks: list[Chunk]) -> None:
        """Add the fragment at ``position`` of its delta. Raises ``StreamCut`` for an empty one."""
        name, arguments = _read_fragment(fragment.function)
        call = self._find_or_start(fragment, position, name, arguments)
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)
        if call.name:  # a chunk of a call must name its tool first
            self._emit(call, chunks)

    def check_complete(self, reason: str) -> None:
        """Check the calls of a finished answer. Raises ``StreamCut`` when one is missing or has no name."""
        if any(not call.name for call in self._calls):
            raise StreamCut("the answer is garbled: a tool call has no name")
        if reason == "calls" and not self._calls:
            raise StreamCut("the answer is garbled: it ends in tool calls, and there are none")

    def _find_or_start(self, fragment: CallFragment, position: int, name: str, arguments: str) -> _PartialCall:
        id = fragment.id or ""
        index = position if fragment.index is None else fragment.index
        call = self._latest_by_index.get(index)
        if fragment.index is None and id:
            call = next((known for known in self._calls if known.provider_id == id), call)
        if call is None or _starts_new_call(call, id, name, arguments):
            call = self._latest_by_index[index] = _PartialCall(len(self._calls), id)
            self._calls.append(call)
        return call

    def _emit(self, call: _PartialCall, chunks: list[Chunk]) -> None:
        text = "".join(call.pieces[call.emitted_pieces :])
        call.emitted_pieces = len(call.pieces)
        announced, call.is_announced = call.is_announced, True
        if call.name == self._answer_tool:
            self.has_answer = True
            first = next(known for known in self._calls if known.name == self._answer_tool)
            if text and call is first:  # a second answer is a repetition
                chunks.append(TextChunk(text))
        elif not announced:
            self.call_count += 1
            chunks.append(CallChunk(call.number, call.name, text, self._unique_id(call)))
        elif text:
            chunks.append(CallChunk(call.number, "", text))

    def _unique_id(self, call: _PartialCall) -> str:
        """Return the vendor's id, or a generated one where it is missing or used twice."""
        id, number = call.provider_id, call.number
        while not id or id in self._used_ids:
            id, number = f"call_{number}", number + 1
        self._used_ids.add(id)
        return id


def _starts_new_call(call: _PartialCall, provider_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment begins a new call, though it has the index of ``call``."""
    if provider_id and call.provider_id:
        return provider_id != call.provider_id
    if not name or not call.name:
        return False
    return name != call.name or (bool(arguments) and call.is_complete())


def _read_fragment(function: dict[str, msgspec.Raw] | None) -> tuple[str, str]:
    """Return the name and the arguments of a fragment, as the vendor wrote them."""
    if function is None or not ("arguments" in function or function.keys() == {"name"}):
        raise StreamCut("the answer is garbled: a piece of a tool call has neither a name nor arguments")
    try:
        name = msgspec.json.decode(function["name"], type=str | None) if "name" in function else None
        return name or "", json_text(function.get("arguments", b""))
    except DECODE_ERRORS as error:
        raise StreamCut(f"the answer is garbled: a piece of a tool call cannot be read: {error}") from error


class ChatStreamDecoder:
    """Decodes one answer; it is ``done`` when nothing more belongs to it.

    ``answer`` is the tool whose arguments are the answer itself.
    """

    def __init__(self, profile: VendorProfile = VendorProfile(), answer: str = "") -> None:
        self.done = False
        self._profile = profile
        self._calls = CallAssembler(answer)
        self._model = self._finish_reason = ""
        self._refused = False
        self._usage: Usage | None = None
        self._reasoning_details: list[dict[str, Any]] = []  # of the reasoning block that is still growing
        self._withheld_texts: list[str] | None = [] if answer else None  # texts beside an answer that is to be JSON
        self._cited_sources: list[Any] = []

    def feed(self, data: bytes, name: str = "") -> list[Chunk]:
        """Return the chunks of one event. Raises ``ModelError`` for an invalid event and for an error event."""
        if data.startswith(b"[") and data.strip() == b"[DONE]":
            return self._finish_answer("[DONE] came before a finish reason")
        try:
            event = _EVENT.decode(data)
        except DECODE_ERRORS as error:
            raise StreamCut(f"an event of the answer cannot be read: {error}") from error
        if event.error is not None or event.base_resp is not None or event.object == "error" or name == "error":
            self._raise_error(event, data)
        if event.model:
            self._model = event.model
        chunks: list[Chunk] = []
        for choice in event.choices or ():
            self._read_choice(choice, chunks)
        if event.usage is not None:
            self._emit_usage(event.usage, chunks)
        elif event.x_groq is not None:
            self._emit_usage(as_object(event.x_groq).get("usage"), chunks)
        if event.citations or event.search_results:
            self._cited_sources = event.search_results or event.citations or []
        return chunks

    def end(self) -> list[Chunk]:
        """Return the last chunks, at the end of the stream. Raises ``StreamCut`` unless the answer is complete."""
        if self.done:
            return []
        if self._profile.done:
            raise StreamCut("the answer was cut: the stream ended without [DONE]")
        return self._finish_answer("the answer was cut: the stream ended without a finish reason")

    def _read_choice(self, choice: _Choice, chunks: list[Chunk]) -> None:
        if choice.index:
            if choice.index < 0:
                raise StreamCut(f"the answer is garbled: it has a choice {choice.index}")
            return  # an alternative answer, which was not asked for
        delta = choice.delta
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                self._emit_reasoning(delta, chunks)
            content = delta.content
            if isinstance(content, str) and content and self._withheld_texts is None and not self._reasoning_details:
                chunks.append(TextChunk(content))  # the fast path of nearly every event
            elif content:
                self._read_content(content, chunks)
            self._read_rare_fields(delta, chunks)
        if choice.error is not None:
            raise errors.error_from_event({"error": choice.error})
        finish = choice.finish_reason
        if finish and finish != "null" and (not self._finish_reason or _is_unfinished(finish)):
            self._finish_reason = finish
        if choice.usage is not None:
            self._emit_usage(choice.usage, chunks)

    def _read_rare_fields(self, delta: _Delta, chunks: list[Chunk]) -> None:
        if delta.refusal:
            self._refused = True
            self._close_reasoning(chunks)
            chunks.append(TextChunk(delta.refusal))
        if delta.tool_calls:
            self._close_reasoning(chunks)
            for position, fragment in enumerate(delta.tool_calls):
                self._calls.add(fragment, position, chunks)
        if delta.function_call is not None:
            self._close_reasoning(chunks)
            self._calls.add(CallFragment(index=-1, function=delta.function_call), 0, chunks)
        for text in _as_texts(as_object(delta.audio).get("transcript")) if delta.audio else ():
            self._emit_text(text, chunks)
        if delta.annotations:
            for note in delta.annotations:
                chunks.extend(_citation_chunks(as_object(as_object(note).get("url_citation"))))

    def _read_content(self, content: "str | list[Any]", chunks: list[Chunk]) -> None:
        for part in [{"text": content}] if isinstance(content, str) else map(as_object, content):
            if part.get("type") == "thinking":
                chunks.extend(map(ReasoningChunk, _texts_of_parts(part.get("thinking"))))
            else:
                for text in _as_texts(part.get("text")):
                    self._emit_text(text, chunks)

    def _emit_text(self, text: str, chunks: list[Chunk]) -> None:
        if self._withheld_texts is not None:
            self._withheld_texts.append(text)
            return
        self._close_reasoning(chunks)
        chunks.append(TextChunk(text))

    def _emit_reasoning(self, delta: _Delta, chunks: list[Chunk]) -> None:
        """Emit the reasoning of a delta once: vendors repeat it in several fields."""
        details = [detail for detail in map(as_object, delta.reasoning_details or ()) if detail]
        repeated = [text for detail in details for name in ("text", "summary") for text in _as_texts(detail.get(name))]
        chunks.extend(map(ReasoningChunk, _as_texts(delta.reasoning_content) or _as_texts(delta.reasoning) or repeated))
        if self._profile.reasoning_back == "reasoning_details":
            for detail in details:
                self._merge_detail(detail)

    def _merge_detail(self, detail: dict[str, Any]) -> None:
        """Append a piece to the detail it belongs to: vendors want each detail back as one object."""
        last = self._reasoning_details[-1] if self._reasoning_details else {}
        if not last or (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
            self._reasoning_details.append(dict(detail))
            return
        for name, value in detail.items():
            if name in {"text", "summary", "data"} and isinstance(value, str) and isinstance(last.get(name), str):
                last[name] += value
            elif value is not None or name not in last:
                last[name] = value

    def _close_reasoning(self, chunks: list[Chunk]) -> None:
        """End the block of reasoning with the details that the vendor wants back."""
        if self._reasoning_details:
            block = {"vendor": self._profile.name, "reasoning_details": self._reasoning_details}
            self._reasoning_details = []
            chunks.append(ReasoningChunk(opaque={WIRE: block}))

    def _emit_usage(self, usage: Any, chunks: list[Chunk]) -> None:
        counted = _usage_of(usage, with_cost=self._profile.cost)
        if counted != self._usage and counted != Usage():
            self._usage = counted
            chunks.append(UsageChunk(counted, self._model))

    def _finish_answer(self, missing: str) -> list[Chunk]:
        if not self._finish_reason:
            raise StreamCut(missing)
        if self._finish_reason in FAILED_REASONS:
            raise StreamCut(f"the vendor could not finish the answer (finish reason {self._finish_reason!r})")
        reason = "refusal" if self._refused else _stop_reason(self._finish_reason)
        chunks: list[Chunk] = []
        self._close_reasoning(chunks)
        if self._withheld_texts and not self._calls.has_answer:
            chunks.append(TextChunk("".join(self._withheld_texts)))
        self._calls.check_complete(reason)
        if reason not in {"length", "refusal"} and (self._calls.call_count or reason == "calls"):
            reason = "calls" if self._calls.call_count else "end"
        for source in self._cited_sources:
            chunks.extend(_citation_chunks({"url": source} if isinstance(source, str) else as_object(source)))
        if self._usage is None:
            chunks.append(UsageChunk(Usage(), self._model))
        self.done = True
        return [*chunks, StopChunk(reason)]

    def _raise_error(self, event: _Event, data: bytes) -> None:
        """Raise the error of an event; MiniMax sends a status with each."""
        state = event.base_resp
        if event.error is not None:
            raise errors.error_from_event({"error": event.error})
        if state is not None and state.status_code:
            kind = _MINIMAX_CODES.get(state.status_code, str(state.status_code))
            raise errors.to_model_error(errors.ErrorReport(message=state.status_msg, kinds=(kind,)))
        if state is None:
            raise errors.to_model_error(errors.parse_error_body(data))


def _stop_reason(finish: str) -> str:
    """Return the stop reason for a finish reason; of an unknown one, whether it means that something is missing."""
    word = finish.lower()
    if word in STOP_REASONS:
        return STOP_REASONS[word]
    return "length" if _LENGTH_REASON.search(word) else "refusal" if _FILTER_REASON.search(word) else finish


def _is_unfinished(finish: str) -> bool:
    """Whether a finish reason says that something is missing; it then overrides the others."""
    return finish in FAILED_REASONS or _stop_reason(finish) in {"length", "refusal"}


def _usage_of(usage: Any, *, with_cost: bool) -> Usage:
    prompt = as_object(usage).get("prompt_tokens_details")
    read = count_of(prompt, "cached_tokens") or count_of(usage, "prompt_cache_hit_tokens")
    reasoning = count_of(usage, "completion_tokens_details", "reasoning_tokens") or count_of(usage, "reasoning_tokens")
    input, output = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    if reasoning and count_of(usage, "total_tokens") == input + output + reasoning:
        output += reasoning  # some vendors do not count reasoning as output
    cost: Any = as_object(usage).get("cost") if with_cost else None
    return Usage(
        input=input,
        output=output,
        reasoning=reasoning,
        cache_read=read or count_of(usage, "cached_tokens"),
        cache_write=count_of(prompt, "cache_write_tokens"),
        cost=max(float(cost), 0.0) if isinstance(cost, int | float) else 0.0,
    )


def _citation_chunks(source: dict[str, Any]) -> list[Chunk]:
    texts = {name: value for name, value in source.items() if isinstance(value, str)}
    if not texts.get("url"):
        return []
    text = texts.get("content") or texts.get("snippet", "")
    return [CitationChunk(Citation(url=texts["url"], title=texts.get("title", ""), text=text))]


def _texts_of_parts(value: Any) -> list[str]:
    """Return a text, or the texts of a list of parts."""
    return _as_texts(value) or [text for part in as_list(value) for text in _as_texts(as_object(part).get("text"))]


def _as_texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []
