"""Run a helper process that Landlock confines to reading given folders, where the kernel supports it.

Landlock restricts the calling thread and its children. So a new thread restricts itself, starts the process and ends;
the rest of this process stays unrestricted.
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

HelperProcess: TypeAlias = subprocess.Popen[bytes]

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
"""The system calls of Landlock, the same on every machine."""
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38
_ACCESS_EXECUTE, _ACCESS_READ_FILE, _ACCESS_READ_DIR = 1, 4, 8
_HANDLED_ACCESS = 0x1FFF
"""All that the first version knows: what no rule permits is refused."""
_SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""What it takes to start a program."""


@functools.cache
def is_supported() -> bool:
    """Tell whether this kernel has Landlock."""
    return os.uname().sysname == "Linux" and _syscall(_SYS_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION) > 0


async def run_confined(
    argv: Sequence[str], readable: Sequence[str], *, cwd: str, output: IO[bytes], errors: IO[bytes],
    max_output: int | None = None,
) -> int:  # fmt: skip
    """Run a program that can read these folders and files; return its exit code. Unbound where Landlock is not.

    It prints into files, so that nobody has to listen meanwhile; who prints more than ``most`` bytes is ended where the
    system can see to that. When nobody waits any more it is killed.
    """
    process = await _start_confined(argv, readable, cwd, output, errors)
    if max_output is not None:
        _limit_output(process.pid, max_output)
    try:
        return await asyncio.to_thread(process.wait)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def _limit_output(pid: int, max_output: int) -> None:
    with suppress(AttributeError, OSError):  # not everywhere, and it may be done already
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))  # the end is no accident to be looked into
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (max_output, max_output))


async def _start_confined(
    argv: Sequence[str], readable: Sequence[str], cwd: str, output: IO[bytes], errors: IO[bytes]
) -> HelperProcess:
    loop = asyncio.get_running_loop()
    started: asyncio.Future[HelperProcess] = loop.create_future()

    def begin() -> None:
        try:
            with Path(os.devnull).open("rb") as nothing:  # opened as long as that may be done
                if is_supported():
                    restrict_thread([*readable, argv[0], *_SYSTEM_PATHS])
                process = subprocess.Popen(
                    argv, cwd=cwd, env={}, stdin=nothing, stdout=output, stderr=errors, start_new_session=True
                )
        except (OSError, ValueError) as error:
            loop.call_soon_threadsafe(_deliver, started, lambda error=error: started.set_exception(error))
        else:
            loop.call_soon_threadsafe(_deliver, started, lambda: started.set_result(process), process)

    threading.Thread(target=begin, daemon=True).start()
    return await started


def restrict_thread(readable: Sequence[str]) -> None:
    """Let this thread and what it starts read these folders and files, and nothing else, for ever."""
    rules = _syscall(_SYS_CREATE_RULESET, struct.pack("=Q", _HANDLED_ACCESS), 8, 0)
    if rules < 0:
        raise _os_error("Landlock makes no rules")
    try:
        for path in readable:
            with suppress(FileNotFoundError, NotADirectoryError):
                _allow_path(rules, path)
        _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if _syscall(_SYS_RESTRICT_SELF, rules, 0) < 0:
            raise _os_error("Landlock cannot be put in force")
    finally:
        os.close(rules)


def _allow_path(rules: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        folder = _ACCESS_READ_DIR if os.path.isdir(fd) else 0  # noqa: PTH112  # of the descriptor
        rule = struct.pack("=Qi", _ACCESS_EXECUTE | _ACCESS_READ_FILE | folder, fd)
        if _syscall(_SYS_ADD_RULE, rules, _RULE_PATH_BENEATH, rule, 0) < 0:
            raise _os_error(f"Landlock takes no rule for {path!r}")
    finally:
        os.close(fd)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    done: int = _libc().syscall(number, *arguments)
    return done


def _os_error(what: str) -> OSError:
    return OSError(ctypes.get_errno(), what)


def _deliver(
    started: "asyncio.Future[HelperProcess]", deliver_outcome: Callable[[], None], process: HelperProcess | None = None
) -> None:
    """Tell whoever waits; when nobody does any more, the process is of no use."""
    if not started.done():
        deliver_outcome()
    elif process is not None:
        process.kill()
        process.wait()
