"""A script in a VM of this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.core.types.errors import InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau.bytecode import native
from vaka.luau.pool import Pool, Printed, Seat
from vaka.luau.program import Program
from vaka.luau.require import LOAD
from vaka.luau.script import Call, Done, Script, Step, Waiting
from vaka.luau.values import pack

if TYPE_CHECKING:
    from pyluau import PyluauError, Stepper

_OURS = {"", "prelude", "main"}
_TURN = 0.05

Print: TypeAlias = Callable[[str], None]
"""Where the lines go that a script prints."""
Action: TypeAlias = Callable[[], Any]


class Vms:
    """Runs scripts in this process: those the project trusts.

    A step runs in the event loop, since most take microseconds; a program one of whose steps took long is run in
    threads from then on.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool = pool or Pool()

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once."""
        return Running(Machine(self.pool, program), printed)

    async def close(self) -> None:
        """Free what no script uses."""
        self.pool.close()


class Machine:
    """One run of a program, step by step, for whoever waits for each step. It lets go of its VM when it has ended."""

    def __init__(self, pool: Pool, program: Program) -> None:
        self.pool = pool
        self.program = program
        self.seat: Seat | None = None
        self._printed: Printed | None = None
        self._stepper: Stepper | None = None
        self._began = False
        self._at = 0

    def starting(self, arguments: Sequence[JSON], seed: int, at: int) -> Action:
        """Return what starts it."""
        if self._began:
            raise InvalidInput(f"script {self.program.name!r} was started already")
        self._began = True
        self._at = at
        prepared = self.pool.prepare(self.program)
        self.seat = self.pool.take(self.program.limits)
        self._printed = self.seat.printed
        seat, state, name = self.seat, self.seat.state, f"={self.program.name}"

        def begin() -> Any:
            place = state.environment()
            values = list(arguments)
            if prepared.main is not None:
                values.insert(0, state.load(prepared.script, name, place))
            self._stepper = state.stepper(
                prepared.main or prepared.script,
                env=place,
                prelude=[seat.prelude(code) for code in prepared.preludes],
                chunkname="=main" if prepared.main else name,
                limits=prepared.limits,
                seed=seed,
                clock=self._clock,
            )
            return self._stepper.start(values)

        return begin

    def answering(self, call: int, values: Sequence[JSON], at: int) -> Action:
        """Return what gives a call its results."""
        stepper, self._at = self._going(), at
        return lambda: stepper.answer(call, tuple(values))

    def failing(self, call: int, error: JSON, at: int) -> Action:
        """Return what raises an error where a call was made."""
        stepper, self._at = self._going(), at
        return lambda: stepper.fail(call, error)

    def run(self, action: Action) -> Step:
        """Make a step; in any thread, one at a time. ``end`` must follow."""
        luau = native()
        step, wanted = action(), list[Any]()
        calls: list[Call] = []
        dropped: list[int] = []
        while isinstance(step, luau.Waiting):
            for call in step.calls:
                if call.name == LOAD:
                    wanted.append(call)
                else:
                    calls.append(Call(call.id, call.name, call.args))
            for number in step.dropped:
                known = len(calls)
                calls = [call for call in calls if call.id != number]
                wanted = [call for call in wanted if call.id != number]
                if len(calls) == known:
                    dropped.append(number)
            if not wanted:
                return Waiting(calls, dropped)
            step = self._load(wanted.pop(0))
        return Done(step.values)

    def end(self, outcome: "Step | PyluauError") -> Step:
        """Return the step, or raise what went wrong; lets go of the VM of a script that is over."""
        if isinstance(outcome, Waiting):
            return outcome
        if isinstance(outcome, Done):
            self.close()
            return outcome
        if self.seat is not None and isinstance(outcome, native().OutOfMemory):
            self.seat.spoiled = True
        self.close()
        raise failure(self.program, outcome) from None

    def now(self, action: Action) -> Step:
        """Make a whole step."""
        try:
            outcome: Any = self.run(action)
        except native().PyluauError as error:
            outcome = error
        return self.end(outcome)

    def printed(self) -> list[str]:
        """Return what the last step printed; to be asked before anyone else makes a step."""
        return self._printed.take() if self._printed is not None else []

    def close(self) -> None:
        """Let go of the VM; twice is once."""
        seat, self.seat = self.seat, None
        stepper, self._stepper = self._stepper, None
        if seat is None:
            return
        if stepper is not None:
            stepper.close()
        self.pool.give(seat)

    def _going(self) -> "Stepper":
        if self._stepper is None:
            raise InvalidInput(f"script {self.program.name!r} does not run")
        return self._stepper

    def _clock(self) -> float:
        return self._at / 1000

    def _load(self, call: Any) -> Any:
        """Give ``require.luau`` the module it asks for."""
        stepper, seat = self._going(), self.seat
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


class Running:
    """A machine as a script: its steps are awaited."""

    def __init__(self, machine: Machine, printed: Print | None) -> None:
        self._machine = machine
        self._print = printed

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        return await self._step(self._machine.starting(arguments, seed, at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        return await self._step(self._machine.answering(call, values, at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        return await self._step(self._machine.failing(call, error, at))

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        seat = self._machine.seat
        if seat is None:
            return
        if seat.lock.locked():
            async with seat.lock:
                self._machine.close()
        else:
            self._machine.close()

    async def _step(self, action: Action) -> Step:
        machine, seat = self._machine, self._machine.seat
        if seat is None:
            raise InvalidInput(f"script {machine.program.name!r} is closed")
        try:
            if seat.lock.locked() or machine.pool.is_slow(machine.program):
                outcome, seconds = await self._in_thread(seat, action)
            else:
                outcome, seconds = self._make(action)
        finally:
            for line in machine.printed():
                if self._print is not None:
                    self._print(line)
        machine.pool.took(machine.program, seconds)
        return machine.end(outcome)

    def _make(self, action: Action) -> tuple[Any, float]:
        """Make a step, and say how much work it was."""
        began = time.thread_time()
        try:
            outcome: Any = self._machine.run(action)
        except native().PyluauError as error:
            outcome = error
        return outcome, time.thread_time() - began

    async def _in_thread(self, seat: Seat, action: Action) -> tuple[Any, float]:
        async with seat.lock:
            work = asyncio.get_running_loop().run_in_executor(None, self._make, action)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await _stop(seat, work)
                raise


async def _stop(seat: Seat, work: "asyncio.Future[Any]") -> None:
    """Stop a step that runs in a thread, and wait until it has."""
    while not work.done():
        seat.state.cancel()
        try:
            await asyncio.wait([work], timeout=_TURN)
        except asyncio.CancelledError:
            continue
    if not work.cancelled():
        work.exception()  # it was stopped, and nobody wants to know


def failure(program: Program, error: Any) -> ScriptError:
    """Return what went wrong in a script's VM as the caller meets it."""
    luau = native()
    if isinstance(error, luau.LimitError):
        return ScriptLimit(f"{program.name}: {error}")
    if isinstance(error, luau.Deadlock):
        return ScriptError(f"{program.name}: every coroutine waits for another one, and none for the host")
    if isinstance(error, luau.LuauError):
        return ScriptError(_message(program, error), traceback=error.traceback)
    return ScriptError(f"{program.name}: {error}")


def _is_place(program: Program, chunk: str) -> bool:
    """Whether what a message begins with is a file of the script, and not something that looks like one."""
    return chunk == program.name or any(module.file == chunk for module in program.library.modules.values())


def _message(program: Program, error: Any) -> str:
    """Return what a script raised, with the place where it did."""
    message, value = str(error), error.value
    if isinstance(value, str | bytes) and error.line is not None and _is_place(program, error.chunk):
        return message
    if message == "(error object is a table)":
        message = msgspec.json.encode(pack(value)).decode()
    for frame in error.traceback.splitlines():
        place, _, line = frame.split(" ")[0].rpartition(":")
        if line.isdigit() and place not in _OURS:
            return f"{place}:{line}: {message}"
    return f"{program.name}: {message}"
