"""Run scripts in worker processes: a script that exploits a bug in the VM can damage only its worker."""

import asyncio
import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from vaka.core.types.errors import Closed, InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau import wire
from vaka.luau.program import Program, load_pyluau
from vaka.luau.protocol import Finished, HostCall, Script, Step, Waiting, pack, unpack
from vaka.luau.vm import PrintLine

DEFAULT_WORKERS = 2
DEFAULT_MEMORY = 1 << 30
GRACE_SECONDS = 2.0
READY_TIMEOUT = 60.0
MAX_PROGRAMS = 256
MAX_STDERR_BYTES = 4096
_RESTART_DELAY = 0.05
_MAX_RESTART_DELAY = 5.0


class _PendingStep(NamedTuple):
    script: int
    reply: "asyncio.Future[wire.StepReport]"
    seconds: float


class WorkerProcess(asyncio.SubprocessProtocol):
    """The parent's side of a worker, which executes commands one by one, in order."""

    def __init__(self, grace: float) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[str] = loop.create_future()
        self.exit_future: asyncio.Future[None] = loop.create_future()
        self.script_count = 0
        self.step_count = 0
        self.pid = 0
        self.failure = ""
        """Why the worker cannot be used any more; empty while it works."""
        self._grace = grace
        self._loop = loop
        self._pending_steps: deque[_PendingStep] = deque()
        self._report_reader = wire.report_reader()
        self._stderr = b""
        self._program_numbers: OrderedDict[tuple[str, Any], int] = OrderedDict()
        self._last_number = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's is one only by its methods
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]
            return
        try:
            for report in self._report_reader.feed(data):
                self._handle_report(report)
        except ValueError as error:
            self.kill(f"the worker {self.pid} sent an invalid report: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending steps."""
        code = self._transport.get_returncode() if self._transport else None
        self.failure = self.failure or f"the worker {self.pid} {_describe_exit(code)}{self._last_stderr_line()}"
        for pending in self._pending_steps:
            if not pending.reply.done():
                pending.reply.set_exception(ScriptError(self.failure))
        self._pending_steps.clear()
        if self._timer is not None:
            self._timer.cancel()
        if not self.ready.done():
            self.ready.set_exception(ScriptError(self.failure))
            self.ready.exception()  # mark it as retrieved: the waiter may be cancelled
        if not self.exit_future.done():
            self.exit_future.set_result(None)

    async def request_step(self, command: wire.StepCommand, seconds: float) -> wire.StepReport:
        """Execute a step; a worker that takes much longer than ``seconds`` is killed. Raises ``ScriptError``."""
        if self.failure:
            raise ScriptError(self.failure)
        reply: asyncio.Future[wire.StepReport] = self._loop.create_future()
        self._pending_steps.append(_PendingStep(command.script, reply, seconds))
        if len(self._pending_steps) == 1:
            self._arm_deadline()
        self.send(command)
        return await reply

    def send(self, command: wire.WorkerCommand) -> None:
        """Send a command, unless the worker has failed."""
        pipe: Any = self._transport.get_pipe_transport(0) if self._transport and not self.failure else None
        if pipe is not None and not pipe.is_closing():  # uvloop raises RuntimeError for a closed pipe
            pipe.write(wire.encode_frame(command))

    def program_number(self, program: Program) -> int:
        """Return the worker's number of a program, which is sent to it first if necessary."""
        key = (program.digest, program.limits)
        number = self._program_numbers.get(key)
        if number is None:
            self._last_number += 1
            number = self._program_numbers[key] = self._last_number
            self.send(wire.LoadProgram(number, program))
            if len(self._program_numbers) > MAX_PROGRAMS:
                self.send(wire.ForgetProgram(self._program_numbers.popitem(last=False)[1]))
        else:
            self._program_numbers.move_to_end(key)
        return number

    def new_script_number(self) -> int:
        self._last_number += 1
        self.script_count += 1
        return self._last_number

    def kill(self, reason: str) -> None:
        self.failure = self.failure or reason
        if self._transport is not None and self._transport.get_returncode() is None:
            self._transport.kill()

    async def close(self) -> None:
        """Kill the process and wait for its end."""
        self.kill("the workers are closed")
        await self.exit_future
        if self._transport is not None:
            self._transport.close()

    def _handle_report(self, report: wire.WorkerReport) -> None:
        if isinstance(report, wire.WorkerReady):
            if not self.ready.done():
                self.ready.set_result(report.version)
            return
        if not self._pending_steps or self._pending_steps[0].script != report.script:
            raise ValueError(f"an unexpected report on script {report.script}")
        pending = self._pending_steps.popleft()
        self.step_count += 1
        if self._pending_steps:
            self._arm_deadline()
        if not pending.reply.done():
            pending.reply.set_result(report)

    def _arm_deadline(self) -> None:
        """Schedule a check for the time by which the current step must be done."""
        self._deadline = self._loop.time() + self._pending_steps[0].seconds + self._grace
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return  # the earlier check schedules the next one
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """Kill the worker if its current step is overdue."""
        self._timer = None
        if not self._pending_steps or self.failure:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
            return
        pending = self._pending_steps[0]
        allowed = pending.seconds + self._grace
        self.kill(f"the worker {self.pid} did not answer within {allowed} s and was killed")
        if not pending.reply.done():
            pending.reply.set_exception(ScriptLimit(f"the script did not stop within {allowed} s"))

    def _last_stderr_line(self) -> str:
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "has ended"
    if code >= 0:
        return f"ended by itself (exit {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed (signal {-code}, {name})"


def _worker_environment() -> dict[str, str]:
    """Return the environment of a worker: the import path, and SYSTEMROOT, which Windows programs need to start."""
    system = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **system}


