"""The fake clock, ids and random numbers."""

import asyncio

import pytest

from vaka.testing.clock import FakeClock, FakeIds, FakeRandom


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(100.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (102.5, 2.5)


async def test_a_sleep_ends_when_it_is_due_and_not_before() -> None:
    clock = FakeClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 3))
        group.create_task(sleeper("early", 1))
        await clock.wait_for_sleeps(2)
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert (woken, clock.sleep_count) == ([], 2)
        clock.advance(5)
    assert woken == ["early", "late"]
    assert clock.sleep_count == 0


async def test_a_sleep_of_no_time_returns_at_once() -> None:
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert (clock.sleep_count, clock.monotonic()) == (0, 0.0)


async def test_a_cancelled_sleep_is_removed() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.wait_for_sleeps()
    task.cancel()
    clock.advance(0.5)
    await asyncio.wait([task])
    assert clock.sleep_count == 0
    again = asyncio.create_task(clock.sleep(1))
    await clock.wait_for_sleeps()
    again.cancel()
    clock.advance(1)
    await asyncio.wait([again])
    assert again.cancelled()


async def test_waiting_for_sleeps_can_be_cancelled() -> None:
    clock = FakeClock()
    waiting = asyncio.create_task(clock.wait_for_sleeps())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    sleeping = asyncio.create_task(clock.sleep(1))
    await clock.wait_for_sleeps()
    clock.advance(1)
    await sleeping


async def test_wall_clock_and_monotonic_time_move_separately() -> None:
    clock = FakeClock(100.0)
    task = asyncio.create_task(clock.sleep(5))
    await clock.wait_for_sleeps()
    clock.jump(3600)
    clock.jump(-7200)
    assert (clock.time(), clock.monotonic(), clock.sleep_count) == (-3500.0, 0.0, 1)
    clock.drift(5)
    assert (clock.time(), clock.monotonic()) == (-3500.0, 5.0)
    await task


def test_monotonic_time_never_goes_back() -> None:
    with pytest.raises(ValueError, match="never goes back"):
        FakeClock().advance(-1)


async def test_a_sleep_of_an_automatic_clock_returns_at_once() -> None:
    clock = FakeClock(0.0, auto=True)
    await clock.sleep(10)
    await clock.sleep(-3)
    assert (clock.time(), clock.monotonic()) == (10.0, 10.0)


def test_ids_count_for_each_prefix() -> None:
    ids = FakeIds()
    assert [ids.new_id(prefix) for prefix in ("msg", "trn", "msg")] == ["msg_1", "trn_1", "msg_2"]


def test_random_numbers_are_the_given_ones_and_then_those_of_the_seed() -> None:
    one, two = FakeRandom(0.25, 0.75, seed=7), FakeRandom(seed=7)
    assert [one.random(), one.random()] == [0.25, 0.75]
    assert [one.random() for _ in range(5)] == [two.random() for _ in range(5)]
    assert FakeRandom(0.5).uniform(0, 10) == 5
    assert FakeRandom(0.5, seed=3).sample(range(99), 9) == FakeRandom(0.5, seed=3).sample(range(99), 9)
