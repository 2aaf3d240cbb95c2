"""VMs, made once and used by many scripts; scripts in one VM see nothing of each other."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vaka.core.types.errors import Closed
from vaka.core.types.ids import Digest
from vaka.luau import require
from vaka.luau.bytecode import BytecodeCache, load_pyluau
from vaka.luau.program import Program, ScriptLimits

if TYPE_CHECKING:
    from pyluau import Function, Limits, State

MAX_VMS = 256
MAX_IDLE_VMS = 16
MAX_COMPILED_PROGRAMS = 1024
MAX_PRELUDES = 16
MAX_PRINTED_CHARS = 256 << 10
SLOW_STEP_SECONDS = 0.01
"""Seconds of work after which a step has held up everyone else for too long; the program is then run in threads."""
FAST_STEPS_TO_RECOVER = 64
"""Quick steps after which a program is run in the event loop again."""
MAX_RESIDUAL_BYTES = 2 << 20
"""Bytes that a VM may hold more than a fresh one before it is thrown away."""


class PrintBuffer:
    """What the script printed that runs in a VM, within reason."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._remaining_chars = MAX_PRINTED_CHARS

    def add(self, line: str | bytes) -> None:
        """Keep a line."""
        if self._remaining_chars <= 0:
            return
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        self._remaining_chars -= len(text) + 1
        self._lines.append(
            text
            if self._remaining_chars > 0
            else f"{text[: self._remaining_chars]}… (more was printed than can be shown)"
        )

    def drain(self) -> list[str]:
        """Return the lines since this was last asked."""
        lines, self._lines, self._remaining_chars = self._lines, [], MAX_PRINTED_CHARS
        return lines


