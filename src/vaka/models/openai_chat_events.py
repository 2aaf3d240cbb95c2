"""The events of a Chat Completions stream as chunks, whatever vendor wrote them. Pure.

An answer is whole when its choice 0 has a finish reason and ``[DONE]`` has come; vendors that never say so are known by
their profile. What is no part of that, or of no use, is read past; what cannot be read is a stream that was cut.
"""

import re
from contextlib import suppress
from typing import Any, cast

import msgspec

from vaka.core.ports.model import (
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
from vaka.models.openai_chat_calls import Calls, Fragment
from vaka.models.openai_chat_messages import WIRE
from vaka.models.profiles import Profile
from vaka.models.sse import Item

REASONS = {
    "stop": "end", "eos": "end", "end_turn": "end", "stop_sequence": "end", "tool_calls": "calls",
    "function_call": "calls", "length": "length", "max_tokens": "length", "model_length": "length",
    "content_filter": "refusal", "sensitive": "refusal", "refusal": "refusal",
}  # fmt: skip
_SHORT, _BARRED = re.compile(r"length|max_|limit|exceeded"), re.compile(r"filter|safety|blocked|moderation")
MOST = 2**53
"""Tokens that anyone can have used."""
_DIGITS = 18
BROKEN = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})
"""Finish reasons of an answer that the vendor could not finish."""

_TROUBLE = {
    1000: "server_error", 1001: "timeout", 1002: "rate_limit", 1004: "authentication_error",
    1008: "insufficient_balance", 1013: "server_error",
}  # fmt: skip
"""What MiniMax's numbers mean."""


class _Part(msgspec.Struct, gc=False):
    """Only what is needed; vendors add much, and may put null anywhere."""


class _Audio(_Part, gc=False):
    transcript: str | None = None


