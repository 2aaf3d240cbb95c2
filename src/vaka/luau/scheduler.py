"""Drive a script: answer its calls, many at a time, and hand the answers over one by one.

What a script is told is remembered in a ledger, so that after a crash it can be told the same again, in the same order.
"""

import asyncio
import difflib
import itertools
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from vaka.core.loop.nest import START, Request, Told, Waits, mismatch
from vaka.core.loop.stop import Stopped
from vaka.core.types.errors import Closed, ConflictError, LogError, ReplayError, ScriptError, ScriptLimit, VakaError
from vaka.core.types.ids import JSON, DecisionId, Digest
from vaka.core.types.message import ToolResult
from vaka.luau.script import Call, Done, Functions, HostFunction, Ledger, Script, Step, plain
from vaka.luau.values import pack, results, unpack

MOST_ANSWERS = 20_000
"""Answers after which a script is not driven on: told all of them again, it would take too long to come back."""

_FAIR = 64
"""Local answers after which everyone else has a turn."""
_ENDING = (ReplayError, ConflictError, LogError, Closed, Stopped)
"""What no script may catch: the log cannot be written any more, or is not this script's."""
_FAULTS = (
    VakaError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, OSError, MemoryError,
)  # fmt: skip


class Raised(ScriptError):
    """What a host function raises to give a script an error that is more than a text."""

    def __init__(self, message: str, value: JSON) -> None:
        super().__init__(message)
        self.value = value


