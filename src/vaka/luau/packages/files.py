"""Package files in gzipped tar archives and in folders, read within limits.

The reader accepts regular files only and rejects every other tar entry type. Folders are read without following links,
and written atomically.
"""

import asyncio
import contextlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from vaka.core.types.errors import NotFound, StoreError
from vaka.luau.packages.versions import PackageError, quote_text

_UNSAFE_CHARACTERS = re.compile(r'[\\:*?"<>|]')  # each is special on some operating system
_MAX_PATH_CHARS = 512
_MAX_STEP_BYTES = 200
_MAX_PATH_STEPS = 32
DEVICE_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def check_path(text: str) -> str:
    """Return a path that stays inside its folder and is valid on every operating system. Raises ``PackageError``."""
    problem = _find_path_problem(text)
    if problem:
        raise PackageError(f"path {quote_text(text)} {problem}; expected a relative path such as 'sub/module.luau'")
    return text


def normalize_path(path: str) -> str:
    """Return a key that is equal for paths that some file system treats as the same file."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _find_path_problem(path: str) -> str:
    steps = path.split("/")
    if not path or path.startswith("/"):
        return "is empty" if not path else "is absolute"
    longest = max(len(step.encode("utf-8", "replace")) for step in steps)
    if len(path) > _MAX_PATH_CHARS or len(steps) > _MAX_PATH_STEPS or longest > _MAX_STEP_BYTES:
        return "is too long"
    if ".." in path:
        return "leads out of its folder"
    if not path.isprintable() or _UNSAFE_CHARACTERS.search(path):
        return "has a character that is not portable in file names"
    if any(not step or step == "." or step.endswith((".", " ")) or step.startswith(" ") for step in steps):
        return "has an empty step, or one with a dot or space at its end"
    if any(step.partition(".")[0].lower() in DEVICE_NAMES for step in steps):
        return "is the name of a device on some systems"
    return ""


_BLOCK = 512
_FILE = b"0"
_OLD_FILE = b"\0"
_FOLDER = b"5"
_EXTENDED = b"x"
_GLOBAL = b"g"
_LONG_NAME = b"L"
_ENTRY_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_MAX_HEADER_BYTES = 16 * 1024
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]+)=")

_IGNORED_RECORDS = re.compile("path|mtime|atime|ctime|uid|gid|uname|gname|comment|(SCHILY|LIBARCHIVE)[.].*")

_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"  # no name, no time, no system: same input, same bytes


@dataclass(frozen=True, slots=True)
class PackageLimits:
    """The largest package that is read, in bytes and entries."""

    packed: int = 8 * 1024 * 1024
    unpacked: int = 32 * 1024 * 1024
    entries: int = 2000


DEFAULT_LIMITS = PackageLimits()


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: bytes
    data: bytes


def unpack_archive(data: bytes, limits: PackageLimits = DEFAULT_LIMITS) -> dict[str, bytes]:
    """Return the files of a gzipped tar, by path. Raises ``PackageError`` for anything but regular files."""
    files = FileCollector(limits)
    for entry in _read_entries(_inflate(data, limits), limits):
        if entry.kind in {_FILE, _OLD_FILE}:
            files.add(entry.name.removeprefix("./"), entry.data)
        elif entry.kind == _FOLDER:
            path = entry.name.removeprefix("./").rstrip("/")
            if path not in {"", "."} or entry.name.startswith("/"):
                check_path(path)
            if entry.data:
                raise PackageError(f"archive: folder {quote_text(entry.name)} has data")
        else:
            kind = _ENTRY_KINDS.get(entry.kind, f"of kind {entry.kind!r}")
            raise PackageError(f"archive: {quote_text(entry.name)} is {kind}; expected regular files only")
    return files.files


def pack_files(files: Mapping[str, bytes], limits: PackageLimits = DEFAULT_LIMITS) -> bytes:
    """Return a gzipped tar of files; equal files give equal bytes, independent of user and time."""
    checked = FileCollector(limits)
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


class FileCollector:
    """Collects files within limits; no two paths may be the same file on any operating system."""

    def __init__(self, limits: PackageLimits = DEFAULT_LIMITS) -> None:
        self.files: dict[str, bytes] = {}
        self._limits = limits
        self.remaining_bytes = limits.unpacked
        """How many bytes may still be added."""
        self._file_keys: set[str] = set()
        self._folder_keys: set[str] = set()

    def add(self, path: str, data: bytes) -> None:
        """Add a file. Raises ``PackageError`` for an invalid or duplicate path, and beyond the limits."""
        key = normalize_path(check_path(path))
        steps = key.split("/")
        folders = {"/".join(steps[:count]) for count in range(1, len(steps))}
        if key in self._file_keys:
            raise PackageError(f"file {quote_text(path)} exists twice")
        if key in self._folder_keys or folders & self._file_keys:
            raise PackageError(f"file {quote_text(path)} is also a folder")
        self._file_keys.add(key)
        self._folder_keys |= folders
        self.remaining_bytes -= len(data)
        if self.remaining_bytes < 0:
            raise PackageError(f"more than {self._limits.unpacked} bytes of files")
        if len(self._file_keys) > self._limits.entries:
            raise PackageError(f"more than {self._limits.entries} files")
        self.files[path] = data


def _inflate(data: bytes, limits: PackageLimits) -> bytes:
    if len(data) > limits.packed:
        raise PackageError(f"archive: {len(data)} bytes; expected at most {limits.packed}")
    # The longest path takes seven blocks of headers; files and the archive are padded to full blocks.
    max_bytes = limits.unpacked + limits.entries * 8 * _BLOCK + 64 * 1024
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise PackageError(f"archive: not a gzip file, or a corrupt one: {error}") from error
    if len(raw) > max_bytes:
        raise PackageError(f"archive: unpacks to more than {limits.unpacked} bytes")
    if not stream.eof:
        raise PackageError("archive: the gzip file is truncated")
    if stream.unused_data:
        raise PackageError("archive: bytes after the end of the gzip file")
    return raw


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = stream.compress(data) + stream.flush()
    return _GZIP_HEADER + body + zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")


def _read_entries(raw: bytes, limits: PackageLimits) -> Iterator[_Entry]:
    """Yield the entries of a tar, with long names of extension headers applied."""
    position = 0
    count = 0
    long_name = ""
    while raw[position : position + _BLOCK].strip(b"\0"):
        entry, position = _read_entry(raw, position)
        count += 1
        if count > limits.entries * 2:
            raise PackageError(f"archive: more than {limits.entries} entries")
        if entry.kind in {_EXTENDED, _GLOBAL, _LONG_NAME}:
            long_name = _path_from_extension(entry) or long_name
            continue
        yield _Entry(long_name, entry.kind, entry.data) if long_name else entry
        long_name = ""
    if raw[position:].strip(b"\0"):
        raise PackageError("archive: bytes after the end of the tar")
    if not count:
        raise PackageError("archive: the tar is empty")


def _read_entry(raw: bytes, position: int) -> tuple[_Entry, int]:
    block = raw[position : position + _BLOCK]
    if len(block) < _BLOCK:
        raise PackageError("archive: the tar is truncated")
    checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _parse_octal(block[148:156], "checksum") != checksum:
        raise PackageError("archive: not a tar file, or a corrupt one: the checksum of a header is wrong")
    name = _decode_field(block[:100])
    if block[257:263] == b"ustar\0" and block[345]:
        name = f"{_decode_field(block[345:500])}/{name}"
    size = _parse_octal(block[124:136], "size")
    start = position + _BLOCK
    if start + size > len(raw):
        raise PackageError(f"archive: {quote_text(name)} is truncated")
    return _Entry(name, block[156:157], raw[start : start + size]), start + -(-size // _BLOCK) * _BLOCK


def _path_from_extension(entry: _Entry) -> str:
    """Return the path that an extension header sets for the next entry, ``""`` if none."""
    size = len(entry.data)
    if size > _MAX_HEADER_BYTES:
        raise PackageError(f"archive: an extension header of {size} bytes; expected at most {_MAX_HEADER_BYTES}")
    if entry.kind == _LONG_NAME:
        return _decode_name(entry.data.rstrip(b"\0"))
    records = dict(_read_records(entry.data))
    for key in records:
        if not _IGNORED_RECORDS.fullmatch(key) or (key == "path" and entry.kind == _GLOBAL):
            raise PackageError(f"archive: extension {quote_text(key)} of tar; expected regular files only")
    return records.get("path", "")


def _read_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the ``length key=value`` lines of an extension header."""
    position = 0
    while position < len(data):
        match = _RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or end > len(data) or end <= match.end() or data[end - 1 : end] != b"\n":
            raise PackageError("archive: an invalid extension header")
        yield _decode_name(match[2]), _decode_name(data[match.end() : end - 1])
        position = end


