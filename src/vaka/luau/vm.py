"""A script in a VM of this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.types.errors import InvalidInput, ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.luau.bytecode import native
from vaka.luau.pool import SLOW, Pool, Seat
from vaka.luau.program import Program
from vaka.luau.require import LOAD
from vaka.luau.script import Call, Done, Script, Step, Waiting
from vaka.luau.values import pack

if TYPE_CHECKING:
    from pyluau import Stepper

_OURS = {"", "prelude", "main"}

Print = Callable[[str], None]
"""Where the lines go that a script prints."""


class Vms:
    """Runs scripts in this process, for those the project trusts."""

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool = pool or Pool()

    def open(self, program: Program, printed: Print | None = None) -> Script:
        """Return a script that can be started once."""
        return Running(self.pool, program, printed)

    async def close(self) -> None:
        """Free what no script uses."""
        self.pool.close()


class Running:
    """One run of a program. A step that takes long is made in a thread, once that is known of the program."""

    def __init__(self, pool: Pool, program: Program, printed: Print | None) -> None:
        self._pool = pool
        self._program = program
        self._print = printed
        self._seat: Seat | None = None
        self._stepper: Stepper | None = None
        self._began = False
        self._at = 0

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        if self._began:
            raise InvalidInput(f"script {self._program.name!r} was started already")
        self._began = True
        prepared = self._pool.prepare(self._program)
        self._seat = self._pool.take(self._program.limits)
        state = self._seat.state

        def begin() -> Any:
            place = state.environment()
            values = list(arguments)
            if prepared.main is not None:
                values.insert(0, state.load(prepared.script, f"={self._program.name}", place))
            self._stepper = state.stepper(
                prepared.main or prepared.script,
                env=place,
                prelude=[*prepared.preludes],
                chunkname="=main" if prepared.main else f"={self._program.name}",
                limits=prepared.limits,
                seed=seed,
                clock=self._clock,
            )
            return self._stepper.start(values)

        return await self._step(begin, at)

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        stepper = self._going()
        return await self._step(lambda: stepper.answer(call, tuple(values)), at)

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        stepper = self._going()
        return await self._step(lambda: stepper.fail(call, error), at)

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        seat, self._seat = self._seat, None
        stepper, self._stepper = self._stepper, None
        if seat is None:
            return
        async with seat.lock:
            if stepper is not None:
                stepper.close()
        self._pool.give(seat)

    def _going(self) -> "Stepper":
        if self._stepper is None:
            raise InvalidInput(f"script {self._program.name!r} does not run")
        return self._stepper

    def _clock(self) -> float:
        return self._at / 1000

    async def _step(self, action: Callable[[], Any], at: int) -> Step:
        seat = self._seat
        if seat is None:
            raise InvalidInput(f"script {self._program.name!r} is closed")
        luau = native()
        self._at = at
        try:
            if seat.lock.locked() or self._pool.is_slow(self._program):
                step = await self._in_thread(seat, action)
            else:
                step = self._here(action)
        except luau.PyluauError as error:
            seat.spoiled = seat.spoiled or isinstance(error, luau.OutOfMemory)
            await self.close()
            raise failure(self._program, error) from None
        finally:
            for line in seat.printed.take():
                if self._print is not None:
                    self._print(line)
        if isinstance(step, Done):
            await self.close()
        return step

    def _here(self, action: Callable[[], Any]) -> Step:
        began = time.perf_counter()
        try:
            return self._settle(action())
        finally:
            if time.perf_counter() - began > SLOW:
                self._pool.found_slow(self._program)

    async def _in_thread(self, seat: Seat, action: Callable[[], Any]) -> Step:
        async with seat.lock:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(None, lambda: self._settle(action()))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await _stop(seat, work)
                raise

    def _settle(self, step: Any) -> Step:
        """Answer what the VM's own host can answer, and say where the script stands then."""
        luau = native()
        calls: list[Call] = []
        dropped: list[int] = []
        wanted: list[Any] = []
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

    def _load(self, call: Any) -> Any:
        stepper, seat = self._going(), self._seat
        assert seat is not None  # noqa: S101  # a script that runs has a VM
        origin, name = call.args
        try:
            module = self._program.library.find(name if isinstance(name, str) else "", origin)
            code = self._pool.bytecode.compile(module.source, module.file, self._program.opt)
        except ScriptError as error:
            return stepper.fail(call.id, str(error))
        place = seat.state.environment()
        return stepper.answer(call.id, (module.name, seat.state.load(code, f"={module.file}", place), place))


async def _stop(seat: Seat, work: "asyncio.Future[Any]") -> None:
    """Stop a step that runs in a thread, and wait until it has."""
    while not work.done():
        seat.state.cancel()
        try:
            await asyncio.wait([work], timeout=0.05)
        except asyncio.CancelledError:
            continue
    work.exception()  # it was stopped: nobody wants to know


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


def _message(program: Program, error: Any) -> str:
    message, value = str(error), error.value
    if isinstance(value, str | bytes) and error.line is not None:
        return message
    if message == "(error object is a table)":
        message = msgspec.json.encode(pack(value)).decode()
    for frame in error.traceback.splitlines():
        place, _, line = frame.split(" ")[0].rpartition(":")
        if line.isdigit() and place not in _OURS:
            return f"{place}:{line}: {message}"
    return f"{program.name}: {message}"
