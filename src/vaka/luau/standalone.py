"""Run a script without a session, measure its time and memory, and keep its state only for the run."""

import asyncio
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Part, Text
from vaka.luau import prelude
from vaka.luau.bytecode import load_pyluau
from vaka.luau.host.compat import surface_functions
from vaka.luau.host.host_services import HostServices
from vaka.luau.host.io import chunk_of_content, parse_chunk
from vaka.luau.host.memory import StoredMemory
from vaka.luau.packages.install import package_finder
from vaka.luau.pool import PooledVm, PrintBuffer, VmPool, native_limits
from vaka.luau.program import BUILTIN_LIBRARY, Program, ScriptLimits
from vaka.luau.protocol import Script, Step, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import ScriptServices
from vaka.luau.vm import LocalScript, PrintLine, ScriptExecution, StepAction
from vaka.luau.worker import WorkerPool


class CallStats:
    """How often the host was asked for one thing, and how many seconds that took together."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0


class ScriptProfile:
    """What one run took. Calls that wait at the same time count each for itself: together they may outlast the run."""

    def __init__(self) -> None:
        self.compile_seconds = 0.0
        self.run_seconds = 0.0
        self.vm_seconds = 0.0
        self.steps = 0
        self.peak_memory: int | None = None
        """Bytes the VM held at most at the end of a step; ``None`` for a VM in another process."""
        self.calls: dict[str, CallStats] = {}

    def record_memory(self, memory: int) -> None:
        """Take note of what a VM holds."""
        self.peak_memory = max(self.peak_memory or 0, memory)

    def format_lines(self) -> list[str]:
        """Return it for people to read: the calls that took longest first."""
        held = "in a worker" if self.peak_memory is None else f"{self.peak_memory / 1024:.0f} KiB"
        lines = [
            f"compile  {self.compile_seconds * 1e3:.2f} ms",
            f"run      {self.run_seconds * 1e3:.2f} ms",
            f"vm       {self.vm_seconds:.6f} s in {self.steps} step{'' if self.steps == 1 else 's'}",
            f"memory   {held}",
            f"calls    {sum(calls.count for calls in self.calls.values())}",
        ]
        for name, calls in sorted(self.calls.items(), key=lambda item: (-item[1].seconds, item[0])):
            lines.append(f"  {name}  {calls.count} in {calls.seconds * 1e3:.2f} ms")
        return lines


class ProfiledExecution(ScriptExecution):
    """A machine that says what its VM holds, while it still has one."""

    def __init__(self, pool: VmPool, program: Program, profile: ScriptProfile) -> None:
        super().__init__(pool, program)
        self._profile = profile

    def run_step(self, action: StepAction) -> Step:
        """Make a step; in any thread, one at a time. ``end`` must follow."""
        try:
            return super().run_step(action)
        finally:
            if self.vm is not None:
                self._profile.record_memory(self.vm.state.memory_used)


class ProfiledScript:
    """A script under a stopwatch: its own time is that of its steps, its host's that from each call to its answer."""

    def __init__(self, script: Script, profile: ScriptProfile) -> None:
        self._script, self._profile = script, profile
        self._open_calls: dict[int, tuple[str, float]] = {}

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        return await self._time_step(self._script.start(arguments, seed=seed, at=at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        self._record_call(call)
        return await self._time_step(self._script.answer(call, values, at=at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        self._record_call(call)
        return await self._time_step(self._script.fail(call, error, at=at))

    async def close(self) -> None:
        """Let go of the script; twice is once."""
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
        opened = self._open_calls.pop(number, None)
        if opened is not None:
            calls = self._profile.calls.setdefault(opened[0], CallStats())
            calls.count += 1
            calls.seconds += time.perf_counter() - opened[1]


AskCaller = Callable[[JSON], Awaitable[JSON]]
"""What a tool said last goes in, what its caller says to that comes back."""

ReceiveInput = Callable[[], Awaitable[str | None]]
"""What an agent is told next, ``None`` when nothing more comes."""

EmitPart = Callable[["Part | None"], None]
"""Takes a part of what an agent says, ``None`` where a message ends."""

_BUILTIN_MODULES = tuple(folder.name for folder in BUILTIN_LIBRARY.iterdir())
"""Modules that come with vaka; none of them looks at the state of an agent."""


async def load_program(
    path: Path, *, libs: Sequence[Path] = (), limits: ScriptLimits | None = None, trusted: bool = True
) -> Program:
    """Read a script with all it can require, installed packages included, and all three surfaces in its place.

    Raises ``NotFound``, or ``ScriptError`` with ``file:line: what is wrong`` if it does not compile.
    """
    like = Program(
        "",
        preludes=(prelude.prelude_source(),),
        main=prelude.main_source(),
        limits=limits or ScriptLimits(),
        trusted=trusted,
    )
    folder = (await asyncio.to_thread(path.resolve)).parent
    return await Program.load(path, libs=libs, packages=package_finder(folder), template=like)


class _LivePrintBuffer(PrintBuffer):
    """What a script prints, shown as it is printed: one that prints much, or for long, is not cut short."""

    def __init__(self, print_line: PrintLine | None) -> None:
        super().__init__()
        self._print_line = print_line
        self.cancel_script: Callable[[], object] = lambda: None

    def add(self, line: str | bytes) -> None:
        """Show a line; a script whose lines go nowhere any more is stopped, since it may catch what ``show`` raises."""
        try:
            if self._print_line is not None:
                self._print_line(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
        except BaseException:
            self.cancel_script()
            raise


class _ThreadedVmPool(VmPool):
    """VMs whose scripts run in threads from their first step on: whoever waits for one can stop it at any time."""

    print_line: PrintLine | None = None

    def is_slow(self, program: Program) -> bool:
        """Say yes."""
        return True

    def record_step_time(self, program: Program, seconds: float) -> None:
        """Do not care."""

    def _create_vm(self, limits: ScriptLimits, limits_key: tuple[int | None, int]) -> PooledVm:
        printed = _LivePrintBuffer(self.print_line)
        state = load_pyluau().State(limits=native_limits(limits), key=self.bytecode.key, print=printed.add)
        printed.cancel_script = state.cancel
        return PooledVm(state, limits_key, state.memory_used, printed)


class ProfilingRunner:
    """Where a script runs that runs alone: trusted in a VM of this process, otherwise in a worker. It measures.

    All scripts of a home print to the same place.
    """

    def __init__(self, profile: ScriptProfile) -> None:
        self._profile, self._pool = profile, _ThreadedVmPool(max_vms=1)
        self._workers: WorkerPool | None = None

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; what it prints goes to ``printed`` at once, in any thread."""
        if program.trusted:
            self._pool.print_line = print_line
            script: Script = LocalScript(ProfiledExecution(self._pool, program, self._profile), None)
        else:
            self._workers = self._workers or WorkerPool(1)
            script = self._workers.open(program, print_line)
        return ProfiledScript(script, self._profile)

    async def close(self) -> None:
        """Let go of everything."""
        self._pool.close()
        if self._workers is not None:
            await self._workers.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneScript:
    """A program, what it is lent, and where its lines go. State, history and memory last as long as ``lent.values``."""

    program: Program
    services: ScriptServices
    name: str = "script"
    model: str = ""
    print_line: PrintLine | None = None
    log: Callable[[str, str], None] | None = None
    """Takes a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    async def run_plain(self, *arguments: JSON) -> Sequence[JSON]:
        """Run the script with ``...`` as given, and return what it returned."""
        return await self._drive_script("plain", HostServices(), arguments)

    async def run_tool(self, arguments: JSON, ask_caller: AskCaller) -> JSON:
        """Call the script as a tool and return its result; ``more`` is asked when it wants to hear more."""
        last: list[JSON] = []

        async def output(value: JSON, error: str | None) -> None:
            last[:] = [value if error is None else error]

        async def ask(request: ScriptRequest) -> JSON:
            return await ask_caller(last.pop() if last else None)

        values = await self._drive_script("tool", HostServices(input=ask, output=output), [arguments])
        value, error, source = [*values, None, None, None][:3]
        if source == "nothing":
            raise ScriptError("tool did not call output")
        if error is not None:
            raise ScriptError(str(error))
        return value

    async def run_agent(self, receive_input: ReceiveInput, emit_part: EmitPart) -> None:
        """Let the script work as an agent until it has ended, or has heard that nothing more comes."""
        notes = self._open_memory()
        voice = _MessageWriter(emit_part, notes)

        async def recv(request: ScriptRequest) -> JSON:
            await voice.close()
            words = await receive_input()
            if words is None:
                return None
            await notes.history.append({"role": "user", "content": words})
            return chunk_of_content((Text(text=words),))

        begin, again = True, True
        while again:
            parts = HostServices(recv=recv, emit=voice.emit)
            values = await self._drive_script("agent", parts, [None], begin=begin)
            await voice.close()
            begin, again = False, values[:1] == ["input"]

    async def _drive_script(
        self, mode: str, mode_services: HostServices, arguments: Sequence[JSON], *, begin: bool = True
    ) -> Sequence[JSON]:
        async with AsyncExitStack() as closing:
            parts = self._build_host_services(mode_services, closing)
            script = self.services.runner.open(self.program, self.print_line)
            given = self._startup_info(mode, begin)
            return await drive(
                script, surface_functions(parts), NullJournal(), [given, *arguments], max_answers=sys.maxsize
            )

    def _build_host_services(self, mode_services: HostServices, exit_stack: AsyncExitStack) -> HostServices:
        lent, notes = self.services, self._open_memory()
        return replace(
            mode_services,
            network=lent.network,
            models=lent.models,
            fits=lent.fits,
            state=notes.state,
            history=notes.history,
            summary=notes.summary,
            values=lent.values,
            cache=lent.cache,
            env=lent.env,
            log=self.log,
            closing=exit_stack,
        )

    def _open_memory(self) -> StoredMemory:
        return StoredMemory(self.services.values, f"agent/{self.name}/")

    def _startup_info(self, mode: str, begin: bool) -> dict[str, JSON]:
        modules = self.program.library.modules.values()
        sources = [
            self.program.source,
            *(module.source for module in modules if not module.name.startswith(_BUILTIN_MODULES)),
        ]
        return {
            "mode": mode, "begin": begin, "name": self.name, "model": self.model, "state_id": self.name,
            "state": True if prelude.uses_state(sources) else None, "request_id": self.id, "user_id": "",
            "trace_id": self.id,
        }  # fmt: skip


class _MessageWriter:
    """What an agent says, and what of it becomes history."""

    def __init__(self, emit_part: EmitPart, memory: StoredMemory) -> None:
        self._emit_part, self._memory = emit_part, memory
        self._texts: list[str] = []
        self._open = False

    async def emit(self, chunk: JSON) -> None:
        """Say something more; with its end a message is over."""
        more = parse_chunk(chunk)
        for part in more.content:
            self._open = True
            if isinstance(part, Text):
                self._texts.append(part.text)
            self._emit_part(part)
        if more.eof:
            await self.close()

    async def close(self) -> None:
        """Let the message end here, if there is one."""
        if not self._open:
            return
        self._open = False
        words, self._texts = "".join(self._texts), []
        await self._memory.history.append({"role": "assistant", "content": words})
        self._emit_part(None)
