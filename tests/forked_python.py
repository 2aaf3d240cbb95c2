"""Python programs as forks of one process that has imported vaka: real processes, without the time of the imports.

The server forks a monitor for each program; the monitor forks the program, reports its process id, and at its end its
exit code. A program begins as it would in a new interpreter: with its own folder, variables, streams and arguments.
"""

import asyncio
import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import coverage

from tests.unmeasured import without_coverage

ROOT = Path(__file__).resolve().parents[1]
MAX_REQUEST_BYTES = 64 * 1024
NOT_IMPORTED = ("vaka.testing", "vaka.mcp.session", "vaka.models.local")
"""Modules that load large libraries; a program imports them when it needs them."""
LANG = "C.UTF-8"
_REPORT = struct.Struct("i")
_CLIENT_PROGRAM = """
import json, os, socket, struct, sys
reader, writer = os.pipe()
request = {"arguments": ["-m", "vaka", *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ), "session": ""}
socket.send_fds(socket.socket(fileno=CHANNEL), [json.dumps(request).encode()], [0, 1, 2, writer])
os.close(writer)
os.read(reader, 4)
code = struct.unpack("i", os.read(reader, 4))[0]
os._exit(code if code >= 0 else 128 - code)
"""
_SERVER_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); import tests.forked_python as f; f.serve(int(sys.argv[2]))"
)


def can_fork(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a program can be a fork: a short request, and no variable that Python reads when it starts."""
    size = sum(map(len, (*arguments, *env, *env.values())))
    special = [name for name in env if name.startswith(("PYTHON", "LC_"))]
    is_plain = all(env[name] == os.environ.get(name) for name in special) and env.get("LANG") in (None, LANG)
    return size < MAX_REQUEST_BYTES and is_plain


class ForkedProcess:
    """A running program; the part of ``subprocess.Popen`` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        session: Literal["", "new", "terminal"] = "",
    ) -> None:
        """Start ``python ARGUMENTS``, in a session of its own if asked, whose terminal may be stdin."""
        self.reports, monitor_end = os.pipe()
        self.returncode: int | None = None
        request = {"arguments": [*arguments], "cwd": str(cwd), "env": dict(env), "session": session}
        try:
            SERVER.send(request, [*streams, monitor_end])
        finally:
            os.close(monitor_end)
        self.pid = self._read_report()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises ``subprocess.TimeoutExpired``."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self.reports], [], [], timeout)[0]:
            self.returncode = self._read_report()
            os.close(self.reports)
        return self.returncode

    def _read_report(self) -> int:
        data = os.read(self.reports, _REPORT.size)
        if len(data) < _REPORT.size:
            raise RuntimeError("the process that forks programs has ended")
        number: int = _REPORT.unpack(data)[0]
        return number


def run_forked(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], *, input: bytes | None = None, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end, as ``subprocess.run`` does."""
    stdin = os.open(os.devnull, os.O_RDONLY) if input is None else _pipe_with(input)
    (out_reader, out_writer), (err_reader, err_writer) = os.pipe(), os.pipe()
    try:
        process = ForkedProcess(arguments, cwd, env, (stdin, out_writer, err_writer))
    finally:
        for descriptor in (stdin, out_writer, err_writer):
            os.close(descriptor)
    try:
        out, err = _read_all([out_reader, err_reader], time.monotonic() + timeout)
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout)
        raise
    finally:
        os.close(out_reader)
        os.close(err_reader)
    return subprocess.CompletedProcess([*arguments], code, out, err)


def _pipe_with(content: bytes) -> int:
    """Return the end of a pipe from which the content can be read."""
    reader, writer = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(writer, "wb", buffering=0) as file:  # noqa: PTH123
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]

    threading.Thread(target=write, daemon=True).start()
    return reader


def _read_all(readers: list[int], deadline: float) -> list[bytes]:
    output = {reader: bytearray() for reader in readers}
    open_readers = set(readers)
    while open_readers:
        ready = select.select([*open_readers], [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            raise subprocess.TimeoutExpired("python", deadline)
        for reader in ready:
            data = os.read(reader, 1 << 16)
            output[reader] += data
            if not data:
                open_readers.discard(reader)
    return [bytes(output[reader]) for reader in readers]


class StreamedProcess:
    """A running program with streams of asyncio; the part of ``asyncio.subprocess.Process`` that tests use."""

    def __init__(self, process: ForkedProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.pid = process.pid
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(process.reports, self._on_exit)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its exit is not reported yet
                os.kill(self.pid, number)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._process.reports)
        self._exit.set_result(self._process.wait())
        self.stdin.close()


def write_client(path: Path) -> int:
    """Write a program that runs ``vaka`` as a fork, for shells. Return the descriptor that they must inherit for it."""
    descriptor = SERVER.connect().fileno()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\nCHANNEL = {descriptor}\n{_CLIENT_PROGRAM}", encoding="utf-8")
    path.chmod(0o755)
    return descriptor


class _OutputProtocol(asyncio.StreamReaderProtocol):
    """Closes the pipe at its end on every event loop; uvloop keeps one open whose protocol returns a true value."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def start_forked(arguments: Sequence[str], env: Mapping[str, str], *, limit: int = 1 << 16) -> StreamedProcess:
    """Start a program of the repository in a session of its own, with pipes for stdin and stdout."""
    loop = asyncio.get_running_loop()
    (in_reader, in_writer), (out_reader, out_writer) = os.pipe(), os.pipe()
    try:
        process = ForkedProcess(arguments, ROOT, env, (in_reader, out_writer, 2), session="new")
    finally:
        os.close(in_reader)
        os.close(out_writer)
    output = asyncio.StreamReader(limit)
    await loop.connect_read_pipe(lambda: _OutputProtocol(output), open(out_reader, "rb", 0))  # noqa: PTH123, SIM115
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        open(in_writer, "wb", 0),  # noqa: PTH123, SIM115
    )
    return StreamedProcess(process, asyncio.StreamWriter(transport, protocol, None, loop), output)


