"""The fake clock, ids and chance do what a test tells them."""

import asyncio

import pytest

from vaka.testing.clock import FakeClock, FakeIds, FakeRandom


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(100.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (102.5, 2.5)


async def test_a_sleep_ends_when_its_time_has_come_and_not_before() -> None:
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


async def test_no_time_at_all_is_no_sleep() -> None:
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert (clock.sleep_count, clock.monotonic()) == (0, 0.0)


async def test_a_cancelled_sleep_is_forgotten() -> None:
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


async def test_waiting_for_sleepers_can_be_given_up() -> None:
    clock = FakeClock()
    waiting = asyncio.create_task(clock.wait_for_sleeps())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    sleeping = asyncio.create_task(clock.sleep(1))
    await clock.wait_for_sleeps()
    clock.advance(1)
    await sleeping


async def test_the_two_times_can_jump_apart() -> None:
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


async def test_an_automatic_clock_sleeps_in_no_time() -> None:
    clock = FakeClock(0.0, auto=True)
    await clock.sleep(10)
    await clock.sleep(-3)
    assert (clock.time(), clock.monotonic()) == (10.0, 10.0)


def test_ids_count_for_each_prefix() -> None:
    ids = FakeIds()
    assert [ids.new_id(prefix) for prefix in ("msg", "trn", "msg")] == ["msg_1", "trn_1", "msg_2"]


def test_chance_is_what_was_given_and_then_what_the_seed_gives() -> None:
    one, two = FakeRandom(0.25, 0.75, seed=7), FakeRandom(seed=7)
    assert [one.random(), one.random()] == [0.25, 0.75]
    assert [one.random() for _ in range(5)] == [two.random() for _ in range(5)]
    assert FakeRandom(0.5).uniform(0, 10) == 5
    assert FakeRandom(0.5, seed=3).sample(range(99), 9) == FakeRandom(0.5, seed=3).sample(range(99), 9)
