"""Events of names that appear in folders: inotify."""

import ctypes
import os
import struct
from typing import NamedTuple

from vaka.system.libc import check_result, libc

IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_QUEUE_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR = 0x01000000
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class FolderEvent(NamedTuple):
    """An entry appeared in a watched folder or was written to, or ``mask`` says what happened to the watch itself."""

    watch: int
    mask: int
    name: str


class FolderEvents:
    """An inotify instance. Raises ``OSError`` where a user has too many, or the kernel has none."""

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.descriptor = check_result(libc().inotify_init1(ctypes.c_int(flags)), "inotify_init1")

    def add(self, folder: int, mask: int) -> int:
        """Watch an open folder; return the number of the watch, the same one for the same folder."""
        path = ctypes.c_char_p(f"/proc/self/fd/{folder}".encode())
        words = (ctypes.c_int(self.descriptor), path, ctypes.c_uint32(mask | _IN_ONLYDIR))
        return check_result(libc().inotify_add_watch(*words), "inotify_add_watch")

    def read(self) -> list[FolderEvent]:
        """Return the events that have arrived."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        found: list[FolderEvent] = []
        at = 0
        while at < len(data):
            watch, mask, _, size = _HEADER.unpack_from(data, at)
            at += _HEADER.size + size
            found.append(FolderEvent(watch, mask, os.fsdecode(data[at - size : at].rstrip(b"\0"))))
        return found

    def close(self) -> None:
        os.close(self.descriptor)
