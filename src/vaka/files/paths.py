"""Names and paths of files, the checks of arguments and the errors, the same for every tree."""

import errno
import os
import sys
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from vaka.core.types.errors import FileChanged, FileError, FileMissing, FileRefused, InvalidInput
from vaka.core.types.ids import Digest

MAX_NAME_BYTES = 255
"""The limit of most file systems."""
MAX_PATH_BYTES = 4095
"""The limit of the kernel for a whole path."""
_LISTS_AS_UTF_8 = sys.getfilesystemencoding() == "utf-8" and sys.getfilesystemencodeerrors() == "surrogateescape"


def quote_path(path: str) -> str:
    """Return a path for messages: quoted, escaped and shortened."""
    return repr(path) if len(path) <= 300 else f"{path[:200]!r}… ({len(path)} characters)"


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names from the root to ``path``, none for the root itself.

    ``..`` removes the name before it, even if that is a link: the path that rules were applied to is the path that is
    opened. Raises ``FileRefused`` for a path that leaves the root or is not valid.
    """
    if path.startswith("/"):
        raise FileRefused(f"{quote_path(path)} is absolute; expected a path relative to the root of this tree")
    parts = names_of(path)
    if parts is None:
        raise FileRefused(f"{quote_path(path)} leaves the root")
    return parts


def names_of(path: str) -> tuple[str, ...] | None:
    """Return the names of a relative or absolute path, ``None`` if ``..`` leads above its start."""
    if "\0" in path:
        raise FileRefused(f"{quote_path(path)} contains a NUL, not allowed in file names")
    parts: list[str] = []
    for name in path.split("/"):
        if name == "..":
            if not parts:
                return None
            parts.pop()
        elif name and name != ".":
            parts.append(name)
    if len(encode_name(path)) > MAX_PATH_BYTES:
        raise FileRefused(f"{quote_path(path)} is too long: at most {MAX_PATH_BYTES} bytes")
    return tuple(_check_name(name) for name in parts)


def encode_name(name: str) -> bytes:
    """Return the bytes of a name; bytes that are not UTF-8 are lone surrogates in it (``surrogateescape``)."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise FileRefused(f"{quote_path(name)} contains a lone surrogate, not allowed in file names") from error


def decode_name(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def normalize_listed_name(name: str) -> str:
    """Return a name as listed by ``os``, decoded as UTF-8 whatever the locale."""
    return name if _LISTS_AS_UTF_8 or name.isascii() else decode_name(os.fsencode(name))


def join_names(parts: Sequence[str]) -> str:
    return "/".join(parts)


def child_path(folder: str, name: str) -> str:
    if not folder or folder.endswith("/"):
        return folder + name
    return f"{folder}/{name}"


def fold_name(name: str) -> str:
    """Return one spelling for all names that some file system treats as the same.

    Case, composed and decomposed letters, invisible characters and trailing dots and blanks make no difference.
    """
    if name.isascii():
        return name.lower().rstrip(". ") or name
    visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold()).rstrip(". ") or name


def _check_name(name: str) -> str:
    if name.isascii():
        size = len(name)
    else:
        data = encode_name(name)
        size, name = len(data), decode_name(data)  # one spelling for each sequence of bytes
    if size > MAX_NAME_BYTES:
        raise FileRefused(f"the name {quote_path(name)} is too long: {size} bytes, at most {MAX_NAME_BYTES}")
    return name


_MESSAGES: dict[int, tuple[type[FileError], str]] = {
    errno.ENOENT: (FileMissing, ": there is no such file or folder"),
    errno.ENOTDIR: (FileMissing, ": there is no such file or folder"),
    errno.ELOOP: (FileRefused, " goes through too many links"),
    errno.EXDEV: (FileRefused, " leaves the root"),
    errno.ENAMETOOLONG: (FileRefused, " has a name that is too long for this disk"),
    errno.EILSEQ: (FileRefused, " has a name that this disk cannot store"),
    errno.ENXIO: (FileRefused, " is neither a regular file nor a folder"),
    errno.EACCES: (FileError, ": permission denied"),
    errno.EPERM: (FileError, ": the system does not permit it"),
    errno.ENOSPC: (FileError, ": the disk is full"),
    errno.EDQUOT: (FileError, ": the quota of the disk is used up"),
    errno.EROFS: (FileError, ": the disk is read-only"),
    errno.EIO: (FileError, ": the disk failed (input/output error)"),
    errno.EISDIR: (FileError, ": is a folder, not a file"),
    errno.ENOTEMPTY: (FileError, ": the folder is not empty"),
    errno.EEXIST: (FileError, ": something is there already"),
}


@contextmanager
def translate_os_errors(path: str) -> Generator[None]:
    """Raise an ``OSError`` about ``path`` as a ``FileError``."""
    try:
        yield
    except OSError as error:
        kind, text = _MESSAGES.get(error.errno or 0, (FileError, f": {error.strerror or error}"))
        raise kind(quote_path(path) + text) from error


@contextmanager
def name_tree_in_errors(tree: str) -> Generator[None]:
    """Name a tree in its errors, whose messages have the path inside it; ``""`` is the main tree, not named."""
    try:
        yield
    except FileError as error:
        if not tree:
            raise
        raise type(error)(f"in {quote_path(tree)}: {error}") from error


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


def missing_error(path: str) -> FileMissing:
    return FileMissing(f"{quote_path(path)}: there is no such file or folder")


def blocked_folder_error(path: str) -> FileError:
    return FileError(f"{quote_path(path)} is not a folder, so nothing can be written into it")


def deletable_parts_of(path: str) -> tuple[str, ...]:
    """Return the names from the root to ``path``. Raises ``FileRefused`` for the root itself."""
    if parts := parts_of(path):
        return parts
    raise FileRefused("the root itself cannot be deleted")
