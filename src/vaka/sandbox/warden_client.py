"""Start commands through the warden: build the job, start the warden process, send the job, read the output.

The warden is a separate process, started with the first command; it ends with this program, also when that is killed.
Each command has a supervisor and a socket to it: when the socket closes, the supervisor ends the command and its
descendants.
"""

import asyncio
import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

from vaka.core.ports.sandbox import Command, RemovedPath
from vaka.core.types.errors import SandboxError
from vaka.core.types.progress import OutputStream
from vaka.sandbox.proxy import ProxyBridge
from vaka.sandbox.removal import quarantine_folders
from vaka.sandbox.select import IMPORT_STUBS, PACKAGE_ROOT
from vaka.sandbox.sensitive import build_command_environment, scrub_environment
from vaka.sandbox.warden import seccomp
from vaka.sandbox.warden.job_spec import JobSpec, encode_job, encode_report
from vaka.system import syscalls

PROXY_URL = "http://127.0.0.1:3128"
"""The proxy in the network namespace of a command."""


def build_job(
    kind: str, command: Command, allow_env: tuple[str, ...], extra_fields: Mapping[str, Any], *, proxy: str = ""
) -> JobSpec:
    """Return the job for a command; ``allow_env`` names variables that it gets although they look like secrets."""
    bounds = command.bounds
    return JobSpec(
        kind=kind,
        argv=command.argv,
        cwd=command.cwd,
        env=build_command_environment(os.environ, command.env, allow_env, proxy=proxy),
        writable=command.writable,
        protected=command.protected,
        hidden=command.hidden,
        masked=command.masked,
        network=command.network,
        pipe_stdin=command.stdin == "pipe",
        cpu_seconds=bounds.cpu_seconds,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        file_bytes=bounds.file_bytes,
        open_files=bounds.open_files,
        quarantine=quarantine_folders(),
        **extra_fields,
    )


CHUNK_BYTES = 64 * 1024

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of output that are buffered while a caller waits for a command without reading its output."""

_CHUNKS_BETWEEN_YIELDS = 16

_CLOSE_TIMEOUT = 10.0

_MAX_REPORT_BYTES = 4096

_WARDEN_BOOT_CODE = f"""{IMPORT_STUBS}
from vaka.sandbox.warden.main import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""


