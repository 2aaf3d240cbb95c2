"""A complete answer: drain a stream into a Completion, and stream a Completion in pieces."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.assemble import UNFINISHED_STOPS, MessageAssembly, RawToolCall
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    Model,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ModelError, ModelUnavailable, Truncated
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, CallRef, Content, Part, Reasoning, Text, Usage, text_of
from vaka.core.types.monitor import ModelSelected
from vaka.models.compatibility import DECODE_ERRORS
from vaka.models.function_calls import FunctionCall
from vaka.models.wrappers.model_wrapper import stream_cut_error


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer."""

    content: Content = ()
    """Texts and reasoning in order, with a reference at the place of each call."""
    calls: tuple[FunctionCall, ...] = ()
    usage: Usage = Usage()
    """The usage of the answer and of failed attempts before it."""
    stop: str = "end"
    model: str = ""

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning."""
        return text_of(self.content)

    @property
    def reasoning(self) -> str:
        """The reasoning of the answer."""
        return "".join(part.text for part in self.content if isinstance(part, Reasoning))

    @property
    def data(self) -> Any:
        """The answer as JSON data. Raises ``ModelError`` when it is not JSON."""
        try:
            return msgspec.json.decode(self.text)
        except DECODE_ERRORS as error:
            excerpt = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
            ending = f"it ended with {self.stop!r}: {excerpt!r}"
            raise ModelError(f"the answer of {self.model or 'the model'} is not JSON: {error}; {ending}") from error

    @property
    def message(self) -> AssistantMessage:
        """The answer as a message, to continue a conversation with."""
        calls = tuple(call.as_tool_call(CallId(call.id or "")) for call in self.calls)
        return AssistantMessage(id=MessageId(""), content=self.content, calls=calls, model=self.model, stop=self.stop)


async def complete(model: Model, prompt: Prompt) -> Completion:
    """Call ``model`` and return its complete answer.

    Raises ``StreamCut`` when the answer was cut, ``Truncated`` when its length limit cut a call or the requested data,
    and the errors of the model. A refused answer has no calls.
    """
    assembly, spent = MessageAssembly(MessageId("")), Usage()
    async with aclosing(model.stream(prompt)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, RetryChunk):
                spent += assembly.usage
                assembly = MessageAssembly(MessageId(""))
            else:
                assembly.feed(chunk)
    if assembly.stop is None:
        raise stream_cut_error(model.name)
    parts: Sequence[Part | RawToolCall] = assembly.parts()
    if assembly.stop == "length":
        _check_length_limit(model.name, prompt, parts)
    if assembly.stop in UNFINISHED_STOPS:
        parts = [part for part in parts if not isinstance(part, RawToolCall)]
    content, calls = _split_parts(parts)
    return Completion(
        content=content,
        calls=calls,
        usage=spent + assembly.usage,
        stop=assembly.stop,
        model=assembly.model or model.name,
    )


def _check_length_limit(name: str, prompt: Prompt, parts: Sequence[Part | RawToolCall]) -> None:
    called = [part.name for part in parts if isinstance(part, RawToolCall)]
    if called:
        raise Truncated(f"{name} reached its length limit in the call of {called[-1]!r}; raise max_tokens, or ask less")
    if prompt.options.get("output") is not None:
        raise Truncated(f"{name} reached its length limit before its data was complete; raise max_tokens, or ask less")


def _split_parts(parts: Sequence[Part | RawToolCall]) -> tuple[Content, tuple[FunctionCall, ...]]:
    content: list[Part] = []
    calls: list[FunctionCall] = []
    written = {part.provider_id for part in parts if isinstance(part, RawToolCall)}
    used: set[str] = set()
    for part in parts:
        if not isinstance(part, RawToolCall):
            content.append(part)
            continue
        id = part.provider_id
        if not id or id in used:
            id = next(new for new in map("call_{}".format, count(len(calls) + 1)) if new not in written | used)
        used.add(id)
        calls.append(FunctionCall(id=id, name=part.name, arguments=part.arguments, repaired=part.repaired))
        content.append(CallRef(id=CallId(id)))
    return tuple(content), tuple(calls)


PIECE_CHARACTERS = 200

CompleteFunction: TypeAlias = Callable[[Prompt], Awaitable[Completion]]
"""Returns a complete answer. Raises ``ModelError``."""


class SimulatedStream:
    """A model made from a function that returns complete answers; a notice says that its stream is simulated.

    ``complete`` raises ``ModelError``; an ``OSError`` counts as the model being unavailable.
    """

    simulated = True

    def __init__(self, complete: CompleteFunction, *, name: str, piece: int = PIECE_CHARACTERS) -> None:
        if piece < 1:
            raise ConfigError(f"a piece has at least 1 character, got {piece!r}")
        self.name = name
        self._complete = complete
        self._piece = piece

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the complete answer in pieces."""
        yield NoticeChunk(ModelSelected(model=self.name, reason="simulated"))
        try:
            answer = await self._complete(prompt)
        except OSError as error:
            raise ModelUnavailable(f"{self.name} cannot be reached: {str(error) or type(error).__name__}") from error
        for chunk in _completion_chunks(answer, self._piece):
            yield chunk
            await asyncio.sleep(0)  # a long answer must not block the event loop
        yield UsageChunk(answer.usage, answer.model)
        yield StopChunk(answer.stop)


def _completion_chunks(completion: Completion, size: int) -> Iterator[Chunk]:
    index = {call.id: at for at, call in enumerate(completion.calls)}
    rest = dict(enumerate(completion.calls))
    for part in completion.content:
        if not isinstance(part, CallRef):
            yield from _part_chunks(part, size)
        elif (at := index.get(part.id, -1)) in rest:
            yield from _call_chunks(at, rest.pop(at), size)
    for at, call in rest.items():
        yield from _call_chunks(at, call, size)


def _part_chunks(part: Part, size: int) -> Iterator[Chunk]:
    if isinstance(part, Text):
        yield from (TextChunk(piece) for piece in _split_text(part.text, size))
        yield from (CitationChunk(citation) for citation in part.citations)
    elif isinstance(part, Reasoning):
        *pieces, last = _split_text(part.text, size)
        yield from (ReasoningChunk(piece) for piece in pieces)
        yield ReasoningChunk(last, part.signature, part.opaque)
    else:
        raise ModelError(f"an answer has texts, reasoning and calls, not {type(part).__name__!r}")


def _call_chunks(at: int, call: FunctionCall, size: int) -> Iterator[Chunk]:
    first, *pieces = _split_text(call.arguments, size)
    yield CallChunk(at, call.name, first, call.id or f"call_{at + 1}", call.repaired)
    yield from (CallChunk(at, "", piece) for piece in pieces)


def _split_text(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
