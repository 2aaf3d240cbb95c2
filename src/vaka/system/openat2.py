"""Open and rename files relative to open folders: openat2, paths without symbolic links, renameat2."""

import ctypes
import errno
import os
import stat
import struct

from vaka.system.libc import libc

AT_FDCWD = -100
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_OPENAT2 = 437
"""The same number on every architecture that Python supports, except Alpha."""
_RENAME_NOREPLACE = 1


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path relative to an open folder with ``RESOLVE_*`` flags; the descriptor is not inheritable."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    while True:
        opened = libc().syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_long(folder), ctypes.c_char_p(path), how, ctypes.c_size_t(len(how))
        )
        if opened >= 0:
            return int(opened)
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path; ``OSError`` (ELOOP) if any component is a symbolic link."""
    try:
        return openat2(AT_FDCWD, os.fsencode(path), flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # old kernels, and seccomp filters of containers
            return open_without_links_by_steps(path, flags)
        raise OSError(error.errno, f"open {path!r}: {error.strerror}") from error


def open_without_links_by_steps(path: str, flags: int) -> int:
    """Do the same component by component, for systems without openat2."""
    names = [name for name in path.split("/") if name]
    folder = os.open("/", (flags if not names else os.O_PATH) | os.O_CLOEXEC)
    for number, name in enumerate(names, 1):
        name_flags = (flags if number == len(names) else os.O_PATH) | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            opened = os.open(name, name_flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = opened
        if stat.S_ISLNK(os.fstat(folder).st_mode):  # replaced by a link since the check
            os.close(folder)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return folder


def open_link_itself(path: str, flags: int) -> int:
    """Open an absolute path without following its last component; the folders above must not be links."""
    parent, _, name = path.rpartition("/")
    folder = open_without_links(parent or "/", os.O_PATH | os.O_DIRECTORY)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def rename_noreplace(folder: int, old: bytes, new: bytes) -> bool:
    """Rename inside a folder; ``FileExistsError`` if the new name is taken, ``False`` where this is not supported."""
    try:
        rename = libc().renameat2
    except (AttributeError, OSError):
        return False
    names = (ctypes.c_int(folder), ctypes.c_char_p(old), ctypes.c_int(folder), ctypes.c_char_p(new))
    if rename(*names, ctypes.c_uint(_RENAME_NOREPLACE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP}:
        return False
    raise OSError(number, os.strerror(number))
