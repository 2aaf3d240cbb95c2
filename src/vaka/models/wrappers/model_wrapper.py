"""The base class of wrappers around a model, and TextOnly, which refuses media."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NoReturn

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import Chunk, Closeable, CostEstimator, Estimate, Model, Prompt
from vaka.core.types.errors import StreamCut
from vaka.core.types.message import UserMessage
from vaka.models import compatibility
from vaka.models.compatibility import HistoryAdapter, Media


class ModelWrapper:
    """A model around another: it has the inner model's name and window, closes it, and estimates costs if it does."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner
        self.context_window: int | None = getattr(inner, "context_window", None)
        if isinstance(inner, CostEstimator) and not isinstance(self, CostEstimator):
            # an attribute, so that other wrappers are not instances of CostEstimator
            self.estimate: Callable[[Prompt], Estimate] = inner.estimate

    @property
    def name(self) -> str:
        """The name of the inner model."""
        return self._inner.name

    async def close(self) -> None:
        """Close the inner model, if it can be closed."""
        await close_models(self._inner)


async def close_models(*models: Model) -> None:
    """Close each model once, also when closing another one fails."""
    distinct = list({id(model): model for model in models if isinstance(model, Closeable)}.values())
    try:
        if distinct:
            await distinct[0].close()
    finally:
        if distinct[1:]:
            await close_models(*distinct[1:])


def with_call_number(prompt: Prompt, number: int) -> Prompt:
    """Return ``prompt`` as call ``number``: each attempt after an error has the next number."""
    return prompt if number == prompt.number else msgspec.structs.replace(prompt, number=number)


def stream_cut_error(name: str) -> StreamCut:
    """Return the error for a stream without its end marker."""
    return StreamCut(f"the answer of {name} was cut: it ended without its end marker")


class _SystemClock:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK: Clock = _SystemClock()
"""The default clock of wrappers."""


class TextOnly(ModelWrapper):
    """A model that accepts only text, though its wire supports media."""

    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._history = HistoryAdapter(inner.name, "", self._refuse_media)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer. Raises ``BadRequest`` for media in the last user message."""
        adapted, notices = self._history.adapt(prompt)
        for message in adapted.messages[-1:]:
            for part in message.content if isinstance(message, UserMessage) else ():
                if isinstance(part, Media):
                    self._refuse_media(part)
        for notice in notices:
            yield notice
        async with aclosing(self._inner.stream(adapted)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _refuse_media(self, part: Media) -> NoReturn:
        raise compatibility.unsupported_part(self.name, part, "it reads text only")
