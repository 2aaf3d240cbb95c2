"""The process with the model, as its owner sees it.

A thread keeps it, so that it belongs to no event loop: one process serves them all, one after the other or at once. The
same thread starts it, because the kernel takes the end of that thread for the end of the owner.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import IO, TypeVar
from weakref import WeakSet

import msgspec

from vaka.core.types.errors import ConfigError, ModelUnavailable
from vaka.models.llama.order import Loaded, Order, Report, Settings

GRACE = 3.0
"""Seconds between a request to end and the end."""
STDERR = 8192
SHOWN = 300
_REPORT: "msgspec.json.Decoder[Report]" = msgspec.json.Decoder(Report)
_T = TypeVar("_T")


class Process:
    """Starts at once, without blocking anyone. ``ready`` has the address of its server, ``gone`` how it ended."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.ready: Future[str] = _future()
        """Raises ``ConfigError`` when it cannot be started like this, ``ModelUnavailable`` when it did not start."""
        self.gone: Future[str] = _future()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._lock = threading.Lock()
        self._errors = b""
        threading.Thread(target=self._keep, name="vaka-local-model", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The id of the process, when there is one."""
        return self._child.pid if self._child is not None else None

    def end(self, *, now: bool = False) -> None:
        """Ask it to end, or with ``now`` make it; does not wait."""
        with self._lock:
            self._ended = True
            if self._child is not None:
                (self._child.kill if now else self._child.terminate)()

    async def stop(self) -> None:
        """End it, by force if it must be, and wait until it is gone."""
        self.end()
        if not await settled(self.gone, GRACE):
            self.end(now=True)
            await settled(self.gone, None)

    def _keep(self) -> None:
        """Start the process, hear what it reports, and wait for its end."""
        try:
            child = self._start()
        except OSError as error:
            self._over(f"could not be started: {error.strerror or error}", "")
            return
        with child:
            ears = threading.Thread(target=self._listen, args=(child.stderr,), daemon=True)
            ears.start()
            failure = self._hear(child.stdout)
            code = child.wait()
            ears.join()
        self._over(_how(code), failure)

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "vaka.models.llama.server"]
        with self._lock:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                env=_environment(), start_new_session=True,
            )  # fmt: skip
            self._child = child
            if self._ended:
                child.kill()
        try:
            if child.stdin is not None:
                child.stdin.write(msgspec.json.encode(self.order) + b"\n")
        except BrokenPipeError:
            return child  # how it ended is told by what comes next
        return child

    def _hear(self, reports: IO[bytes] | None) -> str:
        """Return why it could not be started, in its own words."""
        line = reports.readline() if reports is not None else b""
        try:
            report = _REPORT.decode(line)
        except msgspec.DecodeError:
            return ""
        if isinstance(report, Loaded):
            self.ready.set_result(report.url)
            return ""
        return report.message

    def _listen(self, errors: IO[bytes]) -> None:
        while piece := errors.read(4096):
            self._errors = (self._errors + piece)[-STDERR:]

    def _over(self, how: str, failure: str) -> None:
        lines = [_plain(line) for line in self._errors.decode("utf-8", "replace").splitlines() if line.strip()]
        if failure:
            words = f": {lines[0]}" if lines else ""
            self.ready.set_exception(ConfigError(f"the local model cannot be started: {failure}{words}"))
        else:
            how = f"{how}: {lines[-1]}" if lines else how
            if not self.ready.done():
                self.ready.set_exception(ModelUnavailable(f"the process of the local model {how}"))
        self.gone.set_result(how)


class Processes:
    """The processes of this Python process: one for each way to run the model, shared by all who hold it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[Settings, str], tuple[Process, WeakSet[object]]] = {}
        self._owner = 0

    def take(self, order: Order, holder: object) -> Process:
        """Return the process that runs the model as ``order`` says, another one when the last has ended."""
        with self._lock:
            if self._owner != order.owner:  # after a fork the processes are those of the parent
                self._made, self._owner = {}, order.owner
            key = (order.settings, order.weights)
            process, holders = self._made.get(key, (None, WeakSet[object]()))
            if process is None or process.gone.done():
                process = Process(order)
            holders.add(holder)
            self._made[key] = (process, holders)
            return process

    async def leave(self, holder: object) -> None:
        """End the processes that nobody else holds, and wait for that."""
        for process in self._without(holder):
            await process.stop()

    def end(self) -> None:
        """End all of them and wait; for the end of the program."""
        if self._owner != os.getpid():
            return
        for process, _ in self._made.values():
            process.end()
        for process, _ in self._made.values():
            try:
                process.gone.result(GRACE)
            except TimeoutError:
                process.end(now=True)
                process.gone.result(GRACE)

    def _without(self, holder: object) -> list[Process]:
        with self._lock:
            held = {key: made for key, made in self._made.items() if holder in made[1]}
            for _, holders in held.values():
                holders.discard(holder)
            return [self._made.pop(key)[0] for key, (_, holders) in held.items() if not holders]


PROCESSES = Processes()
atexit.register(PROCESSES.end)


async def settled(future: "Future[_T]", seconds: float | None) -> bool:
    """Wait for a future of another thread, at most so long; giving up changes nothing for others who wait."""
    mine = asyncio.wrap_future(future)
    try:
        done, _ = await asyncio.wait([mine], timeout=seconds)
        return bool(done)
    finally:
        if not mine.cancel():
            mine.exception()  # it was looked at, whoever asks


def _future() -> "Future[str]":
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()  # from here on, nobody who waits for it can cancel it for the others
    return future


def _environment() -> dict[str, str]:
    """Return what the process is given: where to find its code, and on Windows what no program starts without."""
    needed = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **needed}


def _how(code: int) -> str:
    if code >= 0:
        return f"ended by itself (exit {code})"
    try:
        return f"was killed (signal {-code}, {signal.Signals(-code).name})"
    except ValueError:
        return f"was killed (signal {-code})"


def _plain(line: str) -> str:
    """Return a line of the server's log without its clock and level."""
    clock, _, rest = line.partition(" ")
    words = rest.lstrip() if clock.replace(".", "").isdigit() else line
    return words.removeprefix("E ").strip()[:SHOWN]
