"""Ask again, when that is safe and may help."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random, SystemRandom

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Model, Prompt, RetryChunk, StopChunk
from vaka.core.types.errors import ConfigError, ModelUnavailable
from vaka.models.around import CLOCK, Around, cut, numbered

_CHANCE = SystemRandom()


class Retry(Around):
    """Asks up to ``attempts`` times while the model is unavailable, its limits are reached, or its answer is cut.

    It waits longer each time, by chance between 0 and ``base`` seconds doubled with each try, at most ``most``, and on
    top of that as long as the provider asks; if that is more than ``patience`` seconds it gives up at once. Before each
    new try comes a ``RetryChunk``: whatever was shown of the answer does not count. What trying again cannot help, a
    refusal or an answer at its length limit, is left alone.
    """

    def __init__(
        self, inner: Model, *, attempts: int = 5, base: float = 0.5, most: float = 30.0, patience: float = 60.0,
        clock: Clock | None = None, random: Random | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        if attempts < 1 or min(base, most, patience) < 0:
            raise ConfigError(
                "a retry needs at least 1 attempt and seconds that are not negative, "
                f"got {attempts=!r}, {base=!r}, {most=!r}, {patience=!r}"
            )
        self._attempts, self._base, self._most, self._patience = attempts, base, most, patience
        self._clock, self._random = clock or CLOCK, random or _CHANCE

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, in the end."""
        number, tried = prompt.number, 1
        while True:
            try:
                async with aclosing(self._inner.stream(numbered(prompt, number))) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, RetryChunk):
                            number += 1
                        yield chunk
                        if isinstance(chunk, StopChunk):
                            return
                raise cut(self.name)
            except ModelUnavailable as error:
                wait = self._wait(error, tried)
                if wait is None:
                    raise _after(error, tried) from error.__cause__
                failed = RetryChunk(error.code, str(error), self.name)
            yield failed
            await self._clock.sleep(wait)
            number += 1
            tried += 1

    def _wait(self, error: ModelUnavailable, tried: int) -> float | None:
        """Return how long to wait before the next try, ``None`` when there is none."""
        asked = error.retry_after or 0.0
        if tried >= self._attempts or asked > self._patience:
            return None
        return asked + self._random.random() * min(self._most, self._base * 2.0 ** min(tried - 1, 64))


def _after(error: ModelUnavailable, tried: int) -> ModelUnavailable:
    if tried > 1:
        error.args = (f"{error} (tried {tried} times)",)
    return error
