"""What a run leaves behind in its process, and what the next turn of a session waits for."""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import vaka
from vaka.core.session.log import SessionLog
from vaka.testing import ScriptedModel, call, say


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_agent(turns: int = 1) -> vaka.Agent:
    answers = [call("add", a=1, b=2), say("three")] * turns
    return vaka.Agent("adder", model=ScriptedModel(*answers), tools=[add])


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Collect no garbage, so that what waits for the collector stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_off")
async def test_the_log_of_a_run_is_freed_without_the_garbage_collector() -> None:
    before = count_logs()
    async with vaka.Runtime() as runtime:
        session = await runtime.open(make_agent())
        await session.run("1 + 2?")
        for _ in range(5):  # the reader of the answer runs before the callbacks of the driver
            await asyncio.sleep(0)
        assert count_logs() == before


async def test_a_turn_begins_in_the_same_pass_of_the_event_loop_after_another_one() -> None:
    first, second = list[int](), list[int]()
    async with vaka.Runtime() as runtime:
        for _ in range(5):  # a run that takes longer than 20 ms also starts the sync of its driver
            session = await runtime.open(make_agent(2))
            first.append(await count_passes(session.run("1 + 2?")))
            second.append(await count_passes(session.run("And again?")))
    assert min(second) == min(first)


def count_logs() -> int:
    return sum(isinstance(known, SessionLog) for known in gc.get_objects())


async def count_passes(work: Coroutine[Any, Any, object]) -> int:
    """Return the number of passes of the event loop until ``work`` has ended."""
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    await work
    counter.cancel()
    return passes
