"""What the operating system says, in our words."""

import errno
from collections.abc import Generator
from contextlib import contextmanager

from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.files.names import shown

_MISSING = {errno.ENOENT, errno.ENOTDIR}
_REFUSED = {
    errno.ELOOP: "goes through too many links",
    errno.EXDEV: "leaves the root",
    errno.ENAMETOOLONG: "has a name that is too long for this disk",
    errno.EILSEQ: "has a name that this disk cannot keep",
    errno.ENXIO: "is neither a regular file nor a folder",
}
_WORDS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "the system does not permit it",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk failed (input/output error)",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.EEXIST: "something is there already",
}


@contextmanager
def told(path: str) -> Generator[None]:
    """Turn what the system raises while working on ``path`` into a ``FileError`` that says it."""
    try:
        yield
    except OSError as error:
        raise problem(path, error) from error


def problem(path: str, error: OSError) -> FileError:
    """Return the error for what the system said about ``path``."""
    number = error.errno or 0
    if number in _MISSING:
        return FileMissing(f"{shown(path)}: there is no such file or folder")
    if number in _REFUSED:
        return FileRefused(f"{shown(path)} {_REFUSED[number]}")
    return FileError(f"{shown(path)}: {_WORDS.get(number) or error.strerror or error}")
