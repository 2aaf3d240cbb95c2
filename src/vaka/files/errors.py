"""Argument checks shared by all trees, and operating-system errors as ``FileError``."""

import errno
from collections.abc import Generator
from contextlib import contextmanager

from vaka.core.types.errors import FileChanged, FileError, FileMissing, FileRefused, InvalidInput
from vaka.core.types.ids import Digest
from vaka.files.paths import quote_path

_MISSING_ERRNOS = {errno.ENOENT, errno.ENOTDIR}

_REFUSED_ERRNOS = {
    errno.ELOOP: "goes through too many links",
    errno.EXDEV: "leaves the root",
    errno.ENAMETOOLONG: "has a name that is too long for this disk",
    errno.EILSEQ: "has a name that this disk cannot store",
    errno.ENXIO: "is neither a regular file nor a folder",
}

_ERROR_MESSAGES = {
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
def translate_os_errors(path: str) -> Generator[None]:
    """Raise an ``OSError`` about ``path`` as a ``FileError``."""
    try:
        yield
    except OSError as error:
        raise as_file_error(path, error) from error


def as_file_error(path: str, error: OSError) -> FileError:
    number = error.errno or 0
    if number in _MISSING_ERRNOS:
        return FileMissing(f"{quote_path(path)}: there is no such file or folder")
    if number in _REFUSED_ERRNOS:
        return FileRefused(f"{quote_path(path)} {_REFUSED_ERRNOS[number]}")
    return FileError(f"{quote_path(path)}: {_ERROR_MESSAGES.get(number) or error.strerror or error}")


MAX_READ_BYTES = 256 * 1024**2
"""The largest read; larger files are read in ranges."""


def check_range(start: int, size: int | None) -> None:
    """Raise ``InvalidInput`` for a negative start or size."""
    if start < 0 or (size is not None and size < 0):
        raise InvalidInput(f"start is {start!r} and size is {size!r}; expected at least 0")


def check_write(path: str, known: Digest | None, *, new: bool) -> None:
    """Raise ``InvalidInput`` for a write with both ``known`` and ``new``."""
    if new and known is not None:
        raise InvalidInput(f"{quote_path(path)}: a write takes 'known' or 'new', not both")


def check_size(path: str, available: int, size: int | None) -> int:
    """Return how many of the available bytes to read. Raises ``FileError`` if they are too many for one read."""
    wanted = max(available, 0) if size is None else max(min(available, size), 0)
    if wanted > MAX_READ_BYTES:
        raise FileError(
            f"{quote_path(path)}: {wanted} bytes are too many for one read; read ranges of at most {MAX_READ_BYTES}"
        )
    return wanted


def check_unchanged(path: str, current: Digest | None, known: Digest | None, *, new: bool) -> None:
    """Raise ``FileChanged`` unless a file has the digest that the caller knows; ``current`` is ``None`` for no file."""
    if new and current is not None:
        raise FileChanged(f"{quote_path(path)} exists already; expected nothing there")
    if known is None:
        return
    if current is None:
        raise FileChanged(f"{quote_path(path)} is no longer there; it was when it was read")
    if current != known:
        raise FileChanged(f"{quote_path(path)} has changed since it was read; read it again")


def not_a_file_error(path: str) -> FileError:
    return FileError(f"{quote_path(path)} is a folder, not a file")


def not_a_folder_error(path: str) -> FileError:
    return FileError(f"{quote_path(path)} is a file, not a folder")
