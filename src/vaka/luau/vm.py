"""A script in a VM of this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau.bytecode import load_pyluau
from vaka.luau.pool import PooledVm, PrintBuffer, VmPool
from vaka.luau.program import Program
from vaka.luau.protocol import Finished, HostCall, Script, Step, Waiting, pack
from vaka.luau.require import REQUIRE_CALL

if TYPE_CHECKING:
    from pyluau import PyluauError, Stepper

_INTERNAL_CHUNKS = {"", "prelude", "main"}
_CANCEL_INTERVAL = 0.05

PrintLine: TypeAlias = Callable[[str], None]
"""Where the lines go that a script prints."""
StepAction: TypeAlias = Callable[[], Any]


class VmRunner:
    """Runs scripts in this process: those the project trusts.

    A step runs in the event loop, since most take microseconds; a program one of whose steps took long is run in
    threads from then on.
    """

    def __init__(self, pool: VmPool | None = None) -> None:
        self.pool = pool or VmPool()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once."""
        return LocalScript(ScriptExecution(self.pool, program), print_line)

    async def close(self) -> None:
        """Free what no script uses."""
        self.pool.close()


class ScriptExecution:
    """One run of a program, step by step, for whoever waits for each step. It lets go of its VM when it has ended."""

    def __init__(self, pool: VmPool, program: Program) -> None:
        self.pool = pool
        self.program = program
        self.vm: PooledVm | None = None
        self._print_buffer: PrintBuffer | None = None
        self._stepper: Stepper | None = None
        self._started = False
        self._clock_ms = 0

    def prepare_start(self, arguments: Sequence[JSON], seed: int, at: int) -> StepAction:
        """Return what starts it."""
        if self._started:
            raise InvalidInput(f"script {self.program.name!r} was started already")
        self._started = True
        self._clock_ms = at
        prepared = self.pool.compile_program(self.program)
        self.vm = self.pool.acquire(self.program.limits)
        self._print_buffer = self.vm.print_buffer
        seat, state, name = self.vm, self.vm.state, f"={self.program.name}"

        def begin() -> Any:
            place = state.environment()
            values = list(arguments)
            if prepared.main is not None:
                values.insert(0, state.load(prepared.script, name, place))
            self._stepper = state.stepper(
                prepared.main or prepared.script,
                env=place,
                prelude=[seat.load_prelude(code) for code in prepared.preludes],
                chunkname="=main" if prepared.main else name,
                limits=prepared.limits,
                seed=seed,
                clock=self._clock,
            )
            return self._stepper.start(values)

        return begin

    def prepare_answer(self, call: int, values: Sequence[JSON], at: int) -> StepAction:
        """Return what gives a call its results."""
        stepper, self._clock_ms = self._active_stepper(), at
        return lambda: stepper.answer(call, tuple(values))

    def prepare_failure(self, call: int, error: JSON, at: int) -> StepAction:
        """Return what raises an error where a call was made."""
        stepper, self._clock_ms = self._active_stepper(), at
        return lambda: stepper.fail(call, error)

    def run_step(self, action: StepAction) -> Step:
        """Make a step; in any thread, one at a time. ``end`` must follow."""
        luau = load_pyluau()
        step, wanted = action(), list[Any]()
        calls: list[HostCall] = []
        dropped: list[int] = []
        while isinstance(step, luau.Waiting):
            for call in step.calls:
                if call.name == REQUIRE_CALL:
                    wanted.append(call)
                else:
                    calls.append(HostCall(call.id, call.name, call.args))
            for number in step.dropped:
                known = len(calls)
                calls = [call for call in calls if call.id != number]
                wanted = [call for call in wanted if call.id != number]
                if len(calls) == known:
                    dropped.append(number)
            if not wanted:
                return Waiting(calls, dropped)
            step = self._answer_require(wanted.pop(0))
        return Finished(step.values)

    def finish_step(self, outcome: "Step | PyluauError") -> Step:
        """Return the step, or raise what went wrong; lets go of the VM of a script that is over."""
        if isinstance(outcome, Waiting):
            return outcome
        if isinstance(outcome, Finished):
            self.close()
            return outcome
        if self.vm is not None and isinstance(outcome, load_pyluau().OutOfMemory):
            self.vm.out_of_memory = True
        self.close()
        raise script_error_of(self.program, outcome) from None

    def run_now(self, action: StepAction) -> Step:
        """Make a whole step."""
        try:
            outcome: Any = self.run_step(action)
        except load_pyluau().PyluauError as error:
            outcome = error
        return self.finish_step(outcome)

    def take_printed(self) -> list[str]:
        """Return what the last step printed; to be asked before anyone else makes a step."""
        return self._print_buffer.drain() if self._print_buffer is not None else []

    def close(self) -> None:
        """Let go of the VM; twice is once."""
        seat, self.vm = self.vm, None
        stepper, self._stepper = self._stepper, None
        if seat is None:
            return
        if stepper is not None:
            stepper.close()
        self.pool.release(seat)

    def _active_stepper(self) -> "Stepper":
        if self._stepper is None:
            raise InvalidInput(f"script {self.program.name!r} does not run")
        return self._stepper

    def _clock(self) -> float:
        return self._clock_ms / 1000

    def _answer_require(self, call: Any) -> Any:
        """Give ``require.luau`` the module it asks for."""
        stepper, seat = self._active_stepper(), self.vm
        if seat is None:
            raise InvalidInput(f"script {self.program.name!r} is closed")
        origin, name = call.args
        try:
            module = self.program.library.find(name if isinstance(name, str) else repr(name), origin)
            code = self.pool.bytecode.compile(module.source, module.file, self.program.opt)
        except ScriptError as error:
            return stepper.fail(call.id, str(error))
        place = seat.state.environment()
        return stepper.answer(call.id, (module.name, seat.state.load(code, f"={module.file}", place), place))


