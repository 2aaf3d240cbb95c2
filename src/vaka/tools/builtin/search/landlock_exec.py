"""Run a helper process that Landlock confines to reading given folders, where the kernel supports it.

Landlock restricts the calling thread and its children. So a new thread restricts itself, starts the process and ends;
the rest of this process stays unrestricted.
"""

import asyncio
import functools
import os
import resource
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias

from vaka.system import landlock

HelperProcess: TypeAlias = subprocess.Popen[bytes]

_READ_RIGHTS = landlock.EXECUTE | landlock.READ_FILE | landlock.READ_DIR
_SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Paths that every program reads when it starts."""


@functools.cache
def is_supported() -> bool:
    """Return whether this kernel has Landlock."""
    return landlock.abi_version() > 0


async def run_confined(
    argv: Sequence[str], readable: Sequence[str], *, cwd: str, output: IO[bytes], errors: IO[bytes],
    max_output: int | None = None,
) -> int:  # fmt: skip
    """Run a program that can read only these paths and return its exit code. Without Landlock it is not confined.

    It prints into files, so that no reader is needed meanwhile. A program that prints more than ``max_output`` bytes is
    killed where the system supports that. The program is killed when this call is cancelled.
    """
    process = await _start_confined(argv, readable, cwd, output, errors)
    with suppress(AttributeError, OSError):  # only on Linux, and the process may have ended
        if max_output is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))  # no core dump when the limit kills it
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (max_output, max_output))
    try:
        return await asyncio.to_thread(process.wait)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


async def _start_confined(
    argv: Sequence[str], readable: Sequence[str], cwd: str, output: IO[bytes], errors: IO[bytes]
) -> HelperProcess:
    loop = asyncio.get_running_loop()
    started: asyncio.Future[HelperProcess] = loop.create_future()

    def begin() -> None:
        try:
            with Path(os.devnull).open("rb") as nothing:  # opened before the thread is restricted
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
    """Restrict this thread and all processes it starts to reading these folders and files, irrevocably."""
    ruleset = landlock.create_ruleset(landlock.all_file_rights(1))
    try:
        for path in readable:
            landlock.allow_path(ruleset, path, _READ_RIGHTS, ignored=(FileNotFoundError, NotADirectoryError))
        landlock.restrict_self(ruleset)
    finally:
        os.close(ruleset)


def _deliver(
    started: "asyncio.Future[HelperProcess]", deliver_outcome: Callable[[], None], process: HelperProcess | None = None
) -> None:
    """Resolve the future; if its waiter was cancelled, kill the process."""
    if not started.done():
        deliver_outcome()
    elif process is not None:
        process.kill()
        process.wait()
