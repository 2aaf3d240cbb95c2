"""The worker processes of ``vaka serve``: the same command on a shared socket, replaced when they die."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

import click

from vaka.cli.errors import FAILED

MIN_LIFETIME = 2.0
"""Seconds; a worker that dies earlier counts as one that cannot start."""
MAX_EARLY_DEATHS = 5
GRACE_SECONDS = 5.0
"""Seconds that a worker gets to end, besides those for its turns."""


def take_socket(descriptor: int) -> socket.socket:
    """Return the listening socket that the supervisor has opened."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


class WorkerSupervisor:
    """Starts workers, replaces those that die, and ends them all at a signal."""

    def __init__(self, listener: socket.socket, workers: int, drain_seconds: float) -> None:
        self._listener, self._count, self._drain_seconds = listener, workers, drain_seconds
        self._workers: list[tuple[subprocess.Popen[bytes], float]] = []
        self._signal = 0
        self._early_deaths = 0

    def run(self, command: Sequence[str] = ()) -> int:
        """Run workers until a signal; return the exit code. ``command`` is that of a worker; default: this one."""
        arguments = list(command) or [sys.executable, "-m", "vaka", *sys.argv[1:]]
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
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
        if number != signal.SIGCHLD:
            self._signal = number

    def _start(self, arguments: Sequence[str], *, announce: bool) -> None:
        descriptor = self._listener.fileno()
        more = ["--worker-socket", str(descriptor), *(["--announce"] if announce else [])]
        worker = subprocess.Popen([*arguments, *more], pass_fds=[descriptor])
        self._workers.append((worker, time.monotonic()))

    def _replace_dead(self, arguments: Sequence[str]) -> bool:
        """Start a worker for each one that has ended; return whether workers can be started at all."""
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
        deadline = time.monotonic() + 2 * self._drain_seconds + GRACE_SECONDS
        for worker, _ in self._workers:
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
