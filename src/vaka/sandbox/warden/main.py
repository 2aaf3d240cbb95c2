"""The warden: one small process that forks a supervisor for each running command.

A large program with threads must not run code between fork and exec; the warden, small and with one thread, may. One
supervisor is always idle, so that a command need not wait for a fork. The warden kills what is left of a supervisor
that was itself killed.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket

from vaka.sandbox.warden import launchers, processes, resource_limits, supervisor
from vaka.system import libc

_MAX_TRIES = 3
_MAX_IDLE = 3
"""Idle supervisors kept for reuse: of the last command, for the next command and for a concurrent command."""


def main(descriptor: int, owner_pid: int) -> None:
    """Serve the process at the other end of a socket until it ends."""
    os.chdir("/")  # a working folder could not be unmounted
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    # Blocked and ignored signals are inherited from the owner; without SIGCHLD children are never reaped.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
    bases = resource_limits.find_cgroup_bases()
    resource_limits.remove_stale_cgroups(bases)
    launchers.namespaces_work()  # cached here, so that supervisors inherit the result
    gc.freeze()  # a collection would write to pages that forks share
    gc.disable()
    Warden(channel, bases, owner_pid).serve()
    _block_signals()


class Warden:
    """Forks supervisors and hands them commands."""

    def __init__(self, channel: socket.socket, bases: tuple[resource_limits.CgroupBase, ...], owner_pid: int) -> None:
        self._channel = channel
        self._bases = bases
        self._owner_pid = owner_pid
        self._supervisors: dict[int, socket.socket] = {}
        """The socket to each, by process id."""
        self._idle_pids: list[int] = []
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        for descriptor in (self._wake_read_fd, self._wake_write_fd):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Hand each request to a supervisor until the owner is gone; then end everything it started."""
        signal.set_wakeup_fd(self._wake_write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, supervisor.on_wakeup_signal)
        self._ensure_idle_supervisor()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._wake_read_fd, selectors.EVENT_READ)
        # PDEATHSIG is also sent when only the thread that started this process ends.
        while os.getppid() == self._owner_pid:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    if not self._receive_request():
                        self._shut_down()
                        return
                elif key.fileobj == self._wake_read_fd:
                    self._reap_supervisors()
                    # A process that enters a control group delays all forks of the machine: do it after the start.
                    self._ensure_idle_supervisor()
                else:
                    self._on_supervisor_readable(key.data)
        self._shut_down()

    def _receive_request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, 1, supervisor.DESCRIPTORS_PER_JOB)
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(descriptors) == supervisor.DESCRIPTORS_PER_JOB:
            self._dispatch(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(data)

    def _dispatch(self, descriptors: list[int]) -> None:
        for _ in range(_MAX_TRIES):
            if not self._idle_pids and not self._fork_supervisor(descriptors):
                return  # the owner's end of the socket closes
            pid = self._idle_pids.pop()
            with contextlib.suppress(OSError):  # it may have been killed
                socket.send_fds(self._supervisors[pid], [b"!"], descriptors)
                break
            self._disconnect(pid)

    def _ensure_idle_supervisor(self) -> None:
        if not self._idle_pids:
            self._fork_supervisor([])

    def _on_supervisor_readable(self, pid: int) -> None:
        """Keep a supervisor that has finished its command; drop a supervisor that has ended."""
        line = self._supervisors.get(pid)
        if line is None or line.fileno() < 0:
            return
        try:
            is_idle = bool(line.recv(16))
        except OSError:
            is_idle = False
        if is_idle and len(self._idle_pids) < _MAX_IDLE:
            self._idle_pids.append(pid)
        else:
            self._disconnect(pid)

    def _disconnect(self, pid: int) -> None:
        """Close the socket to a supervisor, which then ends."""
        line = self._supervisors[pid]
        if line.fileno() >= 0:
            self._selector.unregister(line)
            line.close()
        if pid in self._idle_pids:
            self._idle_pids.remove(pid)

    def _fork_supervisor(self, unneeded_fds: list[int]) -> bool:
        """Fork a supervisor, without the descriptors of other commands; ``False`` if the fork fails."""
        own_end, supervisor_end = socket.socketpair()
        warden_pid = os.getpid()
        # Blocked until the supervisor has its own handler: it would run the warden's.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError:  # too many processes; running commands must go on
            pid = -1
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                self._selector.close()
                for line in (self._channel, own_end, *self._supervisors.values()):
                    line.close()
                for descriptor in unneeded_fds:  # an open copy would keep the command's output from ending
                    os.close(descriptor)
                supervisor.supervise(supervisor_end, self._bases, warden_pid, self._notify_started)
                code = 0
            finally:
                _block_signals()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        supervisor_end.close()
        if pid < 0:
            own_end.close()
            return False
        self._supervisors[pid] = own_end
        self._idle_pids.append(pid)
        self._selector.register(own_end, selectors.EVENT_READ, pid)
        return True

    def _notify_started(self) -> None:
        """Wake the warden, from a supervisor: a command has started."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write_fd, b".")

    def _reap_supervisors(self) -> None:
        supervisor.drain_pipe(self._wake_read_fd)
        for pid, status in processes.reap_children():
            if pid in self._supervisors:
                self._disconnect(pid)
                del self._supervisors[pid]
                resource_limits.remove_cgroups(self._bases, str(pid))
                if status != 0:
                    self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill the processes of a supervisor that was itself killed."""
        for pid in processes.list_descendants(os.getpid()):
            if processes.parent_of(pid) == os.getpid() and pid not in self._supervisors:
                processes.kill_descendants(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _shut_down(self) -> None:
        for line in self._supervisors.values():
            line.close()  # ends an idle supervisor
        for pid in self._supervisors:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._supervisors:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
            resource_limits.remove_cgroups(self._bases, str(pid))
        processes.end_descendants()


def _block_signals() -> None:
    """Keep handlers from running while the interpreter shuts down: they could deadlock on a lock of their thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
