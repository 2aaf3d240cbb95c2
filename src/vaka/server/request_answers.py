"""The answer of one request: a part of a turn, encoded for a protocol."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from vaka.core.ports.values import BlobStore
from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.runtime.session import Session
from vaka.server.problems import Problem, problem_of_failure
from vaka.server.turn_events import TurnEvents, restore_event
from vaka.views.failures import Failure, failure_of
from vaka.views.pending_decisions import Asked

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
"""What a client may see of a turn, what may have had an effect, and that the turn waits for another one."""


class Encoder(Protocol):
    """Turns events into the objects of a protocol."""

    def encode(self, event: Event) -> list[dict[str, Any]]:
        """Return the objects of an event."""
        ...

    def finish(self) -> list[dict[str, Any]]:
        """Return the end of an answer whose turn waits."""
        ...


class AnswerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer is in the log of its session."""

    session: str
    key: str = ""
    """The key of the input that its turn answers."""
    turn: str = ""
    """The turn, if it is not known by the key."""
    start: int = 0
    """A position before the input of the turn."""
    after: int = 0
    """The event up to which the turn belongs to earlier answers."""
    decided: int = 0
    """The event of the last decision of the request; waits before it are over."""


class AnswerEncoding:
    """Encodes the events of a turn that are one answer, from the input or a decision to the end or the next one."""

    def __init__(self, place: AnswerPlace, encoder: Encoder) -> None:
        self._place, self._encoder = place, encoder
        self._is_earlier, self._seq = bool(place.after), 0
        self.steers: dict[str, Callable[[], list[dict[str, Any]]]] = {}
        """The keys of inputs that end the answer when the turn takes them, and what returns its end."""
        self.ended = False
        """Whether the answer ends although the turn goes on."""
        self.underway = asyncio.Event()
        """Set when a part of the answer exists, or when it takes long: a failure comes too late for an HTTP status."""
        self.ran_tools = False
        self.failure: Failure | None = None
        """Why the turn has failed."""

    def encode(self, event: Event) -> list[dict[str, Any]]:
        """Return the objects of an event of the turn."""
        self._seq = event.seq or self._seq
        if self._is_earlier and self._seq > self._place.after:
            self._encoder.finish()
            self._is_earlier = False
        self._note(event.path, event.data)
        if self.steers and isinstance(event.data, progress.StepStarted):
            for key in event.data.inputs:
                if key in self.steers:
                    self.ended = True
                    return self.steers[key]()
        encoded = self._encoder.encode(event)
        return [] if self._is_earlier else encoded

    def _note(self, path: Sequence[str], body: Body) -> None:
        self.ran_tools = self.ran_tools or isinstance(body, progress.ToolStarted)
        if isinstance(body, _OUTPUT) and not self._is_earlier:
            self.underway.set()
        if isinstance(body, progress.TurnFailed) and not path:
            self.failure = failure_of(body)

    @property
    def problem(self) -> Problem | None:
        """The answer for a request whose turn has failed."""
        return None if self.failure is None else problem_of_failure(self.failure, ran_tools=self.ran_tools)

    def wait(self) -> list[dict[str, Any]]:
        """Return the end of the answer because the turn waits; nothing if that wait is over."""
        if self._is_earlier or self._seq < self._place.decided:
            return []
        self.ended = True
        return self._encoder.finish()


class RequestAnswer:
    """The answer of one request, whose turn runs or has ended."""

    def __init__(self, session: Session[Any], events: TurnEvents, place: AnswerPlace, blobs: BlobStore) -> None:
        self.session, self.events, self.place, self._blobs = session, events, place, blobs

    async def encode(self, encoding: AnswerEncoding, *, live: bool = True) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yield the objects of the answer, those of a batch of events at a time. The last ones end it.

        Without ``live``, only what is stored counts: no text of a message that is discarded.
        """
        async with self.events as events:
            while not events.ended:
                objects: list[dict[str, Any]] = []
                batch = await events.next_batch()
                for event in batch:
                    if (live or event.seq) and not encoding.ended:
                        objects += encoding.encode(await restore_event(self._blobs, event))
                if events.waiting and not encoding.ended:
                    objects += encoding.wait()
                if objects:
                    yield objects
                if encoding.ended or (events.waiting and not batch):  # in the second case the server stops
                    return


async def open_answer(
    batches: AsyncGenerator[list[dict[str, Any]]], encoding: AnswerEncoding, hold: float = HOLD_SECONDS
) -> AsyncGenerator[list[dict[str, Any]]]:
    """Return the objects of an answer once the model has begun to write it.

    Raises a ``Problem`` for a turn that fails before: its client then reads an HTTP status and when to try again, as
    from the provider. A model that takes longer than ``hold`` seconds does not delay the stream any further.
    """
    held: list[list[dict[str, Any]]] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + hold
    underway = asyncio.ensure_future(encoding.underway.wait())
    reading = asyncio.ensure_future(anext(batches, None))
    try:
        while not encoding.underway.is_set():
            timeout = max(deadline - loop.time(), 0)
            await asyncio.wait({reading, underway}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() or (batch := reading.result()) is None:
                break
            held.append(batch)
            if encoding.problem is not None and not encoding.underway.is_set():
                raise encoding.problem
            reading = asyncio.ensure_future(anext(batches, None))
    except BaseException:
        await _stop_reading(reading, batches)
        raise
    finally:
        underway.cancel()
    return _resume(held, reading, batches)


async def _resume(
    held: list[list[dict[str, Any]]], reading: "asyncio.Future[Any]", batches: AsyncGenerator[list[dict[str, Any]]]
) -> AsyncGenerator[list[dict[str, Any]]]:
    try:
        for batch in held:
            yield batch
        first = await reading
        if first is not None:
            yield first
        async with aclosing(batches):
            async for batch in batches:
                yield batch
    finally:
        await _stop_reading(reading, batches)


async def _stop_reading(reading: "asyncio.Future[Any]", batches: AsyncGenerator[list[dict[str, Any]]]) -> None:
    reading.cancel()
    await asyncio.wait({reading})
    if not reading.cancelled():
        reading.exception()  # an error that the client has seen, or does not wait for
    await batches.aclose()
