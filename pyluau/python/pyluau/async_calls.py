"""Run a stepped script in an event loop: await what its host functions return, and hand the results to it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyluau._native import Call, Done, State, Stepper, Waiting
from pyluau.errors import ConversionError, LuauError

AWAIT = "await"
"""The name of a call whose one argument is a coroutine of the host."""
CANCEL_INTERVAL = 0.05

Step = Waiting | Done


class StepLock(NamedTuple):
    """A lock, and the event loop it belongs to."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock


async def run_async(
    state: State, lock: asyncio.Lock, make_stepper: Callable[[], Stepper], arguments: Sequence[Any], *, thread: bool
) -> Any:
    """Run a script to its end; return nothing, its result, or a tuple of its results.

    Whatever uses the VM holds the lock: a step of another call may run in a thread.
    """
    async with lock:
        stepper = make_stepper()
    try:
        done = await _Run(state, lock, stepper, thread).drive(arguments)
    finally:
        async with lock:
            stepper.close()
    return done.values[0] if len(done.values) == 1 else tuple(done.values) or None


class _Run:
    """One run of a script, and the tasks that run its calls."""

    def __init__(self, state: State, lock: asyncio.Lock, stepper: Stepper, thread: bool) -> None:
        self._state = state
        self._lock = lock
        self._stepper = stepper
        self._thread = thread
        self._calls: dict[asyncio.Task[Any], int] = {}
        self._dropped: set[asyncio.Task[Any]] = set()

    async def drive(self, arguments: Sequence[Any]) -> Done:
        try:
            step = await self._advance(lambda: self._stepper.start(arguments))
            while isinstance(step, Waiting):
                self._start(step)
                done, _ = await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
                task = min(done, key=self._calls.__getitem__)  # in the order in which the script called
                step = await self._answer(self._calls.pop(task), task)
            return step
        finally:
            await self._cancel_calls()

    def _start(self, step: Waiting) -> None:
        for call in step.calls:
            is_coroutine = call.name == AWAIT and len(call.args) == 1 and asyncio.iscoroutine(call.args[0])
            self._calls[asyncio.ensure_future(call.args[0] if is_coroutine else _refuse(call))] = call.id
        for task, number in list(self._calls.items()):
            if number in step.dropped:
                del self._calls[task]
                self._dropped.add(task)
                task.cancel()

    async def _answer(self, number: int, task: "asyncio.Task[Any]") -> Step:
        if task.cancelled():
            error: BaseException | None = LuauError("the function of the host was cancelled")
        else:
            error = task.exception()
        if error is not None:
            return await self._fail(number, error)
        try:
            return await self._advance(lambda: self._stepper.answer(number, task.result()))
        except ConversionError as problem:
            return await self._fail(number, problem)

    async def _fail(self, number: int, error: BaseException) -> Step:
        return await self._advance(lambda: self._stepper.fail(number, error))

    async def _advance(self, step: Callable[[], Step]) -> Step:
        async with self._lock:
            if not self._thread:
                return step()
            work = asyncio.get_running_loop().run_in_executor(None, step)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await _cancel_step(self._state, work)
                raise

    async def _cancel_calls(self) -> None:
        tasks = [*self._calls, *self._dropped]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio would log it


async def _refuse(call: Call) -> Any:
    raise LuauError(f"there is no function of the host to answer {call.name!r}")


async def _cancel_step(state: State, work: "asyncio.Future[Any]") -> None:
    """Stop a step that runs in a thread, and wait for its end."""
    while not work.done():
        state.cancel()
        try:
            await asyncio.wait([work], timeout=CANCEL_INTERVAL)
        except asyncio.CancelledError:
            continue
    step = None if work.cancelled() or work.exception() else work.result()
    for call in step.calls if isinstance(step, Waiting) else ():
        if call.name == AWAIT:
            call.args[0].close()
