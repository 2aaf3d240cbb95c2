"""Keeps a command: starts it, watches what it uses, ends all of it, and leaves nothing behind.

It is the one whom everything falls to that runs away from its parents, so there is nothing it does not find. When its
owner goes, it ends the command. Then it may keep another: making a process, and putting it into control groups, takes
longer than all the rest.
"""

import contextlib
import gc
import json
import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

from vaka.sandbox.warden import family, kernel, kinds
from vaka.sandbox.warden.cgroups import Base, Groups
from vaka.sandbox.warden.order import Order, Refused, receive, report

TICK = 0.1
"""Seconds between looks at what a command uses, where no control group does that."""
PATIENCE = 30
"""Seconds that it may take to go."""
STREAMS = 4
_SIGNALS_END = 128
_LAST_SIGNAL = 64


def keep(orders: socket.socket, bases: tuple[Base, ...], owner: int, started: Callable[[], None]) -> None:
    """Keep the commands whose sockets and streams come over ``orders``, one after the other, until there are no more.

    ``started`` is called when one runs, and the processor has time for other things again; a byte over ``orders`` says
    that there is nothing left of it, and that another may come.
    """
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # its maker blocked it until it is understood
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != owner:
        return
    groups = Groups(bases, str(os.getpid()))
    own = kernel.descriptors()
    with contextlib.suppress(OSError), orders:
        while _asked(orders, wake):
            _, descriptors, _, _ = socket.recv_fds(orders, 1, STREAMS)
            descriptors = [kernel.higher(descriptor) for descriptor in descriptors]
            if len(descriptors) != STREAMS:
                return
            control, first, second, third = descriptors
            with socket.socket(fileno=control) as line:
                if not _serve(line, (first, second, third), groups, started, wake):
                    return
            gc.collect()  # what is collected later must not close what belongs to the next
            for descriptor in kernel.descriptors() - own:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            orders.send(b".")


def _asked(orders: socket.socket, wake: int) -> bool:
    """Wait until there is an order; ``False`` when it is time to go."""
    while not _Signals.leaving:
        ready, _, _ = select.select([orders.fileno(), wake], [], [])
        if wake in ready:
            _drain(wake)
        else:
            return True
    return False


def _serve(
    control: socket.socket, streams: kinds.Streams, groups: Groups, ready: Callable[[], None], wake: int
) -> bool:
    """Keep one command; ``False`` if something is left of it, so that there should be no other."""
    try:
        order = receive(control)
    except (EOFError, OSError, ValueError, TypeError, KeyError):
        for descriptor in streams:
            os.close(descriptor)
        return True
    bounded: frozenset[str] = frozenset()
    if order.cgroups:
        # The keeper is in the group itself, and so are bubblewrap's own processes.
        own = 4 if order.kind == "bubblewrap" else 1
        pids = None if order.processes is None else order.processes + own
        bounded = groups.bound(pids=pids, memory=order.memory_bytes)
    else:
        groups.bound(pids=None, memory=None)
    try:
        started = kinds.start(order, streams)
    except Refused as error:
        alone = family.end()  # bubblewrap may have got half way
        _say(control, refused=str(error))
        return alone
    finally:
        for descriptor in streams:
            os.close(descriptor)
    keeper = Keeper(control, order, started, bounded, ready, wake)
    try:
        keeper.run()
    finally:
        keeper.finish()
    return keeper.alone


class _Signals:
    leaving = False
    """Whether it is time to go. A signal only says so: who raises in the middle of anything leaves locks behind."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    _Signals.leaving = True
    signal.alarm(PATIENCE)  # whatever it waits for just then, it does not wait for ever


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Be woken."""


