"""Supervise a command: start it, watch its limits, end all its processes, clean up.

The supervisor is the subreaper, so orphaned descendants become its children. It ends the command when its owner goes.
Then it may run another job: forking a process and moving it into control groups takes longer than everything else.
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

from vaka.sandbox.warden import launchers, process_tree, syscalls
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec, encode_report, receive_job
from vaka.sandbox.warden.resource_limits import CgroupBase, Cgroups

WATCH_INTERVAL = 0.1
"""Seconds between looks at what a command uses, where no control group does that."""
SHUTDOWN_TIMEOUT = 30
"""Seconds that it may take to go."""
DESCRIPTORS_PER_JOB = 4
_SHELL_SIGNAL_BASE = 128
_LAST_SIGNAL = 64


def supervise(
    requests: socket.socket, bases: tuple[CgroupBase, ...], parent_pid: int, on_started: Callable[[], None]
) -> None:
    """Keep the commands whose sockets and streams come over ``orders``, one after the other, until there are no more.

    ``started`` is called when one runs, and the processor has time for other things again; a byte over ``orders`` says
    that there is nothing left of it, and that another may come.
    """
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _on_terminate)
    signal.signal(signal.SIGCHLD, _on_child_exit)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # its maker blocked it until it is understood
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent_pid:
        return
    groups = Cgroups(bases, str(os.getpid()))
    own = syscalls.list_open_fds()
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
            gc.collect()  # what is collected later must not close what belongs to the next
            for descriptor in syscalls.list_open_fds() - own:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            requests.send(b".")


def _wait_for_request(requests: socket.socket, wake: int) -> bool:
    """Wait until there is an order; ``False`` when it is time to go."""
    while not _SignalState.leaving:
        ready, _, _ = select.select([requests.fileno(), wake], [], [])
        if wake in ready:
            _drain_pipe(wake)
        else:
            return True
    return False


def _run_job(
    control: socket.socket, streams: launchers.Streams, groups: Cgroups, on_started: Callable[[], None], wake: int
) -> bool:
    """Keep one command; ``False`` if something is left of it, so that there should be no other."""
    try:
        order = receive_job(control)
    except (EOFError, OSError, ValueError, TypeError, KeyError):
        for descriptor in streams:
            os.close(descriptor)
        return True
    bounded: frozenset[str] = frozenset()
    if order.cgroups:
        # The keeper is in the group itself, and so are bubblewrap's own processes.
        own = 4 if order.kind == "bubblewrap" else 1
        pids = None if order.processes is None else order.processes + own
        bounded = groups.set_limits(pids=pids, memory=order.memory_bytes)
    else:
        groups.set_limits(pids=None, memory=None)
    try:
        started = launchers.launch_job(order, streams)
    except JobRefused as error:
        alone = process_tree.end_descendants()  # bubblewrap may have got half way
        _send_report(control, refused=str(error))
        return alone
    finally:
        for descriptor in streams:
            os.close(descriptor)
    keeper = Supervisor(control, order, started, bounded, on_started, wake)
    try:
        keeper.run()
    finally:
        keeper.finish()
    return keeper.all_ended


class _SignalState:
    leaving = False
    """Whether it is time to go. A signal only says so: who raises in the middle of anything leaves locks behind."""


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    _SignalState.leaving = True
    signal.alarm(SHUTDOWN_TIMEOUT)  # whatever it waits for just then, it does not wait for ever


def _on_child_exit(_number: int, _frame: FrameType | None) -> None:
    """Be woken."""


class Supervisor:
    """A command that runs, and the one line to its owner."""

    def __init__(
        self, control: socket.socket, job: JobSpec, started: launchers.StartedJob, bounded: frozenset[str],
        on_started: Callable[[], None], wake: int,
    ) -> None:  # fmt: skip
        self._control, self._job, self._started, self._on_started = control, job, started, on_started
        self._wake = wake
        self._control_buffer = b""
        self._exit_code_buffer = b""
        self._code_sent = False
        self._deadline: float | None = None
        self._is_finished = False
        self.all_ended = True
        """Whether nothing is left that it could not end: who became somebody else cannot be ended by everybody."""
        self._watched_limits = _limits_to_watch(job, bounded)

    def run(self) -> None:
        """Look after it until it may be ended."""
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            self._send_started()
            self._on_started()
            selector.register(self._control, selectors.EVENT_READ, self._on_control_readable)
            selector.register(self._wake, selectors.EVENT_READ, self._reap_children)
            if self._started.exit_code_fd >= 0:
                selector.register(self._started.exit_code_fd, selectors.EVENT_READ, self._read_exit_code)
            self._reap_children()
            while not self._is_finished and not _SignalState.leaving:
                for key, _ in selector.select(self._poll_timeout()):
                    if key.data == self._read_exit_code and not self._read_exit_code():
                        selector.unregister(self._started.exit_code_fd)
                    elif key.data != self._read_exit_code:
                        key.data()
                self._check_progress()

    def finish(self) -> None:
        """End everything, and take away what was made for it."""
        if self._started.init_pid:
            for pid in (self._started.init_pid, self._started.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.all_ended = process_tree.end_descendants()
        if not self._code_sent:
            self._send_code(-signal.SIGKILL)
        self._started.clean_up()
        _send_report(self._control, gone=True)

    # ---------------------------------------------------------------------------------------------------- what it hears

    def _on_control_readable(self) -> None:
        """Do what the owner says."""
        piece = self._control.recv(4096)
        if not piece:
            self._is_finished = True
            return
        *lines, self._control_buffer = (self._control_buffer + piece).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "stop" in said and self._deadline is None:
                self._deadline = time.monotonic() + float(said["stop"])
                process_tree.terminate(self._job_pids())
            elif "end" in said:
                self._is_finished = True

    def _read_exit_code(self) -> bool:
        """Read the command's code where it is reported; ``False`` when there is no more to hear."""
        piece = os.read(self._started.exit_code_fd, 64)
        self._exit_code_buffer += piece
        if piece and self._exit_code_buffer.endswith(b"\n"):
            self._send_code(_as_signal_code(int(self._exit_code_buffer)))
        return bool(piece)

    def _reap_children(self) -> None:
        """Take note of who has ended."""
        _drain_pipe(self._wake)
        status = process_tree.reap_children(self._started.pid)
        if status is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if self._started.init_pid:
            while self._read_exit_code():
                pass
            self._send_code(_as_signal_code(code))
            self._is_finished = True  # its namespace ended with it
        else:
            self._send_code(code)

    # ----------------------------------------------------------------------------------------------------- what it does

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

    def _job_pids(self) -> list[int]:
        own = {self._started.pid, *self._started.helper_pids} if self._started.init_pid else set[int]()
        return [pid for pid in process_tree.list_descendants(self._started.tree_root_pid) if pid not in own]

    def _poll_timeout(self) -> float | None:
        if self._deadline is not None:
            return WATCH_INTERVAL / 4
        return WATCH_INTERVAL if self._watched_limits else None

    def _check_progress(self) -> None:
        """See whether time is over, everybody gone, or too much used."""
        if self._deadline is not None and (
            time.monotonic() >= self._deadline or (self._code_sent and not self._job_pids())
        ):
            self._is_finished = True
        if self._watched_limits and not self._is_finished:
            why = self._find_excess()
            if why:
                self._send_code(-signal.SIGKILL, why)
                self._is_finished = True

    def _find_excess(self) -> str:
        pids = self._job_pids()
        now = process_tree.measure_use(pids)
        memory = self._watched_limits.get("memory")
        if memory is not None and now.memory > memory and process_tree.proportional_memory_of(pids) > memory:
            return f"it used more than {memory} bytes of memory"
        processes = self._watched_limits.get("processes")
        if processes is not None and now.processes > processes:
            return f"it had more than {processes} processes"
        seconds = self._watched_limits.get("cpu")
        if seconds is not None and now.cpu > seconds:
            return f"it used more than {seconds} seconds of processor time"
        return ""


def _limits_to_watch(job: JobSpec, bounded: frozenset[str]) -> dict[str, int]:
    """Return what nobody but the keeper can bound for the whole command."""
    wanted = {
        "memory": None if "memory" in bounded else job.memory_bytes,
        "processes": None if "pids" in bounded else job.processes,
        "cpu": job.cpu_seconds,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _drain_pipe(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _as_signal_code(code: int) -> int:
    """Return a code as a shell says it in the words of the port: minus the signal."""
    return _SHELL_SIGNAL_BASE - code if _SHELL_SIGNAL_BASE < code <= _SHELL_SIGNAL_BASE + _LAST_SIGNAL else code


def _send_report(control: socket.socket, **fields: object) -> None:
    with contextlib.suppress(OSError):
        control.sendall(encode_report(**fields))
