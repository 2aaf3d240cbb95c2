"""A tree of files in a key-value store: each file a value, large ones several, folders by implication.

::

    files/n/<path>          {"size", "modified", "digest", "data"} or {…, "parts", "id"}
    files/d/<id>/<number>   a part of the bytes, as base64
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.ports.store import KeyValue
from vaka.core.types.errors import Corrupt, FileError, FileMissing, FileRefused
from vaka.core.types.ids import JSON, Digest
from vaka.files.checks import check_known, check_range, check_size, check_write, is_file, is_folder
from vaka.files.names import below, join, parts_of, raw, shown
from vaka.files.walk import walk

PART = 192 * 1024
"""Bytes in one value; as base64 they are a quarter of a megabyte."""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


class _Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a file under its name."""

    size: int
    modified: int
    digest: Digest
    data: str = ""
    parts: int = 0
    id: str = ""


class KeyValueFiles:
    """Files in a ``KeyValue``, below a prefix.

    A file is replaced in one put, so a reader sees it whole, old or new. The store has no way to compare and set:
    ``known`` and ``new`` hold against everybody who writes through this object, not against other processes.
    """

    root = ""

    def __init__(self, values: KeyValue, *, prefix: str = "files/", now: Callable[[], int] = time.time_ns) -> None:
        self._values, self._prefix, self._now = values, prefix, now
        self._writing = asyncio.Lock()

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names."""
        parts = parts_of(path)
        if head := await self._head(parts):
            return _file(join(parts), head)
        if parts and not await self._beneath(parts):
            raise FileMissing(f"{shown(path)}: there is no such file or folder")
        return FileInfo(path=join(parts), kind="folder", mode=_FOLDER_MODE)

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name."""
        parts = parts_of(path)
        if await self._head(parts):
            raise is_file(path)
        keys = await self._beneath(parts)
        if parts and not keys:
            raise FileMissing(f"{shown(path)}: there is no such file or folder")
        names: dict[str, bool] = {}
        for name, _, rest in (_read_key(key).partition("/") for key in keys):
            names[name] = names.get(name, False) or bool(rest)
        found = [await self._entry((*parts, name), folder=folder) for name, folder in sorted(names.items())]
        return [info for info in found if info]

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``; only the parts that hold them are loaded."""
        check_range(start, size)
        parts = parts_of(path)
        while True:
            head = await self._head(parts)
            if head is None:
                info = await self.stat(path)
                raise is_folder(info.path)
            wanted = check_size(path, head.size - start, size)
            data = await self._bytes(parts, head, start, wanted)
            if data is not None:
                return FileBytes(data=data, info=_file(join(parts), head))
            if await self._head(parts) == head:
                raise Corrupt(f"file {shown(path)}: a part of it is not there")

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole or not at all."""
        check_write(path, known, new=new)
        parts = parts_of(path)
        async with self._writing:
            old = await self._head(parts)
            if old is None and (not parts or await self._beneath(parts)):
                raise is_folder(path)
            for depth in range(1, len(parts)):
                if await self._head(parts[:depth]):
                    blocking = shown(join(parts[:depth]))
                    raise FileError(f"{blocking} is not a folder, so nothing can be put into it")
            check_known(path, old.digest if old else None, known, new=new)
            head = await self._keep(bytes(data))
            await self._values.put(self._key(parts), msgspec.to_builtins(head))
            await self._forget(old)
        return _file(join(parts), head)

    async def delete(self, path: str) -> None:
        """Remove a file; a folder goes with its last file."""
        parts = parts_of(path)
        if not parts:
            raise FileRefused("the root itself is not deleted")
        async with self._writing:
            old = await self._head(parts)
            if old is None:
                await self.stat(path)
                raise FileError(f"{shown(path)}: the folder is not empty")
            await self._values.put(self._key(parts), None)
            await self._forget(old)

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    async def sweep(self) -> int:
        """Remove parts that no file has, left by writers that were killed; only when nobody else writes."""
        async with self._writing:
            used: set[str] = set()
            for key in await self._values.keys(f"{self._prefix}n/"):
                head = _read_head(key, await self._values.get(key))
                used.add(head.id if head else "")
            start = f"{self._prefix}d/"
            unused = [key for key in await self._values.keys(start) if key[len(start) :].partition("/")[0] not in used]
            for key in unused:
                await self._values.put(key, None)
        return len(unused)

    def _key(self, parts: Sequence[str]) -> str:
        return f"{self._prefix}n/{_write_key(join(parts))}"

    def _part(self, head: _Head, number: int) -> str:
        return f"{self._prefix}d/{head.id}/{number}"

    async def _head(self, parts: Sequence[str]) -> _Head | None:
        return _read_head(join(parts), await self._values.get(self._key(parts))) if parts else None

    async def _beneath(self, parts: Sequence[str]) -> list[str]:
        """Return the keys of the files below a folder, without its own."""
        start = below(self._key(parts), "") if parts else f"{self._prefix}n/"
        return [key[len(start) :] for key in await self._values.keys(start)]

    async def _entry(self, parts: Sequence[str], *, folder: bool) -> FileInfo | None:
        if folder:
            return FileInfo(path=join(parts), kind="folder", mode=_FOLDER_MODE)
        head = await self._head(parts)
        return _file(join(parts), head) if head else None

    async def _keep(self, data: bytes) -> _Head:
        """Keep the bytes where no name leads yet; return what to keep under the name."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        if len(data) <= PART:
            return _Head(size=len(data), modified=self._now(), digest=digest, data=base64.b64encode(data).decode())
        pieces = list(_pieces(data))
        head = _Head(
            size=len(data), modified=self._now(), digest=digest, parts=len(pieces), id=secrets.token_hex(16)
        )  # fmt: skip
        for number, piece in enumerate(pieces):
            await self._values.put(self._part(head, number), base64.b64encode(piece).decode())
        return head

    async def _forget(self, head: _Head | None) -> None:
        if head is None:
            return
        for number in range(head.parts):
            await self._values.put(self._part(head, number), None)

    async def _bytes(self, parts: Sequence[str], head: _Head, start: int, size: int) -> bytes | None:
        """Return the bytes, ``None`` when a part is gone since somebody has replaced the file."""
        if not head.parts:
            return _decode(parts, head.data)[start : start + size]
        first, last = start // PART, (start + size - 1) // PART
        found: list[bytes] = []
        for number in range(first, last + 1) if size else ():
            piece = await self._values.get(self._part(head, number))
            if piece is None:
                return None
            found.append(_decode(parts, piece))
        return b"".join(found)[start - first * PART :][:size]


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PART] for at in range(0, len(data), PART))


def _file(path: str, head: _Head) -> FileInfo:
    return FileInfo(path=path, kind="file", size=head.size, modified=head.modified, mode=_FILE_MODE)


def _read_head(path: str, value: JSON) -> _Head | None:
    try:
        return None if value is None else msgspec.convert(value, _Head)
    except msgspec.ValidationError as error:
        raise Corrupt(f"file {shown(path)}: what is kept of it makes no sense: {error}") from error


def _decode(parts: Sequence[str], value: JSON) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Corrupt(f"file {shown(join(parts))}: its bytes are not what was written") from error


def _write_key(path: str) -> str:
    """Return a path as every store can keep it: bytes that are no UTF-8 are written as ``%FF``."""
    if path.isascii():
        return path.replace("%", "%25")
    escaped = raw(path).replace(b"%", b"%25").decode("utf-8", "surrogateescape")
    return "".join(f"%{ord(letter) - 0xDC00:02X}" if "\udc80" <= letter <= "\udcff" else letter for letter in escaped)


def _read_key(key: str) -> str:
    """Return the path that was written so."""
    if "%" not in key:
        return key
    pieces = key.encode().split(b"%")
    return b"".join((pieces[0], *(bytes([int(piece[:2], 16)]) + piece[2:] for piece in pieces[1:]))).decode(
        "utf-8", "surrogateescape"
    )
