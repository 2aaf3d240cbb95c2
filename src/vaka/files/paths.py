"""Names and paths of files, parsed in the same way for every tree."""

import os
import sys
import unicodedata
from collections.abc import Sequence

from vaka.core.types.errors import FileRefused

MAX_NAME_BYTES = 255
"""Bytes of one name, as file systems have it."""
MAX_PATH_BYTES = 4095
"""Bytes of a whole path."""
_LISTS_AS_UTF_8 = sys.getfilesystemencoding() == "utf-8" and sys.getfilesystemencodeerrors() == "surrogateescape"


def quote_path(path: str) -> str:
    """Return a path as it can be told: quoted, escaped where nothing can print it, and not too long."""
    return repr(path) if len(path) <= 300 else f"{path[:200]!r}… ({len(path)} characters)"


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names on the way from the root to ``path``, none for the root itself.

    ``..`` takes back the name before it, whatever that is: the path that rules were asked about is the one that is
    opened. Raises ``FileRefused`` for a path that leaves the root or that can name nothing.
    """
    if path.startswith("/"):
        raise FileRefused(f"{quote_path(path)} is absolute; expected a path from the root of this tree")
    parts = names_of(path)
    if parts is None:
        raise FileRefused(f"{quote_path(path)} leaves the root")
    return parts


def names_of(path: str) -> tuple[str, ...] | None:
    """Return the names of a path whatever it begins with, ``None`` when it goes up further than it came down."""
    if "\0" in path:
        raise FileRefused(f"{quote_path(path)} has a NUL in it, which no name of a file has")
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
    """Return the bytes of a name; those that are no UTF-8 stand in it as lone surrogates (``surrogateescape``)."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise FileRefused(f"{quote_path(name)} has half a character in it, which no name of a file has") from error


def decode_name(data: bytes) -> str:
    """Return the name that these bytes are."""
    return data.decode("utf-8", "surrogateescape")


def normalize_listed_name(name: str) -> str:
    """Return a name as the system lists it, in our spelling."""
    return name if _LISTS_AS_UTF_8 or name.isascii() else decode_name(os.fsencode(name))


def join_names(parts: Sequence[str]) -> str:
    """Return the path of some names."""
    return "/".join(parts)


def child_path(folder: str, name: str) -> str:
    """Return the path of what a folder holds under a name."""
    if not folder or folder.endswith("/"):
        return folder + name
    return f"{folder}/{name}"


def fold_name(name: str) -> str:
    """Return what a name may be taken for by a file system that does not look closely.

    Upper and lower case, composed and decomposed letters, invisible characters, dots and blanks at the end.
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
        size, name = len(data), decode_name(data)  # one spelling for each name
    if size > MAX_NAME_BYTES:
        raise FileRefused(f"the name {quote_path(name)} is too long: {size} bytes, at most {MAX_NAME_BYTES}")
    return name
