"""The warden: one small process that forks a keeper for each command.

It exists because a large program with threads must not fork: what happens between the fork and the new program has to
be done by somebody small. What a keeper leaves behind, because somebody killed it, falls to the warden.
"""

import contextlib
import os
import selectors
import signal
import socket
from types import FrameType

from vaka.sandbox.warden import cgroups, family, keeper, kernel, kinds

STREAMS = 4


def main(descriptor: int, owner: int) -> None:
    """Serve the owner at the other end of a socket until it goes."""
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    bases = cgroups.bases()
    cgroups.sweep(bases)
    kinds.spaces_work()  # found out once, for all keepers
    Warden(channel, bases, owner).serve()


class Warden:
    """Forks keepers."""

    def __init__(self, channel: socket.socket, bases: tuple[cgroups.Base, ...], owner: int) -> None:
        self._channel, self._bases, self._owner = channel, bases, owner
        self._keepers: set[int] = set()
        self._wake, self._woken = os.pipe()
        for descriptor in (self._wake, self._woken):
            os.set_blocking(descriptor, False)

    def serve(self) -> None:
        """Fork a keeper for each request, until the owner is gone and so is everything it started."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _nothing)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            # The signal also comes when only the thread ends that started this process.
            while os.getppid() == self._owner:
                for key, _ in selector.select():
                    if key.fileobj is self._channel:
                        if not self._receive():
                            self._leave()
                            return
                    else:
                        self._reap()
        self._leave()

    def _receive(self) -> bool:
        try:
            said, descriptors, _, _ = socket.recv_fds(self._channel, 1, STREAMS)
        except OSError:
            return False
        if len(descriptors) == STREAMS:
            self._fork(descriptors)
        return bool(said)

    def _fork(self, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        here = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                self._channel.close()
                control, first, second, third = descriptors
                keeper.keep(socket.socket(fileno=control), (first, second, third), self._bases, here)
                code = 0
            finally:
                os._exit(code)
        self._keepers.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._keepers:
                    self._keepers.discard(pid)
                    if status != 0:
                        self._take_over()

    def _take_over(self) -> None:
        """End what a keeper left that was killed itself."""
        for pid in family.descendants(os.getpid()):
            if family.parent(pid) == os.getpid() and pid not in self._keepers:
                family.end(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _leave(self) -> None:
        for pid in self._keepers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._keepers:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
        family.end(os.getpid())


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Be woken."""
