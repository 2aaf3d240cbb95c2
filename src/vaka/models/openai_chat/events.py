"""Decode a Chat Completions stream of any vendor into chunks. Pure.

An answer is complete when choice 0 has a finish reason and [DONE] has arrived, unless the vendor's profile says that
it sends none.
"""

import re
from contextlib import suppress
from typing import Any

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Citation, Usage
from vaka.models.catalog.vendors import VendorProfile
from vaka.models.json_values import DECODE_ERRORS, MAX_TOKENS, as_list, as_object, clamp_tokens, is_list
from vaka.models.openai_chat.messages import WIRE, CallAssembler, CallFragment
from vaka.models.transport import errors

STOP_REASONS = {
    "stop": "end", "eos": "end", "end_turn": "end", "stop_sequence": "end", "tool_calls": "calls",
    "function_call": "calls", "length": "length", "max_tokens": "length", "model_length": "length",
    "content_filter": "refusal", "sensitive": "refusal", "refusal": "refusal",
}  # fmt: skip
_LENGTH_REASON = re.compile(r"length|max_|limit|exceeded")
_FILTER_REASON = re.compile(r"filter|safety|blocked|moderation")
_MAX_DIGITS = 18
FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})
"""Finish reasons of an answer that the vendor could not finish."""

_MINIMAX_CODES = {
    1000: "server_error", 1001: "timeout", 1002: "rate_limit", 1004: "authentication_error",
    1008: "insufficient_balance", 1013: "server_error",
}  # fmt: skip
"""The kind of error for each of MiniMax's status codes."""


class _WireStruct(msgspec.Struct, gc=False):
    """Only the fields that are read; vendors add others, and may send null for any."""


class _Audio(_WireStruct, gc=False):
    transcript: str | None = None


class _Delta(_WireStruct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[CallFragment] | None = None
    function_call: dict[str, msgspec.Raw] | None = None
    annotations: list[Any] | None = None
    audio: _Audio | None = None


class _InputDetails(_WireStruct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(_WireStruct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(_WireStruct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: Any = None


class _Choice(_WireStruct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None
    usage: _Usage | None = None


class _Groq(_WireStruct, gc=False):
    usage: _Usage | None = None


class _MiniMaxStatus(_WireStruct, gc=False):
    status_code: int = 0
    status_msg: str = ""


class _Event(_WireStruct, gc=False):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    x_groq: _Groq | None = None
    base_resp: _MiniMaxStatus | None = None
    citations: list[Any] | None = None
    search_results: list[Any] | None = None


_EVENT = msgspec.json.Decoder(_Event)


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
        event = _decode_event(data)
        if event.error is not None or event.base_resp is not None or event.object == "error" or name == "error":
            self._raise_error(event, data)
        if event.model:
            self._model = event.model
        chunks: list[Chunk] = []
        for choice in event.choices or ():
            self._read_choice(choice, chunks)
        if event.usage is not None:
            self._emit_usage(event.usage, chunks)
        elif event.x_groq is not None and event.x_groq.usage is not None:
            self._emit_usage(event.x_groq.usage, chunks)
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
        if delta.audio is not None and delta.audio.transcript:
            self._emit_text(delta.audio.transcript, chunks)
        if delta.annotations:
            for note in delta.annotations:
                chunks.extend(_citation_chunks(as_object(as_object(note).get("url_citation"))))

    def _read_content(self, content: "str | list[Any]", chunks: list[Chunk]) -> None:
        if isinstance(content, str):
            self._emit_text(content, chunks)
            return
        for part in content:
            fields = as_object(part)
            if fields.get("type") == "thinking":
                chunks.extend(map(ReasoningChunk, _texts_of_parts(fields.get("thinking"))))
            else:
                for text in _as_texts(fields.get("text")):
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
        texts = _as_texts(delta.reasoning_content) or _as_texts(delta.reasoning)
        texts = texts or [
            text for detail in details for name in ("text", "summary") for text in _as_texts(detail.get(name))
        ]
        chunks.extend(map(ReasoningChunk, texts))
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

    def _emit_usage(self, usage: _Usage, chunks: list[Chunk]) -> None:
        counted = _usage_of(usage, cost=self._profile.cost)
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


def _decode_event(data: bytes) -> _Event:
    try:
        return _EVENT.decode(data)
    except DECODE_ERRORS as error:
        if ".usage" in str(error):  # a malformed token count must not cost the answer
            with suppress(*DECODE_ERRORS):
                return _EVENT.decode(msgspec.json.encode(_repair_event(as_object(msgspec.json.decode(data)))))
        raise StreamCut(f"an event of the answer cannot be read: {error}") from error


def _repair_event(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event, or a part of one, without token counts that are not numbers."""
    repaired = {name: _repair_event(as_object(event[name])) if name == "x_groq" else event[name] for name in event}
    if is_list(repaired.get("choices")):
        repaired["choices"] = [_repair_event(as_object(choice)) for choice in repaired["choices"]]
    if "usage" in repaired:
        repaired["usage"] = _repair_usage(as_object(repaired["usage"]))
    return repaired


def _repair_usage(usage: dict[str, Any]) -> dict[str, Any]:
    tokens = {name: _repair_count(value) for name, value in usage.items() if name.endswith("tokens")}
    details = {name: _repair_usage(as_object(value)) for name, value in usage.items() if name.endswith("details")}
    return {**tokens, **details, "cost": usage.get("cost")}


def _repair_count(count: Any) -> int | None:
    if isinstance(count, str) and count.isdecimal():
        return min(int(count[:_MAX_DIGITS]), MAX_TOKENS)
    integral = isinstance(count, int) or (isinstance(count, float) and count.is_integer())
    return clamp_tokens(int(count)) if integral else None


def _stop_reason(finish: str) -> str:
    """Return the stop reason for a finish reason; of an unknown one, whether it means that something is missing."""
    word = finish.lower()
    if word in STOP_REASONS:
        return STOP_REASONS[word]
    return "length" if _LENGTH_REASON.search(word) else "refusal" if _FILTER_REASON.search(word) else finish


def _is_unfinished(finish: str) -> bool:
    """Whether a finish reason says that something is missing; it then overrides the others."""
    return finish in FAILED_REASONS or _stop_reason(finish) in {"length", "refusal"}


def _usage_of(usage: _Usage, *, cost: bool) -> Usage:
    prompt, completion = usage.prompt_tokens_details or _InputDetails(), usage.completion_tokens_details
    read = prompt.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens
    reasoning = clamp_tokens((completion.reasoning_tokens if completion else None) or usage.reasoning_tokens)
    input, output = clamp_tokens(usage.prompt_tokens), clamp_tokens(usage.completion_tokens)
    if reasoning and usage.total_tokens == input + output + reasoning:
        output += reasoning  # some vendors do not count reasoning as output
    spent: Any = usage.cost if cost else None
    return Usage(
        input=input, output=output, cache_read=clamp_tokens(read), cache_write=clamp_tokens(prompt.cache_write_tokens),
        reasoning=reasoning, cost=max(float(spent), 0.0) if isinstance(spent, int | float) else 0.0,
    )  # fmt: skip


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
