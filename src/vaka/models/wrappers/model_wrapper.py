"""What every wrapper around a model shares, and TextOnly, which refuses media."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NoReturn

import msgspec

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Closeable, CostEstimator, Estimate, Model, Prompt
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import Audio, Document, Image, UserMessage
from vaka.models import compatibility
from vaka.models.compatibility import HistoryAdapter, Media


class ModelWrapper:
    """A model around another: it has the other's name, closes it, and can tell a price if the other can."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner
        if isinstance(inner, CostEstimator):  # of this very object, so that nobody takes it for what it is not
            self.estimate: Callable[[Prompt], Estimate] = inner.estimate

    @property
    def name(self) -> str:
        """The name of the other model."""
        return self._inner.name

    async def close(self) -> None:
        """Close the other model, if it holds anything."""
        await close_models(self._inner)


async def close_models(*models: Model) -> None:
    """Close those models that hold something, each once, however the others end."""
    different = list({id(model): model for model in models if isinstance(model, Closeable)}.values())
    try:
        if different:
            await different[0].close()
    finally:
        if different[1:]:
            await close_models(*different[1:])


def with_call_number(prompt: Prompt, number: int) -> Prompt:
    """Return ``prompt`` as call ``number``: a try after an error takes the number after that of the one before."""
    return prompt if number == prompt.number else msgspec.structs.replace(prompt, number=number)


def stream_cut_error(name: str) -> StreamCut:
    """Return what a stream without its end marker is."""
    return StreamCut(f"the answer of {name} was cut: it ended without its end marker")


class _SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK: Clock = _SystemClock()
"""The clock of wrappers that were given no other."""


class TextOnly(ModelWrapper):
    """A model that reads nothing but text, whatever its wire has a place for."""

    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._history = HistoryAdapter(inner.name, "", self._refuse_media)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does. Raises ``BadRequest`` for what is shown to it now."""
        seen, notices = self._history.adapt(prompt)
        for part in (part for message in seen.messages[-1:] if isinstance(message, UserMessage)
                     for part in message.content):  # fmt: skip
            if isinstance(part, Image | Audio | Document):
                self._refuse_media(part)
        for notice in notices:
            yield notice
        async with aclosing(self._inner.stream(seen)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _refuse_media(self, part: Media) -> NoReturn:
        raise compatibility.unsupported_part(self.name, part, "it reads text only")
