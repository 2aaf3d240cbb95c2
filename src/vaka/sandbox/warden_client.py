"""Start commands through the warden: build the job, start the warden process, send the job, read the output.

The warden is a separate process, started with the first command and gone with this program, also when that is killed.
Each command has a supervisor there and one socket from here to it: when the socket closes, the supervisor ends the
command and its descendants.
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
from pathlib import Path
from typing import Any

from vaka.core.ports.sandbox import Command, OutputStream
from vaka.core.types.errors import SandboxError
from vaka.sandbox.environment import build_command_environment, scrub_environment
from vaka.sandbox.proxy import ProxyBridge
from vaka.sandbox.sensitive_paths import PLACEHOLDER_FOLDERS
from vaka.sandbox.warden import seccomp, syscalls
from vaka.sandbox.warden.job_spec import JobSpec, encode_job

PROXY_URL = "http://127.0.0.1:3128"
"""Where a command with a single way out finds it, in its own network."""


def build_job(
    kind: str, command: Command, allow_env: tuple[str, ...], extra_fields: Mapping[str, Any], *, proxy: str = ""
) -> JobSpec:
    """Return the order for a command; ``allow`` names variables it has though they look like secrets."""
    bounds = command.bounds
    return JobSpec(
        kind=kind,
        argv=command.argv,
        cwd=command.cwd,
        env=build_command_environment(os.environ, command.env, allow_env, proxy=proxy),
        writable=command.writable,
        protected=command.protected,
        hidden=command.hidden,
        network=command.network,
        cpu_seconds=bounds.cpu_seconds,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        file_bytes=bounds.file_bytes,
        open_files=bounds.open_files,
        folders=PLACEHOLDER_FOLDERS,
        **extra_fields,
    )


CHUNK_BYTES = 64 * 1024

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of output that are kept when somebody waits for a command without reading what it prints."""

_CHUNKS_BETWEEN_YIELDS = 16

_CLOSE_TIMEOUT = 10.0

_MAX_REPORT_BYTES = 4096

# The warden must be small and start fast: it gets the modules it needs without what their packages would import.
_WARDEN_BOOT_CODE = """
import sys, types
root, descriptor, owner = sys.argv[1:]
for name, path in (("vaka", root), ("vaka.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from vaka.sandbox.warden.main import main
main(int(descriptor), int(owner))
"""


