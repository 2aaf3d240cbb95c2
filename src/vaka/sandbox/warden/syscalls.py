"""Linux system calls that Python lacks: mounts, namespaces, openat2, Landlock, seccomp, capabilities."""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable

FIRST_PRIVATE_FD = 32
"""Descriptors below are for programs."""
ARCHITECTURE = os.uname().machine

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_REC = 16384
MS_PRIVATE = 1 << 18

AT_FDCWD = -100
AT_RECURSIVE = 0x8000
AT_EMPTY_PATH = 0x1000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
OPEN_TREE_CLONE = 1
MOVE_MOUNT_EMPTY_PATHS = 0x04 | 0x40

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04

NS_GET_USERNS = 0xB701

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def _check_result(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """Set something of this process."""
    _check_result(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _check_result(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter a namespace."""
    _check_result(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount something."""
    words = (os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None)
    data = os.fsencode(options) if options else None
    _check_result(_libc.mount(*words, ctypes.c_ulong(flags), data), f"mount on {target!r}")


def set_mount_attributes(target: str, *, add: int) -> None:
    """Have a mount and all below it allow less."""
    attributes = struct.pack("=QQQQ", add, 0, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR, AT_FDCWD, os.fsencode(target), AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))
    )
    _check_result(result, f"mount_setattr {target!r}")


def has_mount_trees() -> bool:
    """Whether the kernel mounts what is opened, not only what is named: Linux 5.12, and filters of containers."""
    for words in ((_OPEN_TREE, -1, b"", AT_EMPTY_PATH), (_MOUNT_SETATTR, -1, b"", 0, None, ctypes.c_size_t(0))):
        _libc.syscall(*words)  # wrong for every kernel, but only one that has it says how
        if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
            return False
    return True


def mount_over(target: int, source: int, *, add: int = 0) -> None:
    """Mount what is opened as ``source`` on what is opened as ``target``, which may be the same.

    What is mounted on can be neither renamed nor removed; a link with itself on top is followed as ever.
    """
    attach_mount_tree(target, clone_mount_tree(source), add=add)


def clone_mount_tree(source: int) -> int:
    """Return the mounts of what is opened, and of all below it, as they are now, to be mounted once more."""
    flags = OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH | os.O_CLOEXEC
    return _check_result(_libc.syscall(_OPEN_TREE, source, b"", flags), "open_tree")


def attach_mount_tree(target: int, tree: int, *, add: int = 0) -> None:
    """Mount such a copy on what is opened as ``target``, and close it."""
    try:
        if add:
            attributes = struct.pack("=QQQQ", add, 0, 0, 0)
            size, below = ctypes.c_size_t(len(attributes)), AT_EMPTY_PATH | AT_RECURSIVE
            _check_result(_libc.syscall(_MOUNT_SETATTR, tree, b"", below, attributes, size), "mount_setattr")
        _check_result(_libc.syscall(_MOVE_MOUNT, tree, b"", target, b"", MOVE_MOUNT_EMPTY_PATHS), "move_mount")
    finally:
        os.close(tree)


def open_link_itself(path: str, flags: int) -> int:
    """Open what is at an absolute path, the link itself if it is one; no link leads there."""
    folder, _, name = path.rpartition("/")
    at = open_without_links(folder or "/", os.O_PATH | os.O_DIRECTORY)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path that has no link in it; ``OSError`` if it has one."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    result = _libc.syscall(_OPENAT2, AT_FDCWD, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if result < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):  # old kernels, and filters of containers
        return open_without_links_by_steps(path, flags)
    return _check_result(result, f"open {path!r}")


def open_without_links_by_steps(path: str, flags: int) -> int:
    """Open an absolute path that has no link in it, name by name; for systems that cannot see to it themselves."""
    names = [name for name in path.split("/") if name]
    at = os.open("/", (flags if not names else os.O_PATH) | os.O_CLOEXEC)
    for number, name in enumerate(names, 1):
        wanted = (flags if number == len(names) else os.O_PATH) | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            opened = os.open(name, wanted, dir_fd=at)
        finally:
            os.close(at)
        at = opened
        if stat.S_ISLNK(os.fstat(at).st_mode):  # it became one since
            os.close(at)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return at


def move_fd_up(descriptor: int) -> int:
    """Return the same file at a number that no program expects, and close the old one."""
    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_PRIVATE_FD)
    os.close(descriptor)
    return found


def list_open_fds() -> frozenset[int]:
    """Return what is open in this process."""
    with os.scandir("/proc/self/fd") as entries:
        found = {int(entry.name) for entry in entries}
    return frozenset(number for number in found if _is_open(number))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:  # the one that the others were listed with
        return False
    return True


def landlock_abi_version() -> int:
    """Return which version of Landlock the kernel has, 0 if it has none."""
    return max(int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)), 0)


def create_landlock_ruleset(files: int, ports: int, scopes: int, abi: int) -> int:
    """Return a descriptor of rules that deny all that is named."""
    attributes = struct.pack("=QQQ", files, ports, scopes)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    result = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    return _check_result(result, "landlock_create_ruleset")


def add_landlock_rule(ruleset: int, access: int, descriptor: int) -> None:
    """Allow ``access`` to the file or below the folder."""
    _check_result(
        _libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", access, descriptor), 0), "landlock_add_rule"
    )


def enforce_landlock_ruleset(ruleset: int) -> None:
    """Hold this process and all it starts to the rules, for ever."""
    _check_result(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_seccomp_filter(program: bytes) -> None:
    """Have every system call of this process and of all it starts filtered, for ever."""
    described = _FilterProgram(len(program) // 8, program)
    _check_result(_libc.syscall(_SECCOMP[ARCHITECTURE], 1, 0, ctypes.byref(described)), "seccomp")


def drop_capabilities(keep: Iterable[int] = ()) -> None:
    """Give up every privilege of root but those to keep, also for programs that would bring them back."""
    kept = frozenset(keep)
    for number in range(_LAST_CAPABILITY + 1):
        if number not in kept:
            _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)  # fails for those that do not exist
    bits = sum(1 << number for number in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    header = struct.pack("=Ii", 0x20080522, 0)
    sets = struct.pack("=IIIIII", low, low, 0, high, high, 0)
    _check_result(_libc.syscall(_CAPSET[ARCHITECTURE], header, sets), "capset")
