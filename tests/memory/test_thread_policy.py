"""The limits of a thread as data."""

from typing import Any

import pytest

import vaka
from vaka.core.types.errors import InvalidInput
from vaka.memory.threads import POLICY_KEY, ThreadPolicy


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
