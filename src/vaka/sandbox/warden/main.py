"""The warden: one small process that forks a keeper for each command.

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


def main(descriptor: int, owner: int) -> None:
    """Serve the owner at the other end of a socket until it goes."""
    os.chdir("/")  # nobody should have to keep a folder for this
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
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


class Warden:
    """Forks keepers."""

    def __init__(self, channel: socket.socket, bases: tuple[cgroups.Base, ...], owner: int) -> None:
        self._channel, self._bases, self._owner = channel, bases, owner
        self._keepers: set[int] = set()
        self._spare: socket.socket | None = None
        self._wake, self._woken = os.pipe()
        for descriptor in (self._wake, self._woken):
            os.set_blocking(descriptor, False)

    def serve(self) -> None:
        """Fork a keeper for each request, until the owner is gone and so is everything it started."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _nothing)
        self._prepare()
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
                        # To enter a control group holds up every fork on the machine, so nobody does while one starts.
                        self._prepare()
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
            spare = self._spare if self._spare is not None else self._fork(descriptors)
            self._spare = None
            with spare, contextlib.suppress(OSError):  # somebody may have killed it
                socket.send_fds(spare, [b"!"], descriptors)
                break

    def _prepare(self) -> None:
        if self._spare is None:
            self._spare = self._fork([])

    def _fork(self, held: list[int]) -> socket.socket:
        """Return the line to a new keeper, which has nothing of what the warden holds for another moment."""
        here, there = socket.socketpair()
        owner = os.getpid()
        # A keeper that does not know its own handler yet would take a signal to end for the warden's.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                self._channel.close()
                here.close()
                for descriptor in held:  # or its command's output would never end
                    os.close(descriptor)
                keeper.keep(there, self._bases, owner, self._wake_up)
                code = 0
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        there.close()
        self._keepers.add(pid)
        return here

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
                    self._keepers.discard(pid)
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
        if self._spare is not None:
            self._spare.close()  # it waits for nothing else
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
