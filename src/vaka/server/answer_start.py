"""The start of a streamed answer: a turn that fails before it is answered with an HTTP status, as by a provider."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import TypeVar

from vaka.core.types import progress
from vaka.core.types.control import Asked
from vaka.core.types.event import Event
from vaka.server.kit.problems import Problem, problem_of_failure
from vaka.views.failures import Failure, failure_of

HOLD_SECONDS = 2.0
"""The longest time for which the status of a stream waits for the first piece of the model's answer."""

_OUTPUT = (
    progress.Delta,
    progress.MessageSnapshot,
    progress.MessageCompleted,
    progress.ToolCalled,
    progress.TurnQueued,
    Asked,
)
"""Events that a client may see, events that may have had an effect, and the wait for another turn."""

_T = TypeVar("_T")


class AnswerStart:
    """Notes whether an answer has begun, and why its turn has failed."""

    def __init__(self, codes: Collection[str] | None = None) -> None:
        """``codes`` are the errors that are answered with a status, in a protocol that has events for the others."""
        self._codes = codes
        self._ran_tools = False
        self._failure: Failure | None = None
        self.underway = asyncio.Event()
        """Set when a part of the answer exists, or when it takes long: a failure comes too late for an HTTP status."""

    def note(self, event: Event, *, is_earlier: bool = False) -> None:
        """Note an event of the turn; ``is_earlier``: it belongs to an earlier answer."""
        body = event.data
        self._ran_tools = self._ran_tools or isinstance(body, progress.ToolStarted)
        if isinstance(body, _OUTPUT) and not is_earlier:
            self.underway.set()
        if isinstance(body, progress.TurnFailed) and not event.path:
            self._failure = failure_of(body)

    @property
    def problem(self) -> Problem | None:
        """The answer for a request whose turn has failed."""
        failure = self._failure
        if failure is None or (self._codes is not None and failure.code not in self._codes):
            return None
        return problem_of_failure(failure, ran_tools=self._ran_tools)


async def open_answer(pieces: AsyncGenerator[_T], start: AnswerStart, hold: float = HOLD_SECONDS) -> AsyncGenerator[_T]:
    """Return the pieces of an answer once the model has begun to write it.

    Raises a ``Problem`` for a turn that fails before: its client then reads an HTTP status and when to try again, as
    from the provider. A model that takes longer than ``hold`` seconds does not delay the stream any further.
    """
    held: list[_T] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + hold
    underway = asyncio.ensure_future(start.underway.wait())
    reading = asyncio.ensure_future(anext(pieces, None))
    try:
        while not start.underway.is_set():
            timeout = max(deadline - loop.time(), 0)
            await asyncio.wait({reading, underway}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() or (piece := reading.result()) is None:
                break
            held.append(piece)
            if start.problem is not None and not start.underway.is_set():
                raise start.problem
            reading = asyncio.ensure_future(anext(pieces, None))
    except BaseException:
        await _stop_reading(reading, pieces)
        raise
    finally:
        underway.cancel()
    return _resume(held, reading, pieces)


async def _resume(
    held: list[_T], reading: "asyncio.Future[_T | None]", pieces: AsyncGenerator[_T]
) -> AsyncGenerator[_T]:
    try:
        for piece in held:
            yield piece
        first = await reading
        if first is not None:
            yield first
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
    finally:
        await _stop_reading(reading, pieces)


async def _stop_reading(reading: "asyncio.Future[_T | None]", pieces: AsyncGenerator[_T]) -> None:
    reading.cancel()
    await asyncio.wait({reading})
    if not reading.cancelled():
        reading.exception()  # an error that the client has seen, or does not wait for
    await pieces.aclose()
