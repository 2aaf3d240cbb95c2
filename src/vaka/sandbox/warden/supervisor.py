"""Supervise a command: start it, watch its limits, end all its processes, clean up.

The supervisor is the subreaper, so orphaned descendants become its children. It ends the command when its owner ends.
Then it may run another job: a fork and a move into control groups take longer than the rest of a start.
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

from vaka.sandbox.warden import launchers, processes
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec, encode_report, receive_job
from vaka.sandbox.warden.quarantine import MAX_KEPT, RemovedEntry
from vaka.sandbox.warden.resource_limits import CgroupBase, Cgroups
from vaka.system import libc, syscalls

WATCH_INTERVAL = 0.1
"""Seconds between measurements of what a command uses, where no control group limits it."""
SHUTDOWN_TIMEOUT = 30
"""Seconds after which a supervisor that was asked to end is killed."""
DESCRIPTORS_PER_JOB = 4
_MAX_MESSAGE_BYTES = 64 * 1024
_SHELL_SIGNAL_BASE = 128
_LAST_SIGNAL = 64


def supervise(
    requests: socket.socket, bases: tuple[CgroupBase, ...], parent_pid: int, on_started: Callable[[], None]
) -> None:
    """Run the commands whose sockets and streams arrive over ``requests``, one at a time, until that is closed.

    ``on_started`` is called when a command runs. A byte over ``requests`` reports that all its processes have ended and
    that the next request may follow.
    """
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _on_terminate)
    signal.signal(signal.SIGCHLD, on_wakeup_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the warden blocked it before the fork
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    _SignalState.parent_pid = parent_pid
    if os.getppid() != parent_pid:
        return
    groups = Cgroups(bases, str(os.getpid()))
    own_fds = syscalls.list_open_fds()
    with contextlib.suppress(OSError), requests:
        while _wait_for_request(requests, wake):
            _, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS_PER_JOB)
            descriptors = [syscalls.move_fd_up(descriptor) for descriptor in descriptors]
            if len(descriptors) != DESCRIPTORS_PER_JOB:
                return
            control, first, second, third = descriptors
            with socket.socket(fileno=control) as line:
                if not _run_job(line, (first, second, third), groups, on_started, wake):
                    return
            gc.collect()  # an object collected later would close a descriptor of the next job
            for descriptor in syscalls.list_open_fds() - own_fds:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            requests.send(b".")


def _wait_for_request(requests: socket.socket, wake: int) -> bool:
    """Wait for a request; ``False`` when the supervisor is to end."""
    while not _SignalState.leaving:
        ready, _, _ = select.select([requests.fileno(), wake], [], [])
        if wake in ready:
            drain_pipe(wake)
        else:
            return True
    return False


def _run_job(
    control: socket.socket, streams: launchers.Streams, groups: Cgroups, on_started: Callable[[], None], wake: int
) -> bool:
    """Run one command; ``False`` if some of its processes could not be ended: then no other job may follow."""
    try:
        job = receive_job(control)
    except (EOFError, OSError, ValueError, TypeError, KeyError):
        for descriptor in streams:
            os.close(descriptor)
        return True
    bounded: frozenset[str] = frozenset()
    if job.cgroups:
        # The supervisor and bubblewrap's own processes are in the group as well.
        own_processes = 4 if job.kind == "bubblewrap" else 1
        pids = None if job.processes is None else job.processes + own_processes
        bounded = groups.set_limits(pids=pids, memory=job.memory_bytes)
    else:
        groups.set_limits(pids=None, memory=None)
    try:
        started = launchers.launch_job(job, streams)
    except JobRefused as error:
        all_ended = processes.end_descendants()  # bubblewrap may be half started
        _send_report(control, refused=str(error))
        return all_ended
    finally:
        for descriptor in streams:
            os.close(descriptor)
    if os.getppid() != _SignalState.parent_pid:  # the warden ended while PDEATHSIG was cleared, see act_as_user
        _SignalState.leaving = True
    supervisor = Supervisor(control, job, started, bounded, on_started, wake)
    try:
        supervisor.run()
    finally:
        supervisor.finish()
    return supervisor.all_ended


class _SignalState:
    parent_pid = 0
    leaving = False
    """Set by SIGTERM. The handler only sets it: an exception raised from it could leave a lock held."""


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    _SignalState.leaving = True
    signal.alarm(SHUTDOWN_TIMEOUT)  # SIGALRM kills it, whatever it waits for


def on_wakeup_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the handler exists so that the wakeup descriptor is written to."""


