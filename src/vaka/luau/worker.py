"""Scripts in processes of their own: a bug in the VM, or a script that finds one, costs no more than a worker."""

import asyncio
import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vaka.core.types.errors import Closed, InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau import wire
from vaka.luau.bytecode import native
from vaka.luau.program import Program
from vaka.luau.script import Call, Done, Script, Step, Waiting
from vaka.luau.values import pack, unpack
from vaka.luau.vm import Print

COUNT = 2
MEMORY = 1 << 30
GRACE = 2.0
READY_WITHIN = 60.0
MOST_PROGRAMS = 256
MOST_STDERR = 4096
_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class _Asked(NamedTuple):
    script: int
    reply: "asyncio.Future[wire.Said]"
    seconds: float


class Worker(asyncio.SubprocessProtocol):
    """A worker, as its owner sees it. It does one thing after the other, in the order it was asked."""

    def __init__(self, grace: float) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[str] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.scripts = 0
        self.steps = 0
        self.pid = 0
        self.why = ""
        """Why it is of no more use; empty as long as it is."""
        self._grace = grace
        self._loop = loop
        self._asked: deque[_Asked] = deque()
        self._reports = wire.reports()
        self._errors = b""
        self._programs: OrderedDict[tuple[str, Any], int] = OrderedDict()
        self._numbers = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the process."""
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101  # what asyncio gives a protocol like this
        self._transport = transport
        self.pid = transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what it says."""
        if fd != 1:
            self._errors = (self._errors + data)[-MOST_STDERR:]
            return
        try:
            for report in self._reports.feed(data):
                self._take(report)
        except ValueError as error:
            self.kill(f"the worker {self.pid} said what it may not: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone who waits that it is gone."""
        code = self._transport.get_returncode() if self._transport else None
        self.why = self.why or f"the worker {self.pid} {_end(code)}{self._last_words()}"
        for asked in self._asked:
            if not asked.reply.done():
                asked.reply.set_exception(ScriptError(self.why))
        self._asked.clear()
        if self._timer is not None:
            self._timer.cancel()
        if not self.ready.done():
            self.ready.set_exception(ScriptError(self.why))
        if not self.gone.done():
            self.gone.set_result(None)

    async def ask(self, order: wire.Start | wire.Answer | wire.Fail, seconds: float) -> wire.Said:
        """Have an order carried out; a worker that takes longer than it may is ended."""
        if self.why:
            raise ScriptError(self.why)
        reply: asyncio.Future[wire.Said] = self._loop.create_future()
        self._asked.append(_Asked(order.script, reply, seconds))
        if len(self._asked) == 1:
            self._watch()
        self.send(order)
        return await reply

    def send(self, order: wire.Order) -> None:
        """Give an order, if there is anyone to give it to."""
        pipe: Any = self._transport.get_pipe_transport(0) if self._transport and not self.why else None
        if pipe is not None:
            pipe.write(wire.frame(order))

    def program(self, program: Program) -> int:
        """Return the number under which the worker has a program."""
        key = (program.digest, program.limits)
        number = self._programs.get(key)
        if number is None:
            self._numbers += 1
            number = self._programs[key] = self._numbers
            self.send(wire.Load(number, program))
            if len(self._programs) > MOST_PROGRAMS:
                self.send(wire.Forget(self._programs.popitem(last=False)[1]))
        else:
            self._programs.move_to_end(key)
        return number

    def script(self) -> int:
        """Return the number of a new script."""
        self._numbers += 1
        self.scripts += 1
        return self._numbers

    def kill(self, why: str) -> None:
        """End it at once."""
        self.why = self.why or why
        if self._transport is not None and self._transport.get_returncode() is None:
            self._transport.kill()

    async def close(self) -> None:
        """End it, and wait until it is gone."""
        self.kill("the workers are closed")
        await self.gone
        if self._transport is not None:
            self._transport.close()

    def _take(self, report: wire.Report) -> None:
        if isinstance(report, wire.Ready):
            if not self.ready.done():
                self.ready.set_result(report.version)
            return
        if not self._asked or self._asked[0].script != report.script:
            raise ValueError(f"a report on script {report.script}, which nobody asked for")
        asked = self._asked.popleft()
        self.steps += 1
        if self._asked:
            self._watch()
        if not asked.reply.done():
            asked.reply.set_result(report)

    def _watch(self) -> None:
        """See to it that someone looks when the order it is at now should have been carried out."""
        self._due = self._loop.time() + self._asked[0].seconds + self._grace
        if self._timer is not None:
            if self._timer.when() <= self._due:
                return  # whoever looks then will look again
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        """End a worker that does not come back from the order it is at."""
        self._timer = None
        if not self._asked or self.why:
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
            return
        asked = self._asked[0]
        self.kill(f"the worker {self.pid} did not answer within {asked.seconds + self._grace} s and was killed")
        if not asked.reply.done():
            asked.reply.set_exception(ScriptLimit(f"the script did not stop within {asked.seconds + self._grace} s"))

    def _last_words(self) -> str:
        words = self._errors.decode("utf-8", "replace").strip().splitlines()
        return f": {words[-1]}" if words else ""


def _end(code: int | None) -> str:
    if code is None:
        return "is gone"
    if code >= 0:
        return f"ended by itself (exit {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed (signal {-code}, {name})"


def _environment() -> dict[str, str]:
    """Return what a worker is given: where to find its code, and on Windows what no program starts without."""
    needed = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **needed}


