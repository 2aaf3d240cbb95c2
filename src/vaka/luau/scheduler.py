"""Drive a script: run its host calls concurrently, and deliver their answers one by one.

A journal records the answers, so that after a crash the script can be replayed with the same answers in the same order.
"""

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from vaka.core.loop.script_journal import (
    SCRIPT_START,
    ScriptAnswer,
    ScriptRequest,
    mismatch_error,
)
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.wait import DecisionPending
from vaka.core.types.errors import Closed, ConflictError, LogError, ReplayError, ScriptError, ScriptLimit, VakaError
from vaka.core.types.ids import JSON, DecisionId, Digest
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import ToolResult
from vaka.luau.protocol import (
    Finished,
    HostCall,
    HostFunction,
    HostFunctions,
    ReplayJournal,
    Script,
    Step,
    is_list,
    is_table,
    pack,
    unpack,
    unpack_results,
    value_of_result,
)

MAX_ANSWERS = 20_000
"""Answers after which a script is stopped: replaying more would take too long."""
MAX_LOCAL_CALLS, MAX_LOCAL_CHARS = 100_000, 64 << 20
"""Local calls, such as ``log`` and ``emit``, after which a script is stopped, and the size of their arguments: the host
holds what they pass."""
COMMIT_INTERVAL = 256
"""Answers after which those that are not durable yet are written."""

_START_REQUEST = ScriptRequest(0, SCRIPT_START, Digest(""))
_YIELD_INTERVAL = 64
"""Local or replayed answers after which the driver yields to other tasks."""
_UNCATCHABLE_ERRORS = (ReplayError, ConflictError, LogError, Closed, TurnStopped, ScriptLimit)
"""Errors that no script may catch: the log cannot be written or belongs to another script, or a limit is reached."""
_CATCHABLE_ERRORS = (
    VakaError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    OSError,
    MemoryError,
)


class NullJournal:
    """A journal that records nothing, for scripts that are never replayed."""

    replaying = False

    def record_start(self, detail: JSON) -> ScriptAnswer:
        return ScriptAnswer(_START_REQUEST, detail, "", self._now_ms())

    async def replay(self) -> AsyncGenerator[ScriptAnswer]:
        for answer in list[ScriptAnswer]():
            yield answer

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        return ScriptAnswer(request, value, error, self._now_ms(), result)

    async def commit(self) -> None:
        """Do nothing: there is nothing to commit."""

    def _now_ms(self) -> int:
        return int(time.time() * 1000)


async def drive(
    script: Script,
    functions: HostFunctions,
    journal: ReplayJournal,
    arguments: Sequence[JSON] = (),
    *,
    max_answers: int = MAX_ANSWERS,
    max_local_calls: int = MAX_LOCAL_CALLS,
) -> Sequence[JSON]:
    """Run a script to its end, close it, and return its results.

    Raises the script's error, ``ScriptLimit``, ``ReplayError``, and ``DecisionPending`` when a person must decide.
    """
    try:
        start = journal.record_start({"seed": secrets.randbits(53)})
        step = await script.start(arguments, seed=start.value["seed"], at=start.at)
        if isinstance(step, Finished) and not journal.replaying:
            return step.values  # it has called nothing: a driver is not needed
        return await _Driver(script, functions, journal, max_answers, max_local_calls, start.at).run(step)
    finally:
        await script.close()


class _PendingCall(NamedTuple):
    """A call that waits for its answer."""

    function: HostFunction
    request: ScriptRequest
    args: Sequence[JSON]


