"""The file of a backup: a line that names the format, compressed frames of records, and a checksum of all of it.

A frame is its length (4 bytes, the highest first) and so many bytes of zlib. The line is ``vaka backup 1``. The first
frame is a ``BackupHeader`` as MessagePack, the last one ``BackupCounts``, each of the others a list of records. After
them come 4 zero bytes, and the SHA-256 of all bytes before it.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from vaka.core.ports.backup import BackupCounts, BackupRecord, SavedBlob, SavedEvents
from vaka.core.types.errors import AlreadyExists, Busy, CannotOpen, Corrupt, InvalidInput, NotFound, TooNew

T = TypeVar("T")

FORMAT = 1

_MAGIC = b"vaka backup "
_MAX_FRAME = 1 << 31
_FRAME_BYTES = 1 << 20
_RECORD_BYTES = 64
"""About the bytes of the names in a record."""
_DIGEST_BYTES = 32
_LEVEL = 3
"""The level of compression: 6 takes twice the time for 5% fewer bytes."""


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a backup."""

    made: str
    """When it was begun (RFC 3339)."""
    vaka: str
    """The version of vaka that wrote it."""
    store: str
    """The kind of store: ``sqlite`` or ``postgresql``."""


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(BackupHeader).decode
_decode_counts = msgspec.msgpack.Decoder(BackupCounts).decode
_decode_records = msgspec.msgpack.Decoder(list[BackupRecord]).decode


class BackupWriter:
    """Writes a backup under a temporary name; ``finish`` gives it its own. Only this user may read it."""

    def __init__(self, path: Path, header: BackupHeader, *, overwrite: bool) -> None:
        self._path, self._overwrite = path, overwrite
        if not overwrite and path.exists():
            raise _exists(path)
        self._part = path.with_name(f"{path.name}.part")
        self._file = _open_part(self._part)
        self._hash = hashlib.sha256()
        self._records: list[BackupRecord] = []
        self._size = 0
        self.counts = BackupCounts()
        self._write(b"%s%d\n" % (_MAGIC, FORMAT))
        self._write_frame(_encode(header))

    @staticmethod
    def is_large(record: BackupRecord) -> bool:
        """Return whether a record may have very many bytes."""
        return isinstance(record, SavedBlob | SavedEvents)

    def add_all(self, records: Sequence[BackupRecord]) -> None:
        """Add records."""
        for record in records:
            before = self.counts.bytes
            self.counts.add(record)
            self._records.append(record)
            self._size += self.counts.bytes - before + _RECORD_BYTES
            if self._size >= _FRAME_BYTES:
                self._flush()

    def finish(self) -> None:
        """Write the end, and give the file its name when all of it is on the disk."""
        self._flush()
        self._write_frame(_encode(self.counts))
        self._write(bytes(4))
        self._file.write(self._hash.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._overwrite:
            self._part.replace(self._path)
        else:
            _rename_to_new(self._part, self._path)
        _sync_folder(self._path.parent)
        self._file.close()

    def discard(self) -> None:
        """Remove what was written."""
        if not self._file.closed:
            self._part.unlink(missing_ok=True)
            self._file.close()

    def _flush(self) -> None:
        if self._records:
            self._write_frame(_encode(self._records))
            self._records, self._size = [], 0

    def _write_frame(self, data: bytes) -> None:
        packed = zlib.compress(data, _LEVEL)
        self._write(len(packed).to_bytes(4, "big"))
        self._write(packed)

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._file.write(data)


def _open_part(part: Path) -> BinaryIO:
    """Open the temporary file, also if a killed process left it. Raises ``Busy`` while another process writes it."""
    import fcntl  # noqa: PLC0415  # not on Windows, where vaka does not run

    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotOpen(f"the backup {str(part)!r} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Busy(f"another process writes {str(part)!r} now; try again when it has ended") from error
    os.fchmod(descriptor, 0o600)
    os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "wb")


def _rename_to_new(part: Path, path: Path) -> None:
    """Give a file a name that no other file has."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:  # a file system without hard links
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}:
            raise
        part.rename(path)
    else:
        part.unlink()


def _exists(path: Path) -> AlreadyExists:
    return AlreadyExists(f"there is a file {str(path)!r} already; choose another name, or give --force to replace it")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BackupReader:
    """Reads a backup. ``verify`` reads all of it first, so that a damaged one restores nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def verify(self) -> tuple[BackupHeader, BackupCounts]:
        """Return the header and the counts. Raises ``Corrupt``, and ``InvalidInput`` for a file that is no backup."""
        with self._open() as file:
            last = b""
            for frame in self._read_frames(file):
                last = frame
        return self._header, self._decode(_decode_counts, last)

    async def read(self) -> AsyncGenerator[BackupRecord]:
        """Yield the records."""
        with self._open() as file:
            frames = self._read_frames(file)
            frame = await asyncio.to_thread(next, frames, None)
            while (following := await asyncio.to_thread(next, frames, None)) is not None:
                for record in self._decode(_decode_records, frame or b""):
                    yield record
                frame = following

    @contextlib.contextmanager
    def _open(self) -> Generator[BinaryIO]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            raise NotFound(f"there is no file {str(self._path)!r}") from None
        except OSError as error:
            raise CannotOpen(f"the backup {str(self._path)!r} cannot be read: {error.strerror}") from error
        with file:
            yield file

    def _read_frames(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the frames after the header, and at the end check the digest."""
        first = file.readline(64)
        version = first[len(_MAGIC) : -1]
        if not first.startswith(_MAGIC) or not first.endswith(b"\n") or not version.isdigit():
            raise InvalidInput(f"{str(self._path)!r} is not a backup of vaka; `vaka store backup` writes one")
        if int(version) != FORMAT:
            raise TooNew(
                f"the backup {str(self._path)!r} has format {int(version)}, this vaka knows {FORMAT}: install a newer "
                f"vaka"
            )
        digest = hashlib.sha256(first)
        is_header = True
        while True:
            prefix = self._read(file, 4)
            digest.update(prefix)
            length = int.from_bytes(prefix, "big")
            if not length:
                break
            packed = self._read(file, length)
            digest.update(packed)
            try:
                frame = zlib.decompress(packed)
            except zlib.error as error:
                raise self._damage_error(str(error)) from error
            if is_header:
                self._header, is_header = self._decode(_decode_header, frame), False
            else:
                yield frame
        if self._read(file, _DIGEST_BYTES) != digest.digest() or file.read(1):
            raise self._damage_error("its checksum does not match")

    def _read(self, file: BinaryIO, length: int) -> bytes:
        data = file.read(length) if length < _MAX_FRAME else b""
        if len(data) != length:
            raise self._damage_error("it ends too early")
        return data

    def _decode(self, decode: Callable[[bytes], T], frame: bytes) -> T:
        try:
            return decode(frame)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._damage_error(str(error)) from error

    def _damage_error(self, how: str) -> Corrupt:
        return Corrupt(f"the backup {str(self._path)!r} is damaged: {how}; nothing was restored")
