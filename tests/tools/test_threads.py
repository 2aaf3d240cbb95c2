"""Blocking functions in threads, and their end after cancellation."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import Any, cast

import pytest

from tests.tools.context import FakeContext
from vaka.core.types.errors import InvalidInput
from vaka.tools import tool


async def test_a_sync_function_runs_in_a_daemon_thread_with_the_callers_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default="")
    threads: list[threading.Thread] = []

    @tool
    def function() -> str:
        """Look around."""
        threads.append(threading.current_thread())
        value = variable.get()
        variable.set("changed")
        return value

    variable.set("mine")
    assert await function.call(FakeContext(), {}) == "mine"
    assert variable.get() == "mine"
    assert threads[0] is not threading.main_thread()
    assert threads[0].daemon
    assert threads[0].name == "tool function"


async def test_cancellation_does_not_wait_for_the_thread() -> None:
    started = threading.Event()
    release = threading.Event()
    finished = threading.Event()

    @tool
    def function() -> str:
        """Hang."""
        started.set()
        release.wait()
        finished.set()
        return "late"

    task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
    await asyncio.to_thread(started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not finished.is_set()
    release.set()
    await asyncio.to_thread(finished.wait)


async def test_cancellation_reaches_an_async_function() -> None:
    started = asyncio.Event()
    events: list[str] = []

    @tool
    async def function() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("left")

    task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["left"]


HANGING = """
import asyncio, threading
from tests.tools.context import FakeContext
from vaka.tools import tool

begun = threading.Event()

@tool
def hang():
    "Hang."
    begun.set()
    threading.Event().wait()

async def main():
    task = asyncio.create_task(hang.call(FakeContext(), {}))
    while not begun.is_set():
        await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


def test_a_hung_thread_does_not_keep_the_process_alive() -> None:
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


async def test_a_thread_that_ends_after_its_loop_is_closed_raises_nothing() -> None:
    started, release = threading.Event(), threading.Event()
    heard: list[Any] = []

    @tool
    def function() -> None:
        """Hang."""
        started.set()
        release.wait()

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick"

    async def inner() -> None:
        task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
        await asyncio.to_thread(started.wait)
        task.cancel()

    def hook(args: threading.ExceptHookArgs) -> None:
        heard.append(args.exc_value)

    before, threading.excepthook = threading.excepthook, hook
    try:
        await asyncio.to_thread(asyncio.run, inner())
        release.set()
        assert await asyncio.gather(*(quick.call(FakeContext(), {}) for _ in range(12))) == ["quick"] * 12
    finally:
        threading.excepthook = before
    assert heard == []


async def test_concurrent_calls_each_have_a_thread() -> None:
    meeting = threading.Barrier(20)

    @tool
    def function() -> int:
        """Wait for the others."""
        meeting.wait()
        return threading.get_ident()

    idents = await asyncio.gather(*(function.call(FakeContext(), {}) for _ in range(20)))
    assert len(set(cast(Any, idents))) == 20
    again = await asyncio.gather(*(function.call(FakeContext(), {}) for _ in range(20)))
    assert set(cast(Any, idents)) & set(cast(Any, again))


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), StopIteration(), KeyError("k"), InvalidInput("y")],
    ids=lambda error: type(error).__name__,
)
async def test_an_exception_of_a_function_reaches_the_caller(error: Exception) -> None:
    @tool
    def function() -> None:
        """Fail."""
        raise error

    @tool
    async def waiting() -> None:
        """Fail."""
        raise error

    wanted = RuntimeError if isinstance(error, StopIteration) else type(error)
    for failing in (function, waiting):
        with pytest.raises(wanted):
            await failing.call(FakeContext(), {})


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_an_exit_in_a_thread_does_not_end_the_loop(error: BaseException) -> None:
    @tool
    def function() -> None:
        """End everything."""
        raise error

    with pytest.raises(RuntimeError, match="the tool ended with"):
        await function.call(FakeContext(), {})


async def test_an_exit_in_an_async_function_is_an_error() -> None:
    @tool
    async def function() -> None:
        """End everything."""
        sys.exit(3)

    with pytest.raises(RuntimeError, match=r"the tool called exit\(3\)"):
        await function.call(FakeContext(), {})
