"""The warden: one small process with a keeper for each command that runs.

It exists because a large program with threads must not fork: what happens between the fork and the new program has to
be done by somebody small. One keeper always waits, so that nobody waits for it. What a keeper leaves behind, because
somebody killed it, falls to the warden.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
from types import FrameType

from vaka.sandbox.warden import cgroups, family, keeper, kernel, kinds

_TRIES = 3
_IDLE = 3
"""Keepers that wait for a command: one who comes from the last, one for the next, and one for a command beside it."""


def main(descriptor: int, owner: int) -> None:
    """Serve the owner at the other end of a socket until it goes."""
    os.chdir("/")  # nobody should have to keep a folder for this
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    # What the owner blocks or ignores comes along, and whoever does not hear of an end waits for ever.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    bases = cgroups.bases()
    cgroups.sweep(bases)
    kinds.spaces_work()  # found out once, for all keepers
    gc.freeze()  # what forks share stays shared
    gc.disable()
    Warden(channel, bases, owner).serve()
    _hear_no_more()


class Warden:
    """Forks keepers."""

    def __init__(self, channel: socket.socket, bases: tuple[cgroups.Base, ...], owner: int) -> None:
        self._channel, self._bases, self._owner = channel, bases, owner
        self._keepers: dict[int, socket.socket] = {}
        """The line to each."""
        self._idle: list[int] = []
        self._wake, self._woken = os.pipe()
        for descriptor in (self._wake, self._woken):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Find a keeper for each request, until the owner is gone and so is everything it started."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _nothing)
        self._prepare()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        # The signal also comes when only the thread ends that started this process.
        while os.getppid() == self._owner:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    if not self._receive():
                        self._leave()
                        return
                elif key.fileobj == self._wake:
                    self._reap()
                    # To enter a control group holds up every fork on the machine, so nobody does while one starts.
                    self._prepare()
                else:
                    self._hear(key.data)
        self._leave()

    def _receive(self) -> bool:
        try:
            said, descriptors, _, _ = socket.recv_fds(self._channel, 1, keeper.STREAMS)
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(descriptors) == keeper.STREAMS:
            self._hand_over(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(said)

    def _hand_over(self, descriptors: list[int]) -> None:
        for _ in range(_TRIES):
            if not self._idle and not self._fork(descriptors):
                return  # their owner hears that nobody has them
            pid = self._idle.pop()
            with contextlib.suppress(OSError):  # somebody may have killed it
                socket.send_fds(self._keepers[pid], [b"!"], descriptors)
                break
            self._dismiss(pid)

    def _prepare(self) -> None:
        if not self._idle:
            self._fork([])

    def _hear(self, pid: int) -> None:
        """A keeper is done with a command, or gone."""
        line = self._keepers.get(pid)
        if line is None or line.fileno() < 0:
            return
        try:
            free = bool(line.recv(16))
        except OSError:
            free = False
        if free and len(self._idle) < _IDLE:
            self._idle.append(pid)
        else:
            self._dismiss(pid)

    def _dismiss(self, pid: int) -> None:
        """Let a keeper go: it waits for nothing but its line."""
        line = self._keepers[pid]
        if line.fileno() >= 0:
            self._selector.unregister(line)
            line.close()
        if pid in self._idle:
            self._idle.remove(pid)

    def _fork(self, held: list[int]) -> bool:
        """Make a keeper, which has nothing of what the warden holds for others; ``False`` if there can be no more."""
        here, there = socket.socketpair()
        owner = os.getpid()
        # A keeper that does not know its own handler yet would take a signal to end for the warden's.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError:  # too many processes: those that are there are to be kept all the same
            pid = -1
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                self._selector.close()
                for line in (self._channel, here, *self._keepers.values()):
                    line.close()
                for descriptor in held:  # or its command's output would never end
                    os.close(descriptor)
                keeper.keep(there, self._bases, owner, self._wake_up)
                code = 0
            finally:
                _hear_no_more()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        there.close()
        if pid < 0:
            here.close()
            return False
        self._keepers[pid] = here
        self._idle.append(pid)
        self._selector.register(here, selectors.EVENT_READ, pid)
        return True

    def _wake_up(self) -> None:
        """Tell the warden, from a keeper, that a command runs."""
        with contextlib.suppress(OSError):
            os.write(self._woken, b".")

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._keepers:
                    self._dismiss(pid)
                    del self._keepers[pid]
                    cgroups.remove(self._bases, str(pid))
                    if status != 0:
                        self._take_over()

    def _take_over(self) -> None:
        """End what a keeper left that was killed itself."""
        for pid in family.descendants(os.getpid()):
            if family.parent(pid) == os.getpid() and pid not in self._keepers:
                family.kill(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _leave(self) -> None:
        for line in self._keepers.values():
            line.close()  # who has nothing to do waits for nothing else
        for pid in self._keepers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._keepers:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
            cgroups.remove(self._bases, str(pid))
        family.end()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Be woken."""


def _hear_no_more() -> None:
    """Go in peace: a handler that runs in the middle of what is done last can meet a lock that its own thread holds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
