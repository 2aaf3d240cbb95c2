"""A stream for those that cannot stream: the whole answer, then its pieces."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TypeAlias

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.content import CallRef, Part, Reasoning, Text
from vaka.core.types.errors import ConfigError, ModelError, ModelUnavailable
from vaka.core.types.monitor import ModelSelected
from vaka.models.whole import Whole

PIECE = 200
"""Characters of a piece at most."""

Complete: TypeAlias = Callable[[Prompt], Awaitable[Whole]]
"""Asks for a whole answer. Raises ``ModelError``."""


class Simulated:
    """A model made of a function that returns whole answers; operators are told that its stream is none.

    ``complete`` raises ``ModelError``; a connection that fails (``OSError``) counts as the model being unavailable.
    """

    simulated = True

    def __init__(self, complete: Complete, *, name: str, piece: int = PIECE) -> None:
        if piece < 1:
            raise ConfigError(f"a piece has at least 1 character, got {piece!r}")
        self._complete, self._name, self._piece = complete, name, piece

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer whole, in pieces."""
        yield NoticeChunk(ModelSelected(model=self._name, reason="simulated"))
        try:
            whole = await self._complete(prompt)
        except OSError as error:
            raise ModelUnavailable(f"{self._name} cannot be reached: {str(error) or type(error).__name__}") from error
        for chunk in _chunks(whole, self._piece):
            yield chunk
            await asyncio.sleep(0)  # a long answer keeps nobody waiting
        yield UsageChunk(whole.usage, whole.model)
        yield StopChunk(whole.stop)


def _chunks(whole: Whole, size: int) -> Iterator[Chunk]:
    index = {call.id: at for at, call in enumerate(whole.calls)}
    placed: set[int] = set()
    for part in whole.content:
        if isinstance(part, CallRef):
            if part.id in index and index[part.id] not in placed:
                placed.add(index[part.id])
                yield from _call(whole, index[part.id], size)
        else:
            yield from _part(part, size)
    for at in range(len(whole.calls)):
        if at not in placed:
            yield from _call(whole, at, size)


def _part(part: Part, size: int) -> Iterator[Chunk]:
    if isinstance(part, Text):
        yield from (TextChunk(piece) for piece in _pieces(part.text, size))
        yield from (CitationChunk(citation) for citation in part.citations)
    elif isinstance(part, Reasoning):
        *pieces, last = _pieces(part.text, size)
        yield from (ReasoningChunk(piece) for piece in pieces)
        yield ReasoningChunk(last, part.signature, part.opaque)
    else:
        raise ModelError(f"an answer has texts, reasoning and calls, not {type(part).__name__!r}")


def _call(whole: Whole, at: int, size: int) -> Iterator[Chunk]:
    call = whole.calls[at]
    first, *pieces = _pieces(call.arguments, size)
    yield CallChunk(at, call.name, first, call.id or f"call_{at + 1}", call.repaired)
    yield from (CallChunk(at, "", piece) for piece in pieces)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
