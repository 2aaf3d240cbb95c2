"""Folders of package files on disk: read without following links, written whole or not at all."""

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from vaka.core.types.errors import NotFound, StoreError
from vaka.luau.packages.archive import LIMITS, Files, Limits
from vaka.luau.packages.errors import PackageError, shown

PACKAGES = "luau_packages"
LOCK = "vaka-luau.lock"
TEMPORARY = ".new-"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Do work on the disk beside the loop; what the system refuses is a ``StoreError``."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise StoreError(f"{error.filename or 'disk'}: {error.strerror or error}") from error


def read_folder(folder: Path, limits: Limits = LIMITS, *, hidden: bool = False) -> dict[str, bytes]:
    """Return the files of a folder by path. Raises ``NotFound``, and ``PackageError`` for links and special files."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    files = Files(limits)
    for path in _walk(folder, limits.entries, hidden=hidden):
        files.add(path, read_file(folder / path, files.left))
    return files.found


def read_file(path: Path, limit: int) -> bytes:
    """Return the bytes of a plain file. Raises ``PackageError`` for a link, a special file and more than the limit."""
    with os.fdopen(os.open(path, os.O_RDONLY | _NO_LINKS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PackageError(f"{path}: not a plain file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PackageError(f"{path}: more than {limit} bytes")
    return data


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files whose paths were checked into a new folder."""
    folder.mkdir(parents=True)
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            _write(file, data)


@contextlib.contextmanager
def temporary_folder(beside: Path) -> Generator[Path]:
    """Give a folder on the same disk, gone afterwards."""
    beside.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add_file(path: Path, data: bytes) -> bool:
    """Put a new file in place, whole or not at all; tell whether the place was free."""
    with temporary_file(path, data) as made:
        try:
            os.link(made, path)  # unlike a rename it never replaces
        except FileExistsError:
            return False
    _settle(path.parent)
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Put new bytes in a file's place, whole or not at all."""
    with temporary_file(path, data) as made:
        made.replace(path)
    _settle(path.parent)


@contextlib.contextmanager
def temporary_file(path: Path, data: bytes) -> Generator[Path]:
    """Give a file with these bytes beside a path, gone afterwards unless it was moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    made = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, data)
        made.chmod(0o644)
        yield made
    finally:
        made.unlink(missing_ok=True)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _settle(folder: Path) -> None:
    """Have the disk keep the names in a folder, where the system lets one ask."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _walk(root: Path, most: int, *, hidden: bool) -> Iterator[str]:
    """Yield the paths of plain files; so many entries are looked at and no more."""
    waiting, seen = [""], 0
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if _left_out(entry.name, top=not folder) and not hidden:
                continue
            seen += 1
            if seen > 2 * most:
                raise PackageError(f"{root}: more than {most} files")
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path
            else:
                kind = "a link" if entry.is_symlink() else "a special file"
                raise PackageError(f"{root}: {shown(path)} is {kind}; expected plain files and folders only")


def _left_out(name: str, *, top: bool) -> bool:
    return name.startswith(".") or (top and name in {PACKAGES, LOCK})