def _parse_octal(field: bytes, label: str) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(b"[0-7]{1,12}", digits):
        raise PackageError(f"archive: not a tar file, or a corrupt one: {label} {digits!r} is not an octal number")
    return int(digits, 8)


def _decode_field(data: bytes) -> str:
    return _decode_name(data.partition(b"\0")[0])


def _decode_name(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PackageError(f"archive: the name {data[:80]!r} is not UTF-8") from error


PACKAGES_FOLDER = "luau_packages"
LOCK_FILE = "vaka-luau.lock"
TEMPORARY_PREFIX = ".new-"
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run disk work in a thread; an ``OSError`` becomes a ``StoreError``."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise StoreError(f"{error.filename or 'disk'}: {error.strerror or error}") from error


def read_folder(folder: Path, limits: PackageLimits = DEFAULT_LIMITS, *, hidden: bool = False) -> dict[str, bytes]:
    """Return the files of a folder by path. Raises ``NotFound``, and ``PackageError`` for links and special files."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    files = FileCollector(limits)
    for path in _walk_files(folder, limits.entries, hidden=hidden):
        files.add(path, read_file(folder / path, files.remaining_bytes))
    return files.files


def read_file(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file. Raises ``PackageError`` for a special file and beyond the limit."""
    with os.fdopen(os.open(path, os.O_RDONLY | _OPEN_FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PackageError(f"{path}: not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PackageError(f"{path}: more than {limit} bytes")
    return data


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a new folder; their paths must have been checked."""
    folder.mkdir(parents=True)
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            _write_and_sync(file, data)


@contextlib.contextmanager
def temporary_folder(beside: Path) -> Generator[Path]:
    """Yield a temporary folder on the same file system, deleted afterwards."""
    beside.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_file(path: Path, data: bytes) -> bool:
    """Create a file atomically; return False if it exists already."""
    with temporary_file(path, data) as temporary:
        try:
            os.link(temporary, path)  # unlike a rename, a link never replaces a file
        except FileExistsError:
            return False
    _sync_folder(path.parent)
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    with temporary_file(path, data) as temporary:
        temporary.replace(path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def temporary_file(path: Path, data: bytes) -> Generator[Path]:
    """Yield a temporary file with these bytes beside a path, deleted afterwards unless it was moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_and_sync(file, data)
        temporary.chmod(0o644)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write_and_sync(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the directory entries of a folder durable, where the system supports it."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _walk_files(root: Path, max_files: int, *, hidden: bool) -> Iterator[str]:
    """Yield the paths of regular files; raises ``PackageError`` beyond twice ``max_files`` entries."""
    folders, count = [""], 0
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            if _is_excluded(entry.name, top=not folder) and not hidden:
                continue
            count += 1
            if count > 2 * max_files:
                raise PackageError(f"{root}: more than {max_files} files")
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path
            else:
                kind = "a link" if entry.is_symlink() else "a special file"
                raise PackageError(f"{root}: {quote_text(path)} is {kind}; expected regular files and folders only")


def _is_excluded(name: str, *, top: bool) -> bool:
    return name.startswith(".") or (top and name in {PACKAGES_FOLDER, LOCK_FILE})
