"""A model that fails again and again is left alone for a while."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Model, Prompt, StopChunk
from vaka.core.types.errors import ConfigError, ModelUnavailable
from vaka.models.around import CLOCK, Around, cut

SOON = 1.0
"""Seconds to wait for while another call finds out whether the model is back."""

_log = logging.getLogger(__name__)


class Breaker(Around):
    """After ``failures`` calls in a row found the model unavailable, nobody asks it for ``rest`` seconds.

    Until then each call gets ``ModelUnavailable`` at once, with the time to wait. After the rest one call goes
    through: its answer closes the breaker, its failure means another rest. Errors that say nothing about whether the
    model is there, such as a bad request, count neither way, and neither does a call that was given up.
    """

    def __init__(self, inner: Model, *, failures: int = 5, rest: float = 30.0, clock: Clock | None = None) -> None:
        super().__init__(inner)
        if failures < 1 or rest <= 0:
            raise ConfigError(f"a breaker needs at least 1 failure and a rest above 0, got {failures=!r}, {rest=!r}")
        self._failures, self._rest, self._clock = failures, rest, clock or CLOCK
        self._failed, self._last = 0, ""
        self._until: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        """``closed`` (calls go through), ``open`` (none does) or ``half-open`` (one may)."""
        if self._until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._until else "half-open"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, unless it rests."""
        probe = self._admit()
        try:
            async with aclosing(self._inner.stream(prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, StopChunk):
                        self._well()
                        yield chunk
                        return
                    yield chunk
            self._ill(cut(self.name), probe=probe)
        except ModelUnavailable as error:
            self._ill(error, probe=probe)
            raise
        finally:
            if probe:
                self._probing = False

    def _admit(self) -> bool:
        """Tell whether this call finds out if the model is back. Raises ``ModelUnavailable`` while it rests."""
        if self._until is None:
            return False
        left = self._until - self._clock.monotonic()
        if left <= 0 and not self._probing:
            self._probing = True
            return True
        what = "another call finds out now whether it is back" if left <= 0 else f"it is asked again in {left:.0f} s"
        raise ModelUnavailable(
            f"{self.name} was unavailable {self._failed} times in a row ({self._last}) and is left alone; {what}",
            retry_after=left if left > 0 else SOON,
        )

    def _well(self) -> None:
        self._failed, self._until = 0, None

    def _ill(self, error: ModelUnavailable, *, probe: bool) -> None:
        if self._until is not None and not probe:
            return  # it was asked before the rest began
        self._failed, self._last = self._failed + 1, str(error)
        if probe or self._failed >= self._failures:
            self._until = self._clock.monotonic() + self._rest
            _log.warning("%s was unavailable %d times in a row; it rests for %g s", self.name, self._failed, self._rest)