class WardenClient:
    """The process that starts commands, as its owner sees it; one for this whole program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` when it does not run."""
        there = self._channel is not None and self._child is not None and self._owner_pid == os.getpid()
        return self._child.pid if there and self._child is not None else None

    def send_descriptors(self, descriptors: list[int]) -> None:
        """Hand a keeper its socket and the three streams of its command; starts the warden if it is not there."""
        with self._lock:
            for attempt in (1, 2):
                channel = self._ensure_started()
                try:
                    socket.send_fds(channel, [b"!"], descriptors)
                except OSError as error:
                    self._drop_connection()
                    if attempt == 2:
                        raise SandboxError(f"commands cannot be started: the warden is gone ({error})") from error
                else:
                    return

    def close(self) -> None:
        """End it, and with it every command."""
        with self._lock:
            child = self._child if self._owner_pid == os.getpid() else None
            self._drop_connection()
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_CLOSE_TIMEOUT)

    def _ensure_started(self) -> socket.socket:
        if self._owner_pid != os.getpid():  # a fork has its parent's warden, which is none of its business
            self._drop_connection()
        if self._channel is None:
            if not sys.executable:
                raise SandboxError("commands cannot be started: it is not known which Python runs here")
            here, there = socket.socketpair()
            root = str(Path(__file__).resolve().parents[1])
            argv = [sys.executable, "-I", "-c", _WARDEN_BOOT_CODE, root, str(there.fileno()), str(os.getpid())]
            try:
                with there:
                    self._child = subprocess.Popen(
                        argv, env=scrub_environment(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        pass_fds=[there.fileno()], start_new_session=True,
                    )  # fmt: skip
            except OSError as error:
                here.close()
                raise SandboxError(f"commands cannot be started: {sys.executable!r} cannot be run: {error}") from error
            self._channel, self._owner_pid = here, os.getpid()
        return self._channel

    def _drop_connection(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._child is not None and self._owner_pid != os.getpid():
            self._child.returncode = 0  # not ours to wait for
        elif self._child is not None:
            self._child.poll()
        self._channel = None


WARDEN = WardenClient()

atexit.register(WARDEN.close)


async def start_job(order: JobSpec, stdin: bytes = b"", *, proxy: str = "") -> "SandboxedProcess":
    """Start a command and return it when it runs. Raises ``SandboxError`` when it cannot be confined as asked."""
    _check_job(order)
    running = SandboxedProcess(proxy)
    try:
        await running.begin(order, stdin)
    except BaseException:
        running.abandon()
        raise
    return running


class SandboxedProcess:
    """A command that runs, with everything it started; implements ``Process``."""

    def __init__(self, proxy: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._control, self._peer_socket = socket.socketpair()
        self._control.setblocking(False)
        self._pipes: dict[OutputStream, int] = {}
        self._report_buffer = b""
        self._pid = 0
        self._start_future: asyncio.Future[None] = self._loop.create_future()
        self._exit_code_future: asyncio.Future[int] = self._loop.create_future()
        self._end_future: asyncio.Future[None] = self._loop.create_future()
        self._proxy, self._bridge = proxy, None if not proxy else ProxyBridge(proxy)
        self._buffered_output: deque[tuple[OutputStream, bytes]] = deque()
        self._dropped_bytes = 0
        self._buffered_bytes = 0
        self._reader_state = "nobody"
        self.kill_reason = ""
        """Why it was ended by whoever watches over it, empty if it was not."""

    @property
    def pid(self) -> int:
        """The process id of the command, or of what confines it."""
        return self._pid

    async def begin(self, order: JobSpec, stdin: bytes) -> None:
        """Have it started."""
        ends = [self._peer_socket.detach()]
        try:
            ends.append(_open_stdin_file(stdin))
            for name in ("stdout", "stderr"):
                here, there = os.pipe()
                os.set_blocking(here, False)
                self._pipes["stdout" if name == "stdout" else "stderr"] = here
                ends.append(there)
            if WARDEN.pid is None:
                await asyncio.to_thread(WARDEN.send_descriptors, ends)
            else:
                WARDEN.send_descriptors(ends)
        finally:
            for end in ends:
                os.close(end)
        self._loop.add_reader(self._control.fileno(), self._on_control_readable)
        with contextlib.suppress(ConnectionError):  # what it says before it goes is more to the point
            await self._loop.sock_sendall(self._control, encode_job(order))
        await self._start_future

    async def output(self) -> AsyncGenerator[tuple[OutputStream, bytes]]:
        """Yield what it prints as it prints it; nothing is read that nobody asks for."""
        if self._reader_state == "output":
            raise SandboxError("the output of a command can be read once")
        self._reader_state = "output"
        count = 0
        try:
            while True:
                found = self._buffered_output.popleft() if self._buffered_output else self._read_available()
                if found is not None:
                    yield found
                    count += 1
                    if count % _CHUNKS_BETWEEN_YIELDS == 0:
                        await asyncio.sleep(0)
                elif self._pipes and not self._end_future.done():
                    await self._wait_readable(self._end_future)
                else:  # what is left though all was ended could print for ever
                    break
            if self.kill_reason:
                yield "stderr", f"the command was ended: {self.kill_reason}\n".encode()
        finally:
            self._reader_state = "gone"
            if self._end_future.done():
                self._close_pipes()
        if self._dropped_bytes:
            raise SandboxError(
                f"{self._dropped_bytes} bytes of output were thrown away, since nobody read them while waiting"
            )

    async def wait(self) -> int:
        """Return its exit code; minus the signal that ended it."""
        while not self._exit_code_future.done():
            if self._pipes and self._reader_state != "output":
                await self._wait_readable(self._exit_code_future)
                self._buffer_unread_output()
            else:
                await asyncio.wait([self._exit_code_future])
        return self._exit_code_future.result()

    async def stop(self, grace: float = 2.0) -> None:
        """End it and everything it started: asked first, killed after ``grace`` seconds."""
        self._send_message(stop=max(grace, 0.0))
        await asyncio.wait([self._end_future])
        if self._reader_state == "gone":
            self._close_pipes()

    def abandon(self) -> None:
        """Let go of it at once; its keeper ends it."""
        self._peer_socket.close()
        self._close_pipes()
        self._mark_ended()

    # ------------------------------------------------------------------------------------------------------- the keeper

    def _send_message(self, **fields: Any) -> None:
        if not self._end_future.done():
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(fields).encode() + b"\n")

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
        """Let the keeper end what is left, once the command has ended and nobody can print any more."""
        if self._exit_code_future.done() and not self._pipes:
            self._send_message(end=True)

    def _mark_ended(self) -> None:
        if self._end_future.done():
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        if self._bridge is not None:
            self._bridge.close()
        self._end_future.set_result(None)
        if not self._exit_code_future.done():
            self._exit_code_future.set_result(-9)
        if not self._start_future.done():
            self._start_future.set_exception(SandboxError("the command could not be started: its keeper is gone"))
            self._start_future.exception()  # seen, also when nobody waits for it

    # ------------------------------------------------------------------------------------------------------- the output

    def _read_available(self) -> tuple[OutputStream, bytes] | None:
        """Return a piece that is there already, ``None`` if there is none."""
        for stream, pipe in list(self._pipes.items()):
            with contextlib.suppress(BlockingIOError):
                if data := os.read(pipe, CHUNK_BYTES):
                    self._pipes[stream] = self._pipes.pop(stream)  # the other one is next
                    return stream, data
                self._close_pipe(stream)
        return None

    def _buffer_unread_output(self) -> None:
        """Read what nobody asks for, so that the command can go on; the beginning is kept."""
        while found := self._read_available():
            if self._reader_state == "gone":
                continue
            if self._buffered_bytes + len(found[1]) <= MAX_BUFFERED_BYTES:
                self._buffered_output.append(found)
                self._buffered_bytes += len(found[1])
            else:
                self._dropped_bytes += len(found[1])
                return  # others have work to do, too

    async def _wait_readable(self, *others: "asyncio.Future[Any]") -> None:
        """Wait until there is something to read, or one of the others is done."""
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


def _check_job(order: JobSpec) -> None:
    words = [*order.argv, order.cwd, *order.writable, *order.protected, *order.hidden]
    if not order.argv or not order.argv[0]:
        raise SandboxError("a command needs at least the name of a program")
    for word in (*words, *order.env, *order.env.values()):
        if "\0" in word:
            raise SandboxError(f"a command cannot have a NUL character in it: {word!r}")
        try:
            os.fsencode(word)
        except UnicodeEncodeError as error:
            raise SandboxError(f"a command cannot have half a character in it: {word!r}") from error
    for path in (order.cwd, *order.writable, *order.protected, *order.hidden):
        if not path.startswith("/"):
            raise SandboxError(f"{path!r} is not an absolute path; a sandbox takes no others")
    for name in order.env:
        if not name or "=" in name:
            raise SandboxError(f"{name!r} is not the name of an environment variable")


def _open_stdin_file(content: bytes) -> int:
    """Return a file with what a command reads from its stdin."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    made = os.memfd_create("stdin")
    left = memoryview(content)
    while left:
        left = left[os.write(made, left) :]
    os.lseek(made, 0, os.SEEK_SET)
    return made


@functools.cache
def build_seccomp_filter_hex(*, sockets: seccomp.SocketRule = "network") -> str:
    """Return the filter of system calls for this processor, in hex; empty if there is none."""
    machine = syscalls.ARCHITECTURE
    return seccomp.build_filter(machine, sockets).hex() if seccomp.is_supported(machine) else ""
