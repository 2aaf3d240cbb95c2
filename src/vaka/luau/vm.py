"""A script in a VM of this process."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau.pool import MAX_LOOP_SECONDS, PooledVm, PrintBuffer, VmPool
from vaka.luau.program import Program, load_pyluau
from vaka.luau.protocol import Finished, HostCall, Script, Step, Waiting, pack
from vaka.luau.require import REQUIRE_CALL
from vaka.luau.threads import StepThreads

if TYPE_CHECKING:
    from pyluau import PyluauError, Stepper

_INTERNAL_CHUNKS = {"", "prelude", "main"}
_FRAME = re.compile(r"(.*):(\d+)(?: function |$)")
"""A line of a traceback; functions of the host have no line."""
_INTERNAL_POSITION = re.compile(r"^(?:prelude|main):\d+: ")

PrintLine: TypeAlias = Callable[[str], None]
"""Receives each line that a script prints."""
StepAction: TypeAlias = Callable[[], Any]


class VmRunner:
    """Runs trusted scripts in this process; see ``LocalScript``."""

    def __init__(self, pool: VmPool | None = None) -> None:
        self.pool, self._threads = pool or VmPool(), StepThreads()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once."""
        return LocalScript(ScriptExecution(self.pool, program, in_loop=True), self._threads, print_line)

    async def close(self) -> None:
        """Free the idle VMs and end the threads; VMs in use are freed when their scripts end."""
        self.pool.close()
        self._threads.close()


class ScriptExecution:
    """One run of a program, one synchronous step at a time. It releases its VM when it has ended."""

    def __init__(self, pool: VmPool, program: Program, *, in_loop: bool = False) -> None:
        """``in_loop``: it may use only ``MAX_LOOP_SECONDS``, unless its own limit is less."""
        self.pool = pool
        self.program = program
        self.in_loop = in_loop and (program.limits.seconds is None or program.limits.seconds > MAX_LOOP_SECONDS)
        self.vm: PooledVm | None = None
        self._print_buffer: PrintBuffer | None = None
        self._stepper: Stepper | None = None
        self._started = False
        self._clock_ms = 0

    def prepare_start(self, arguments: Sequence[JSON], seed: int, at: int) -> StepAction:
        """Return the action that starts the script. Raises ``InvalidInput`` if it was started already."""
        if self._started:
            raise InvalidInput(f"script {self.program.name!r} was started already")
        self._started = True
        self._clock_ms = at
        compiled = self.pool.compile_program(self.program)
        vm = self.vm = self.pool.acquire(self.program.limits)
        self._print_buffer = vm.print_buffer

        def start() -> Any:
            environment = vm.state.environment()
            function = vm.load_script(compiled.script, self.program.name)
            values = arguments
            if compiled.main is not None:
                values = [function.with_env(environment), *arguments]
                function = vm.load_script(compiled.main, "main")
            self._stepper = vm.state.stepper(
                function,
                env=environment,
                seed=seed,
                clock=self._clock,
                limits=compiled.loop_limits if self.in_loop else compiled.limits,
                prelude=[vm.load_prelude(code) for code in compiled.preludes],
            )
            return self._stepper.start(values)

        return start

    def _clock(self) -> float:
        return self._clock_ms / 1000

    def prepare_answer(self, call: int, values: Sequence[JSON], at: int) -> StepAction:
        """Return the action that answers a call."""
        stepper, self._clock_ms = self._active_stepper(), at
        return lambda: stepper.answer(call, tuple(values))

    def prepare_failure(self, call: int, error: JSON, at: int) -> StepAction:
        """Return the action that raises an error where a call was made."""
        stepper, self._clock_ms = self._active_stepper(), at
        return lambda: stepper.fail(call, error)

    def run_step(self, action: StepAction) -> Step:
        """Execute a step, in any thread, but one at a time; ``finish_step`` must follow."""
        luau = load_pyluau()
        step, require_calls = action(), list[Any]()
        calls: list[HostCall] = []
        dropped: list[int] = []
        while isinstance(step, luau.Waiting):
            for call in step.calls:
                if call.name == REQUIRE_CALL:
                    require_calls.append(call)
                else:
                    calls.append(HostCall(call.id, call.name, call.args))
            for number in step.dropped:
                count = len(calls)
                calls = [call for call in calls if call.id != number]
                require_calls = [call for call in require_calls if call.id != number]
                if len(calls) == count:
                    dropped.append(number)
            if not require_calls:
                return Waiting(calls, dropped)
            step = self._answer_require(require_calls.pop(0))
        return Finished(step.values)

    def finish_step(self, outcome: "Step | PyluauError") -> Step:
        """Return the step, or raise the script's error; release the VM of a script that has ended."""
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
        """Execute a step and finish it."""
        return self.finish_step(self.try_step(action))

    def try_step(self, action: StepAction) -> Any:
        """Execute a step; return it, or the ``PyluauError`` of a script that fails."""
        try:
            return self.run_step(action)
        except load_pyluau().PyluauError as error:
            return error

    def exceeds_loop_time(self, outcome: Any) -> bool:
        """Return whether a step failed only because the script runs in the event loop."""
        return self.in_loop and isinstance(outcome, load_pyluau().OutOfTime)

    def take_printed(self) -> list[str]:
        """Return what the last step printed; must be called before another script of the VM makes a step."""
        return self._print_buffer.drain() if self._print_buffer is not None else []

    def close(self) -> None:
        """Release the VM; a second call does nothing."""
        vm, self.vm = self.vm, None
        stepper, self._stepper = self._stepper, None
        if stepper is not None:
            stepper.close()
        if vm is not None:
            self.pool.release(vm)

    def _active_stepper(self) -> "Stepper":
        if self._stepper is None:
            raise InvalidInput(f"script {self.program.name!r} is not running")
        return self._stepper

    def _answer_require(self, call: Any) -> Any:
        """Pass ``require.luau`` the module that it requests."""
        stepper, vm = self._active_stepper(), self.vm
        if vm is None:
            raise InvalidInput(f"script {self.program.name!r} is closed")
        origin, name = call.args
        try:
            module = self.program.library.find(name if isinstance(name, str) else repr(name), origin)
            code = self.pool.bytecode.compile(module.source, module.file, self.program.opt)
        except ScriptError as error:
            return stepper.fail(call.id, str(error))
        environment = vm.state.environment()
        function = vm.state.load(code, f"={module.file}", environment)
        return stepper.answer(call.id, (module.name, function, environment))


