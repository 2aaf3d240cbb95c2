"""Run a script without a session and measure its time and memory; its state lasts as long as its key-value store."""

import asyncio
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.types.errors import ScriptError, ScriptLimit
from vaka.core.types.ids import JSON
from vaka.core.types.message import Part, Text
from vaka.luau.host import surface_functions
from vaka.luau.host.io import chunk_of_content, parse_chunk
from vaka.luau.host.storage import StoredMemory
from vaka.luau.pool import PooledVm, PrintBuffer, VmPool, native_limits
from vaka.luau.program import (
    ALL_SURFACES,
    BytecodeCache,
    Program,
    ScriptLimits,
    build_program,
    load_pyluau,
    read_source,
)
from vaka.luau.protocol import Script, Step, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import AgentMemory, HostServices, ScriptIo, ScriptServices
from vaka.luau.threads import StepThreads
from vaka.luau.vm import LocalScript, PrintLine, ScriptExecution, StepAction
from vaka.luau.worker import WorkerPool


@dataclass(slots=True)
class ScriptProfile:
    """Time and memory of one run. Concurrent calls are counted separately: their total may exceed the run time."""

    compile_seconds: float = 0.0
    run_seconds: float = 0.0
    vm_seconds: float = 0.0
    steps: int = 0
    peak_memory: int | None = None
    """The largest size of the VM at the end of a step, in bytes; ``None`` for a VM in another process."""
    calls: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    """The seconds of each call of a host function, by its name."""

    def format_lines(self) -> list[str]:
        """Return the profile as text; the host functions that took longest come first."""
        memory = "in a worker" if self.peak_memory is None else f"{self.peak_memory / 1024:.0f} KiB"
        lines = [
            f"compile  {self.compile_seconds * 1e3:.2f} ms",
            f"run      {self.run_seconds * 1e3:.2f} ms",
            f"vm       {self.vm_seconds:.6f} s in {self.steps} step{'' if self.steps == 1 else 's'}",
            f"memory   {memory}",
            f"calls    {sum(map(len, self.calls.values()))}",
        ]
        totals = sorted((-sum(calls), name, len(calls)) for name, calls in self.calls.items())
        return lines + [f"  {name}  {count} in {seconds * -1e3:.2f} ms" for seconds, name, count in totals]


class ProfiledExecution(ScriptExecution):
    """An execution that records the size of its VM after each step."""

    def __init__(self, pool: VmPool, program: Program, profile: ScriptProfile) -> None:
        super().__init__(pool, program)
        self._profile = profile

    def run_step(self, action: StepAction) -> Step:
        try:
            return super().run_step(action)
        finally:
            if self.vm is not None:
                self._profile.peak_memory = max(self._profile.peak_memory or 0, self.vm.state.memory_used)


