"""Calls of the Linux kernel that Python has no name for."""

import ctypes
import errno
import os
import sys

_OPENAT2 = 437
"""The same number on every architecture that Python runs on, but for one that had numbers of its own."""
_SIZE = 24
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
_NOREPLACE = 1


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


_c = _libc()


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path from an open folder on, resolved as told; raises ``OSError``."""
    if _c is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    while True:
        opened = _c.syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_long(folder), ctypes.c_char_p(path), ctypes.byref(how),
            ctypes.c_size_t(_SIZE),
        )  # fmt: skip
        if opened >= 0:
            return int(opened)
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def rename_new(folder: int, old: bytes, new: bytes) -> bool:
    """Rename inside a folder unless something has the new name (``FileExistsError``); false when it cannot be asked."""
    rename = getattr(_c, "renameat2", None)
    if rename is None:
        return False
    done = rename(
        ctypes.c_int(folder),
        ctypes.c_char_p(old),
        ctypes.c_int(folder),
        ctypes.c_char_p(new),
        ctypes.c_uint(_NOREPLACE),
    )
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP}:
        return False  # this file system does not know how
    raise OSError(number, os.strerror(number))