class _Delta(_Part, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None
    function_call: dict[str, msgspec.Raw] | None = None
    annotations: list[Any] | None = None
    audio: _Audio | None = None


class _InputDetails(_Part, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(_Part, gc=False):
    reasoning_tokens: int | None = None


class _Usage(_Part, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: Any = None


class _Choice(_Part, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None
    usage: _Usage | None = None


class _Groq(_Part, gc=False):
    usage: _Usage | None = None


class _State(_Part, gc=False):
    status_code: int = 0
    status_msg: str = ""


class _Event(_Part, gc=False):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    x_groq: _Groq | None = None
    base_resp: _State | None = None
    citations: list[Any] | None = None
    search_results: list[Any] | None = None


_EVENT = msgspec.json.Decoder(_Event)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Answer:
    """One answer as it comes in: events go in, chunks come out, ``whole`` says that nothing more belongs to it.

    ``answer`` is the tool whose arguments are the answer itself.
    """

    def __init__(self, profile: Profile = Profile(), answer: str = "") -> None:
        self.whole = False
        self._profile = profile
        self._calls = Calls(answer)
        self._model = ""
        self._finish = ""
        self._refused = False
        self._usage: Usage | None = None
        self._details: list[dict[str, Any]] = []  # of the reasoning block that is still growing
        self._held: list[str] | None = [] if answer else None  # words beside an answer that is to be JSON
        self._sources: list[Any] = []

    def feed(self, item: Item) -> list[Chunk]:
        """Return the chunks of one event. Raises ``ModelError`` for one that is none, or tells of an error."""
        data = item.data
        if data.startswith(b"[") and data.strip() == b"[DONE]":
            return self._end("[DONE] came before a finish reason")
        event = _read(data)
        if event.error is not None or event.base_resp is not None or event.object == "error" or item.event == "error":
            self._trouble(event, data)
        if event.model:
            self._model = event.model
        chunks: list[Chunk] = []
        for choice in event.choices or ():
            self._choice(choice, chunks)
        if event.usage is not None:
            self._count(event.usage, chunks)
        elif event.x_groq is not None and event.x_groq.usage is not None:
            self._count(event.x_groq.usage, chunks)
        if event.citations or event.search_results:
            self._sources = event.search_results or event.citations or []
        return chunks

    def end(self) -> list[Chunk]:
        """Say that no more comes. Raises ``StreamCut`` unless the answer is whole."""
        if self.whole:
            return []
        if self._profile.done:
            raise StreamCut("the answer was cut: the stream ended without [DONE]")
        return self._end("the answer was cut: the stream ended without a finish reason")

    def _choice(self, choice: _Choice, chunks: list[Chunk]) -> None:
        if choice.index:
            if choice.index < 0:
                raise StreamCut(f"the answer is garbled: it has a choice {choice.index}")
            return  # another answer, which nobody asked for
        delta = choice.delta
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                self._think(delta, chunks)
            content = delta.content
            if content:
                if isinstance(content, str) and self._held is None and not self._details:  # nearly always
                    chunks.append(TextChunk(content))
                else:
                    self._content(content, chunks)
            self._rest(delta, chunks)
        if choice.error is not None:
            raise faults.of_event({"error": choice.error})
        finish = choice.finish_reason
        if finish and finish != "null" and (not self._finish or _unfinished(finish)):
            self._finish = finish
        if choice.usage is not None:
            self._count(choice.usage, chunks)

    def _rest(self, delta: _Delta, chunks: list[Chunk]) -> None:
        """Take what few deltas have."""
        if delta.refusal:
            self._refused = True
            self._close(chunks)
            chunks.append(TextChunk(delta.refusal))
        if delta.tool_calls:
            self._close(chunks)
            for position, fragment in enumerate(delta.tool_calls):
                self._calls.take(fragment, position, chunks)
        if delta.function_call is not None:
            self._close(chunks)
            self._calls.take(Fragment(index=-1, function=delta.function_call), 0, chunks)
        if delta.audio is not None and delta.audio.transcript:
            self._say(delta.audio.transcript, chunks)
        if delta.annotations:
            for note in delta.annotations:
                chunks.extend(_cited(_object(_object(note).get("url_citation"))))

    def _content(self, content: "str | list[Any]", chunks: list[Chunk]) -> None:
        if isinstance(content, str):
            self._say(content, chunks)
            return
        for part in content:
            kind = _object(part)
            if kind.get("type") == "thinking":
                chunks.extend(map(ReasoningChunk, _texts(kind.get("thinking"))))
            else:
                for text in _words(kind.get("text")):
                    self._say(text, chunks)

    def _say(self, text: str, chunks: list[Chunk]) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        self._close(chunks)
        chunks.append(TextChunk(text))

    def _think(self, delta: _Delta, chunks: list[Chunk]) -> None:
        """Take a thought; several fields of one delta say the same."""
        details = [detail for detail in map(_object, delta.reasoning_details or ()) if detail]
        texts = _words(delta.reasoning_content) or _words(delta.reasoning)
        texts = texts or [
            text for detail in details for name in ("text", "summary") for text in _words(detail.get(name))
        ]
        chunks.extend(map(ReasoningChunk, texts))
        if self._profile.reasoning_back == "reasoning_details":
            for detail in details:
                self._keep(detail)

    def _keep(self, detail: dict[str, Any]) -> None:
        """Put a piece of a detail to the one it belongs to, so that the whole goes back as one."""
        last = self._details[-1] if self._details else {}
        if not last or (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            grows = name in {"text", "summary", "data"} and isinstance(value, str) and isinstance(last.get(name), str)
            if grows:
                last[name] += value
            elif value is not None or name not in last:
                last[name] = value

    def _close(self, chunks: list[Chunk]) -> None:
        """End the block of reasoning with what the vendor wants back."""
        if self._details:
            kept = {"vendor": self._profile.name, "reasoning_details": self._details}
            self._details = []
            chunks.append(ReasoningChunk(opaque={WIRE: kept}))

    def _count(self, usage: _Usage, chunks: list[Chunk]) -> None:
        counted = _counted(usage, cost=self._profile.cost)
        if counted != self._usage and counted != Usage():
            self._usage = counted
            chunks.append(UsageChunk(counted, self._model))

    def _end(self, missing: str) -> list[Chunk]:
        if not self._finish:
            raise StreamCut(missing)
        if self._finish in BROKEN:
            raise StreamCut(f"the vendor could not finish the answer (finish reason {self._finish!r})")
        reason = "refusal" if self._refused else _reason(self._finish)
        chunks: list[Chunk] = []
        self._close(chunks)
        if self._held and not self._calls.answered:
            chunks.append(TextChunk("".join(self._held)))
        self._calls.end(reason)
        if reason not in {"length", "refusal"} and (self._calls.made or reason == "calls"):
            reason = "calls" if self._calls.made else "end"
        for source in self._sources:
            chunks.extend(_cited({"url": source} if isinstance(source, str) else _object(source)))
        if self._usage is None:
            chunks.append(UsageChunk(Usage(), self._model))
        self.whole = True
        return [*chunks, StopChunk(reason)]

    def _trouble(self, event: _Event, data: bytes) -> None:
        """Raise what an event says went wrong, if it does."""
        state = event.base_resp
        if event.error is not None:
            raise faults.of_event({"error": event.error})
        if state is not None and state.status_code:
            kind = _TROUBLE.get(state.status_code, str(state.status_code))
            raise faults.error(faults.Said(message=state.status_msg, kinds=(kind,)))
        if state is None:
            raise faults.error(faults.read(data))


def _read(data: bytes) -> _Event:
    try:
        return _EVENT.decode(data)
    except _UNREADABLE as error:
        if ".usage" in str(error):  # no answer is lost for the way its tokens are counted
            with suppress(*_UNREADABLE):
                return _EVENT.decode(msgspec.json.encode(_recounted(_object(msgspec.json.decode(data)))))
        raise StreamCut(f"an event of the answer cannot be read: {error}") from error


def _recounted(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event, or a part of one, whose counts of tokens can be read: those that are none are left out."""
    made = {name: _recounted(_object(event[name])) if name == "x_groq" else event[name] for name in event}
    choices = cast("list[Any]", made.get("choices"))
    if isinstance(made.get("choices"), list):
        made["choices"] = [_recounted(_object(choice)) for choice in choices]
    if "usage" in made:
        made["usage"] = _numbers(_object(made["usage"]))
    return made


def _numbers(usage: dict[str, Any]) -> dict[str, Any]:
    tokens = {name: _number(value) for name, value in usage.items() if name.endswith("tokens")}
    details = {name: _numbers(_object(value)) for name, value in usage.items() if name.endswith("details")}
    return {**tokens, **details, "cost": usage.get("cost")}


def _number(count: Any) -> int | None:
    if isinstance(count, str) and count.isdecimal():
        return min(int(count[:_DIGITS]), MOST)
    whole = isinstance(count, int) or (isinstance(count, float) and count.is_integer())
    return min(max(int(count), 0), MOST) if whole else None


def _reason(finish: str) -> str:
    """Return a finish reason in our words; a vendor's own word tells at least whether something is missing."""
    word = finish.lower()
    if word in REASONS:
        return REASONS[word]
    return "length" if _SHORT.search(word) else "refusal" if _BARRED.search(word) else finish


def _unfinished(finish: str) -> bool:
    """Whether a finish reason says that something is missing: then it counts, whatever else was said."""
    return finish in BROKEN or _reason(finish) in {"length", "refusal"}


def _counted(usage: _Usage, *, cost: bool) -> Usage:
    read, written, thought = usage.prompt_cache_hit_tokens or usage.cached_tokens, None, usage.reasoning_tokens
    if usage.prompt_tokens_details is not None:
        read = usage.prompt_tokens_details.cached_tokens or read
        written = usage.prompt_tokens_details.cache_write_tokens
    if usage.completion_tokens_details is not None:
        thought = usage.completion_tokens_details.reasoning_tokens or thought
    put, got, thought = _tokens(usage.prompt_tokens), _tokens(usage.completion_tokens), _tokens(thought)
    if thought and usage.total_tokens == put + got + thought:
        got += thought  # some vendors count thoughts beside the answer
    spent: Any = usage.cost if cost else None
    return Usage(
        input=put, output=got, cache_read=_tokens(read), cache_write=_tokens(written), reasoning=thought,
        cost=max(float(spent), 0.0) if isinstance(spent, int | float) else 0.0,
    )  # fmt: skip


def _tokens(count: int | None) -> int:
    """Return a count that can be one: a vendor must not be able to give a budget back, or to break the log."""
    return min(max(count or 0, 0), MOST)


def _cited(source: dict[str, Any]) -> list[Chunk]:
    words = {name: value for name, value in source.items() if isinstance(value, str)}
    if not words.get("url"):
        return []
    text = words.get("content") or words.get("snippet", "")
    return [CitationChunk(Citation(url=words["url"], title=words.get("title", ""), text=text))]


def _texts(value: Any) -> list[str]:
    """Return the words of a text, or of the parts of one."""
    parts = cast("list[Any]", value)
    return (
        [text for part in parts for text in _words(_object(part).get("text"))]
        if isinstance(value, list)
        else _words(value)
    )


def _words(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []


def _object(value: Any) -> dict[str, Any]:
    found = cast("dict[str, Any]", value)
    return found if isinstance(value, dict) else {}