class ProfiledScript:
    """Measures a script: its own time is the time of its steps; a host call's time ends with its answer."""

    def __init__(self, script: Script, profile: ScriptProfile) -> None:
        self._script, self._profile = script, profile
        self._open_calls: dict[int, tuple[str, float]] = {}

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        return await self._time_step(self._script.start(arguments, seed=seed, at=at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        self._record_call(call)
        return await self._time_step(self._script.answer(call, values, at=at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        self._record_call(call)
        return await self._time_step(self._script.fail(call, error, at=at))

    async def close(self) -> None:
        await self._script.close()

    async def _time_step(self, work: Awaitable[Step]) -> Step:
        began = time.perf_counter()
        self._profile.steps += 1
        try:
            step = await work
        finally:
            now = time.perf_counter()
            self._profile.vm_seconds += now - began
        if isinstance(step, Waiting):
            for call in step.calls:
                self._open_calls[call.id] = call.name, now
            for number in step.dropped:
                self._record_call(number)
        return step

    def _record_call(self, number: int) -> None:
        if number in self._open_calls:
            name, began = self._open_calls.pop(number)
            self._profile.calls[name].append(time.perf_counter() - began)


AskCaller = Callable[[JSON], Awaitable[JSON]]
"""Receives the last output of a tool and returns its caller's answer."""

ReceiveInput = Callable[[], Awaitable[str | None]]
"""Returns the next input of an agent, ``None`` at the end of input."""

EmitPart = Callable[["Part | None"], None]
"""Receives a part of an agent's message, ``None`` at the end of a message."""


async def load_program(
    path: Path, *, libs: Sequence[Path] = (), limits: ScriptLimits | None = None, trusted: bool = True
) -> Program:
    """Read a script and its modules, with all three surfaces.

    Raises ``NotFound``, or ``ScriptError`` with ``file:line: what is wrong`` if it does not compile.
    """
    source = await asyncio.to_thread(read_source, path)
    BytecodeCache().compile(source, path.name)
    return await build_program(source, path.name, libs, limits=limits, trusted=trusted, surfaces=ALL_SURFACES)


class _LivePrintBuffer(PrintBuffer):
    """Passes each printed line on at once, without a limit on their number."""

    def __init__(self, print_line: PrintLine | None) -> None:
        super().__init__()
        self._print_line = print_line
        self.cancel_script: Callable[[], object] = lambda: None

    def add(self, line: str | bytes) -> None:
        """Pass a line on; if that fails, cancel the script, which could catch the exception."""
        try:
            if self._print_line is not None:
                self._print_line(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
        except BaseException:
            self.cancel_script()
            raise


class _PrintingVmPool(VmPool):
    """VMs whose scripts print at once, from the thread in which they run."""

    print_line: PrintLine | None = None

    def _create_vm(self, limits: ScriptLimits, limits_key: tuple[int | None, int]) -> PooledVm:
        printed = _LivePrintBuffer(self.print_line)
        state = load_pyluau().State(limits=native_limits(limits), print=printed.add)
        printed.cancel_script = state.cancel
        return PooledVm(state, limits_key, state.memory_used, printed)


class ProfilingRunner:
    """Runs and profiles a standalone script: a trusted one in a VM of this process, any other in a worker.

    All scripts of a runner print through the ``print_line`` of the last one opened.
    """

    def __init__(self, profile: ScriptProfile) -> None:
        self._profile = profile
        self._pool = _PrintingVmPool(max_vms=1)
        self._workers = WorkerPool(1)
        self._threads = StepThreads()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; ``print_line`` is called at once, from any thread."""
        if program.trusted:
            self._pool.print_line = print_line
            script: Script = LocalScript(ProfiledExecution(self._pool, program, self._profile), self._threads, None)
        else:
            script = self._workers.open(program, print_line)
        return ProfiledScript(script, self._profile)

    async def close(self) -> None:
        self._pool.close()
        self._threads.close()
        await self._workers.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneScript:
    """A program and the services it runs with. State, history and memory last as long as ``services.values``."""

    program: Program
    services: ScriptServices
    name: str = "script"
    model: str = ""
    print_line: PrintLine | None = None
    log: Callable[[str, str], None] | None = None
    """Receives a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    max_sleep: float | None = None
    """Seconds that a run may sleep in total."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    async def run_plain(self, *arguments: JSON) -> Sequence[JSON]:
        """Run the script with ``...`` set to the arguments, and return its results."""
        return await self._drive_script("plain", ScriptIo(), arguments)

    async def run_tool(self, arguments: JSON, ask_caller: AskCaller) -> JSON:
        """Call the script as a tool and return its result; ``ask_caller`` answers each ``input``.

        Raises ``ScriptError`` for a script that fails or has no result.
        """
        outputs: list[JSON] = []

        async def output(value: JSON, error: str | None) -> None:
            outputs[:] = [value if error is None else error]

        async def input(request: ScriptRequest) -> JSON:
            return await ask_caller(outputs.pop() if outputs else None)

        values = await self._drive_script("tool", ScriptIo(input=input, output=output), [arguments])
        value, error = [*values, None, None][:2]
        if error is not None:
            raise ScriptError(str(error))
        return value

    async def run_agent(self, receive_input: ReceiveInput, emit_part: EmitPart) -> None:
        """Run the script as an agent until it has ended or has received the end of input."""
        memory = self._open_memory()
        writer = _MessageWriter(emit_part, memory)

        async def recv(request: ScriptRequest) -> JSON:
            await writer.close()
            text = await receive_input()
            if text is None:
                return None
            await memory.append({"role": "user", "content": text})
            return chunk_of_content((Text(text=text),))

        io = ScriptIo(recv=recv, emit=writer.emit)
        begin = True
        again = True
        while again:
            values = await self._drive_script("agent", io, [None], begin=begin)
            await writer.close()
            begin, again = False, values[:1] == ["input"]

    async def _drive_script(
        self, mode: str, io: ScriptIo, arguments: Sequence[JSON], *, begin: bool = True
    ) -> Sequence[JSON]:
        async with AsyncExitStack() as exit_stack:
            services = HostServices(
                runtime=self.services,
                memory=self._open_memory(),
                exit_stack=exit_stack,
                io=io,
                log=self.log,
                sleep=asyncio.sleep if self.max_sleep is None else _LimitedSleep(self.program, self.max_sleep).sleep,
            )
            script = self.services.runner.open(self.program, self.print_line)
            startup_info = self._startup_info(mode, begin)
            return await drive(
                script, surface_functions(services), NullJournal(), [startup_info, *arguments], max_answers=sys.maxsize
            )

    def _open_memory(self) -> AgentMemory:
        return StoredMemory(self.services.values, f"agent/{self.name}/")

    def _startup_info(self, mode: str, begin: bool) -> dict[str, JSON]:
        return {
            "mode": mode,
            "begin": begin,
            "name": self.name,
            "model": self.model,
            "state_id": self.name,
            "state": self.program.uses_state or None,
            "request_id": self.id,
            "user_id": self.services.user,
            "trace_id": self.id,
        }


class _LimitedSleep:
    """Sleeps for a limited time in total; the time of concurrent sleeps counts once."""

    def __init__(self, program: Program, limit: float) -> None:
        self._program, self._limit = program, limit
        self._slept = 0.0
        self._since = 0.0
        self._sleepers = 0

    async def sleep(self, seconds: float) -> None:
        """Sleep; raise ``ScriptLimit`` when the limit is reached."""
        now = time.monotonic()
        if not self._sleepers:
            self._since = now
        self._sleepers += 1
        remaining = max(self._limit - self._slept - (now - self._since), 0.0)
        try:
            await asyncio.sleep(min(seconds, remaining))
        finally:
            self._sleepers -= 1
            if not self._sleepers:
                self._slept += time.monotonic() - self._since
        if seconds > remaining:
            raise ScriptLimit(f"{self._program.name}: out of time: it has slept for {self._limit:g} seconds")


class _MessageWriter:
    """Passes on the parts of an agent's messages, and appends complete messages to its history."""

    def __init__(self, emit_part: EmitPart, memory: AgentMemory) -> None:
        self._emit_part, self._memory = emit_part, memory
        self._texts: list[str] = []
        self._open = False

    async def emit(self, chunk: JSON) -> None:
        parsed = parse_chunk(chunk)
        for part in parsed.content:
            self._open = True
            if isinstance(part, Text):
                self._texts.append(part.text)
            self._emit_part(part)
        if parsed.eof:
            await self.close()

    async def close(self) -> None:
        """End the open message, if any."""
        if not self._open:
            return
        self._open = False
        text, self._texts = "".join(self._texts), []
        await self._memory.append({"role": "assistant", "content": text})
        self._emit_part(None)
