"""The process that runs untrusted scripts: it reads commands from stdin and writes reports to stdout.

It has no environment and cannot write files or start processes. It ends with its parent.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vaka.core.types.errors import ScriptError, ScriptLimit, VakaError
from vaka.luau import wire
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, ScriptLimits, vm_version
from vaka.luau.protocol import Finished, Step, pack, unpack
from vaka.luau.vm import ScriptExecution, StepAction
from vaka.system import libc

if sys.platform != "win32":
    import resource

READ_BYTES = 1 << 20
MAX_OPEN_FILES = 16
MAX_VMS = 64
CPU_GRACE_SECONDS = 3.0
"""CPU seconds by which a step may exceed its script's limit before the kernel kills the worker."""


class CommandExecutor:
    """Executes commands in VMs of this process."""

    def __init__(self, pool: VmPool, limit_cpu: Callable[[float], None] | None = None) -> None:
        """``limit_cpu`` is called before each step with the seconds it may take."""
        self._pool = pool
        self._limit_cpu = limit_cpu
        self._programs: dict[int, Program] = {}
        self._executions: dict[int, ScriptExecution] = {}

    def execute(self, command: wire.WorkerCommand) -> wire.WorkerReport | None:
        """Execute a command and return its report, if any; ``LookupError`` for an unknown script or program."""
        match command:
            case wire.LoadProgram():
                self._programs[command.program] = command.content
            case wire.ForgetProgram():
                self._programs.pop(command.program, None)
            case wire.CloseScript():
                execution = self._executions.pop(command.script, None)
                if execution is not None:
                    execution.close()
            case wire.StartScript():
                self._executions[command.script] = ScriptExecution(self._pool, self._programs[command.program])
                return self._run_step(command)
            case wire.AnswerCall() | wire.FailCall():
                return self._run_step(command)
        return None

    def _run_step(self, command: wire.StepCommand) -> wire.WorkerReport:
        script, execution = command.script, self._executions[command.script]
        if self._limit_cpu is not None:
            self._limit_cpu(execution.program.limits.seconds or 0.0)
        try:
            report = _report_of(script, execution.run_now(_step_action(execution, command)), execution)
        except VakaError as error:
            traceback = error.traceback if isinstance(error, ScriptError) else ""
            limit = isinstance(error, ScriptLimit)
            report = wire.ScriptFailed(script, str(error), traceback, limit, execution.take_printed())
        if not isinstance(report, wire.ScriptWaiting):
            self._executions.pop(script).close()
        return report


def _step_action(execution: ScriptExecution, command: wire.StepCommand) -> StepAction:
    if isinstance(command, wire.StartScript):
        return execution.prepare_start([unpack(value) for value in command.arguments], command.seed, command.at)
    if isinstance(command, wire.AnswerCall):
        return execution.prepare_answer(command.call, [unpack(value) for value in command.values], command.at)
    return execution.prepare_failure(command.call, unpack(command.error), command.at)


def _report_of(script: int, step: Step, execution: ScriptExecution) -> wire.WorkerReport:
    if isinstance(step, Finished):
        return wire.ScriptEnded(script, [pack(value) for value in step.values], execution.take_printed())
    calls = [(call.id, call.name, [pack(value) for value in call.args]) for call in step.calls]
    return wire.ScriptWaiting(script, calls, list(step.dropped), execution.take_printed())


def serve(executor: CommandExecutor, source: int, target: int) -> None:
    """Execute the commands from one file descriptor until its end, and write the reports to the other."""
    reader = wire.command_reader()
    while data := os.read(source, READ_BYTES):
        for command in reader.feed(data):
            report = executor.execute(command)
            if report is not None:
                write_report(target, report)


def write_report(target: int, report: wire.WorkerReport) -> None:
    """Write a report completely."""
    remaining = memoryview(wire.encode_frame(report))
    while remaining:
        remaining = remaining[os.write(target, remaining) :]


def detach_stdio() -> tuple[int, int]:
    """Return the pipes to the parent, and replace stdin and stdout so that other code cannot use them by accident."""
    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    return source, target


def exit_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent ends; elsewhere the end of stdin ends it."""
    with contextlib.suppress(OSError):  # other systems have no prctl
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if os.getppid() != parent:
        raise SystemExit(0)


def run_warmup_script(pool: VmPool) -> None:
    """Run a script, so that all modules are loaded and all threads started before the resource limits apply."""
    execution = ScriptExecution(pool, Program("return 1", limits=ScriptLimits()))
    execution.run_now(execution.prepare_start([], 0, 0))


def apply_resource_limits(memory: int) -> None:
    """Limit memory to ``memory`` more bytes than now, and forbid file writes, new processes and core dumps."""
    if sys.platform == "win32":
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": MAX_OPEN_FILES, "RLIMIT_NPROC": 0}
    used = _address_space()
    if used:
        limits["RLIMIT_AS"] = used + memory
    for name, value in limits.items():
        number = getattr(resource, name, None)
        if number is not None:
            with contextlib.suppress(OSError, ValueError):  # some systems define the limit but refuse to set it
                resource.setrlimit(number, (value, value))


def limit_cpu_time(seconds: float) -> None:
    """Make the kernel kill this process if it uses much more CPU time than this, even if its parent is stuck."""
    if sys.platform != "win32":
        limit = int(time.process_time() + seconds + CPU_GRACE_SECONDS) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _address_space() -> int:
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str]) -> int:
    """Serve the process whose pid is the first argument; the second is the memory limit in bytes."""
    parent, memory = (int(argument) for argument in arguments)
    source, target = detach_stdio()
    exit_with_parent(parent)
    pool = VmPool(max_vms=MAX_VMS)
    run_warmup_script(pool)
    apply_resource_limits(memory)
    write_report(target, wire.WorkerReady(vm_version()))
    with contextlib.suppress(BrokenPipeError):
        serve(CommandExecutor(pool, limit_cpu_time), source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
