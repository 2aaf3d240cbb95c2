"""Names and paths of files, parsed in the same way for every tree."""

import os
import sys
import unicodedata
from collections.abc import Sequence

from vaka.core.types.errors import FileRefused

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

    ``..`` removes the name before it, even if that is a link: the path that rules were applied to is the one that is
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
