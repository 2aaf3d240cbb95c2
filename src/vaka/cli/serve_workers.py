"""The worker processes of ``vaka serve``: the same command on a shared socket, replaced when they die."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

import click

from vaka.cli.kit.errors import FAILED, TERMINATED

MIN_LIFETIME = 2.0
"""Seconds; a worker that dies earlier counts as unable to start."""
MAX_EARLY_DEATHS = 5
GRACE_SECONDS = 5.0
"""Seconds that a worker gets to end, in addition to the seconds for its turns."""


def take_socket(descriptor: int) -> socket.socket:
    """Return the listening socket that the supervisor has opened."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


class SupervisorWatch:
    """Ends this worker when its supervisor dies, however it does: a worker alone would hold the port for ever.

    The supervisor has the other end of a pipe, which the system closes at its death. A supervisor that died before the
    watch began is noticed too, and a thread reads, so that a worker whose event loop is blocked ends as well.
    """

    def __init__(self, descriptor: int, drain_seconds: float) -> None:
        self._descriptor, self._seconds = descriptor, _stop_seconds(drain_seconds)
        self._on_death: Callable[[], object] | None = None
        os.set_inheritable(descriptor, False)
        threading.Thread(target=self._watch, name="supervisor watch", daemon=True).start()

    def call_on_death(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Have the event loop stop the server; a process without this exits at once."""
        self._on_death = lambda: loop.call_soon_threadsafe(stop)

    def _watch(self) -> None:
        with suppress(OSError):
            while os.read(self._descriptor, 1):
                pass
        if self._on_death is not None:
            with suppress(RuntimeError):  # the loop is closed: this process ends already
                self._on_death()
            time.sleep(self._seconds)
        os._exit(TERMINATED)


def _stop_seconds(drain_seconds: float) -> float:
    """Return the seconds that a worker has to end."""
    return 2 * drain_seconds + GRACE_SECONDS


class WorkerSupervisor:
    """Starts workers, replaces those that die, and ends them all at a signal."""

    def __init__(self, listener: socket.socket, workers: int, drain_seconds: float) -> None:
        self._listener = listener
        self._count = workers
        self._drain_seconds = drain_seconds
        self._workers: list[tuple[subprocess.Popen[bytes], float]] = []
        self._signal = 0
        self._early_deaths = 0
        self._stopping = False
        self._life_read, self._life_write = os.pipe()
        """A pipe whose second end only this process has: workers read its end when this process dies."""

    def run(self, command: Sequence[str] = ()) -> int:
        """Run workers until a signal; return the exit code. ``command`` starts a worker; default: this command."""
        arguments = list(command) or [sys.executable, "-m", "vaka", *sys.argv[1:]]
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it
                signal.signal(number, self._note_signal)
        for index in range(self._count):
            self._start(arguments, announce=index == 0)
        while not self._signal:
            select.select([wake_read], [], [])
            os.read(wake_read, 4096)
            if not self._replace_dead(arguments):
                self._stop()
                return FAILED
        self._stop()
        return 128 + self._signal

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD or (number == signal.SIGHUP and self._signal):
            return
        self._signal = number
        for worker, _ in self._workers if self._stopping else ():  # a second signal waits for no turn
            worker.terminate()

    def _start(self, arguments: Sequence[str], *, announce: bool) -> None:
        descriptor, life = self._listener.fileno(), self._life_read
        more = ["--worker-socket", str(descriptor), "--worker-life", str(life), *(["--announce"] if announce else [])]
        # in a group of its own, since Ctrl-C in a terminal and the signal of this process would count as two signals
        worker = subprocess.Popen([*arguments, *more], pass_fds=[descriptor, life], process_group=0)
        self._workers.append((worker, time.monotonic()))

    def _replace_dead(self, arguments: Sequence[str]) -> bool:
        """Start a worker for each worker that has ended; return whether workers can be started at all."""
        dead = [(worker, started) for worker, started in self._workers if worker.poll() is not None]
        for worker, started in dead if not self._signal else ():
            self._workers.remove((worker, started))
            early = time.monotonic() - started < MIN_LIFETIME
            self._early_deaths = self._early_deaths + 1 if early else 0
            if self._early_deaths >= MAX_EARLY_DEATHS:
                click.echo(f"error: workers end at once (exit code {worker.returncode}); see above", err=True)
                return False
            click.echo(f"worker {worker.pid} has ended (exit code {worker.returncode}); another one starts", err=True)
            self._start(arguments, announce=False)
        return True

    def _stop(self) -> None:
        """End the workers; kill those that do not end in time."""
        self._listener.close()
        for worker, _ in self._workers:
            worker.terminate()
        self._stopping = True
        deadline = time.monotonic() + _stop_seconds(self._drain_seconds)
        for worker, _ in self._workers:
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
