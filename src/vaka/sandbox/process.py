"""The one path by which commands start: through the warden, from any sandbox.

The warden is a process of its own, started with the first command and gone with this program, also when that is killed.
Each command has a keeper there, and one socket from here to the keeper: when it closes, for whatever reason, the keeper
ends the command and everything the command started.
"""

import asyncio
import atexit
import contextlib
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

from vaka.core.ports.sandbox import Stream
from vaka.core.types.errors import SandboxError
from vaka.sandbox.bridge import Bridge
from vaka.sandbox.environment import scrub
from vaka.sandbox.warden.order import Order, pack

PIECE = 64 * 1024
KEPT = 1024 * 1024
"""Bytes of output that are kept when somebody waits for a command without reading what it prints."""
_BREATH = 16
_FAREWELL = 10.0
_LINE = 4096
# The warden must be small and start fast: it gets the modules it needs without what their packages would import.
_BOOT = """
import sys, types
root, descriptor, owner = sys.argv[1:]
for name, path in (("vaka", root), ("vaka.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from vaka.sandbox.warden.main import main
main(int(descriptor), int(owner))
"""


class Warden:
    """The process that starts commands, as its owner sees it; one for this whole program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` when it does not run."""
        there = self._channel is not None and self._child is not None and self._owner == os.getpid()
        return self._child.pid if there and self._child is not None else None

    def launch(self, descriptors: list[int]) -> None:
        """Hand a keeper its socket and the three streams of its command; starts the warden if it is not there."""
        with self._lock:
            for attempt in (1, 2):
                channel = self._connect()
                try:
                    socket.send_fds(channel, [b"!"], descriptors)
                except OSError as error:
                    self._forget()
                    if attempt == 2:
                        raise SandboxError(f"commands cannot be started: the warden is gone ({error})") from error
                else:
                    return

    def close(self) -> None:
        """End it, and with it every command."""
        with self._lock:
            child = self._child if self._owner == os.getpid() else None
            self._forget()
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_FAREWELL)

    def _connect(self) -> socket.socket:
        if self._owner != os.getpid():  # a fork has its parent's warden, which is none of its business
            self._forget()
        if self._channel is None:
            if not sys.executable:
                raise SandboxError("commands cannot be started: it is not known which Python runs here")
            here, there = socket.socketpair()
            root = str(Path(__file__).resolve().parents[1])
            argv = [sys.executable, "-I", "-c", _BOOT, root, str(there.fileno()), str(os.getpid())]
            try:
                with there:
                    self._child = subprocess.Popen(
                        argv, env=scrub(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        pass_fds=[there.fileno()], start_new_session=True,
                    )  # fmt: skip
            except OSError as error:
                here.close()
                raise SandboxError(f"commands cannot be started: {sys.executable!r} cannot be run: {error}") from error
            self._channel, self._owner = here, os.getpid()
        return self._channel

    def _forget(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._child is not None and self._owner != os.getpid():
            self._child.returncode = 0  # not ours to wait for
        elif self._child is not None:
            self._child.poll()
        self._channel = None


WARDEN = Warden()
atexit.register(WARDEN.close)


async def start(order: Order, stdin: bytes = b"", *, proxy: str = "") -> "Running":
    """Start a command and return it when it runs. Raises ``SandboxError`` when it cannot be confined as asked."""
    _check(order)
    running = Running(proxy)
    try:
        await running.begin(order, stdin)
    except BaseException:
        running.abandon()
        raise
    return running


class Running:
    """A command that runs, with everything it started; implements ``Process``."""

    def __init__(self, proxy: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)
        self._pipes: dict[Stream, int] = {}
        self._said = b""
        self._pid = 0
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._proxy, self._bridge = proxy, None if not proxy else Bridge(proxy)
        self._kept: deque[tuple[Stream, bytes]] = deque()
        self._lost = 0
        self._size = 0
        self._reader = "nobody"
        self.why = ""
        """Why it was ended by whoever watches over it, empty if it was not."""

    @property
    def pid(self) -> int:
        """The process id of the command, or of what confines it."""
        return self._pid

    async def begin(self, order: Order, stdin: bytes) -> None:
        """Have it started."""
        ends = [self._theirs.detach()]
        try:
            ends.append(_file(stdin))
            for name in ("stdout", "stderr"):
                here, there = os.pipe()
                os.set_blocking(here, False)
                self._pipes["stdout" if name == "stdout" else "stderr"] = here
                ends.append(there)
            if WARDEN.pid is None:
                await asyncio.to_thread(WARDEN.launch, ends)
            else:
                WARDEN.launch(ends)
        finally:
            for end in ends:
                os.close(end)
        self._loop.add_reader(self._control.fileno(), self._listen)
        with contextlib.suppress(ConnectionError):  # what it says before it goes is more to the point
            await self._loop.sock_sendall(self._control, pack(order))
        await self._begun

    async def output(self) -> AsyncGenerator[tuple[Stream, bytes]]:
        """Yield what it prints as it prints it; nothing is read that nobody asks for."""
        if self._reader == "output":
            raise SandboxError("the output of a command can be read once")
        self._reader = "output"
        count = 0
        try:
            while True:
                found = self._kept.popleft() if self._kept else self._read()
                if found is not None:
                    yield found
                    count += 1
                    if count % _BREATH == 0:
                        await asyncio.sleep(0)
                elif self._pipes and not self._gone.done():
                    await self._readable(self._gone)
                else:  # what is left though all was ended could print for ever
                    break
            if self.why:
                yield "stderr", f"the command was ended: {self.why}\n".encode()
        finally:
            self._reader = "gone"
            if self._gone.done():
                self._close_pipes()
        if self._lost:
            raise SandboxError(f"{self._lost} bytes of output were thrown away, since nobody read them while waiting")

    async def wait(self) -> int:
        """Return its exit code; minus the signal that ended it."""
        while not self._code.done():
            if self._pipes and self._reader != "output":
                await self._readable(self._code)
                self._spill()
            else:
                await asyncio.wait([self._code])
        return self._code.result()

    async def stop(self, grace: float = 2.0) -> None:
        """End it and everything it started: asked first, killed after ``grace`` seconds."""
        self._tell(stop=max(grace, 0.0))
        await asyncio.wait([self._gone])
        if self._reader == "gone":
            self._close_pipes()

    def abandon(self) -> None:
        """Let go of it at once; its keeper ends it."""
        self._theirs.close()
        self._close_pipes()
        self._end()

    # ------------------------------------------------------------------------------------------------------- the keeper

    def _tell(self, **said: Any) -> None:
        if not self._gone.done():
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(said).encode() + b"\n")

    def _listen(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _LINE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            self._attach(descriptor)
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        if not data:
            self._end()

    def _hear(self, said: Mapping[str, Any]) -> None:
        if "started" in said:
            self._pid = said["started"]
            if not self._begun.done():
                self._begun.set_result(None)
        elif "refused" in said:
            if not self._begun.done():
                self._begun.set_exception(SandboxError(said["refused"]))
        elif "code" in said:
            self.why = said["why"]
            if not self._code.done():
                self._code.set_result(said["code"])
            self._release()
        elif "gone" in said:
            self._end()

    def _attach(self, descriptor: int) -> None:
        listener = socket.socket(fileno=descriptor)
        listener.set_inheritable(False)
        if self._bridge is None:
            listener.close()
        else:
            self._bridge.listen(listener)

    def _release(self) -> None:
        """Let the keeper end what is left, once the command has ended and nobody can print any more."""
        if self._code.done() and not self._pipes:
            self._tell(end=True)

    def _end(self) -> None:
        if self._gone.done():
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        if self._bridge is not None:
            self._bridge.close()
        self._gone.set_result(None)
        if not self._code.done():
            self._code.set_result(-9)
        if not self._begun.done():
            self._begun.set_exception(SandboxError("the command could not be started: its keeper is gone"))
            self._begun.exception()  # seen, also when nobody waits for it

    # ------------------------------------------------------------------------------------------------------- the output

    def _read(self) -> tuple[Stream, bytes] | None:
        """Return a piece that is there already, ``None`` if there is none."""
        for stream, pipe in list(self._pipes.items()):
            with contextlib.suppress(BlockingIOError):
                if data := os.read(pipe, PIECE):
                    self._pipes[stream] = self._pipes.pop(stream)  # the other one is next
                    return stream, data
                self._close(stream)
        return None

    def _spill(self) -> None:
        """Read what nobody asks for, so that the command can go on; the beginning is kept."""
        while found := self._read():
            if self._reader == "gone":
                continue
            if self._size + len(found[1]) <= KEPT:
                self._kept.append(found)
                self._size += len(found[1])
            else:
                self._lost += len(found[1])
                return  # others have work to do, too

    async def _readable(self, *others: "asyncio.Future[Any]") -> None:
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

    def _close(self, stream: Stream) -> None:
        pipe = self._pipes.pop(stream)
        self._loop.remove_reader(pipe)
        os.close(pipe)
        self._release()

    def _close_pipes(self) -> None:
        for stream in list(self._pipes):
            self._close(stream)


def _check(order: Order) -> None:
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


def _file(content: bytes) -> int:
    """Return a file with what a command reads from its stdin."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    made = os.memfd_create("stdin")
    left = memoryview(content)
    while left:
        left = left[os.write(made, left) :]
    os.lseek(made, 0, os.SEEK_SET)
    return made
