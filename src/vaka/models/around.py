"""What every wrapper around a model has in common: the other's name, its price, and its end."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Closes, Estimate, Estimates, Model, Prompt
from vaka.core.types.errors import StreamCut


class Around:
    """A model around another: it has the other's name, closes it, and can tell a price if the other can."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner
        if isinstance(inner, Estimates):  # of this very object, so that nobody takes it for what it is not
            self.estimate: Callable[[Prompt], Estimate] = inner.estimate

    @property
    def name(self) -> str:
        """The name of the other model."""
        return self._inner.name

    async def close(self) -> None:
        """Close the other model, if it holds anything."""
        await close(self._inner)


async def close(*models: Model) -> None:
    """Close those models that hold something, each once, however the others end."""
    different = list({id(model): model for model in models if isinstance(model, Closes)}.values())
    try:
        if different:
            await different[0].close()
    finally:
        if different[1:]:
            await close(*different[1:])


def numbered(prompt: Prompt, number: int) -> Prompt:
    """Return ``prompt`` as call ``number``: a try after an error takes the number after that of the one before."""
    return prompt if number == prompt.number else msgspec.structs.replace(prompt, number=number)


def cut(name: str) -> StreamCut:
    """Return what a stream without its end marker is."""
    return StreamCut(f"the answer of {name} was cut: it ended without its end marker")


class _Machine:
    """The machine's clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


CLOCK: Clock = _Machine()
"""The clock of wrappers that were given no other."""