class Unrecorded:
    """A ledger for scripts that nobody will bring back: it remembers nothing."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def start(self, detail: JSON) -> Told:
        """Return a start, now."""
        return Told(Request(0, START, Digest("")), detail, "", self._now())

    async def replay(self) -> AsyncGenerator[Told]:
        """Yield nothing."""
        nothing: Sequence[Told] = ()
        for told in nothing:
            yield told

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        """Return the answer."""
        return Told(request, value, error, self._now(), result)

    async def commit(self) -> None:
        """Do nothing: nothing is remembered."""

    def _now(self) -> int:
        return int(self._clock() * 1000)


async def drive(
    script: Script,
    functions: Functions,
    ledger: Ledger,
    arguments: Sequence[JSON] = (),
    *,
    detail: dict[str, JSON] | None = None,
    most: int = MOST_ANSWERS,
    deadline: float | None = None,
) -> Sequence[JSON]:
    """Run a script to its end, which closes it, and return its results.

    ``detail`` is remembered with its start. ``deadline`` is in seconds from now, waiting included. Raises what the
    script raised, ``ScriptLimit``, ``ReplayError``, and ``Waits`` when nothing but people can bring it on.
    """
    driver = _Driver(script, functions, ledger, most)
    try:
        if deadline is None:
            return await driver.run(arguments, detail or {})
        return await _within(deadline, driver.run(arguments, detail or {}))
    finally:
        await driver.close()


async def _within(deadline: float, running: Coroutine[Any, Any, Sequence[JSON]]) -> Sequence[JSON]:
    clock = asyncio.timeout(deadline)
    try:
        async with clock:
            return await running
    except TimeoutError:
        if not clock.expired():
            raise
        raise ScriptLimit(f"the script was not done within {deadline} s") from None


class _Open(NamedTuple):
    """A call that waits for its answer."""

    function: HostFunction
    request: Request
    args: Sequence[JSON]


class _Driver:
    """One run of a script: what it waits for, what of that runs, and what has come back."""

    def __init__(self, script: Script, functions: Functions, ledger: Ledger, most: int) -> None:
        self.script = script
        self.functions = functions
        self.ledger = ledger
        self.most = most
        self.told = 0
        self.at = 0
        self.done: Done | None = None
        self.local: deque[Call] = deque()
        self.open: dict[int, _Open] = {}
        self.fresh: deque[_Open] = deque()
        self.running: dict[int, asyncio.Task[Any]] = {}
        self.back: deque[tuple[_Open, asyncio.Task[Any]]] = deque()
        self.leaving: set[asyncio.Task[Any]] = set()
        self.decisions: dict[int, Sequence[DecisionId]] = {}
        self.bell: asyncio.Future[None] | None = None

    async def run(self, arguments: Sequence[JSON], detail: dict[str, JSON]) -> Sequence[JSON]:
        start = self.ledger.start({"seed": secrets.randbits(53), **detail})
        self.at = start.at
        await self.go_on(await self.script.start(arguments, seed=start.value["seed"], at=self.at))
        async with aclosing(self.ledger.replay()) as log:
            async for told in log:
                self.known(told.request)
                await self.deliver(told)
        while self.done is None:
            self.begin()
            await self.deliver(await self.next())
        return self.done.values

    async def close(self) -> None:
        """End whatever runs, and the script."""
        tasks = [*self.running.values(), *self.leaving]
        self.running.clear()
        try:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for _, task in self.back:
                _ignore(task)
            await self.script.close()

    async def go_on(self, step: Step) -> None:
        """Take note of a step; calls that need no record are answered at once, in their order."""
        for turn in itertools.count(1):
            if isinstance(step, Done):
                self.done = step
                return
            for number in step.dropped:
                self.drop(number)
            for call in step.calls:
                self.note(call)
            if not self.local:
                return
            if turn % _FAIR == 0:
                await asyncio.sleep(0)
            step = await self.answer_local(self.local.popleft())

    def note(self, call: Call) -> None:
        function = self.functions.get(call.name)
        args = None if function is None or function.local else fitting(call, function)
        if function is None or args is None or isinstance(args, str):
            self.local.append(call)  # what is wrong with a call follows from it as well
            return
        opened = _Open(function, Request.of(call.id, call.name, pack(call.args)), args)
        self.open[call.id] = opened
        self.fresh.append(opened)

    def drop(self, number: int) -> None:
        self.decisions.pop(number, None)
        self.local = deque(call for call in self.local if call.id != number)
        if self.open.pop(number, None) is None:
            return
        self.fresh = deque(opened for opened in self.fresh if opened.request.number != number)
        task = self.running.pop(number, None)
        if task is not None:
            task.cancel()
            self.leaving.add(task)

    async def answer_local(self, call: Call) -> Step:
        function = self.functions.get(call.name)
        if function is None:
            return await self.script.fail(call.id, self.unknown(call.name), at=self.at)
        args = fitting(call, function)
        if isinstance(args, str):
            return await self.script.fail(call.id, args, at=self.at)
        try:
            value = pack(await perform(function, Request(call.id, call.name, Digest("")), args))
        except _ENDING:
            raise
        except _FAULTS as error:
            value = _value_of(error)
            said = describe(call.name, error) if value is None else unpack(value)
            return await self.script.fail(call.id, said, at=self.at)
        return await self.script.answer(call.id, results(value), at=self.at)

    def unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.functions, n=1)
        hint = f"; there is {near[0]!r}" if near else ""
        return f"the host has no function {name!r}{hint}"

    def known(self, request: Request) -> None:
        """Check that the script asks now for what it was told then."""
        if self.done is not None:
            raise ReplayError(f"the script has ended, and was told more: {request.name!r} as request {request.number}")
        opened = self.open.get(request.number)
        if opened is None:
            raise ReplayError(f"the script does not ask for {request.name!r} as request {request.number} any more")
        if opened.request != request:
            raise mismatch(opened.request, request.name)
        self.fresh.remove(opened)

    def begin(self) -> None:
        while self.fresh:
            opened = self.fresh.popleft()
            task = asyncio.create_task(perform(*opened))
            self.running[opened.request.number] = task
            task.add_done_callback(partial(self.over, opened))

    def over(self, opened: _Open, task: "asyncio.Task[Any]") -> None:
        if self.running.get(opened.request.number) is not task:
            self.leaving.discard(task)
            _ignore(task)
            return
        self.back.append((opened, task))
        if self.bell is not None and not self.bell.done():
            self.bell.set_result(None)

    async def next(self) -> Told:
        """Wait for the next answer, and have it remembered."""
        while True:
            while not self.back:
                await self.wait()
            opened, task = self.back.popleft()
            number, name, _ = opened.request
            if self.running.pop(number, None) is None:
                _ignore(task)  # it was dropped after it had come back
                continue
            error = ScriptError(f"{name} was cancelled") if task.cancelled() else task.exception()
            if isinstance(error, Waits):
                self.decisions[number] = error.decisions
                continue
            return await self.remember(opened, error, None if error else task.result())

    async def wait(self) -> None:
        if not self.running:
            if not self.decisions:
                raise ScriptError("the script waits for nothing that could come")
            await self.ledger.commit()
            raise Waits([decision for decisions in self.decisions.values() for decision in decisions])
        self.bell = asyncio.get_running_loop().create_future()
        await self.bell

    async def remember(self, opened: _Open, error: BaseException | None, value: Any) -> Told:
        if self.told >= self.most:
            raise ScriptError(f"the script was told {self.most} answers, too many to be told again: use on_input")
        if isinstance(error, _ENDING) or (error is not None and not isinstance(error, Exception)):
            raise error
        name = opened.request.name
        result = value if isinstance(value, ToolResult) else None
        packed: JSON = None
        if error is None and result is None:
            try:
                packed = pack(value)
            except ScriptError as fault:
                error = ScriptError(f"{name} gave what it may not: {fault}")
        if error is not None:
            told = await self.ledger.tell(opened.request, _value_of(error), describe(name, error))
        else:
            told = await self.ledger.tell(opened.request, packed, "", result)
        if opened.function.lasting:
            await self.ledger.commit()
        return told

    async def deliver(self, told: Told) -> None:
        number, self.at = told.request.number, told.at
        self.told += 1
        del self.open[number]
        value, error = told.value, told.error
        if told.result is not None:
            try:
                value = pack(plain(told.result))
            except ScriptError as failed:
                error = str(failed) or "failed"
        if error:
            step = await self.script.fail(number, error if value is None else unpack(value), at=self.at)
        else:
            step = await self.script.answer(number, results(value), at=self.at)
        await self.go_on(step)


async def perform(function: HostFunction, request: Request, args: Sequence[JSON]) -> Any:
    """Call a host function with what the script gave it."""
    return await (function.function(request, *args) if function.asks else function.function(*args))


def fitting(call: Call, function: HostFunction) -> Sequence[JSON] | str:
    """Return the arguments of a call as the function takes them, or say what is wrong with their number.

    A nil beyond the last argument is nothing.
    """
    least, most = _counts(function)
    given = len(call.args)
    if most is not None:
        while given > most and call.args[given - 1] is None:
            given -= 1
        if given > most:
            return f"{call.name} takes {most} argument{'' if most == 1 else 's'} at most, and was given {given}"
    if given < least:
        return f"{call.name} needs {least} argument{'s' if least > 1 else ''} at least, and was given {given}"
    return call.args if given == len(call.args) else call.args[:given]


def describe(name: str, error: BaseException) -> str:
    """Say what a script is told of an error in its host: what vaka raises on purpose is meant for it."""
    text = str(error).encode("utf-8", "replace").decode()
    if isinstance(error, VakaError):
        return text or error.code
    return f"{name}: {type(error).__name__}: {text}" if text else f"{name}: {type(error).__name__}"


def _value_of(error: BaseException) -> JSON:
    """Return the value of an error that has one, packed."""
    if not isinstance(error, Raised):
        return None
    try:
        return pack(error.value)
    except ScriptError:
        return None  # its text has to do


def _counts(function: HostFunction) -> tuple[int, int | None]:
    """Return how many arguments of a script a host function needs, and takes."""
    target: Any = function.function
    bound = 1 if hasattr(target, "__self__") else 0
    target = getattr(target, "__func__", target)
    code = getattr(target, "__code__", None)
    if code is None:
        return 0, None  # something callable that does not say
    skipped = bound + (1 if function.asks else 0)
    takes = max(code.co_argcount - skipped, 0)
    least = max(takes - len(target.__defaults__ or ()), 0)
    return least, None if code.co_flags & 0x04 else takes


def _ignore(task: "asyncio.Task[Any]") -> None:
    """Look at how a task ended, so that nobody is told that nobody did."""
    if task.done() and not task.cancelled():
        task.exception()
