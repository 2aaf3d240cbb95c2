"""What every tree asks of its callers."""

from vaka.core.types.errors import FileChanged, FileError, InvalidInput
from vaka.core.types.ids import Digest
from vaka.files.names import shown

LARGEST = 256 * 1024**2
"""Bytes that one read returns at most; larger files are read by ranges."""


def check_range(start: int, size: int | None) -> None:
    """Raise ``InvalidInput`` for a range that cannot be."""
    if start < 0 or (size is not None and size < 0):
        raise InvalidInput(f"start and size are at least 0, not {start!r} and {size!r}")


def check_write(path: str, known: Digest | None, *, new: bool) -> None:
    """Raise ``InvalidInput`` for a write that says two things."""
    if new and known is not None:
        raise InvalidInput(f"{shown(path)}: either there is nothing yet (new) or something is known of it, not both")


def check_size(path: str, left: int, size: int | None) -> int:
    """Return how many bytes to read of ``left``. Raises ``FileError`` when they are too many for one read."""
    wanted = max(left, 0) if size is None else max(min(left, size), 0)
    if wanted > LARGEST:
        raise FileError(f"{shown(path)}: {wanted} bytes are too many for one read; read ranges of at most {LARGEST}")
    return wanted


def check_known(path: str, current: Digest | None, known: Digest | None, *, new: bool) -> None:
    """Raise ``FileChanged`` when what is there is not what the caller knew; ``current`` is ``None`` for nothing."""
    if new and current is not None:
        raise FileChanged(f"{shown(path)} exists already; expected nothing there")
    if known is None:
        return
    if current is None:
        raise FileChanged(f"{shown(path)} is no longer there; it was when it was read")
    if current != known:
        raise FileChanged(f"{shown(path)} has changed since it was read; read it again")


def is_folder(path: str) -> FileError:
    """Return the error for a folder where a file is wanted."""
    return FileError(f"{shown(path)} is a folder, not a file")


def is_file(path: str) -> FileError:
    """Return the error for a file where a folder is wanted."""
    return FileError(f"{shown(path)} is a file, not a folder")
