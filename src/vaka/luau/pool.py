"""A pool of VMs that scripts reuse; scripts that share a VM are isolated from each other."""

import asyncio
from collections import OrderedDict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vaka.core.types.errors import Closed
from vaka.luau import require
from vaka.luau.program import BytecodeCache, Program, ScriptLimits, load_pyluau

if TYPE_CHECKING:
    from pyluau import Function, Limits, State

MAX_VMS = 256
MAX_IDLE_VMS = 16
MAX_COMPILED_PROGRAMS = 1024
MAX_PRELUDES = 16
MAX_CACHED_SCRIPTS = 16
"""Scripts that a VM keeps loaded, each of at most ``MAX_CACHED_SCRIPT_BYTES`` of bytecode."""
MAX_CACHED_SCRIPT_BYTES = 16 << 10
MAX_PRINTED_CHARS = 256 << 10
MAX_LOOP_SECONDS = 0.002
"""Total running time of a script in the event loop; most tools need less than a tenth of a millisecond."""
MAX_RESIDUAL_BYTES = 2 << 20
"""Bytes by which a reused VM may exceed its initial size before it is discarded."""


class PrintBuffer:
    """The lines that a step has printed, up to ``MAX_PRINTED_CHARS``."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._remaining_chars = MAX_PRINTED_CHARS

    def add(self, line: str | bytes) -> None:
        if self._remaining_chars <= 0:
            return
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        self._remaining_chars -= len(text) + 1
        if self._remaining_chars <= 0:
            text = f"{text[: self._remaining_chars]}… (more was printed than can be shown)"
        self._lines.append(text)

    def drain(self) -> list[str]:
        """Return the lines since the last call."""
        if not self._lines:
            return []
        lines = self._lines
        self._lines = []
        self._remaining_chars = MAX_PRINTED_CHARS
        return lines


@dataclass(slots=True, eq=False)
class PooledVm:
    """A VM and the number of scripts that use it."""

    state: "State"
    limits_key: tuple[int | None, int]
    initial_bytes: int
    print_buffer: PrintBuffer
    script_count: int = 0
    out_of_memory: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked while a script of this VM makes a step."""
    _preludes: "dict[bytes, Function]" = field(default_factory=dict[bytes, "Function"])
    _scripts: "dict[tuple[bytes, str], Function]" = field(default_factory=dict[tuple[bytes, str], "Function"])

    def load_prelude(self, code: bytes) -> "Function":
        """Return a prelude, loaded once for all scripts; its globals are the VM's globals, which are read-only."""
        function = self._preludes.get(code)
        if function is None:
            if len(self._preludes) >= MAX_PRELUDES:
                self._preludes.clear()
            function = self._preludes[code] = self.state.load(code, "=prelude", self.state.globals)
        return function

    def load_script(self, code: bytes, name: str) -> "Function":
        """Return a script, loaded once; ``Function.with_env`` gives each run its own globals."""
        key = (code, name)
        function = self._scripts.get(key)
        if function is None:
            function = self.state.load(code, f"={name}")
            if len(code) <= MAX_CACHED_SCRIPT_BYTES:
                if len(self._scripts) >= MAX_CACHED_SCRIPTS:
                    self._scripts.clear()
                self._scripts[key] = function
        return function


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """The bytecode and limits of a program."""

    script: bytes
    main: bytes | None
    preludes: list[bytes]
    limits: "Limits"
    loop_limits: "Limits"
    """The limits of a script that runs in the event loop."""


class VmPool:
    """Assigns VMs to scripts.

    Each script has its own VM until there are ``max_vms``; further scripts share a VM and its memory, each with its own
    globals. Up to ``max_idle`` VMs stay allocated for later scripts.
    """

    def __init__(self, *, max_vms: int = MAX_VMS, max_idle: int = MAX_IDLE_VMS) -> None:
        self.bytecode = BytecodeCache()
        self.max_vms = max_vms
        self.max_idle = max_idle
        self.closed = False
        self._idle: dict[tuple[int | None, int], list[PooledVm]] = {}
        self._busy: dict[tuple[int | None, int], list[PooledVm]] = {}
        self._compiled_programs: OrderedDict[str, CompiledProgram] = OrderedDict()

    @property
    def vm_count(self) -> int:
        return sum(len(vms) for table in (self._idle, self._busy) for vms in table.values())

    def compile_program(self, program: Program) -> CompiledProgram:
        """Return the bytecode of a program, compiled once."""
        key = program.cache_key
        compiled = self._compiled_programs.get(key)
        if compiled is None:
            sources = [*program.preludes, *([require.REQUIRE_PRELUDE] if "require" in program.source else [])]
            compiled = self._compiled_programs[key] = CompiledProgram(
                self.bytecode.compile(program.source, program.name, program.opt),
                self.bytecode.compile(program.main, "main", program.opt) if program.main else None,
                [self.bytecode.compile(source, "prelude") for source in sources],
                native_limits(program.limits),
                native_limits(replace(program.limits, seconds=MAX_LOOP_SECONDS)),
            )
            _evict_oldest(self._compiled_programs)
        self._compiled_programs.move_to_end(key)
        return compiled

    def acquire(self, limits: ScriptLimits) -> PooledVm:
        """Return a VM for one more script, which must ``release`` it. Raises ``Closed``."""
        if self.closed:
            raise Closed("the pool of VMs is closed")
        key = (limits.memory, limits.depth)
        idle, busy = self._idle.get(key), self._busy.setdefault(key, [])
        if not idle and self.vm_count >= self.max_vms:
            shareable = [vm for vm in busy if not vm.out_of_memory]
            if shareable:
                vm = min(shareable, key=lambda vm: vm.script_count)
                vm.script_count += 1
                return vm
        vm = idle.pop() if idle else self._create_vm(limits, key)
        vm.script_count = 1
        busy.append(vm)
        return vm

    def release(self, vm: PooledVm) -> None:
        """Return a VM to the pool after its script has ended."""
        vm.script_count -= 1
        if vm.script_count:
            return
        self._busy[vm.limits_key].remove(vm)
        idle = self._idle.setdefault(vm.limits_key, [])
        idle_count = len(idle) if len(self._idle) == 1 else sum(map(len, self._idle.values()))
        if self.closed or vm.out_of_memory or idle_count >= self.max_idle or not _is_reusable(vm):
            vm.state.close()
        else:
            idle.append(vm)

    def close(self) -> None:
        """Free the idle VMs; the others are freed when their scripts end."""
        self.closed = True
        for vms in self._idle.values():
            while vms:
                vms.pop().state.close()

    def _create_vm(self, limits: ScriptLimits, limits_key: tuple[int | None, int]) -> PooledVm:
        buffer = PrintBuffer()
        state: State = load_pyluau().State(limits=native_limits(limits), print=buffer.add)
        return PooledVm(state, limits_key, state.memory_used, buffer)


def native_limits(limits: ScriptLimits) -> "Limits":
    """Return limits as pyluau's type."""
    native: Limits = load_pyluau().Limits(**asdict(limits))
    return native


def _is_reusable(vm: PooledVm) -> bool:
    """Return whether a VM is close to its initial size, after a garbage collection if necessary."""
    if vm.state.memory_used - vm.initial_bytes <= MAX_RESIDUAL_BYTES:
        return True
    vm.state.collect()
    return vm.state.memory_used - vm.initial_bytes <= MAX_RESIDUAL_BYTES


def _evict_oldest(entries: "OrderedDict[Any, Any]") -> None:
    while len(entries) > MAX_COMPILED_PROGRAMS:
        entries.popitem(last=False)
