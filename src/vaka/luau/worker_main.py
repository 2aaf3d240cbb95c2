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
from vaka.luau.limits import ScriptLimits
from vaka.luau.pool import Pool
from vaka.luau.program import Program
from vaka.luau.script import Done, Step
from vaka.luau.values import pack, unpack
from vaka.luau.vm import Machine

if sys.platform != "win32":
    import resource

PIECE = 1 << 20
FILES = 16
STATES = 64
SPARE = 3.0
"""Seconds of processor time that a step may take more than its script may run, before the kernel ends the worker."""
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


class Worker:
    """Carries out orders."""

    def __init__(self, pool: Pool, allow: Callable[[float], None] | None = None) -> None:
        """``allow`` is told before each step how many seconds it may take."""
        self._pool = pool
        self._allow = allow
        self._programs: dict[int, Program] = {}
        self._machines: dict[int, Machine] = {}

    def obey(self, order: wire.Order) -> wire.Report | None:
        """Do what is ordered, and return what there is to say; ``LookupError`` for an order that makes no sense."""
        match order:
            case wire.Load():
                self._programs[order.program] = order.content
            case wire.Forget():
                self._programs.pop(order.program, None)
            case wire.Close():
                machine = self._machines.pop(order.script, None)
                if machine is not None:
                    machine.close()
            case wire.Start():
                self._machines[order.script] = Machine(self._pool, self._programs[order.program])
                return self._report(order.script, lambda machine: _start(machine, order))
            case wire.Answer():
                return self._report(order.script, lambda machine: _answer(machine, order))
            case wire.Fail():
                return self._report(order.script, lambda machine: _fail(machine, order))
        return None

    def _report(self, script: int, step: Callable[[Machine], Step]) -> wire.Report:
        machine = self._machines[script]
        if self._allow is not None:
            self._allow(machine.program.limits.seconds or 0.0)
        try:
            done = step(machine)
            report = _said(script, done, machine)
        except VakaError as error:
            traceback = error.traceback if isinstance(error, ScriptError) else ""
            limit = isinstance(error, ScriptLimit)
            report = wire.Failed(script, str(error), traceback, limit, machine.printed())
        if not isinstance(report, wire.Waits):
            self._machines.pop(script).close()
        return report


def _start(machine: Machine, order: wire.Start) -> Step:
    return machine.now(machine.starting([unpack(value) for value in order.arguments], order.seed, order.at))


def _answer(machine: Machine, order: wire.Answer) -> Step:
    return machine.now(machine.answering(order.call, [unpack(value) for value in order.values], order.at))


def _fail(machine: Machine, order: wire.Fail) -> Step:
    return machine.now(machine.failing(order.call, unpack(order.error), order.at))


def _said(script: int, step: Step, machine: Machine) -> wire.Report:
    if isinstance(step, Done):
        return wire.Ended(script, [pack(value) for value in step.values], machine.printed())
    calls = [(call.id, call.name, [pack(value) for value in call.args]) for call in step.calls]
    return wire.Waits(script, calls, list(step.dropped), machine.printed())


def serve(worker: Worker, source: int, target: int) -> None:
    """Carry out the orders that come from one descriptor until it ends, and report to the other."""
    orders = wire.orders()
    while piece := os.read(source, PIECE):
        for order in orders.feed(piece):
            report = worker.obey(order)
            if report is not None:
                send(target, report)


def send(target: int, report: wire.Report) -> None:
    """Write a report, all of it."""
    left = memoryview(wire.frame(report))
    while left:
        left = left[os.write(target, left) :]


def take_pipes() -> tuple[int, int]:
    """Return the pipes to the owner, and let nobody else in this process write to them by accident."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return source, target


def die_with(owner: int) -> None:
    """Have the kernel end this process when its owner ends, where it can; the end of stdin tells the same."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != owner:
        raise SystemExit(0)


def warm_up(pool: Pool) -> None:
    """Run a script, so that everything is loaded and every thread started before there can be no more."""
    machine = Machine(pool, Program("return 1", limits=ScriptLimits()))
    machine.now(machine.starting([], 0, 0))


def confine(memory: int) -> None:
    """Take away what scripts do not need: more memory than said, files, processes, dumps."""
    if sys.platform == "win32":
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": FILES, "RLIMIT_NPROC": 0}
    held = _address_space()
    if held:
        limits["RLIMIT_AS"] = held + memory
    for name, value in limits.items():
        number = getattr(resource, name, None)
        if number is not None:
            with contextlib.suppress(OSError, ValueError):  # a system that has it and will not have it set
                resource.setrlimit(number, (value, value))


def allow(seconds: float) -> None:
    """Have the kernel end this process if it works much longer than this, whatever its owner does."""
    if sys.platform != "win32":
        most = int(time.process_time() + seconds + SPARE) + 1
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
    source, target = take_pipes()
    die_with(owner)
    pool = Pool(most=STATES)
    warm_up(pool)
    confine(memory)
    send(target, wire.Ready(vm_version()))
    with contextlib.suppress(BrokenPipeError):
        serve(Worker(pool, allow), source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