@dataclass(slots=True, eq=False)
class PooledVm:
    """A VM and who uses it."""

    state: "State"
    limits_key: tuple[int | None, int]
    initial_bytes: int
    """Bytes it held when it was made."""
    print_buffer: PrintBuffer
    script_count: int = 0
    out_of_memory: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a script of this VM runs in a thread."""
    _preludes: "dict[bytes, Function]" = field(default_factory=dict[bytes, "Function"])

    def load_prelude(self, code: bytes) -> "Function":
        """Return a prelude, loaded once for all scripts: its globals are the VM's, which nobody can change."""
        function = self._preludes.get(code)
        if function is None:
            if len(self._preludes) >= MAX_PRELUDES:
                self._preludes.clear()
            function = self._preludes[code] = self.state.load(code, "=prelude", self.state.globals)
        return function


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program as a VM takes it."""

    script: bytes
    main: bytes | None
    preludes: list[bytes]
    limits: "Limits"


class VmPool:
    """Lends VMs to scripts.

    A script has a VM to itself as long as there are fewer than ``most``; beyond that scripts share, each in a place of
    its own, and share the memory of the VM. Up to ``idle`` VMs are kept for later.
    """

    def __init__(
        self, *, max_vms: int = MAX_VMS, max_idle: int = MAX_IDLE_VMS, bytecode: BytecodeCache | None = None
    ) -> None:
        self.bytecode = bytecode or BytecodeCache()
        self.max_vms = max_vms
        self.max_idle = max_idle
        self.closed = False
        self._idle: dict[tuple[int | None, int], list[PooledVm]] = {}
        self._busy: dict[tuple[int | None, int], list[PooledVm]] = {}
        self._compiled_programs: OrderedDict[tuple[Digest, ScriptLimits], CompiledProgram] = OrderedDict()
        self._slow_programs: OrderedDict[Digest, int] = OrderedDict()

    @property
    def vm_count(self) -> int:
        """How many VMs there are."""
        return sum(len(seats) for kinds in (self._idle, self._busy) for seats in kinds.values())

    def compile_program(self, program: Program) -> CompiledProgram:
        """Return a program compiled, from memory if it was here before."""
        key = (program.digest, program.limits)
        known = self._compiled_programs.get(key)
        if known is None:
            sources = [*program.preludes, require.REQUIRE_PRELUDE]
            known = self._compiled_programs[key] = CompiledProgram(
                self.bytecode.compile(program.source, program.name, program.opt),
                self.bytecode.compile(program.main, "main", program.opt) if program.main else None,
                [self.bytecode.compile(source, "prelude") for source in sources],
                native_limits(program.limits),
            )
            _evict_oldest(self._compiled_programs)
        self._compiled_programs.move_to_end(key)
        return known

    def is_slow(self, program: Program) -> bool:
        """Say whether a step of this program took long not so long ago."""
        return bool(self._slow_programs) and program.digest in self._slow_programs

    def record_step_time(self, program: Program, seconds: float) -> None:
        """Take note of how much work a step was."""
        if seconds > SLOW_STEP_SECONDS:
            self._slow_programs[program.digest] = FAST_STEPS_TO_RECOVER
            _evict_oldest(self._slow_programs)
        elif self.is_slow(program):
            self._slow_programs[program.digest] -= 1
            if not self._slow_programs[program.digest]:
                del self._slow_programs[program.digest]

    def acquire(self, limits: ScriptLimits) -> PooledVm:
        """Return a VM for one more script; ``give`` it back."""
        if self.closed:
            raise Closed("the pool of VMs is closed")
        kind = (limits.memory, limits.depth)
        idle = self._idle.get(kind)
        if idle:
            seat = idle.pop()
        else:
            shared = self._share_busy_vm(kind)
            if shared is not None:
                return shared
            seat = self._create_vm(limits, kind)
        seat.script_count = 1
        self._busy.setdefault(kind, []).append(seat)
        return seat

    def release(self, vm: PooledVm) -> None:
        """Take a VM back from a script that has ended."""
        vm.script_count -= 1
        if vm.script_count:
            return
        self._busy[vm.limits_key].remove(vm)
        idle = self._idle.setdefault(vm.limits_key, [])
        if (
            self.closed
            or vm.out_of_memory
            or sum(map(len, self._idle.values())) >= self.max_idle
            or not _is_reusable(vm)
        ):
            vm.state.close()
        else:
            idle.append(vm)

    def close(self) -> None:
        """Free the VMs that nobody uses; those in use go when their scripts end."""
        self.closed = True
        for seats in self._idle.values():
            while seats:
                seats.pop().state.close()

    def _share_busy_vm(self, limits_key: tuple[int | None, int]) -> PooledVm | None:
        if self.vm_count < self.max_vms:
            return None
        sound = [seat for seat in self._busy.get(limits_key, ()) if not seat.out_of_memory]
        if not sound:
            return None
        seat = min(sound, key=lambda seat: seat.script_count)
        seat.script_count += 1
        return seat

    def _create_vm(self, limits: ScriptLimits, limits_key: tuple[int | None, int]) -> PooledVm:
        printed = PrintBuffer()
        state: State = load_pyluau().State(limits=native_limits(limits), key=self.bytecode.key, print=printed.add)
        return PooledVm(state, limits_key, state.memory_used, printed)


def native_limits(limits: ScriptLimits) -> "Limits":
    """Return limits as the VM takes them."""
    made: Limits = load_pyluau().Limits(
        memory=limits.memory,
        seconds=limits.seconds,
        instructions=limits.instructions,
        coroutines=limits.coroutines,
        depth=limits.depth,
    )
    return made


def _is_reusable(vm: PooledVm) -> bool:
    """Say whether a VM is as good as new; one that was left much to carry is not."""
    if vm.state.memory_used - vm.initial_bytes > MAX_RESIDUAL_BYTES:
        vm.state.collect()
    return vm.state.memory_used - vm.initial_bytes <= MAX_RESIDUAL_BYTES


def _evict_oldest(entries: "OrderedDict[Any, Any]") -> None:
    while len(entries) > MAX_COMPILED_PROGRAMS:
        entries.popitem(last=False)
