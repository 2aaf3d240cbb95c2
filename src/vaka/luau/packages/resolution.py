"""Which version of each package a project gets, and the lock file that remembers it."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vaka.core.types.errors import NotFound
from vaka.luau.packages.codec import decode, encode
from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.folders import in_thread, read_file, replace_file
from vaka.luau.packages.names import check_name
from vaka.luau.packages.ranges import Range
from vaka.luau.packages.registry import Release

FORMAT = 1
_LARGEST = 8 * 1024 * 1024
_SHA256 = re.compile("[0-9a-f]{64}")


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version per package, with the digests of what was chosen; written as JSON it is the lock file."""

    format: int
    roots: dict[str, Range]
    packages: dict[str, Release]

    def encode(self) -> bytes:
        """Return the lock file; equal resolutions are equal bytes."""
        return encode(self)


def read_resolution(data: bytes, where: str = "lock file") -> Resolution:
    """Read a lock file. Raises ``PackageError``."""
    lock = decode(data, Resolution, where)
    if lock.format != FORMAT:
        raise PackageError(f"{where}: format {lock.format}; expected {FORMAT}")
    for name, release in lock.packages.items():
        check_name(name)
        if not _SHA256.fullmatch(release.sha256):
            raise PackageError(f"{where}: sha256 {shown(release.sha256)} of {name!r}; expected 64 hexadecimal digits")
    _all_there(lock.roots, lock, "the project", where)
    for name, release in lock.packages.items():
        _all_there(release.dependencies, lock, f"{name!r}", where)
    return lock


async def read_lock(path: Path | str) -> Resolution:
    """Read a lock file from disk. Raises ``NotFound`` and ``PackageError``."""
    place = Path(path)

    def read() -> bytes:
        if not place.exists():
            raise NotFound(f"{place}: no such file")
        return read_file(place, _LARGEST)

    return read_resolution(await in_thread(read), str(place))


async def write_lock(path: Path | str, resolution: Resolution) -> None:
    """Write a lock file, whole or not at all."""
    await in_thread(lambda: replace_file(Path(path), resolution.encode()))


def _all_there(asked: Mapping[str, Range], lock: Resolution, who: str, where: str) -> None:
    for name, wanted in asked.items():
        chosen = lock.packages.get(name)
        if chosen is None or chosen.version not in wanted:
            has = f"it has {chosen.version}" if chosen else "it has none"
            raise PackageError(f"{where}: {who} asks for {name!r} {wanted}, {has}; resolve again")
