"""Another model answers where one cannot."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing

import msgspec

from vaka.core.ports.model import (
    Chunk,
    Estimate,
    Estimates,
    Model,
    NoticeChunk,
    Prompt,
    RetryChunk,
    StopChunk,
    UsageChunk,
)
from vaka.core.types.errors import BadRequest, ConfigError, ModelError, ModelUnavailable
from vaka.core.types.monitor import ModelSelected
from vaka.models.around import close, cut, numbered


class Fallback:
    """Asks ``models`` in their order until one answers; by default the next one when one is unavailable.

    ``on`` names the errors after which the next is asked, such as ``(ModelUnavailable, ContextTooLong)`` or
    ``(ModelError,)`` for all of them; a bad request is bad for every model, so ``BadRequest`` counts only where it is
    named itself. A ``RetryChunk`` says which model failed, a notice which one answers instead. Its price is that of the
    dearest, and not known if that of any is not.
    """

    def __init__(
        self, models: Iterable[Model], *, on: Sequence[type[ModelError]] = (ModelUnavailable,), name: str = ""
    ) -> None:
        self._models = tuple(models)
        if not self._models:
            raise ConfigError("a fallback needs at least one model, got none")
        self._on, self._name = tuple(on), name or self._models[0].name
        self._estimates = [model for model in self._models if isinstance(model, Estimates)]
        if self._estimates:
            self.estimate: Callable[[Prompt], Estimate] = self._dearest

    @property
    def name(self) -> str:
        """The name of the first model, unless another was given."""
        return self._name

    async def close(self) -> None:
        """Close all models."""
        await close(*self._models)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the first model does that can."""
        number = prompt.number
        failed: list[str] = []
        for model in self._models:
            if failed:
                yield NoticeChunk(ModelSelected(model=model.name, reason=f"fallback after {', '.join(failed)}"))
            try:
                async with aclosing(model.stream(numbered(prompt, number))) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, UsageChunk):
                            yield chunk if chunk.model else UsageChunk(chunk.usage, model.name)
                            continue
                        if isinstance(chunk, RetryChunk):
                            number += 1
                        yield chunk
                        if isinstance(chunk, StopChunk):
                            return
                raise cut(model.name)
            except ModelError as error:
                failed.append(f"{model.name}: {error.code}")
                if len(failed) == len(self._models) or not self._falls(error):
                    raise _told(error, failed) from error.__cause__
                again = RetryChunk(error.code, str(error), model.name)
            yield again
            number += 1

    def _falls(self, error: ModelError) -> bool:
        """Tell whether the next model is asked after this error."""
        named = any(issubclass(kind, BadRequest) for kind in self._on)
        return isinstance(error, self._on) and (named or not isinstance(error, BadRequest))

    def _dearest(self, prompt: Prompt) -> Estimate:
        found = [model.estimate(prompt) for model in self._estimates]
        most = max(found, key=lambda estimate: (estimate.usage.cost, estimate.usage.total))
        bounds = [estimate.max_tokens for estimate in found if estimate.max_tokens is not None]
        return msgspec.structs.replace(
            most, output_price=max(estimate.output_price for estimate in found),
            max_tokens=max(bounds) if len(bounds) == len(found) else None, takes=min(bounds, default=None),
            unpriced=next((estimate.unpriced for estimate in found if estimate.unpriced), ""),
        )  # fmt: skip


def _told(error: ModelError, failed: list[str]) -> ModelError:
    if len(failed) > 1:
        error.args = (f"{error} (no model answered; {', '.join(failed)})",)
    return error
