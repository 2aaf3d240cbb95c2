"""Run the command of a hook: its payload on stdin, its output captured, its processes killed after its time."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from typing import Protocol

import msgspec

from vaka.system.event_loops import start_program

MAX_OUTPUT_BYTES = 1024 * 1024
"""Bytes of each stream that are kept; the rest is read and dropped."""
DRAIN_SECONDS = 0.2
"""Seconds to read what is left after the command has ended: a process it left behind may hold its streams open."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a command, and how it ended."""

    status: int
    """The exit code, minus the number of a signal, 127 when it cannot be started."""
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    duration_ms: int = 0


class RunCommand(Protocol):
    """Runs a shell command; what the command does raises no error. ``on_line`` gets the first line of stdout."""

    async def __call__(
        self,
        command: str,
        payload: bytes,
        *,
        cwd: str,
        env: Mapping[str, str],
        seconds: float,
        on_line: Callable[[bytes], None],
    ) -> CommandResult: ...


async def run_command(
    command: str,
    payload: bytes,
    *,
    cwd: str,
    env: Mapping[str, str],
    seconds: float,
    on_line: Callable[[bytes], None],
) -> CommandResult:
    """Run a shell command in a process group of its own; what the command does raises no error."""
    begun = time.monotonic()
    with _Capture.open(on_line) as stdout, _Capture.open() as stderr, tempfile.TemporaryFile() as stdin:
        stdin.write(payload)
        stdin.seek(0)
        try:
            process = await start_program(
                ["/bin/sh", "-c", command],
                cwd=cwd or None,
                env=env,
                start_new_session=True,
                stdin=stdin,
                stdout=stdout.writer,
                stderr=stderr.writer,
            )
        except (OSError, ValueError) as error:
            return CommandResult(status=127, stderr=f"cannot be started: {error}")
        timed_out = False
        try:
            stdout.start()
            stderr.start()
            async with asyncio.timeout(seconds):
                await process.wait()
            await asyncio.wait([stdout.ended, stderr.ended], timeout=DRAIN_SECONDS)
        except TimeoutError:
            timed_out = True
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return CommandResult(
            status=process.returncode or 0,
            stdout=stdout.text,
            stderr=stderr.text,
            timed_out=timed_out,
            duration_ms=int((time.monotonic() - begun) * 1000),
        )


class _Capture:
    """A pipe that is read while the command runs; what exceeds the limit is dropped."""

    def __init__(self, reader: int, writer: int, on_line: Callable[[bytes], None]) -> None:
        self._reader, self.writer = reader, writer
        self._on_line: Callable[[bytes], None] | None = on_line
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._kept = bytearray()

    @classmethod
    @contextlib.contextmanager
    def open(cls, on_line: Callable[[bytes], None] = lambda _: None) -> "Generator[_Capture]":
        capture = cls(*os.pipe(), on_line)
        try:
            yield capture
        finally:
            capture._close()

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def start(self) -> None:
        """Begin to read; the command has the other end now."""
        self._close_writer()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def _read(self) -> None:
        chunk = os.read(self._reader, 65536)
        self._kept += chunk[: max(MAX_OUTPUT_BYTES - len(self._kept), 0)]
        if self._on_line is not None and b"\n" in chunk:
            self._on_line(bytes(self._kept.partition(b"\n")[0]))
            self._on_line = None
        if not chunk:
            self._loop.remove_reader(self._reader)
            if not self.ended.done():
                self.ended.set_result(None)

    def _close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def _close(self) -> None:
        self._close_writer()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
