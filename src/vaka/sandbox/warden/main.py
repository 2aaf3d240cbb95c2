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

from vaka.sandbox.warden import launchers, process_tree, resource_limits, supervisor, syscalls

_MAX_TRIES = 3
_MAX_IDLE = 3
"""Keepers that wait for a command: one who comes from the last, one for the next, and one for a command beside it."""


def main(descriptor: int, owner_pid: int) -> None:
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
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    bases = resource_limits.find_cgroup_bases()
    resource_limits.remove_stale_cgroups(bases)
    launchers.namespaces_work()  # found out once, for all keepers
    gc.freeze()  # what forks share stays shared
    gc.disable()
    Warden(channel, bases, owner_pid).serve()
    _block_signals()


class Warden:
    """Forks keepers."""

    def __init__(self, channel: socket.socket, bases: tuple[resource_limits.CgroupBase, ...], owner_pid: int) -> None:
        self._channel, self._bases, self._owner_pid = channel, bases, owner_pid
        self._supervisors: dict[int, socket.socket] = {}
        """The line to each."""
        self._idle_pids: list[int] = []
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        for descriptor in (self._wake_read_fd, self._wake_write_fd):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Find a keeper for each request, until the owner is gone and so is everything it started."""
        signal.set_wakeup_fd(self._wake_write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _on_wakeup_signal)
        self._ensure_idle_supervisor()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._wake_read_fd, selectors.EVENT_READ)
        # The signal also comes when only the thread ends that started this process.
        while os.getppid() == self._owner_pid:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    if not self._receive_request():
                        self._shut_down()
                        return
                elif key.fileobj == self._wake_read_fd:
                    self._reap_supervisors()
                    # To enter a control group holds up every fork on the machine, so nobody does while one starts.
                    self._ensure_idle_supervisor()
                else:
                    self._on_supervisor_readable(key.data)
        self._shut_down()

    def _receive_request(self) -> bool:
        try:
            said, descriptors, _, _ = socket.recv_fds(self._channel, 1, supervisor.DESCRIPTORS_PER_JOB)
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(descriptors) == supervisor.DESCRIPTORS_PER_JOB:
            self._dispatch(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(said)

    def _dispatch(self, descriptors: list[int]) -> None:
        for _ in range(_MAX_TRIES):
            if not self._idle_pids and not self._fork_supervisor(descriptors):
                return  # their owner hears that nobody has them
            pid = self._idle_pids.pop()
            with contextlib.suppress(OSError):  # somebody may have killed it
                socket.send_fds(self._supervisors[pid], [b"!"], descriptors)
                break
            self._disconnect(pid)

    def _ensure_idle_supervisor(self) -> None:
        if not self._idle_pids:
            self._fork_supervisor([])

    def _on_supervisor_readable(self, pid: int) -> None:
        """A keeper is done with a command, or gone."""
        line = self._supervisors.get(pid)
        if line is None or line.fileno() < 0:
            return
        try:
            free = bool(line.recv(16))
        except OSError:
            free = False
        if free and len(self._idle_pids) < _MAX_IDLE:
            self._idle_pids.append(pid)
        else:
            self._disconnect(pid)

    def _disconnect(self, pid: int) -> None:
        """Let a keeper go: it waits for nothing but its line."""
        line = self._supervisors[pid]
        if line.fileno() >= 0:
            self._selector.unregister(line)
            line.close()
        if pid in self._idle_pids:
            self._idle_pids.remove(pid)

    def _fork_supervisor(self, unneeded_fds: list[int]) -> bool:
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
                for line in (self._channel, here, *self._supervisors.values()):
                    line.close()
                for descriptor in unneeded_fds:  # or its command's output would never end
                    os.close(descriptor)
                supervisor.supervise(there, self._bases, owner, self._notify_started)
                code = 0
            finally:
                _block_signals()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        there.close()
        if pid < 0:
            here.close()
            return False
        self._supervisors[pid] = here
        self._idle_pids.append(pid)
        self._selector.register(here, selectors.EVENT_READ, pid)
        return True

    def _notify_started(self) -> None:
        """Tell the warden, from a keeper, that a command runs."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write_fd, b".")

    def _reap_supervisors(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read_fd, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._supervisors:
                    self._disconnect(pid)
                    del self._supervisors[pid]
                    resource_limits.remove_cgroups(self._bases, str(pid))
                    if status != 0:
                        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """End what a keeper left that was killed itself."""
        for pid in process_tree.list_descendants(os.getpid()):
            if process_tree.parent_of(pid) == os.getpid() and pid not in self._supervisors:
                process_tree.kill_descendants(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _shut_down(self) -> None:
        for line in self._supervisors.values():
            line.close()  # who has nothing to do waits for nothing else
        for pid in self._supervisors:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._supervisors:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
            resource_limits.remove_cgroups(self._bases, str(pid))
        process_tree.end_descendants()


def _on_wakeup_signal(_number: int, _frame: FrameType | None) -> None:
    """Be woken."""


def _block_signals() -> None:
    """Go in peace: a handler that runs in the middle of what is done last can meet a lock that its own thread holds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
