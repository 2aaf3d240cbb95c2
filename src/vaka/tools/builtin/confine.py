"""Starting a helper that can read the folders it is to search and nothing else, where the kernel can see to that.

Landlock binds the thread that asks for it and what that thread starts. So a thread is made for it, starts the process
and is gone; the rest of this process is as free as before.
"""

import asyncio
import ctypes
import functools
import os
import resource
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias

Process: TypeAlias = subprocess.Popen[bytes]

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""The system calls of Landlock, the same on every machine."""
_VERSION, _BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_EXECUTE, _READ_FILE, _READ_FOLDER = 1, 4, 8
_HANDLED = 0x1FFF
"""All that the first version knows: what no rule permits is refused."""
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""What it takes to start a program."""


@functools.cache
def available() -> bool:
    """Tell whether this kernel has Landlock."""
    return os.uname().sysname == "Linux" and _call(_CREATE, None, 0, _VERSION) > 0


async def run(
    argv: Sequence[str], readable: Sequence[str], *, cwd: str, output: IO[bytes], errors: IO[bytes],
    most: int | None = None,
) -> int:  # fmt: skip
    """Run a program that can read these folders and files; return its exit code. Unbound where Landlock is not.

    It prints into files, so that nobody has to listen meanwhile; who prints more than ``most`` bytes is ended where the
    system can see to that. When nobody waits any more it is killed.
    """
    process = await _start(argv, readable, cwd, output, errors)
    if most is not None:
        _bound(process.pid, most)
    try:
        return await asyncio.to_thread(process.wait)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def _bound(pid: int, most: int) -> None:
    with suppress(AttributeError, OSError):  # not everywhere, and it may be done already
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))  # the end is no accident to be looked into
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


async def _start(
    argv: Sequence[str], readable: Sequence[str], cwd: str, output: IO[bytes], errors: IO[bytes]
) -> Process:
    loop = asyncio.get_running_loop()
    started: asyncio.Future[Process] = loop.create_future()

    def begin() -> None:
        try:
            with Path(os.devnull).open("rb") as nothing:  # opened as long as that may be done
                if available():
                    bind([*readable, argv[0], *_SYSTEM])
                process = subprocess.Popen(
                    argv, cwd=cwd, env={}, stdin=nothing, stdout=output, stderr=errors, start_new_session=True
                )
        except (OSError, ValueError) as error:
            loop.call_soon_threadsafe(_settle, started, lambda error=error: started.set_exception(error))
        else:
            loop.call_soon_threadsafe(_settle, started, lambda: started.set_result(process), process)

    threading.Thread(target=begin, daemon=True).start()
    return await started


def bind(readable: Sequence[str]) -> None:
    """Let this thread and what it starts read these folders and files, and nothing else, for ever."""
    rules = _call(_CREATE, struct.pack("=Q", _HANDLED), 8, 0)
    if rules < 0:
        raise _failed("Landlock makes no rules")
    try:
        for path in readable:
            with suppress(FileNotFoundError, NotADirectoryError):
                _permit(rules, path)
        _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if _call(_RESTRICT, rules, 0) < 0:
            raise _failed("Landlock cannot be put in force")
    finally:
        os.close(rules)


def _permit(rules: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        folder = _READ_FOLDER if os.path.isdir(fd) else 0  # noqa: PTH112  # of the descriptor
        rule = struct.pack("=Qi", _EXECUTE | _READ_FILE | folder, fd)
        if _call(_ADD, rules, _BENEATH, rule, 0) < 0:
            raise _failed(f"Landlock takes no rule for {path!r}")
    finally:
        os.close(fd)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    done: int = _libc().syscall(number, *arguments)
    return done


def _failed(what: str) -> OSError:
    return OSError(ctypes.get_errno(), what)


def _settle(started: "asyncio.Future[Process]", tell: Callable[[], None], process: Process | None = None) -> None:
    """Tell whoever waits; when nobody does any more, the process is of no use."""
    if not started.done():
        tell()
    elif process is not None:
        process.kill()
        process.wait()
