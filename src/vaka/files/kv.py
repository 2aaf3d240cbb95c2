"""A tree of files in a key-value store: each file is a value, large ones several; folders are implied by paths.

::

    files/n/<path>          {"size", "modified", "digest", "data"} or {…, "parts", "id"}
    files/d/<id>/<number>   a part of the bytes, as base64; the id begins with the path
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import Corrupt, FileError
from vaka.core.types.ids import JSON, Digest
from vaka.files import paths
from vaka.files.walk import WalkMethod

PART_BYTES = 192 * 1024
"""Bytes in one value: 256 KiB as base64."""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


class _FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value stored under the path of a file."""

    size: int
    modified: int
    digest: Digest
    data: str = ""
    parts: int = 0
    id: str = ""


class KeyValueFiles(WalkMethod):
    """Files in a ``KeyValueStore``, below a prefix.

    A file is replaced in one step, so a reader sees the old or the new content, never a mixture. ``known`` and ``new``
    also hold against writers in other processes.
    """

    root = ""

    def __init__(self, values: KeyValueStore, *, prefix: str = "files/", now: Callable[[], int] = time.time_ns) -> None:
        self._values = values
        self._prefix = prefix
        self._now = now
        self._write_lock = asyncio.Lock()

    async def stat(self, path: str) -> FileInfo:
        parts = paths.parts_of(path)
        if head := await self._load_record(parts):
            return _info_of(paths.join_names(parts), head)
        if parts and not await self._keys_beneath(parts):
            raise paths.missing_error(path)
        return FileInfo(path=paths.join_names(parts), kind="folder", mode=_FOLDER_MODE)

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name."""
        parts = paths.parts_of(path)
        if await self._load_record(parts):
            raise paths.not_a_folder_error(path)
        keys = await self._keys_beneath(parts)
        if parts and not keys:
            raise paths.missing_error(path)
        names: dict[str, bool] = {}
        for name, _, rest in (_decode_key(key).partition("/") for key in keys):
            names[name] = names.get(name, False) or bool(rest)
        found: list[FileInfo] = []
        for name, is_folder in sorted(names.items()):
            inner = paths.join_names((*parts, name))
            if is_folder:
                found.append(FileInfo(path=inner, kind="folder", mode=_FOLDER_MODE))
            elif head := await self._load_record((*parts, name)):
                found.append(_info_of(inner, head))
        return found

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on; only the parts that contain them are loaded."""
        paths.check_range(start, size)
        parts = paths.parts_of(path)
        while True:
            head = await self._load_record(parts)
            if head is None:
                info = await self.stat(path)
                raise paths.not_a_file_error(info.path)
            wanted = paths.check_size(path, head.size - start, size)
            data = await self._read_range(parts, head, start, wanted)
            if data is not None:
                return FileBytes(data=data, info=_info_of(paths.join_names(parts), head))
            if await self._load_record(parts) == head:
                raise Corrupt(f"file {paths.quote_path(path)}: a part of it is missing")

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file atomically."""
        paths.check_write(path, known, new=new)
        parts = paths.parts_of(path)
        async with self._write_lock:
            old = await self._load_writable(path, parts, known, new=new)
            head = await self._store_parts(parts, bytes(data))
            value, key = msgspec.to_builtins(head), self._key_of(parts)
            while not await self._values.compare_and_set(key, old, value):
                try:
                    old = await self._load_writable(path, parts, known, new=new)
                except FileError:
                    await self._delete_parts(head)
                    raise
            await self._delete_parts(_decode_record(path, old))
        return _info_of(paths.join_names(parts), head)

    async def delete(self, path: str) -> None:
        """Remove a file; a folder disappears with its last file."""
        parts = paths.deletable_parts_of(path)
        async with self._write_lock:
            key, old = self._key_of(parts), None
            while old is None or not await self._values.compare_and_set(key, old, None):
                old = await self._values.get(key)
                if old is None:
                    await self.stat(path)
                    raise FileError(f"{paths.quote_path(path)}: the folder is not empty")
            await self._delete_parts(_decode_record(path, old))

    async def erase(self, folder: str, *, dry_run: bool = False) -> int:
        """Delete a folder with all its files, damaged files too, or with ``dry_run`` only count them; return how many.

        The parts of a file are deleted before its record, so that a second call completes an interrupted call. Parts
        that killed writers have left are deleted too.
        """
        parts = paths.deletable_parts_of(folder)
        async with self._write_lock:
            keys = await self._values.keys(paths.child_path(self._key_of(parts), ""))
            if dry_run:
                return len(keys)
            for key in keys:
                with suppress(Corrupt):
                    await self._delete_parts(_decode_record(key, await self._values.get(key)))
                await self._values.put(key, None)
            for key in await self._values.keys(f"{self._prefix}d/{_encode_key(paths.join_names(parts))}/"):
                await self._values.put(key, None)
        return len(keys)

    async def remove_unused_parts(self) -> int:
        """Remove parts that no file uses, left by killed writers; only while no other process writes."""
        async with self._write_lock:
            used: set[str] = set()
            for key in await self._values.keys(f"{self._prefix}n/"):
                head = _decode_record(key, await self._values.get(key))
                used.add(head.id if head else "")
            start = f"{self._prefix}d/"
            unused = [key for key in await self._values.keys(start) if key[len(start) :].rpartition("/")[0] not in used]
            for key in unused:
                await self._values.put(key, None)
        return len(unused)

    async def _load_writable(self, path: str, parts: Sequence[str], known: Digest | None, *, new: bool) -> JSON:
        """Return the stored value of a file that may be replaced, ``None`` where one may be made."""
        value = await self._values.get(self._key_of(parts)) if parts else None
        if value is None and (not parts or await self._keys_beneath(parts)):
            raise paths.not_a_file_error(path)
        for depth in range(1, len(parts)):
            if await self._load_record(parts[:depth]):
                raise paths.blocked_folder_error(paths.join_names(parts[:depth]))
        old = _decode_record(path, value)
        paths.check_unchanged(path, old.digest if old else None, known, new=new)
        return value

    def _key_of(self, parts: Sequence[str]) -> str:
        return f"{self._prefix}n/{_encode_key(paths.join_names(parts))}"

    def _part_key_of(self, record: _FileRecord, number: int) -> str:
        return f"{self._prefix}d/{record.id}/{number}"

    async def _load_record(self, parts: Sequence[str]) -> _FileRecord | None:
        return _decode_record(paths.join_names(parts), await self._values.get(self._key_of(parts))) if parts else None

    async def _keys_beneath(self, parts: Sequence[str]) -> list[str]:
        """Return the keys of the files below a folder, relative to it."""
        start = paths.child_path(self._key_of(parts), "") if parts else f"{self._prefix}n/"
        return [key[len(start) :] for key in await self._values.keys(start)]

    async def _store_parts(self, parts: Sequence[str], data: bytes) -> _FileRecord:
        """Store the parts of a large file; return the record for its path."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        head = _FileRecord(size=len(data), modified=self._now(), digest=digest)
        if len(data) <= PART_BYTES:
            return msgspec.structs.replace(head, data=base64.b64encode(data).decode())
        pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        id = f"{_encode_key(paths.join_names(parts))}/{secrets.token_hex(16)}"
        head = msgspec.structs.replace(head, parts=len(pieces), id=id)
        for number, piece in enumerate(pieces):
            await self._values.put(self._part_key_of(head, number), base64.b64encode(piece).decode())
        return head

    async def _delete_parts(self, record: _FileRecord | None) -> None:
        if record is not None:
            for number in range(record.parts):
                await self._values.put(self._part_key_of(record, number), None)

    async def _read_range(self, parts: Sequence[str], record: _FileRecord, start: int, size: int) -> bytes | None:
        """Return the bytes, ``None`` if a part is missing because the file was replaced meanwhile."""
        if not record.parts:
            return _decode_part(parts, record.data)[start : start + size]
        first, last = start // PART_BYTES, (start + size - 1) // PART_BYTES
        found: list[bytes] = []
        for number in range(first, last + 1) if size else ():
            piece = await self._values.get(self._part_key_of(record, number))
            if piece is None:
                return None
            found.append(_decode_part(parts, piece))
        return b"".join(found)[start - first * PART_BYTES :][:size]