PrepareStep: TypeAlias = Callable[[ScriptExecution], StepAction]


class LocalScript:
    """A script in a VM of this process; implements ``Script``.

    It runs in the event loop for ``MAX_LOOP_SECONDS`` in total: the steps of most scripts take less than a switch of
    threads. Then it starts again in a thread, where it makes the same steps: they depend only on its answers.
    """

    def __init__(self, execution: ScriptExecution, threads: StepThreads, print_line: PrintLine | None) -> None:
        self._execution = execution
        self._threads = threads
        self._print_line = print_line
        self._loop_steps: list[PrepareStep] | None = [] if execution.in_loop else None
        """The steps made in the event loop, to be made again in a thread; ``None`` in a thread."""

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        return await self._run_step(lambda execution: execution.prepare_start(arguments, seed, at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        return await self._run_step(lambda execution: execution.prepare_answer(call, values, at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        return await self._run_step(lambda execution: execution.prepare_failure(call, error, at))

    async def close(self) -> None:
        vm = self._execution.vm
        if vm is None:
            return  # it has ended, and its VM is released
        async with vm.lock:
            self._execution.close()

    async def _run_step(self, prepare: PrepareStep) -> Step:
        action, steps = prepare(self._execution), self._loop_steps
        if steps is None:
            return await self._run_in_thread(partial(self._execution.try_step, action))
        vm = self._open_vm()
        if vm.lock.locked():
            async with vm.lock:
                outcome, printed = self._execution.try_step(action), self._execution.take_printed()
        else:  # what does not wait needs no lock
            outcome, printed = self._execution.try_step(action), self._execution.take_printed()
        if self._execution.exceeds_loop_time(outcome):
            return await self._run_in_thread(self._restart([*steps, prepare]))
        self._print(printed)
        steps.append(prepare)
        return self._execution.finish_step(outcome)

    def _restart(self, steps: Sequence[PrepareStep]) -> Callable[[], Any]:
        """Return the function that makes these steps from the start, in a new VM."""
        pool, program = self._execution.pool, self._execution.program
        self._execution.close()
        execution, self._loop_steps = ScriptExecution(pool, program), None
        self._execution = execution
        start = steps[0](execution)

        def make_steps() -> Any:
            outcome = execution.try_step(start)
            for prepare in steps[1:]:
                if not isinstance(outcome, Waiting):
                    break  # cancelled
                execution.take_printed()  # passed on when the step was made in the event loop
                outcome = execution.try_step(prepare(execution))
            return outcome

        return make_steps

    async def _run_in_thread(self, make_step: Callable[[], Any]) -> Step:
        execution, vm = self._execution, self._open_vm()
        async with vm.lock:
            try:
                outcome = await self._threads.run(make_step, vm.state.cancel)
            finally:
                self._print(execution.take_printed())
        return execution.finish_step(outcome)

    def _open_vm(self) -> PooledVm:
        if self._execution.vm is None:
            raise InvalidInput(f"script {self._execution.program.name!r} is closed")
        return self._execution.vm

    def _print(self, lines: Sequence[str]) -> None:
        if self._print_line is not None:
            for line in lines:
                self._print_line(line)


def script_error_of(program: Program, error: Any) -> ScriptError:
    """Return an error of pyluau as a ``ScriptError``."""
    luau = load_pyluau()
    if isinstance(error, luau.LimitError):
        message = str(error).removeprefix(f"{error.chunk}:{error.line}: ")
        return ScriptLimit(f"{_position(program, error.traceback)}: {message}", traceback=error.traceback)
    if isinstance(error, luau.Deadlock):
        return ScriptError(f"{program.name}: deadlock: every coroutine waits for another one, and none for the host")
    if isinstance(error, luau.LuauError):
        return ScriptError(_error_message(program, error), traceback=error.traceback)
    return ScriptError(f"{program.name}: {error}")


def _is_script_chunk(program: Program, chunk: str) -> bool:
    """Whether the prefix of an error message is a file of the script."""
    return chunk == program.name or any(module.file == chunk for module in program.library.modules.values())


def _error_message(program: Program, error: Any) -> str:
    """Return the message of a script's error, with the file and line that raised it."""
    message, value = _INTERNAL_POSITION.sub("", str(error)), error.value
    if isinstance(value, str | bytes) and error.line is not None and _is_script_chunk(program, error.chunk):
        return str(error)
    if message == "(error object is a table)":
        message = msgspec.json.encode(pack(value)).decode()
    return f"{_position(program, error.traceback)}: {message}"


def _position(program: Program, traceback: str) -> str:
    """Return the innermost ``file:line`` of a traceback that is not part of vaka; without one, the script's name."""
    for frame in traceback.splitlines():
        match = _FRAME.match(frame)
        if match is not None and match[1] not in _INTERNAL_CHUNKS:
            return f"{match[1]}:{match[2]}"
    return program.name