class Workers:
    """Runs scripts in up to ``count`` processes, each with ``memory`` bytes for all its scripts.

    A worker that dies takes its scripts with it, each of which fails with a ``ScriptError``; the next script gets
    another one.
    """

    def __init__(self, count: int = COUNT, *, memory: int = MEMORY, grace: float = GRACE) -> None:
        if count < 1:
            raise InvalidInput(f"there must be at least one worker, not {count!r}")
        self._count = count
        self._memory = memory
        self._grace = grace
        self._workers: list[Worker] = []
        self._lock = asyncio.Lock()
        self._deaths = 0
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The processes that are there now."""
        return [worker.pid for worker in self._workers if not worker.why]

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once. It needs limits of memory and time."""
        if program.limits.seconds is None or program.limits.memory is None:
            raise InvalidInput(
                f"script {program.name!r} runs in a worker, so it needs a limit of memory and of seconds"
            )
        return Remote(self.worker, program, program.limits.seconds, printed)

    async def close(self) -> None:
        """End all workers, and whatever runs in them."""
        self._closed = True
        async with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            await worker.close()

    async def worker(self) -> Worker:
        """Return the worker with the least to do."""
        async with self._lock:
            if self._closed:
                raise Closed("the workers are closed")
            await self._bury()
            best = min(self._workers, key=lambda worker: worker.scripts, default=None)
            if best is None or (best.scripts and len(self._workers) < self._count):
                best = await self._start()
                self._workers.append(best)
            return best

    async def _bury(self) -> None:
        """Forget the dead; remember whether they ever did anything."""
        for worker in [worker for worker in self._workers if worker.why]:
            self._workers.remove(worker)
            self._deaths = 0 if worker.steps else self._deaths + 1
            await worker.close()

    async def _start(self) -> Worker:
        native()  # says what to install before a process fails to say it
        if self._deaths:
            await asyncio.sleep(min(_PAUSE * 2**self._deaths, _LONGEST_PAUSE))
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-P", "-m", "vaka.luau.worker_main", str(os.getpid()), str(self._memory)]
        _, worker = await loop.subprocess_exec(
            lambda: Worker(self._grace), *command, env=_environment(), start_new_session=True
        )
        try:
            async with asyncio.timeout(READY_WITHIN):
                await worker.ready
        except BaseException:
            self._deaths += 1
            await worker.close()
            raise
        return worker


class Remote:
    """A script in a worker."""

    def __init__(self, find: Callable[[], Any], program: Program, seconds: float, printed: Print | None) -> None:
        self._find = find
        self._program = program
        self._seconds = seconds
        self._print = printed
        self._worker: Worker | None = None
        self._number = 0
        self._began = False

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        if self._began:
            raise InvalidInput(f"script {self._program.name!r} was started already")
        self._began = True
        values = [pack(argument) for argument in arguments]
        worker = self._worker = await self._find()
        self._number = worker.script()
        return await self._ask(wire.Start(self._number, worker.program(self._program), values, seed, at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        return await self._ask(wire.Answer(self._number, call, [pack(value) for value in values], at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        return await self._ask(wire.Fail(self._number, call, pack(error), at))

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        worker = self._leave()
        if worker is not None:
            worker.send(wire.Close(self._number))

    def _leave(self) -> Worker | None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.scripts -= 1
        return worker

    async def _ask(self, order: wire.Start | wire.Answer | wire.Fail) -> Step:
        if self._worker is None:
            raise InvalidInput(f"script {self._program.name!r} does not run")
        worker = self._worker
        report = await worker.ask(order, self._seconds)
        for line in report.printed:
            if self._print is not None:
                self._print(line)
        if not isinstance(report, wire.Waits):
            self._leave()
        if isinstance(report, wire.Failed):
            kind = ScriptLimit if report.limit else ScriptError
            raise kind(report.message, traceback=report.traceback)
        try:
            return _step(report)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            worker.kill(f"the worker {worker.pid} said what it may not: {error}")
            raise ScriptError(worker.why) from None


def _step(report: wire.Waits | wire.Ended) -> Step:
    """Return what a report says; raises as ``unpack`` does for values that nobody packed."""
    if isinstance(report, wire.Ended):
        return Done([unpack(value) for value in report.values])
    calls = [Call(number, name, [unpack(value) for value in args]) for number, name, args in report.calls]
    return Waiting(calls, report.dropped)