class LocalScript:
    """A machine as a script: its steps are awaited."""

    def __init__(self, execution: ScriptExecution, print_line: PrintLine | None) -> None:
        self._execution = execution
        self._print_line = print_line

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        return await self._run_step(self._execution.prepare_start(arguments, seed, at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        return await self._run_step(self._execution.prepare_answer(call, values, at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        return await self._run_step(self._execution.prepare_failure(call, error, at))

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        seat = self._execution.vm
        if seat is None:
            return
        if seat.lock.locked():
            async with seat.lock:
                self._execution.close()
        else:
            self._execution.close()

    async def _run_step(self, action: StepAction) -> Step:
        machine, seat = self._execution, self._execution.vm
        if seat is None:
            raise InvalidInput(f"script {machine.program.name!r} is closed")
        try:
            if seat.lock.locked() or machine.pool.is_slow(machine.program):
                outcome, seconds = await self._run_in_thread(seat, action)
            else:
                outcome, seconds = self._run_timed(action)
        finally:
            for line in machine.take_printed():
                if self._print_line is not None:
                    self._print_line(line)
        machine.pool.record_step_time(machine.program, seconds)
        return machine.finish_step(outcome)

    def _run_timed(self, action: StepAction) -> tuple[Any, float]:
        """Make a step, and say how much work it was."""
        began = time.thread_time()
        try:
            outcome: Any = self._execution.run_step(action)
        except load_pyluau().PyluauError as error:
            outcome = error
        return outcome, time.thread_time() - began

    async def _run_in_thread(self, vm: PooledVm, action: StepAction) -> tuple[Any, float]:
        async with vm.lock:
            work = asyncio.get_running_loop().run_in_executor(None, self._run_timed, action)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await _cancel_step(vm, work)
                raise


async def _cancel_step(vm: PooledVm, work: "asyncio.Future[Any]") -> None:
    """Stop a step that runs in a thread, and wait until it has."""
    while not work.done():
        vm.state.cancel()
        try:
            await asyncio.wait([work], timeout=_CANCEL_INTERVAL)
        except asyncio.CancelledError:
            continue
    if not work.cancelled():
        work.exception()  # it was stopped, and nobody wants to know


def script_error_of(program: Program, error: Any) -> ScriptError:
    """Return what went wrong in a script's VM as the caller meets it."""
    luau = load_pyluau()
    if isinstance(error, luau.LimitError):
        return ScriptLimit(f"{program.name}: {error}")
    if isinstance(error, luau.Deadlock):
        return ScriptError(f"{program.name}: every coroutine waits for another one, and none for the host")
    if isinstance(error, luau.LuauError):
        return ScriptError(_error_message(program, error), traceback=error.traceback)
    return ScriptError(f"{program.name}: {error}")


def _is_script_chunk(program: Program, chunk: str) -> bool:
    """Whether what a message begins with is a file of the script, and not something that looks like one."""
    return chunk == program.name or any(module.file == chunk for module in program.library.modules.values())


def _error_message(program: Program, error: Any) -> str:
    """Return what a script raised, with the place where it did."""
    message, value = str(error), error.value
    if isinstance(value, str | bytes) and error.line is not None and _is_script_chunk(program, error.chunk):
        return message
    if message == "(error object is a table)":
        message = msgspec.json.encode(pack(value)).decode()
    for frame in error.traceback.splitlines():
        place, _, line = frame.split(" ")[0].rpartition(":")
        if line.isdigit() and place not in _INTERNAL_CHUNKS:
            return f"{place}:{line}: {message}"
    return f"{program.name}: {message}"
