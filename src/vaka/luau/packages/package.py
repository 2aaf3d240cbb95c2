"""A package as a value: what it says about itself, and its files."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.archive import LIMITS, Limits, pack_files, unpack
from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.folders import in_thread, read_file, read_folder
from vaka.luau.packages.manifest import MANIFEST, Manifest, read_manifest, write_manifest
from vaka.luau.packages.names import check_path


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one module. ``chunk`` names it in error messages: ``@scope/pkg@1.0.0/sub/module.luau``."""

    chunk: str
    path: str
    code: bytes


@dataclass(frozen=True, slots=True)
class Package:
    """A package, all of it in memory: what was checked is what is used."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @property
    def checksum(self) -> str:
        """The checksum of what is there: of every file, of ``pkg.json`` without its own checksum."""
        plain = {**self.files, MANIFEST: write_manifest(msgspec.structs.replace(self.manifest, checksum=""))}
        digests = (f"{hashlib.sha256(plain[path]).hexdigest()}  {path}\n" for path in sorted(plain))
        return f"sha256:{hashlib.sha256(''.join(digests).encode()).hexdigest()}"

    def source(self, module: str = "") -> Source:
        """Return ``module.luau`` or ``module/init.luau``, the entry when no module is named. Raises ``NotFound``."""
        tried = [self.manifest.entry] if not module else [f"{check_path(module)}.luau", f"{module}/init.luau"]
        for path in tried:
            if path in self.files:
                chunk = f"{self.manifest.name}@{self.manifest.version.bare}/{path}"
                return Source(chunk, path, self.files[path])
        raise NotFound(f"package {self} has no module {shown(module)}; looked for {' and '.join(map(repr, tried))}")

    def pack(self, limits: Limits = LIMITS) -> bytes:
        """Return the package as a gzipped tar, with its checksum in ``pkg.json``."""
        manifest = msgspec.structs.replace(self.manifest, checksum=self.checksum)
        return pack_files({**self.files, MANIFEST: write_manifest(manifest)}, limits)

    def __str__(self) -> str:
        return f"{self.manifest.name!r} {self.manifest.version}"


def read_package(data: bytes, limits: Limits = LIMITS) -> Package:
    """Read a gzipped tar. Raises ``PackageError``, and ``Corrupt`` when its files are not those of its checksum."""
    return _checked(_package(unpack(data, limits), "archive"))


def read_package_folder(folder: Path, limits: Limits = LIMITS, *, hidden: bool = False) -> Package:
    """Read a folder as ``open_package`` does, for threads; with ``hidden`` also what ``pack`` leaves out."""
    return _checked(_package(read_folder(folder, limits, hidden=hidden), str(folder)))


async def open_package(path: Path | str, limits: Limits = LIMITS) -> Package:
    """Read a package from a folder or an archive on disk. Raises ``NotFound``, ``PackageError`` and ``Corrupt``."""
    place = Path(path)

    def read() -> Package:
        if place.is_file():
            return read_package(read_file(place, limits.packed), limits)
        return read_package_folder(place, limits)

    return await in_thread(read)


async def pack(folder: Path | str, limits: Limits = LIMITS) -> bytes:
    """Pack a folder with a ``pkg.json``: the same files are the same bytes. Raises ``PackageError``.

    What starts with a dot, ``luau_packages`` and the lock file stay out; a checksum in ``pkg.json`` is made anew.
    """

    def packed() -> bytes:
        return _package(read_folder(Path(folder), limits), str(folder)).pack(limits)

    return await in_thread(packed)


def _package(files: Mapping[str, bytes], where: str) -> Package:
    if MANIFEST not in files:
        raise PackageError(f"{where}: no {MANIFEST} at its top")
    manifest = read_manifest(files[MANIFEST], f"{where}: {MANIFEST}")
    if manifest.entry not in files:
        raise PackageError(f"{where}: entry {manifest.entry!r} of {MANIFEST} is not there")
    return Package(manifest, files)


def _checked(package: Package) -> Package:
    said = package.manifest.checksum
    if said and said != package.checksum:
        raise Corrupt(f"package {package}: its {MANIFEST} says {said}, its files make {package.checksum}")
    return package
