"""The process in which scripts run that nobody trusts: orders come on its stdin, reports go to its stdout.

It has no authority of its own: no environment, no file it could write, no new processes. It goes when its owner goes.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vaka.core.types.errors import ScriptError, ScriptLimit, VakaError
from vaka.luau import wire
from vaka.luau.bytecode import vm_version
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, ScriptLimits
from vaka.luau.protocol import Finished, Step, pack, unpack
from vaka.luau.vm import ScriptExecution

if sys.platform != "win32":
    import resource

READ_BYTES = 1 << 20
MAX_OPEN_FILES = 16
MAX_VMS = 64
CPU_GRACE_SECONDS = 3.0
"""Seconds of processor time that a step may take more than its script may run, before the kernel ends the worker."""
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


class CommandExecutor:
    """Carries out orders."""

    def __init__(self, pool: VmPool, limit_cpu: Callable[[float], None] | None = None) -> None:
        """``allow`` is told before each step how many seconds it may take."""
        self._pool = pool
        self._limit_cpu = limit_cpu
        self._programs: dict[int, Program] = {}
        self._executions: dict[int, ScriptExecution] = {}

    def execute(self, command: wire.WorkerCommand) -> wire.WorkerReport | None:
        """Do what is ordered, and return what there is to say; ``LookupError`` for an order that makes no sense."""
        match command:
            case wire.LoadProgram():
                self._programs[command.program] = command.content
            case wire.ForgetProgram():
                self._programs.pop(command.program, None)
            case wire.CloseScript():
                machine = self._executions.pop(command.script, None)
                if machine is not None:
                    machine.close()
            case wire.StartScript():
                self._executions[command.script] = ScriptExecution(self._pool, self._programs[command.program])
                return self._run_step(command.script, lambda machine: _start_script(machine, command))
            case wire.AnswerCall():
                return self._run_step(command.script, lambda machine: _answer_call(machine, command))
            case wire.FailCall():
                return self._run_step(command.script, lambda machine: _fail_call(machine, command))
        return None

    def _run_step(self, script: int, step: Callable[[ScriptExecution], Step]) -> wire.WorkerReport:
        machine = self._executions[script]
        if self._limit_cpu is not None:
            self._limit_cpu(machine.program.limits.seconds or 0.0)
        try:
            done = step(machine)
            report = _report_of(script, done, machine)
        except VakaError as error:
            traceback = error.traceback if isinstance(error, ScriptError) else ""
            limit = isinstance(error, ScriptLimit)
            report = wire.ScriptFailed(script, str(error), traceback, limit, machine.take_printed())
        if not isinstance(report, wire.ScriptWaiting):
            self._executions.pop(script).close()
        return report


def _start_script(execution: ScriptExecution, command: wire.StartScript) -> Step:
    return execution.run_now(
        execution.prepare_start([unpack(value) for value in command.arguments], command.seed, command.at)
    )


def _answer_call(execution: ScriptExecution, command: wire.AnswerCall) -> Step:
    return execution.run_now(
        execution.prepare_answer(command.call, [unpack(value) for value in command.values], command.at)
    )


def _fail_call(execution: ScriptExecution, command: wire.FailCall) -> Step:
    return execution.run_now(execution.prepare_failure(command.call, unpack(command.error), command.at))


def _report_of(script: int, step: Step, execution: ScriptExecution) -> wire.WorkerReport:
    if isinstance(step, Finished):
        return wire.ScriptEnded(script, [pack(value) for value in step.values], execution.take_printed())
    calls = [(call.id, call.name, [pack(value) for value in call.args]) for call in step.calls]
    return wire.ScriptWaiting(script, calls, list(step.dropped), execution.take_printed())


def serve(executor: CommandExecutor, source: int, target: int) -> None:
    """Carry out the orders that come from one descriptor until it ends, and report to the other."""
    orders = wire.command_reader()
    while piece := os.read(source, READ_BYTES):
        for order in orders.feed(piece):
            report = executor.execute(order)
            if report is not None:
                write_report(target, report)


def write_report(target: int, report: wire.WorkerReport) -> None:
    """Write a report, all of it."""
    left = memoryview(wire.encode_frame(report))
    while left:
        left = left[os.write(target, left) :]


def detach_stdio() -> tuple[int, int]:
    """Return the pipes to the owner, and let nobody else in this process write to them by accident."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return source, target


def exit_with_parent(parent: int) -> None:
    """Have the kernel end this process when its owner ends, where it can; the end of stdin tells the same."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)


def run_warmup_script(pool: VmPool) -> None:
    """Run a script, so that everything is loaded and every thread started before there can be no more."""
    machine = ScriptExecution(pool, Program("return 1", limits=ScriptLimits()))
    machine.run_now(machine.prepare_start([], 0, 0))


def apply_resource_limits(memory: int) -> None:
    """Take away what scripts do not need: more memory than said, files, processes, dumps."""
    if sys.platform == "win32":
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": MAX_OPEN_FILES, "RLIMIT_NPROC": 0}
    held = _address_space()
    if held:
        limits["RLIMIT_AS"] = held + memory
    for name, value in limits.items():
        number = getattr(resource, name, None)
        if number is not None:
            with contextlib.suppress(OSError, ValueError):  # a system that has it and will not have it set
                resource.setrlimit(number, (value, value))


def limit_cpu_time(seconds: float) -> None:
    """Have the kernel end this process if it works much longer than this, whatever its owner does."""
    if sys.platform != "win32":
        most = int(time.process_time() + seconds + CPU_GRACE_SECONDS) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _address_space() -> int:
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str]) -> int:
    """Work for the process with the id that is the first argument, with so many bytes as the second says."""
    owner, memory = (int(argument) for argument in arguments)
    source, target = detach_stdio()
    exit_with_parent(owner)
    pool = VmPool(max_vms=MAX_VMS)
    run_warmup_script(pool)
    apply_resource_limits(memory)
    write_report(target, wire.WorkerReady(vm_version()))
    with contextlib.suppress(BrokenPipeError):
        serve(CommandExecutor(pool, limit_cpu_time), source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