class _Server:
    """The connection to the server, which starts with the first program and ends with this process."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()

    def send(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        socket.send_fds(self.connect(), [json.dumps(request).encode()], descriptors)

    def connect(self) -> socket.socket:
        with self._lock:
            if self._channel is None:
                self._channel = self._start()
            return self._channel

    def _start(self) -> socket.socket:
        channel, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", _SERVER_PROGRAM, str(ROOT), str(server_end.fileno())]
        with server_end:
            process = subprocess.Popen(
                command,
                env=without_coverage() | {"LANG": LANG},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[server_end.fileno()],
            )

        def stop() -> None:
            channel.close()
            process.wait()

        atexit.register(stop)
        return channel


SERVER = _Server()


# ----------------------------------------------------------------------------------------------------- in the server


def serve(descriptor: int) -> None:
    """Fork a monitor for each request until the socket is closed."""
    import vaka  # noqa: PLC0415  # tests of other parts import this module, too

    for module in pkgutil.walk_packages(vaka.__path__, "vaka.", onerror=lambda _: None):
        if not module.name.startswith(NOT_IMPORTED) and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an optional library is not installed
                importlib.import_module(module.name)
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as channel:
        os.set_inheritable(descriptor, False)
        while True:
            data, descriptors, _, _ = socket.recv_fds(channel, 4 * MAX_REQUEST_BYTES, 4)
            if not data:
                return
            if os.fork() == 0:
                channel.close()
                _monitor(json.loads(data), descriptors)
            for received in descriptors:
                os.close(received)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _monitor(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    *streams, report = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(report)
        _run_program(request, streams)
    for stream in streams:
        os.close(stream)
    os.write(report, _REPORT.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(report, _REPORT.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run_program(request: dict[str, Any], streams: list[int]) -> NoReturn:
    code = 1
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        if request["session"]:
            os.setsid()
        if request["session"] == "terminal":
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        _replace_streams(streams)
        gc.unfreeze()
        coverage.process_startup()  # measures the program if its variables say so
        code = _run_arguments(request["arguments"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:  # noqa: BLE001  # as the interpreter does
        sys.excepthook(*cast("Any", sys.exc_info()))
    finally:
        with contextlib.suppress(BaseException):
            cast("Any", threading)._shutdown()  # wait for threads, as the interpreter does
            cast("Any", atexit)._run_exitfuncs()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _replace_streams(streams: list[int]) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
        buffer: Any = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
        is_live = name == "stderr" or os.isatty(number)
        stream = io.TextIOWrapper(buffer, encoding=old.encoding, errors=old.errors, line_buffering=is_live)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run_arguments(arguments: list[str]) -> int:
    kind, *rest = arguments
    if kind == "-m":
        sys.path[0] = os.getcwd()  # noqa: PTH109
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(kind).resolve().parent)
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")
    return 0
