"""Opening a session that exists: how much of it is read, and what is shown as running."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.config.options import Commands, Workspace
from vaka.core.ports.store import EventStore
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.models.scripted import Scripted
from vaka.stores.memory import MemoryStore


class CountingEvents:
    """The logs of a store, with a count of the events read."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._events.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.count += 1
                yield event


async def count_events_read(turns: int) -> int:
    """Return the events that a chat reads to open a session of some turns."""
    store = MemoryStore()
    agent: Agent[Any] = Agent("talker", model=Scripted([{"text": "An answer.", "repeat": True}]))
    async with Runtime(agent=agent, store=store, commands=Commands(sandbox="off")) as runtime:
        session = await runtime.open(id="long")
        for number in range(turns):
            await session.run(f"Question {number}?")
        events: Any = store.events
        counting: Any = CountingEvents(events)
        store.events = counting
        async with chat_in_process(runtime, session) as chat:
            await chat.expect(f"Question {turns - 1}?")
            assert "Question 0?" not in chat.text
        return int(counting.count)


async def test_the_events_read_to_open_a_session_do_not_grow_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await count_events_read(60) == await count_events_read(180)


async def test_a_chat_whose_folder_is_removed_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    agent: Agent[Any] = Agent("talker", model=Scripted([{"text": "Hi.", "repeat": True}]))
    async with (
        Runtime(agent=agent, workspace=Workspace(cwd=str(folder)), commands=Commands(sandbox="off")) as runtime,
        chat_in_process(runtime, columns=300, rows=60) as chat,
    ):
        await chat.say("First.")
        await chat.expect("Hi.")
        folder.rmdir()
        await chat.say("Second.")
        await chat.expect("was moved, replaced or removed")
        await chat.say("/help")
        await chat.expect("/rewind")
        assert "Traceback" not in chat.text
