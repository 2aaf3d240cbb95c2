"""The limits of a thread as data, and when it counts as idle."""

from typing import Any

import pytest

import vaka
from vaka.core.types.errors import InvalidInput
from vaka.threads.thread import POLICY_KEY, ThreadPolicy


def test_limits_below_nothing_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"max_messages": -1}, {"idle_timeout": -0.5}, {"max_duration": float("nan")}]
    for limits in wrong:
        with pytest.raises(InvalidInput, match="must be at least 0, or None for no limit"):
            ThreadPolicy(**limits)
    assert ThreadPolicy(max_messages=0, max_duration=None, idle_timeout=0).max_messages == 0


async def test_stored_limits_that_cannot_be_are_none() -> None:
    async with vaka.Runtime(store="memory:") as runtime:
        thread = await runtime.threads.create(metadata={POLICY_KEY: {"max_messages": -1}})
        assert thread.policy is None
        assert (await runtime.threads.add_message(thread.id, {"role": "user", "content": "Hello"})).added


async def test_a_message_of_an_earlier_time_does_not_make_a_thread_idle() -> None:
    async with vaka.Runtime(store="memory:") as runtime:
        threads = runtime.threads
        thread = await threads.create(id="t", policy=ThreadPolicy())
        for number in range(2):
            await threads.add_message("t", {"role": "user", "content": f"{number}", "ts": "2020-01-01T00:00:00Z"})
        now = await threads.get("t")
        assert (now.state, now.updated_at) == ("active", thread.created_at)
        copy = await threads.import_lines([line async for line in threads.export("t")], id="copy")
        assert (copy.state, copy.updated_at) == ("active", copy.created_at)
