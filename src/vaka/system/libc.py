"""The C library through ctypes, its errors as ``OSError``, and prctl."""

import ctypes
import errno
import functools
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library. Raises ``OSError`` (ENOSYS) on systems other than Linux."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return ctypes.CDLL(None, use_errno=True)


def check_result(result: int, what: str) -> int:
    """Return the result of a call; ``OSError`` with the thread's errno if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """Set an attribute of this process or thread."""
    check_result(libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")
