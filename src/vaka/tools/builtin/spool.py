"""What a command prints, kept in order: first in memory, then in a file that nobody else can open."""

import asyncio
import os
import tempfile
from pathlib import Path

from vaka.core.types.errors import InvalidInput

MEMORY = 256 * 1024
"""Bytes of one command kept in memory; commands that print no more never touch the disk."""
LAST = 64 * 1024
"""Bytes of the end that are kept in any case."""
QUOTA = 4 * 1024**3
_FOLDERS = (Path("/var/tmp"),)  # noqa: S108  # more likely to be a disk than /tmp; a folder of our own is made in it


class Store:
    """Where the files of one runtime lie, and how much there may be in them."""

    def __init__(self, folder: str | Path | None = None, *, quota: int = QUOTA) -> None:
        if quota < 0:
            raise InvalidInput(f"quota {quota!r} must not be below zero")
        self._folder, self._left = folder, quota

    def take(self, size: int) -> bool:
        """Claim room; false when there is none left."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Give room back."""
        self._left += size

    def open(self) -> int:
        """Return a new file that has no name any more: it is gone with whoever holds it, however that ends."""
        folder = Path(tempfile.mkdtemp(prefix="vaka-", dir=self._folder or _disk()))  # 0700, a name nobody guesses
        path = folder / "output"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            path.unlink()
        finally:
            folder.rmdir()
        return descriptor


class Spool:
    """The bytes of one command, valid UTF-8. One writes, anyone reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory = bytearray()
        self._file = -1
        self._written = 0
        self._last = bytearray()
        self._lock = asyncio.Lock()
        self._closed = False
        self.size = 0
        """Bytes that can be read."""
        self.characters = 0
        """Characters that were printed."""
        self.lost = 0
        """Bytes after them for which there was no room."""
        self.trouble = ""
        """Why there was none."""

    async def add(self, text: str) -> None:
        """Take what is printed next."""
        data = text.encode()
        self.characters += len(text)
        if not self.trouble and not self._store.take(len(data)):
            self.trouble = "there is no room for more"
        if self.trouble or self._closed:
            self._drop(data)
            return
        self._memory += data
        self.size += len(data)
        if len(self._memory) > MEMORY:
            async with self._lock:
                await asyncio.to_thread(self._flush)

    async def read(self, start: int, size: int) -> bytes:
        """Return bytes from ``start`` on, at most ``size``, as far as there are any."""
        async with self._lock:
            end = min(start + size, self.size)
            if start >= end or self._closed:
                return b""
            data = b""
            if start < self._written:
                data = await asyncio.to_thread(_pread, self._file, start, min(end, self._written) - start)
            at = start + len(data)
            return data + bytes(self._memory[at - self._written : end - self._written]) if at < end else data

    def last(self) -> bytes:
        """Return the end of what there was no room for."""
        return bytes(self._last)

    async def close(self) -> None:
        """Forget everything."""
        async with self._lock:
            if self._closed:
                return
            self._closed = True
            self._store.give(self.size)
            self._memory.clear()
            self._last.clear()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _drop(self, data: bytes) -> None:
        self.lost += len(data)
        self._last += data
        if len(self._last) > 2 * LAST:
            del self._last[:-LAST]

    def _flush(self) -> None:
        """Write what is in memory to the file; what has no room there counts as lost."""
        if self._closed:
            return
        try:
            if self._file < 0:
                self._file = self._store.open()
            while self._memory:
                count = os.write(self._file, self._memory)
                del self._memory[:count]
                self._written += count
        except OSError as error:
            self.trouble = f"it cannot be kept: {error.strerror}"
            rest = len(self._memory)
            self._store.give(rest)
            self.size -= rest
            self._drop(bytes(self._memory))
            self._memory.clear()


def _pread(descriptor: int, start: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, size, start)):
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces)


def _disk() -> str | None:
    return next((str(folder) for folder in _FOLDERS if os.access(folder, os.W_OK | os.X_OK)), None)