class WardenClient:
    """Starts the warden process and sends it commands; there is one for the whole program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0

    @property
    def pid(self) -> int | None:
        """The process id of the warden, ``None`` when it does not run."""
        if self._channel is None or self._child is None or self._owner_pid != os.getpid():
            return None
        return self._child.pid

    def start(self) -> None:
        """Start the warden if it does not run. It takes time, so callers on an event loop use a thread."""
        with self._lock:
            self._ensure_started()

    def send_descriptors(self, descriptors: list[int]) -> None:
        """Send the control socket and the streams of a command to a supervisor; start the warden if necessary."""
        with self._lock:
            for attempt in (1, 2):
                channel = self._ensure_started()
                try:
                    socket.send_fds(channel, [b"!"], descriptors)
                except OSError as error:
                    self._drop_connection()
                    if attempt == 2:
                        raise SandboxError(f"commands cannot be started: the warden ended ({error})") from error
                else:
                    return

    def close(self) -> None:
        """End the warden, and with it every command."""
        with self._lock:
            child = self._child if self._owner_pid == os.getpid() else None
            self._drop_connection()
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_CLOSE_TIMEOUT)

    def _ensure_started(self) -> socket.socket:
        if self._owner_pid != os.getpid():  # after a fork: the warden belongs to the parent
            self._drop_connection()
        if self._channel is None:
            if not sys.executable:
                raise SandboxError("commands cannot be started: sys.executable is empty")
            own_end, warden_end = socket.socketpair()
            words = [PACKAGE_ROOT, str(warden_end.fileno()), str(os.getpid())]
            argv = [sys.executable, "-I", "-c", _WARDEN_BOOT_CODE, *words]
            try:
                with warden_end:
                    self._child = subprocess.Popen(
                        argv,
                        env=scrub_environment(os.environ),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[warden_end.fileno()],
                        start_new_session=True,
                    )
            except OSError as error:
                own_end.close()
                raise SandboxError(f"commands cannot be started: {sys.executable!r} cannot be run: {error}") from error
            self._channel, self._owner_pid = own_end, os.getpid()
        return self._channel

    def _drop_connection(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._child is not None and self._owner_pid != os.getpid():
            self._child.returncode = 0  # the parent reaps it
        elif self._child is not None:
            self._child.poll()
        self._channel = None


WARDEN = WardenClient()

atexit.register(WARDEN.close)


async def start_job(job: JobSpec, stdin: bytes | Literal["pipe"] = b"", *, proxy: str = "") -> "SandboxedProcess":
    """Start a command and return it when it runs. Raises ``SandboxError`` when it cannot be confined as requested."""
    _check_job(job)
    process = SandboxedProcess(proxy)
    try:
        await process.begin(job, stdin)
    except BaseException:
        process.abandon()
        raise
    return process


class SandboxedProcess:
    """A running command with all its descendants; implements ``Process``."""

    def __init__(self, proxy: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._control, self._peer_socket = socket.socketpair()
        self._control.setblocking(False)
        self._pipes: dict[OutputStream, int] = {}
        self._stdin: StdinPipe | None = None
        self._report_buffer = b""
        self._pid = 0
        self._start_future: asyncio.Future[None] = self._loop.create_future()
        self._exit_code_future: asyncio.Future[int] = self._loop.create_future()
        self._end_future: asyncio.Future[None] = self._loop.create_future()
        self._bridge = ProxyBridge(proxy) if proxy else None
        self._buffered_output: deque[tuple[OutputStream, bytes]] = deque()
        self._dropped_bytes = 0
        self._buffered_bytes = 0
        self._reader_state: Literal["none", "reading", "closed"] = "none"
        self.removed: list[RemovedPath] = []
        """The paths that were removed since they appeared at a protected path."""
        self.kill_reason = ""
        """The limit for which the supervisor killed the command, empty if it did not."""

    @property
    def pid(self) -> int:
        """The process id of the command, or of its sandbox."""
        return self._pid

    async def begin(self, job: JobSpec, stdin: bytes | Literal["pipe"]) -> None:
        """Send the job to a supervisor and wait until it runs."""
        descriptors = [self._peer_socket.detach()]
        try:
            if stdin == "pipe":
                reader, writer = os.pipe()
                descriptors.append(reader)
                self._stdin = StdinPipe(writer, self._loop)
            else:
                descriptors.append(_open_stdin_file(stdin))
            streams: tuple[OutputStream, ...] = ("stdout", "stderr")
            for stream in streams:
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self._pipes[stream] = reader
                descriptors.append(writer)
            if WARDEN.pid is None:
                await asyncio.to_thread(WARDEN.start)
            WARDEN.send_descriptors(descriptors)  # not in a thread: a cancelled caller closes the descriptors
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._loop.add_reader(self._control.fileno(), self._on_control_readable)
        with contextlib.suppress(ConnectionError):  # the report of the supervisor names the cause
            await self._loop.sock_sendall(self._control, encode_job(job))
        await self._start_future

    async def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield the output as it is printed; the pipes are only read while this is iterated, or in ``wait``."""
        if self._reader_state == "reading":
            raise SandboxError("the output of a command can be read once")
        self._reader_state = "reading"
        count = 0
        try:
            while True:
                chunk = self._buffered_output.popleft() if self._buffered_output else self._read_available()
                if chunk is not None:
                    yield chunk
                    count += 1
                    if count % _CHUNKS_BETWEEN_YIELDS == 0:
                        await asyncio.sleep(0)
                elif self._pipes and not self._end_future.done():
                    await self._wait_readable(self._end_future)
                else:  # a process that could not be ended may keep the pipes open
                    break
            if self.kill_reason:
                yield "stderr", f"the command was ended: {self.kill_reason}\n".encode()
        finally:
            self._reader_state = "closed"
            if self._end_future.done():
                self._close_pipes()
        if self._dropped_bytes:
            raise SandboxError(
                f"{self._dropped_bytes} bytes of output were dropped, because they were not read during wait()"
            )

    async def write_stdin(self, data: bytes) -> None:
        """Write to stdin; return when the pipe has taken all of it."""
        if self._stdin is None:
            raise SandboxError("the command was started without an open stdin; start it with stdin='pipe'")
        await self._stdin.write(data)

    def close_stdin(self) -> None:
        """Close stdin: the command reads the end of the file."""
        if self._stdin is not None:
            self._stdin.close()

    async def wait(self) -> int:
        """Return the exit code, or minus the signal that ended the command."""
        while not self._exit_code_future.done():
            if self._pipes and self._reader_state != "reading":
                await self._wait_readable(self._exit_code_future)
                self._buffer_unread_output()
            else:
                await asyncio.wait([self._exit_code_future])
        return self._exit_code_future.result()

    async def stop(self, grace: float = 2.0) -> None:
        """Send SIGTERM to the command and its descendants, and SIGKILL after ``grace`` seconds."""
        self._send_message(stop=max(grace, 0.0))
        await asyncio.wait([self._end_future])
        if self._reader_state == "closed":
            self._close_pipes()

    def announce(self, path: str) -> None:
        """Leave what appears at a protected path from now on: the caller is about to create it."""
        folder, name = os.path.split(path)
        self._send_message(announced=f"{os.path.realpath(folder)}/{name}")

    def abandon(self) -> None:
        """Close all connections at once; the supervisor then ends the command."""
        self._peer_socket.close()
        self._close_pipes()
        self._mark_ended()

    # ------------------------------------------------------------------------------------------------------- supervisor

    def _send_message(self, **fields: Any) -> None:
        if not self._end_future.done():
            with contextlib.suppress(OSError):
                self._control.send(encode_report(**fields))

    def _on_control_readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MAX_REPORT_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            self._attach_listener(descriptor)
        *lines, self._report_buffer = (self._report_buffer + data).split(b"\n")
        for line in lines:
            self._handle_report(json.loads(line))
        if not data:
            self._mark_ended()

    def _handle_report(self, report: Mapping[str, Any]) -> None:
        if "started" in report:
            self._pid = report["started"]
            if not self._start_future.done():
                self._start_future.set_result(None)
        elif "refused" in report:
            if not self._start_future.done():
                self._start_future.set_exception(SandboxError(report["refused"]))
                self._start_future.exception()  # mark it as retrieved: the waiter may be cancelled
        elif "removed" in report:
            self.removed.append(RemovedPath(report["removed"], report["kept"], report["problem"]))
        elif "code" in report:
            self.kill_reason = report["why"]
            if not self._exit_code_future.done():
                self._exit_code_future.set_result(report["code"])
            self._release_if_finished()
        elif "gone" in report:
            self._mark_ended()

    def _attach_listener(self, descriptor: int) -> None:
        listener = socket.socket(fileno=descriptor)
        listener.set_inheritable(False)
        if self._bridge is None:
            listener.close()
        else:
            self._bridge.listen(listener)

    def _release_if_finished(self) -> None:
        """Have the supervisor end all descendants once the command has ended and both pipes are closed."""
        if self._exit_code_future.done() and not self._pipes:
            self._send_message(end=True)

    def _mark_ended(self) -> None:
        if self._end_future.done():
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        if self._bridge is not None:
            self._bridge.close()
        self.close_stdin()
        self._end_future.set_result(None)
        if not self._exit_code_future.done():
            self._exit_code_future.set_result(-9)
        if not self._start_future.done():
            self._start_future.set_exception(SandboxError("the command could not be started: its supervisor ended"))
            self._start_future.exception()  # mark it as retrieved: there may be no waiter

    # ----------------------------------------------------------------------------------------------------------- output

    def _read_available(self) -> tuple[OutputStream, bytes] | None:
        """Return a chunk that can be read without waiting, ``None`` if there is none."""
        for stream, pipe in list(self._pipes.items()):
            with contextlib.suppress(BlockingIOError):
                if data := os.read(pipe, CHUNK_BYTES):
                    self._pipes[stream] = self._pipes.pop(stream)  # read the other stream next
                    return stream, data
                self._close_pipe(stream)
        return None

    def _buffer_unread_output(self) -> None:
        """Empty the pipes, so that the command does not block; the first ``MAX_BUFFERED_BYTES`` are buffered."""
        while chunk := self._read_available():
            if self._reader_state == "closed":
                continue
            if self._buffered_bytes + len(chunk[1]) <= MAX_BUFFERED_BYTES:
                self._buffered_output.append(chunk)
                self._buffered_bytes += len(chunk[1])
            else:
                self._dropped_bytes += len(chunk[1])
                return  # let other tasks run

    async def _wait_readable(self, *others: "asyncio.Future[Any]") -> None:
        """Wait until a pipe is readable or one of the futures is done."""
        ready: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        pipes = list(self._pipes.values())
        for pipe in pipes:
            self._loop.add_reader(pipe, wake)
        try:
            await asyncio.wait([ready, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                if pipe in self._pipes.values():
                    self._loop.remove_reader(pipe)

    def _close_pipe(self, stream: OutputStream) -> None:
        pipe = self._pipes.pop(stream)
        self._loop.remove_reader(pipe)
        os.close(pipe)
        self._release_if_finished()

    def _close_pipes(self) -> None:
        for stream in list(self._pipes):
            self._close_pipe(stream)


class StdinPipe:
    """The end of a pipe through which this process writes to the stdin of a command."""

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor, self._loop = descriptor, loop
        self._lock = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write all data. Raises ``SandboxError`` when either end is closed."""
        async with self._lock:
            left = memoryview(data)
            while self._descriptor >= 0:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    break
                if not left:
                    return
                await self._wait_writable()
            self.close()
            raise SandboxError("the stdin of the command is closed")

    def close(self) -> None:
        """Close this end; a call of ``write`` that waits then fails."""
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._wake()

    async def _wait_writable(self) -> None:
        self._writable = self._loop.create_future()
        self._loop.add_writer(self._descriptor, self._wake)
        try:
            await self._writable
        finally:
            if self._descriptor >= 0:
                self._loop.remove_writer(self._descriptor)

    def _wake(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)


def _check_job(job: JobSpec) -> None:
    paths = (job.cwd, *job.writable, *job.protected, *job.hidden, *job.masked)
    if not job.argv or not job.argv[0]:
        raise SandboxError("a command needs at least the name of a program")
    for word in (*job.argv, *paths, *job.env, *job.env.values()):
        if "\0" in word:
            raise SandboxError(f"a command cannot contain a NUL character: {word!r}")
        try:
            os.fsencode(word)
        except UnicodeEncodeError as error:
            raise SandboxError(f"a command cannot contain a lone surrogate: {word!r}") from error
    for path in paths:
        if not path.startswith("/"):
            raise SandboxError(f"{path!r} is not an absolute path; a sandbox accepts no other")
    for name in job.env:
        if not name or "=" in name:
            raise SandboxError(f"{name!r} is not the name of an environment variable")


def _open_stdin_file(content: bytes) -> int:
    return syscalls.memory_file(content, "stdin") if content else os.open(os.devnull, os.O_RDONLY)


@functools.cache
def build_seccomp_filter_hex(*, sockets: seccomp.SocketRule = "network") -> str:
    """Return the seccomp filter for this processor, in hex; empty if there is none."""
    machine = syscalls.ARCHITECTURE
    return seccomp.build_filter(machine, sockets).hex() if machine in seccomp.ARCHITECTURES else ""