class WorkerPool:
    """Runs scripts in up to ``max_workers`` processes, each with ``memory`` bytes for all its scripts.

    When a worker dies, its scripts fail with a ``ScriptError``; the next script starts another worker.
    """

    def __init__(
        self, max_workers: int = DEFAULT_WORKERS, *, memory: int = DEFAULT_MEMORY, grace: float = GRACE_SECONDS
    ) -> None:
        if max_workers < 1:
            raise InvalidInput(f"there must be at least one worker, not {max_workers!r}")
        self._max_workers = max_workers
        self._memory = memory
        self._grace = grace
        self._workers: list[WorkerProcess] = []
        self._lock = asyncio.Lock()
        self._failed_workers = 0
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers if not worker.failure]

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; raise ``InvalidInput`` if it has no limit of memory or time."""
        if program.limits.seconds is None or program.limits.memory is None:
            raise InvalidInput(f"script {program.name!r} runs in a worker: it needs a limit of memory and of seconds")
        return RemoteScript(self, program, program.limits.seconds, print_line)

    async def close(self) -> None:
        """Kill all workers and their scripts."""
        self._closed = True
        async with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            await worker.close()

    async def find_worker(self) -> WorkerProcess:
        """Return the worker with the fewest scripts, started if necessary."""
        async with self._lock:
            if self._closed:
                raise Closed("the workers are closed")
            await self._remove_dead()
            best = min(self._workers, key=lambda worker: worker.script_count, default=None)
            if best is None or (best.script_count and len(self._workers) < self._max_workers):
                best = await self._start_worker()
                self._workers.append(best)
            return best

    async def _remove_dead(self) -> None:
        """Remove dead workers, counting those in a row that died before their first step."""
        for worker in [worker for worker in self._workers if worker.failure]:
            self._workers.remove(worker)
            self._failed_workers = 0 if worker.step_count else self._failed_workers + 1
            await worker.close()

    async def _start_worker(self) -> WorkerProcess:
        load_pyluau()  # raises ConfigError here instead of in the worker
        if self._failed_workers:
            await asyncio.sleep(min(_RESTART_DELAY * 2**self._failed_workers, _MAX_RESTART_DELAY))
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-P", "-m", "vaka.luau.worker_main", str(os.getpid()), str(self._memory)]
        _, worker = await loop.subprocess_exec(
            lambda: WorkerProcess(self._grace), *command, env=_worker_environment(), start_new_session=True
        )
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await worker.ready
        except BaseException:
            self._failed_workers += 1
            await worker.close()
            raise
        return worker


class RemoteScript:
    """A script in a worker; implements ``Script``."""

    def __init__(self, pool: WorkerPool, program: Program, seconds: float, print_line: PrintLine | None) -> None:
        self._pool = pool
        self._program = program
        self._seconds = seconds
        self._print_line = print_line
        self._worker: WorkerProcess | None = None
        self._script_number = 0
        self._started = False

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        if self._started:
            raise InvalidInput(f"script {self._program.name!r} was started already")
        self._started = True
        values = [pack(argument) for argument in arguments]
        worker = self._worker = await self._pool.find_worker()
        self._script_number, program = worker.new_script_number(), worker.program_number(self._program)
        return await self._request_step(wire.StartScript(self._script_number, program, values, seed, at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        packed = [pack(value) for value in values]
        return await self._request_step(wire.AnswerCall(self._script_number, call, packed, at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        return await self._request_step(wire.FailCall(self._script_number, call, pack(error), at))

    async def close(self) -> None:
        worker = self._release_worker()
        if worker is not None:
            worker.send(wire.CloseScript(self._script_number))

    def _release_worker(self) -> WorkerProcess | None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.script_count -= 1
        return worker

    async def _request_step(self, command: wire.StepCommand) -> Step:
        worker = self._worker
        if worker is None:
            raise InvalidInput(f"script {self._program.name!r} is not running")
        report = await worker.request_step(command, self._seconds)
        for line in report.printed:
            if self._print_line is not None:
                self._print_line(line)
        if not isinstance(report, wire.ScriptWaiting):
            self._release_worker()
        if isinstance(report, wire.ScriptFailed):
            kind = ScriptLimit if report.limit else ScriptError
            raise kind(report.message, traceback=report.traceback)
        try:
            return _step_of(report)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            worker.kill(f"the worker {worker.pid} sent an invalid report: {error}")
            raise ScriptError(worker.failure) from None


def _step_of(report: wire.ScriptWaiting | wire.ScriptEnded) -> Step:
    """Return the step of a report; raises as ``unpack`` does for values that ``pack`` cannot have made."""
    if isinstance(report, wire.ScriptEnded):
        return Finished([unpack(value) for value in report.values])
    calls = [HostCall(number, name, [unpack(value) for value in args]) for number, name, args in report.calls]
    return Waiting(calls, report.dropped)