class _Driver:
    """One run of a script: its pending calls, the tasks that run them, and the completed ones."""

    def __init__(
        self,
        script: Script,
        functions: HostFunctions,
        journal: ReplayJournal,
        max_answers: int,
        max_local_calls: int,
        clock_ms: int,
    ) -> None:
        self.script = script
        self.functions = functions
        self.journal = journal
        self.max_answers, self.max_local_calls = max_answers, max_local_calls
        self.answer_count = self.local_count = self.local_chars = 0
        self.clock_ms = clock_ms
        self.final_step: Finished | None = None
        self.local_calls: deque[HostCall] = deque()
        self.pending_calls: dict[int, _PendingCall] = {}
        self.unstarted_calls: deque[_PendingCall] = deque()
        self.removed_calls: set[int] = set()
        """The numbers of calls in ``local_calls`` and ``unstarted_calls`` that were dropped or replayed; they are
        skipped there, because to remove one from the middle takes time for each of the others."""
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.completed_calls: deque[tuple[_PendingCall, asyncio.Task[Any]]] = deque()
        self.cancelled_tasks: set[asyncio.Task[Any]] = set()
        self.decisions: dict[int, Sequence[DecisionId]] = {}
        self.wakeup: asyncio.Future[None] | None = None

    async def run(self, step: Step) -> Sequence[JSON]:
        """Run the script on from its first step, and return its results."""
        try:
            await self.process_step(step)
            async with aclosing(self.journal.replay()) as answers:
                async for answer in answers:
                    self.check_replayed(answer.request)
                    await self.deliver_answer(answer)
                    if self.answer_count % _YIELD_INTERVAL == 0:
                        await asyncio.sleep(0)
            while self.final_step is None:
                self.start_calls()
                await self.deliver_answer(await self.next_answer())
            return self.final_step.values
        finally:
            await self.cancel_tasks()

    async def cancel_tasks(self) -> None:
        tasks = [*self.tasks.values(), *self.cancelled_tasks]
        self.tasks.clear()
        try:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for _, task in self.completed_calls:
                _retrieve_exception(task)

    async def process_step(self, step: Step) -> None:
        """Register the calls of a step; local calls are answered at once, in order."""
        for number in itertools.count(1):
            if isinstance(step, Finished):
                self.final_step = step
                return
            for call_number in step.dropped:
                self.drop_call(call_number)
            for call in step.calls:
                self.register_call(call)
            while self.local_calls and self.local_calls[0].id in self.removed_calls:
                self.local_calls.popleft()
            if not self.local_calls:
                return
            if number % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)
            step = await self.answer_local(self.local_calls.popleft())

    def register_call(self, call: HostCall) -> None:
        function = self.functions.get(call.name)
        args = None if function is None or function.local else match_arguments(call, function)
        if function is None or args is None or isinstance(args, str):
            self.local_calls.append(call)  # an invalid call fails the same way on every replay
            return
        pending = _PendingCall(function, ScriptRequest.from_arguments(call.id, call.name, pack(call.args)), args)
        self.pending_calls[call.id] = pending
        self.unstarted_calls.append(pending)

    def drop_call(self, number: int) -> None:
        self.decisions.pop(number, None)
        self.removed_calls.add(number)
        if self.pending_calls.pop(number, None) is None:
            return
        task = self.tasks.pop(number, None)
        if task is not None:
            task.cancel()
            self.cancelled_tasks.add(task)

    async def answer_local(self, call: HostCall) -> Step:
        self.local_count, self.local_chars = self.local_count + 1, self.local_chars + sum(map(size_of, call.args))
        if self.local_count > self.max_local_calls or self.local_chars > MAX_LOCAL_CHARS:
            limit = f"{self.max_local_calls} times, or with more than {MAX_LOCAL_CHARS} characters"
            raise ScriptLimit(f"the script called functions such as log and emit more than {limit}")
        function = self.functions.get(call.name)
        if function is None:
            return await self.script.fail(call.id, self.describe_unknown_function(call.name), at=self.clock_ms)
        args = match_arguments(call, function)
        if isinstance(args, str):
            return await self.script.fail(call.id, args, at=self.clock_ms)
        try:
            value = pack(await call_host_function(function, ScriptRequest(call.id, call.name, Digest("")), args))
        except _UNCATCHABLE_ERRORS:
            raise
        except _CATCHABLE_ERRORS as error:
            return await self.script.fail(call.id, describe_host_error(call.name, error), at=self.clock_ms)
        return await self.script.answer(call.id, unpack_results(value), at=self.clock_ms)

    def describe_unknown_function(self, name: str) -> str:
        near = find_near_names(name, self.functions, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"the host has no function {name!r}{hint}"

    def check_replayed(self, request: ScriptRequest) -> None:
        """Check that the script makes the request of a recorded answer; raise ``ReplayError`` otherwise."""
        if self.final_step is not None:
            raise ReplayError(
                f"the script has ended, but the log has an answer to {request.name!r} as request {request.number}"
            )
        pending = self.pending_calls.get(request.number)
        if pending is None:
            raise ReplayError(f"the script does not ask for {request.name!r} as request {request.number} any more")
        if pending.request != request:
            raise mismatch_error(pending.request, request.name)
        self.removed_calls.add(request.number)

    def start_calls(self) -> None:
        while self.unstarted_calls:
            pending = self.unstarted_calls.popleft()
            if pending.request.number in self.removed_calls:
                continue
            task = asyncio.create_task(call_host_function(*pending))
            self.tasks[pending.request.number] = task
            task.add_done_callback(partial(self.handle_task_done, pending))

    def handle_task_done(self, pending: _PendingCall, task: "asyncio.Task[Any]") -> None:
        if self.tasks.get(pending.request.number) is not task:
            self.cancelled_tasks.discard(task)
            _retrieve_exception(task)
            return
        self.completed_calls.append((pending, task))
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)

    async def next_answer(self) -> ScriptAnswer:
        """Wait for the next answer, and record it."""
        while True:
            while not self.completed_calls:
                await self.wait_for_completion()
            pending, task = self.completed_calls.popleft()
            number, name, _ = pending.request
            if self.tasks.pop(number, None) is None:
                _retrieve_exception(task)  # the script dropped the call after it completed
                continue
            error = ScriptError(f"{name} was cancelled") if task.cancelled() else task.exception()
            if isinstance(error, DecisionPending):
                self.decisions[number] = error.decisions
                continue
            return await self.record_answer(pending, error, None if error else task.result())

    async def wait_for_completion(self) -> None:
        if not self.tasks:
            if not self.decisions:
                raise ScriptError("the script waits, but no host call is running")
            await self.journal.commit()
            raise DecisionPending(*[decision for decisions in self.decisions.values() for decision in decisions])
        self.wakeup = asyncio.get_running_loop().create_future()
        await self.wakeup

    async def record_answer(self, pending: _PendingCall, error: BaseException | None, value: Any) -> ScriptAnswer:
        if self.answer_count >= self.max_answers:
            raise ScriptError(f"the script received {self.max_answers} answers, too many to replay: use on_input")
        if isinstance(error, _UNCATCHABLE_ERRORS) or (error is not None and not isinstance(error, Exception)):
            raise error
        name = pending.request.name
        result = value if isinstance(value, ToolResult) else None
        packed: JSON = None
        if error is None and result is None:
            try:
                packed = pack(value)
            except ScriptError as fault:
                error = ScriptError(f"{name} returned an invalid value: {fault}")
        message = "" if error is None else describe_host_error(name, error)
        answer = await self.journal.record_answer(pending.request, packed, message, result)
        if pending.function.durable or self.answer_count % COMMIT_INTERVAL == COMMIT_INTERVAL - 1:
            await self.journal.commit()
        return answer

    async def deliver_answer(self, answer: ScriptAnswer) -> None:
        number, self.clock_ms = answer.request.number, answer.at
        self.answer_count += 1
        del self.pending_calls[number]
        value, error = answer.value, answer.error
        if answer.result is not None:
            try:
                value = pack(value_of_result(answer.result))
            except ScriptError as failure:
                error = str(failure) or "failed"
        if error:
            step = await self.script.fail(number, error if value is None else unpack(value), at=self.clock_ms)
        else:
            step = await self.script.answer(number, unpack_results(value), at=self.clock_ms)
        await self.process_step(step)