class Supervisor:
    """A running command and the control socket to its owner."""

    def __init__(
        self,
        control: socket.socket,
        job: JobSpec,
        started: launchers.StartedJob,
        bounded: frozenset[str],
        on_started: Callable[[], None],
        wake: int,
    ) -> None:
        self._control = control
        self._started = started
        self._on_started = on_started
        self._wake = wake
        self._control_buffer = b""
        self._exit_code_buffer = b""
        self._code_sent = False
        self._deadline: float | None = None
        self._is_terminated = False
        self._is_finished = False
        self.all_ended = True
        """``False`` if processes are left, such as some that changed their user and may not be killed."""
        self._watched_limits = _limits_to_watch(job, bounded)
        self._created = started.created
        self._reports_left = MAX_KEPT

    def run(self) -> None:
        """Report that the command started, and serve its owner until all its processes are to be ended."""
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            self._send_started()
            self._on_started()
            selector.register(self._control, selectors.EVENT_READ, self._on_control_readable)
            selector.register(self._wake, selectors.EVENT_READ, self._reap_children)
            if self._started.exit_code_fd >= 0:
                selector.register(self._started.exit_code_fd, selectors.EVENT_READ, self._read_exit_code)
            if self._created is not None and self._created.descriptor >= 0:
                selector.register(self._created.descriptor, selectors.EVENT_READ, self._on_created)
            self._reap_children()
            while not self._is_finished and not _SignalState.leaving:
                for key, _ in selector.select(self._poll_timeout()):
                    if key.data == self._read_exit_code and not self._read_exit_code():
                        selector.unregister(self._started.exit_code_fd)
                    elif key.data != self._read_exit_code:
                        key.data()
                self._check_progress()

    def finish(self) -> None:
        """End all processes of the command, clean up and report that it is gone."""
        if self._started.init_pid:
            for pid in (self._started.init_pid, self._started.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.all_ended = processes.end_descendants()
        if not self._code_sent:
            self._send_code(-signal.SIGKILL)
        if self._created is not None:
            self._report_removed(self._created.scan())
            self._created.close()
        self._started.clean_up()
        _send_report(self._control, gone=True)

    # ------------------------------------------------------------------------------------------------------------ input

    def _on_control_readable(self) -> None:
        """Handle messages of the owner."""
        try:
            piece = self._control.recv(_MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:  # another callback has read it
            return
        if not piece:
            self._is_finished = True
            return
        *lines, self._control_buffer = (self._control_buffer + piece).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "stop" in message and self._deadline is None:
                self._deadline = time.monotonic() + float(message["stop"])
                self._terminate()
            elif "end" in message:
                self._is_finished = True
            elif "announced" in message and self._created is not None:
                self._created.announce(message["announced"])

    def _on_created(self) -> None:
        """Remove what appeared at missing protected paths, unless the owner has announced it."""
        self._on_control_readable()
        if self._created is not None:
            self._report_removed(self._created.read())

    def _report_removed(self, removed: list[RemovedEntry]) -> None:
        for entry in removed[: max(self._reports_left, 0)]:
            _send_report(self._control, removed=entry.path, kept=entry.kept, problem=entry.problem)
        self._reports_left -= len(removed)

    def _read_exit_code(self) -> bool:
        """Read from the pipe with the command's exit code; ``False`` at its end."""
        piece = os.read(self._started.exit_code_fd, 64)
        self._exit_code_buffer += piece
        if piece and self._exit_code_buffer.endswith(b"\n"):
            self._send_code(_as_signal_code(int(self._exit_code_buffer)))
        return bool(piece)

    def _reap_children(self) -> None:
        """Reap children that have ended, and report the code of the command if it is among them."""
        drain_pipe(self._wake)
        status = dict(processes.reap_children()).get(self._started.pid)
        if status is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if self._started.init_pid:
            while self._read_exit_code():
                pass
            self._send_code(_as_signal_code(code))
            self._is_finished = True  # the kernel has killed its namespace
        else:
            self._send_code(code)

    # ---------------------------------------------------------------------------------------------------------- control

    def _send_started(self) -> None:
        line = encode_report(started=self._started.pid)
        if self._started.listener is None:
            self._control.sendall(line)
            return
        with self._started.listener as listener:
            socket.send_fds(self._control, [line], [listener.fileno()])

    def _send_code(self, code: int, reason: str = "") -> None:
        if not self._code_sent:
            self._code_sent = True
            _send_report(self._control, code=code, why=reason)

    def _terminate(self) -> None:
        """Send SIGTERM to the processes of the command, unless bubblewrap has not started it yet.

        Processes that appear later get no signal: a command may start some to clean up.
        """
        pids = self._job_pids()
        processes.terminate(pids)
        self._is_terminated = bool(pids)

    def _job_pids(self) -> list[int]:
        helpers = {self._started.pid, *self._started.helper_pids} if self._started.init_pid else set[int]()
        return [pid for pid in processes.list_descendants(self._started.tree_root_pid) if pid not in helpers]

    def _poll_timeout(self) -> float | None:
        if self._deadline is not None:
            return WATCH_INTERVAL / 4
        must_poll = self._created is not None and self._created.must_poll
        return WATCH_INTERVAL if self._watched_limits or must_poll else None

    def _check_progress(self) -> None:
        """Finish when the deadline has passed, all processes of a stopped command have ended or a limit is exceeded."""
        if self._created is not None and self._created.must_poll:
            self._report_removed(self._created.scan())
        if self._deadline is not None and not self._is_terminated:
            self._terminate()
        if self._deadline is not None and (
            time.monotonic() >= self._deadline or (self._code_sent and not self._job_pids())
        ):
            self._is_finished = True
        if self._watched_limits and not self._is_finished:
            reason = self._find_excess()
            if reason:
                self._send_code(-signal.SIGKILL, reason)
                self._is_finished = True

    def _find_excess(self) -> str:
        pids = self._job_pids()
        use = processes.measure_use(pids)
        memory = self._watched_limits.get("memory")
        if memory is not None and use.memory > memory and processes.proportional_memory_of(pids) > memory:
            return f"it used more than {memory} bytes of memory"
        count = self._watched_limits.get("processes")
        if count is not None and use.processes > count:
            return f"it had more than {count} processes"
        seconds = self._watched_limits.get("cpu")
        if seconds is not None and use.cpu > seconds:
            return f"it used more than {seconds} seconds of processor time"
        return ""


def _limits_to_watch(job: JobSpec, bounded: frozenset[str]) -> dict[str, int]:
    """Return the limits that the supervisor must watch: those on the whole command that no control group enforces."""
    limits = {
        "memory": None if "memory" in bounded else job.memory_bytes,
        "processes": None if "pids" in bounded else job.processes,
        "cpu": job.cpu_seconds,
    }
    return {key: value for key, value in limits.items() if value is not None}


def drain_pipe(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _as_signal_code(code: int) -> int:
    """Return an exit code of a shell as ``Process.wait`` has it: minus the signal."""
    return _SHELL_SIGNAL_BASE - code if _SHELL_SIGNAL_BASE < code <= _SHELL_SIGNAL_BASE + _LAST_SIGNAL else code


def _send_report(control: socket.socket, **fields: object) -> None:
    with contextlib.suppress(OSError):
        control.sendall(encode_report(**fields))