class Keeper:
    """A command that runs, and the one line to its owner."""

    def __init__(
        self, control: socket.socket, order: Order, started: kinds.Started, bounded: frozenset[str],
        ready: Callable[[], None], wake: int,
    ) -> None:  # fmt: skip
        self._control, self._order, self._started, self._ready = control, order, started, ready
        self._wake = wake
        self._told = b""
        self._reported = b""
        self._coded = False
        self._deadline: float | None = None
        self._over = False
        self.alone = True
        """Whether nothing is left that it could not end: who became somebody else cannot be ended by everybody."""
        self._watching = _watched(order, bounded)

    def run(self) -> None:
        """Look after it until it may be ended."""
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            self._say_started()
            self._ready()
            selector.register(self._control, selectors.EVENT_READ, self._listen)
            selector.register(self._wake, selectors.EVENT_READ, self._reap)
            if self._started.report >= 0:
                selector.register(self._started.report, selectors.EVENT_READ, self._hear)
            self._reap()
            while not self._over and not _Signals.leaving:
                for key, _ in selector.select(self._patience()):
                    if key.data == self._hear and not self._hear():
                        selector.unregister(self._started.report)
                    elif key.data != self._hear:
                        key.data()
                self._look()

    def finish(self) -> None:
        """End everything, and take away what was made for it."""
        if self._started.inner:
            for pid in (self._started.inner, self._started.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.alone = family.end()
        if not self._coded:
            self._code(-signal.SIGKILL)
        self._started.clean()
        _say(self._control, gone=True)

    # ---------------------------------------------------------------------------------------------------- what it hears

    def _listen(self) -> None:
        """Do what the owner says."""
        piece = self._control.recv(4096)
        if not piece:
            self._over = True
            return
        *lines, self._told = (self._told + piece).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "stop" in said and self._deadline is None:
                self._deadline = time.monotonic() + float(said["stop"])
                family.ask(self._theirs())
            elif "end" in said:
                self._over = True

    def _hear(self) -> bool:
        """Read the command's code where it is reported; ``False`` when there is no more to hear."""
        piece = os.read(self._started.report, 64)
        self._reported += piece
        if piece and self._reported.endswith(b"\n"):
            self._code(_signalled(int(self._reported)))
        return bool(piece)

    def _reap(self) -> None:
        """Take note of who has ended."""
        _drain(self._wake)
        status = family.reap(self._started.pid)
        if status is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if self._started.inner:
            while self._hear():
                pass
            self._code(_signalled(code))
            self._over = True  # its namespace ended with it
        else:
            self._code(code)

    # ----------------------------------------------------------------------------------------------------- what it does

    def _say_started(self) -> None:
        line = report(started=self._started.pid)
        if self._started.listener is None:
            self._control.sendall(line)
            return
        with self._started.listener as listener:
            socket.send_fds(self._control, [line], [listener.fileno()])

    def _code(self, code: int, why: str = "") -> None:
        if not self._coded:
            self._coded = True
            _say(self._control, code=code, why=why)

    def _theirs(self) -> list[int]:
        own = {self._started.pid, *self._started.own} if self._started.inner else set[int]()
        return [pid for pid in family.descendants(self._started.root) if pid not in own]

    def _patience(self) -> float | None:
        if self._deadline is not None:
            return TICK / 4
        return TICK if self._watching else None

    def _look(self) -> None:
        """See whether time is over, everybody gone, or too much used."""
        if self._deadline is not None and (time.monotonic() >= self._deadline or (self._coded and not self._theirs())):
            self._over = True
        if self._watching and not self._over:
            why = self._excess()
            if why:
                self._code(-signal.SIGKILL, why)
                self._over = True

    def _excess(self) -> str:
        pids = self._theirs()
        now = family.use(pids)
        memory = self._watching.get("memory")
        if memory is not None and now.memory > memory and family.shares(pids) > memory:
            return f"it used more than {memory} bytes of memory"
        processes = self._watching.get("processes")
        if processes is not None and now.processes > processes:
            return f"it had more than {processes} processes"
        seconds = self._watching.get("cpu")
        if seconds is not None and now.cpu > seconds:
            return f"it used more than {seconds} seconds of processor time"
        return ""


def _watched(order: Order, bounded: frozenset[str]) -> dict[str, int]:
    """Return what nobody but the keeper can bound for the whole command."""
    wanted = {
        "memory": None if "memory" in bounded else order.memory_bytes,
        "processes": None if "pids" in bounded else order.processes,
        "cpu": order.cpu_seconds,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _signalled(code: int) -> int:
    """Return a code as a shell says it in the words of the port: minus the signal."""
    return _SIGNALS_END - code if _SIGNALS_END < code <= _SIGNALS_END + _LAST_SIGNAL else code


def _say(control: socket.socket, **said: object) -> None:
    with contextlib.suppress(OSError):
        control.sendall(report(**said))
