"""What a later turn of a session reads and builds in one runtime: counted, not timed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple, cast

import vaka
from bench.agents import AddingModel, make_agent
from vaka.core.ports.model import Chunk, Prompt
from vaka.core.ports.store import EventStore
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Message
from vaka.runtime.open_store import open_store

MESSAGES_BUILT = 4
"""New messages in the two prompts of a turn: its input, its call and result, and the answer of the turn before."""


class CountingEvents:
    """An event store that counts the events it returns."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._events.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.count += 1
                yield event


class ComparingModel(AddingModel):
    """Counts the messages of each prompt that are not the same objects as those of the prompt before."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: tuple[Message, ...] = ()
        self.built = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        known = {id(message) for message in self._last}
        self.built += sum(id(message) not in known for message in prompt.messages)
        self._last = prompt.messages
        if self._seconds:
            await asyncio.sleep(self._seconds)
        async for chunk in super().stream(prompt):
            yield chunk


class TurnCounts(NamedTuple):
    """The events that a turn reads from the store, the messages it builds, and those in its last prompt."""

    events_read: int
    messages_built: int
    messages: int


async def count_later_turn(turn: int, url: str = "memory:", seconds: float = 0.0) -> TurnCounts:
    """Return the counts of the given turn of a session that one runtime runs; ``seconds`` is the time of a model call.

    A runtime reads what other processes write only while a turn takes longer than some milliseconds.
    """
    store, model = open_store(url, durability="power"), ComparingModel(seconds)
    store.events = cast("EventStore", counting := CountingEvents(store.events))
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(make_agent(model))
        for _ in range(turn - 1):
            await session.run("hi")
        read, built = counting.count, model.built
        await session.run("hi")
        return TurnCounts(counting.count - read, model.built - built, model.messages_seen)
