"""Files that are not finished: each is locked by whoever writes it, so that those left behind by a crash are known."""

import errno
import os
import re
import secrets
import sys
from contextlib import suppress

if sys.platform != "win32":
    import fcntl

_NAME = re.compile(r"\.vaka-[0-9a-f]{16}\.tmp")
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_LOOK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TRIES = 64


def is_temporary(name: str) -> bool:
    """Tell whether a name is one of ours."""
    return _NAME.fullmatch(name) is not None


def create(folder: int, mode: int) -> tuple[bytes, int]:
    """Make an empty file in a folder and lock it; return its name and descriptor."""
    for _ in range(_TRIES):
        name = b".vaka-%s.tmp" % secrets.token_hex(8).encode()
        try:
            fd = os.open(name, _CREATE, mode, dir_fd=folder)
        except FileExistsError:
            continue
        if lock(fd) is not False and os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)  # somebody who sweeps took it for one that was left behind
    raise OSError(errno.EBUSY, "no temporary file could be made")


def sweep(folder: int) -> None:
    """Remove what writers that are no more left in a folder."""
    with suppress(OSError):  # one that cannot be listed is left alone: what is in it does no harm
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        try:
            with os.scandir(fd) as found:
                names = [os.fsencode(entry.name) for entry in found if is_temporary(entry.name) and _is_file(entry)]
        finally:
            os.close(fd)
        for name in names:
            with suppress(OSError):
                _remove(folder, name)


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _remove(folder: int, name: bytes) -> None:
    fd = os.open(name, _LOOK, dir_fd=folder)
    try:
        if lock(fd):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(fd)


def lock(fd: int) -> bool | None:
    """Lock an open file without waiting; false when somebody holds it, ``None`` where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in {errno.EWOULDBLOCK, errno.EACCES} else None
    return True