def _info_of(path: str, record: _FileRecord) -> FileInfo:
    return FileInfo(path=path, kind="file", size=record.size, modified=record.modified, mode=_FILE_MODE)


def _decode_record(path: str, value: JSON) -> _FileRecord | None:
    try:
        return None if value is None else msgspec.convert(value, _FileRecord)
    except msgspec.ValidationError as error:
        raise Corrupt(f"file {paths.quote_path(path)}: its record is not valid: {error}") from error


def _decode_part(parts: Sequence[str], value: JSON) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Corrupt(f"file {paths.quote_path(paths.join_names(parts))}: a part of it is not valid base64") from error


def _encode_key(path: str) -> str:
    """Return a path as a key that every store accepts: bytes that are not UTF-8 become ``%FF``."""
    if path.isascii():
        return path.replace("%", "%25")
    escaped = paths.encode_name(path).replace(b"%", b"%25").decode("utf-8", "surrogateescape")
    return "".join(f"%{ord(letter) - 0xDC00:02X}" if "\udc80" <= letter <= "\udcff" else letter for letter in escaped)


def _decode_key(key: str) -> str:
    if "%" not in key:
        return key
    pieces = key.encode().split(b"%")
    return b"".join((pieces[0], *(bytes([int(piece[:2], 16)]) + piece[2:] for piece in pieces[1:]))).decode(
        "utf-8", "surrogateescape"
    )
