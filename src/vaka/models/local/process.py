"""The server process as its owner sees it: start, supervise, share and stop it."""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import IO, TypeVar
from weakref import WeakSet

import msgspec

from vaka.core.types.errors import ConfigError, ModelUnavailable
from vaka.models.local import LaunchReport, LaunchSpec, LocalSettings

GRACE_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_STDERR = 8192
MAX_LINE = 300
_T = TypeVar("_T")


class ModelProcess:
    """A server process, started in a thread. ``ready`` has the URL of its server, ``exit_reason`` how it ended."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.ready: Future[str] = _uncancellable_future()
        """Raises ``ConfigError`` when the server rejects its settings, ``ModelUnavailable`` when it did not start."""
        self.exit_reason: Future[str] = _uncancellable_future()
        self._child: subprocess.Popen[bytes] | None = None
        self._end_requested = False
        self._lock = threading.Lock()
        self._stderr_tail = b""
        threading.Thread(target=self._supervise, name="vaka-local-model", daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def terminate(self, *, force: bool = False) -> None:
        """Send SIGTERM, or with ``force`` SIGKILL; does not wait."""
        with self._lock:
            self._end_requested = True
            if self._child is not None:
                (self._child.kill if force else self._child.terminate)()

    async def stop(self) -> None:
        """Terminate the process, by force after ``GRACE_SECONDS``, and wait until it has exited."""
        self.terminate()
        if not await wait_for_future(self.exit_reason, GRACE_SECONDS):
            self.terminate(force=True)
            await wait_for_future(self.exit_reason, None)

    def _supervise(self) -> None:
        """Start the process, read its report, and wait for its exit."""
        try:
            child = self._start()
        except OSError as error:
            self._set_exit(f"could not be started: {error.strerror or error}", "")
            return
        with child:
            stderr_reader = threading.Thread(target=self._read_stderr, args=(child.stderr,), daemon=True)
            stderr_reader.start()
            failure = self._read_report(child.stdout)
            code = child.wait()
            stderr_reader.join()
        self._set_exit(_describe_exit(code), failure)

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "vaka.models.local.server"]
        needed = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # by programs on Windows
        with self._lock:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **needed},
                start_new_session=True,
            )
            self._child = child
            if self._end_requested:
                child.kill()
        with suppress(BrokenPipeError):  # its exit code and stderr have the reason
            if child.stdin is not None:
                child.stdin.write(msgspec.json.encode(self.spec) + b"\n")
        return child

    def _read_report(self, reports: IO[bytes] | None) -> str:
        """Set ``ready``, or return why the server could not be started."""
        line = reports.readline() if reports is not None else b""
        try:
            report = msgspec.json.decode(line, type=LaunchReport)
        except msgspec.DecodeError:
            return ""
        if report.url:
            self.ready.set_result(report.url)
        return report.failure

    def _read_stderr(self, errors: IO[bytes]) -> None:
        while piece := errors.read(4096):
            self._stderr_tail = (self._stderr_tail + piece)[-MAX_STDERR:]

    def _set_exit(self, how: str, failure: str) -> None:
        stderr = self._stderr_tail.decode("utf-8", "replace")
        lines = [_strip_log_prefix(line) for line in stderr.splitlines() if line.strip()]
        if failure:
            reason = f": {lines[0]}" if lines else ""
            self.ready.set_exception(ConfigError(f"the local model cannot be started: {failure}{reason}"))
        else:
            how = f"{how}: {lines[-1]}" if lines else how
            if not self.ready.done():
                self.ready.set_exception(ModelUnavailable(f"the process of the local model {how}"))
        self.exit_reason.set_result(how)


class ProcessRegistry:
    """The server processes of this Python process: one for each settings, shared by all holders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: dict[tuple[LocalSettings, str], tuple[ModelProcess, WeakSet[object]]] = {}
        self._owner = 0

    def acquire(self, spec: LaunchSpec, holder: object) -> ModelProcess:
        """Return the process for the settings of ``spec``, a new one if the last has exited."""
        with self._lock:
            if self._owner != spec.owner:  # after a fork the processes belong to the parent
                self._processes, self._owner = {}, spec.owner
            key = (spec.settings, spec.weights)
            process, holders = self._processes.get(key, (None, WeakSet[object]()))
            if process is None or process.exit_reason.done():
                process = ModelProcess(spec)
            holders.add(holder)
            self._processes[key] = (process, holders)
            return process

    async def release(self, holder: object) -> None:
        """Stop the processes that have no other holder, and wait until they have exited."""
        for process in self._drop_holder(holder):
            await process.stop()

    def end_all(self) -> None:
        """Stop all processes and wait; called at the exit of the program."""
        if self._owner != os.getpid():
            return
        for process, _ in self._processes.values():
            process.terminate()
        for process, _ in self._processes.values():
            try:
                process.exit_reason.result(GRACE_SECONDS)
            except TimeoutError:
                process.terminate(force=True)
                process.exit_reason.result(GRACE_SECONDS)

    def _drop_holder(self, holder: object) -> list[ModelProcess]:
        with self._lock:
            held = {key: entry for key, entry in self._processes.items() if holder in entry[1]}
            for _, holders in held.values():
                holders.discard(holder)
            return [self._processes.pop(key)[0] for key, (_, holders) in held.items() if not holders]


PROCESSES = ProcessRegistry()
atexit.register(PROCESSES.end_all)


async def wait_for_future(future: "Future[_T]", seconds: float | None) -> bool:
    """Wait for a future of another thread, at most ``seconds``; a timeout does not cancel it for other waiters."""
    waiter = asyncio.wrap_future(future)
    try:
        done, _ = await asyncio.wait([waiter], timeout=seconds)
        return bool(done)
    finally:
        if not waiter.cancel():
            waiter.exception()  # marks the exception as retrieved


def _uncancellable_future() -> "Future[str]":
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()  # a running future cannot be cancelled by one of its waiters
    return future


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended by itself (exit {code})"
    names = {number.value: f", {number.name}" for number in signal.Signals}
    return f"was killed (signal {-code}{names.get(-code, '')})"


def _strip_log_prefix(line: str) -> str:
    """Return a line of the server's log without its time and level."""
    time, _, rest = line.partition(" ")
    message = rest.lstrip() if time.replace(".", "").isdigit() else line
    return message.removeprefix("E ").strip()[:MAX_LINE]
