"""Mounts, namespaces, seccomp, capabilities and descriptors of a Linux process."""

import ctypes
import errno
import fcntl
import os
import struct

from vaka.system.libc import PR_CAPBSET_DROP, check_result, libc
from vaka.system.openat2 import AT_FDCWD

FIRST_PRIVATE_FD = 32
"""Descriptors below this number are left to programs."""
ARCHITECTURE = os.uname().machine

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
NS_GET_USERNS = 0xB701

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REC = 16384
MS_PRIVATE = 1 << 18
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4

_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_EMPTY_PATHS = 0x04 | 0x40
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LAST_CAPABILITY = 63


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    check_result(libc().unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace that a descriptor refers to."""
    check_result(libc().setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None)
    data = os.fsencode(options) if options else None
    check_result(libc().mount(*words, ctypes.c_ulong(flags), data), f"mount on {target!r}")


def set_mount_attributes(target: str, *, add: int) -> None:
    """Add attributes to a mount and to all mounts below it."""
    _mount_setattr(AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, add, f"mount_setattr {target!r}")


def has_mount_trees() -> bool:
    """Return whether descriptors can be mounted: since Linux 5.12, unless a seccomp filter refuses."""
    for words in ((_OPEN_TREE, -1, b"", _AT_EMPTY_PATH), (_MOUNT_SETATTR, -1, b"", 0, None, ctypes.c_size_t(0))):
        libc().syscall(*words)  # invalid arguments: the error shows whether the call exists
        if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
            return False
    return True


def mount_over(target: int, source: int, *, add: int = 0) -> None:
    """Mount the open ``source`` on the open ``target``, which may be the same.

    A mount point can be neither renamed nor removed; a symbolic link mounted on itself is still followed.
    """
    attach_mount_tree(target, clone_mount_tree(source), add=add)


def clone_mount_tree(source: int) -> int:
    """Return a detached copy of the mounts at and below an open folder or file."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | _AT_EMPTY_PATH | os.O_CLOEXEC
    return check_result(libc().syscall(_OPEN_TREE, source, b"", flags), "open_tree")


def attach_mount_tree(target: int, tree: int, *, add: int = 0) -> None:
    """Mount a detached copy on the open ``target``, and close its descriptor."""
    try:
        if add:
            _mount_setattr(tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, add, "mount_setattr")
        check_result(libc().syscall(_MOVE_MOUNT, tree, b"", target, b"", _MOVE_MOUNT_EMPTY_PATHS), "move_mount")
    finally:
        os.close(tree)


def _mount_setattr(folder: int, path: bytes, flags: int, add: int, what: str) -> None:
    attributes = struct.pack("=QQQQ", add, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    check_result(libc().syscall(_MOUNT_SETATTR, folder, path, flags, attributes, size), what)


def move_fd_up(descriptor: int) -> int:
    """Return a duplicate at or above ``FIRST_PRIVATE_FD``, not inheritable, and close the old descriptor."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_PRIVATE_FD)
    os.close(descriptor)
    return moved


def memory_file(content: bytes, name: str) -> int:
    """Return the descriptor of an anonymous file with this content, positioned at its start."""
    descriptor = os.memfd_create(name)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def list_open_fds() -> frozenset[int]:
    with os.scandir("/proc/self/fd") as entries:
        listed = {int(entry.name) for entry in entries}
    return frozenset(number for number in listed if _is_open(number))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:  # the descriptor of the listing itself
        return False
    return True


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_seccomp_filter(program: bytes) -> None:
    """Filter all system calls of this process and of the processes it starts, irrevocably."""
    described = _FilterProgram(len(program) // 8, program)
    check_result(libc().syscall(_SECCOMP[ARCHITECTURE], 1, 0, ctypes.byref(described)), "seccomp")


def drop_capabilities() -> None:
    """Drop all capabilities of this process, also from the bounding set."""
    for number in range(_LAST_CAPABILITY + 1):
        libc().prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)  # fails for numbers that do not exist
    header = struct.pack("=Ii", 0x20080522, 0)
    check_result(libc().syscall(_CAPSET[ARCHITECTURE], header, bytes(24)), "capset")
