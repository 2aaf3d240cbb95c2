"""A rewind goes to a position between two turns; a fork may cut a turn, which it ends."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    count_events,
    event_types,
    log_writer,
    read_log,
    runtime,
    wait_until,
)
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types.control import SessionReverted
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import EventScope, SessionId
from vaka.core.types.message import AssistantMessage, ToolMessage, text_of
from vaka.core.types.progress import TurnStarted
from vaka.runtime.session import Session
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say, stall


@vaka.tool
def ping() -> str:
    """Answer."""
    return "pong"


def make_agent() -> vaka.Agent[Any]:
    """Return an agent whose first turn has a tool call."""
    return agent(ScriptedModel(call("ping"), say("one"), say("two"), say("three")), ping)


async def said(session: Session[Any]) -> list[str]:
    """Return the texts of a conversation without the results of calls."""
    return [
        ("" if isinstance(message, AssistantMessage) else "> ") + text_of(message.content)
        for message in await session.messages()
        if not isinstance(message, ToolMessage)
    ]


async def test_a_rewind_into_a_turn_is_refused_with_the_boundaries_named() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(make_agent(), id="s")
        await session.run("first")
        log = await read_log(store, "s")
        started = next(event.seq for event in log if isinstance(event.data, TurnStarted))
        for seq in range(started, len(log)):
            with pytest.raises(InvalidInput) as refused:
                await session.rewind(str(seq))
            assert str(refused.value) == (
                f"session 's' cannot be rewound to event {seq}, which is inside a turn; rewind it to 1 (before this "
                f"turn) or to {len(log)} (its end), or fork it at {seq}"
            )
        assert len(await read_log(store, "s")) == len(log), "a refused rewind writes nothing"
        await session.rewind(str(len(log)))
        assert (await session.run("second")).text == "two"
        await session.rewind("1")
        await session.run("third")
        assert (await said(session))[0] == "> third"


async def test_a_rewind_into_an_unfinished_turn_names_only_the_place_before_it_and_stops_nothing() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(stall())), id="s")
        task = asyncio.create_task(session.run("first"))
        await wait_until(lambda: count_events(store, "s", "step.started") == 1)
        head = len(await read_log(store, "s"))
        with pytest.raises(InvalidInput, match=rf"rewind it to 1 \(before this turn\), or fork it at {head}$"):
            await session.rewind(str(head), interrupt=True)
        assert event_types(await read_log(store, "s"))[-1] == "step.started", "the turn goes on"
        await session.rewind("1", interrupt=True)
        with pytest.raises(vaka.VakaError):
            await task


async def test_the_place_before_a_turn_whose_prompt_waited_for_another_is_the_end_of_that_one() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(stall(), say("two"), say("three"))), id="s")
        task = asyncio.create_task(session.run("first"))
        await wait_until(lambda: count_events(store, "s", "step.started") == 1)
        await session.send("second", on_busy="queue")
        await session.interrupt()
        with pytest.raises(vaka.VakaError):
            await task
        await wait_until(lambda: count_events(store, "s", "turn.completed") == 1)
        log = await read_log(store, "s")
        end = next(event.seq for event in log if event.type == "turn.interrupted")
        with pytest.raises(InvalidInput, match=rf"to {end} \(before this turn\)"):
            await session.rewind(str(len(log) - 1))
        await session.rewind(str(end))
        assert (await session.run("third")).text
        assert [text for text in await said(session) if text.startswith(">")] == ["> first", "> third"]


async def test_a_fork_at_any_event_answers_the_next_prompt_in_a_turn_of_its_own() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(make_agent(), id="s")
        await session.run("first")
        for seq in range(1, len(await read_log(store, "s")) + 1):
            fork = await session.fork(str(seq))
            before = await read_log(store, fork.id)
            check_log(before)
            assert (await fork.run("next")).text
            log = await read_log(store, fork.id)
            check_log(log)
            new = event_types(log[len(before) :])
            assert new.count("turn.started") == new.count("turn.completed") == 1, f"forked at {seq}: {new}"


@pytest.mark.parametrize("place", [4, 4.0, b"4", True])
async def test_a_position_of_another_type_is_an_error_that_says_what_is_expected(place: Any) -> None:
    async with runtime() as rt:
        session = await rt.open(make_agent(), id="s")
        await session.run("first")
        for work in (session.rewind(place), session.fork(place)):
            with pytest.raises(InvalidInput, match=r"must be a text such as '42' or '1.42', the label of a checkpoint"):
                await work


async def test_a_log_that_an_older_version_rewound_into_a_turn_answers_the_next_prompt() -> None:
    store, repaired = MemoryStore(), MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(make_agent(), id="s")).run("first")
    log = await read_log(store, "s")
    step = next(event.seq for event in log if event.type == "step.started")
    reverted = SessionReverted(to=step, calls=1, reason="")
    events = [*log, *seal_chain(SessionId("s"), log[-1], [(EventScope(), reverted)], log[-1].ts)]
    await log_writer(repaired, "s", events)()
    async with runtime(repaired) as rt:
        session = await rt.open(make_agent(), id="s")
        assert (await session.run("next")).text
        assert await said(session) == ["> first", "> next", "one"]
