"""Gzipped tar files, as strangers send them: bounded before anything is believed.

The standard library's reader follows every extension tar has had in forty years. A package needs plain files only, so
this one reads those and refuses the rest; nothing here touches the disk.
"""

import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.names import check_path, folded

_BLOCK = 512
_FILE, _OLD_FILE, _FOLDER, _EXTENDED, _GLOBAL, _LONG_NAME = b"0", b"\0", b"5", b"x", b"g", b"L"
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_LARGEST_HEADER = 16 * 1024
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]+)=")
_HARMLESS = re.compile("path|mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)[.].*")
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"  # no name, no time, no system: same input, same bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a package is read at most, in bytes and entries; what is beyond is an error."""

    packed: int = 8 * 1024 * 1024
    unpacked: int = 32 * 1024 * 1024
    entries: int = 2000


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: bytes
    data: bytes


def unpack(data: bytes, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Return the files of a gzipped tar, by path. Raises ``PackageError`` for anything but plain files inside."""
    files = Files(limits)
    for entry in _entries(_inflate(data, limits), limits):
        if entry.kind in {_FILE, _OLD_FILE}:
            files.add(entry.name.removeprefix("./"), entry.data)
        elif entry.kind == _FOLDER:
            _check_folder(entry)
        else:
            kind = _KINDS.get(entry.kind, f"of kind {entry.kind!r}")
            raise PackageError(f"archive: {shown(entry.name)} is {kind}; expected plain files only")
    return files.found


def pack_files(files: Mapping[str, bytes], limits: Limits = LIMITS) -> bytes:
    """Return a gzipped tar of files: the same files are the same bytes, whoever packs them and when."""
    checked = Files(limits)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            checked.add(path, files[path])
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    packed = _deflate(target.getvalue())
    if len(packed) > limits.packed:
        raise PackageError(f"archive: {len(packed)} bytes when packed; expected at most {limits.packed}")
    return packed


class Files:
    """Files gathered one by one, within limits, no two of which any system takes for one."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.found: dict[str, bytes] = {}
        self._limits = limits
        self._left = limits.unpacked
        self._files: set[str] = set()
        self._folders: set[str] = set()

    @property
    def left(self) -> int:
        """How many bytes may still be added."""
        return self._left

    def add(self, path: str, data: bytes) -> None:
        """Add a file. Raises ``PackageError`` for a bad path, one that is there already, and when it is too much."""
        key = folded(check_path(path))
        steps = key.split("/")
        above = {"/".join(steps[:count]) for count in range(1, len(steps))}
        if key in self._files:
            raise PackageError(f"file {shown(path)} is there twice")
        if key in self._folders or above & self._files:
            raise PackageError(f"file {shown(path)} is also a folder")
        self._files.add(key)
        self._folders |= above
        self._left -= len(data)
        if self._left < 0:
            raise PackageError(f"more than {self._limits.unpacked} bytes of files")
        if len(self._files) > self._limits.entries:
            raise PackageError(f"more than {self._limits.entries} files")
        self.found[path] = data


def _inflate(data: bytes, limits: Limits) -> bytes:
    if len(data) > limits.packed:
        raise PackageError(f"archive: {len(data)} bytes; expected at most {limits.packed}")
    # The longest path takes seven blocks of headers, a file is padded to its block, an archive at its end.
    most = limits.unpacked + limits.entries * 8 * _BLOCK + 64 * 1024
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise PackageError(f"archive: not a gzip file, or a broken one: {error}") from error
    if len(raw) > most:
        raise PackageError(f"archive: unpacks to more than {limits.unpacked} bytes")
    if not stream.eof:
        raise PackageError("archive: the gzip file is cut off")
    if stream.unused_data:
        raise PackageError("archive: bytes after the end of the gzip file")
    return raw


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = stream.compress(data) + stream.flush()
    return _GZIP_HEADER + body + zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")


def _entries(raw: bytes, limits: Limits) -> Iterator[_Entry]:
    """Yield the entries of a tar; the long names that extensions bring are already theirs."""
    position, count, long_name = 0, 0, ""
    while raw[position : position + _BLOCK].strip(b"\0"):
        entry, position = _entry(raw, position)
        count += 1
        if count > limits.entries * 2:
            raise PackageError(f"archive: more than {limits.entries} entries")
        if entry.kind in {_EXTENDED, _GLOBAL, _LONG_NAME}:
            long_name = _long_name(entry) or long_name
            continue
        yield _Entry(long_name, entry.kind, entry.data) if long_name else entry
        long_name = ""
    if raw[position:].strip(b"\0"):
        raise PackageError("archive: bytes after the end of the tar")
    if not count:
        raise PackageError("archive: nothing in it")


def _entry(raw: bytes, position: int) -> tuple[_Entry, int]:
    block = raw[position : position + _BLOCK]
    if len(block) < _BLOCK:
        raise PackageError("archive: the tar is cut off")
    signed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _octal(block[148:156], "checksum") != signed:
        raise PackageError("archive: not a tar file, or a broken one: the checksum of a header is wrong")
    name = _field(block[:100])
    if block[257:263] == b"ustar\0" and block[345]:
        name = f"{_field(block[345:500])}/{name}"
    size = _octal(block[124:136], "size")
    start = position + _BLOCK
    if start + size > len(raw):
        raise PackageError(f"archive: {shown(name)} is cut off")
    return _Entry(name, block[156:157], raw[start : start + size]), start + -(-size // _BLOCK) * _BLOCK


def _long_name(entry: _Entry) -> str:
    """Return the path that an extension header gives to the entry after it, if it does."""
    if len(entry.data) > _LARGEST_HEADER:
        raise PackageError(
            f"archive: an extension header of {len(entry.data)} bytes; expected at most {_LARGEST_HEADER}"
        )
    if entry.kind == _LONG_NAME:
        return _text(entry.data.rstrip(b"\0"))
    records = dict(_records(entry.data))
    strange = [key for key in records if not _HARMLESS.fullmatch(key) or (key == "path" and entry.kind == _GLOBAL)]
    if strange:
        raise PackageError(f"archive: extension {shown(strange[0])} of tar; expected plain files only")
    return records.get("path", "")


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the ``length key=value`` lines of an extension header."""
    position = 0
    while position < len(data):
        found = _RECORD.match(data, position)
        end = position + int(found[1]) if found else 0
        if found is None or end > len(data) or end <= found.end() or data[end - 1 : end] != b"\n":
            raise PackageError("archive: a broken extension header")
        yield _text(found[2]), _text(data[found.end() : end - 1])
        position = end


def _octal(field: bytes, what: str) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(b"[0-7]{1,12}", digits):
        raise PackageError(f"archive: not a tar file, or a broken one: {what} {digits!r} is not an octal number")
    return int(digits, 8)


def _field(data: bytes) -> str:
    return _text(data.partition(b"\0")[0])


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PackageError(f"archive: the name {data[:80]!r} is not UTF-8") from error


def _check_folder(entry: _Entry) -> None:
    path = entry.name.removeprefix("./").rstrip("/")
    if path not in {"", "."} or entry.name.startswith("/"):
        check_path(path)
    if entry.data:
        raise PackageError(f"archive: folder {shown(entry.name)} has data")