async def call_host_function(function: HostFunction, request: ScriptRequest, args: Sequence[JSON]) -> Any:
    return await (function.function(request, *args) if function.wants_request else function.function(*args))


def match_arguments(call: HostCall, function: HostFunction) -> Sequence[JSON] | str:
    """Return the arguments that a function takes from a call, or an error message if their number is wrong.

    Nils beyond the last argument are ignored.
    """
    least, most = _argument_counts(function)
    count = len(call.args)
    if most is not None:
        while count > most and call.args[count - 1] is None:
            count -= 1
        if count > most:
            return f"{call.name} takes {most} argument{'' if most == 1 else 's'} at most, and was given {count}"
    if count < least:
        return f"{call.name} needs {least} argument{'s' if least > 1 else ''} at least, and was given {count}"
    return call.args if count == len(call.args) else call.args[:count]


def describe_host_error(name: str, error: BaseException) -> str:
    """Return the message of a host function's error; a ``VakaError`` needs no prefix, since it is meant to be read."""
    text = str(error).encode("utf-8", "replace").decode()
    if isinstance(error, VakaError):
        return text or error.code
    return f"{name}: {type(error).__name__}: {text}" if text else f"{name}: {type(error).__name__}"


def size_of(value: JSON) -> int:
    """Return how many characters a value of a script has; each of its numbers counts as one."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if is_table(value):
        return sum(size_of(key) + size_of(item) for key, item in value.items())
    return sum(map(size_of, value)) if is_list(value) else 1


def _argument_counts(function: HostFunction) -> tuple[int, int | None]:
    """Return how many arguments a host function needs and takes from a script; ``None`` for any number."""
    target: Any = function.function
    bound = 1 if hasattr(target, "__self__") else 0
    target = getattr(target, "__func__", target)
    code = getattr(target, "__code__", None)
    if code is None:
        return 0, None  # a callable without a signature
    skipped = bound + (1 if function.wants_request else 0)
    takes = max(code.co_argcount - skipped, 0)
    least = max(takes - len(target.__defaults__ or ()), 0)
    return least, None if code.co_flags & 0x04 else takes


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task, or asyncio would log that it was never retrieved."""
    if task.done() and not task.cancelled():
        task.exception()
