"""The answer of one request: a part of a turn, encoded for a protocol."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import msgspec

from vaka.core.ports.values import BlobStore
from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.runtime.session import Session
from vaka.server.answer_start import AnswerStart
from vaka.server.turn_events import TurnEvents, restore_event


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
        self.start = AnswerStart()

    def encode(self, event: Event) -> list[dict[str, Any]]:
        """Return the objects of an event of the turn."""
        self._seq = event.seq or self._seq
        if self._is_earlier and self._seq > self._place.after:
            self._encoder.finish()
            self._is_earlier = False
        self.start.note(event, is_earlier=self._is_earlier)
        if self.steers and isinstance(event.data, progress.StepStarted):
            for key in event.data.inputs:
                if key in self.steers:
                    self.ended = True
                    return self.steers[key]()
        encoded = self._encoder.encode(event)
        return [] if self._is_earlier else encoded

    def wait(self) -> list[dict[str, Any]]:
        """Return the end of the answer because the turn waits; nothing if that wait is over."""
        if self._is_earlier or self._seq < self._place.decided:
            return []
        self.ended = True
        return self._encoder.finish()


class RequestAnswer:
    """The answer of one request, whose turn runs or has ended."""

    def __init__(self, session: Session[Any], events: TurnEvents, place: AnswerPlace, blobs: BlobStore) -> None:
        self.session = session
        self.events = events
        self.place = place
        self._blobs = blobs

    async def encode(self, encoding: AnswerEncoding, *, live: bool = True) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yield the objects of the answer, one list for each batch of events. The last list ends the answer.

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
