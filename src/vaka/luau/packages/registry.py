"""Where packages come from: the socket, and a folder that serves it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.errors import PackageError
from vaka.luau.packages.files import DEFAULT_LIMITS, PackageLimits, create_file, read_file, replace_file, run_in_thread
from vaka.luau.packages.names import check_package_name
from vaka.luau.packages.package import Package, PackageKind, read_package
from vaka.luau.packages.versions import Range, Version, decode_document, encode_document

INDEX_FILE = "index.json"
_ARCHIVE_SUFFIX = ".tar.gz"
_MAX_INDEX_BYTES = 16 * 1024 * 1024


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One published version: ``sha256`` and ``size`` are of its archive, ``checksum`` is of its files."""

    version: Version
    sha256: str
    size: int
    checksum: str
    type: PackageKind = "lib"
    dependencies: dict[str, Range] = {}


class Registry(Protocol):
    """A place packages come from. What it says is checked against what it sends."""

    async def releases(self, name: str) -> Sequence[Release]:
        """Return the published versions of a package, none when it is not known."""
        ...

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        """Return an archive; more than ``limit`` bytes are never read. Raises ``NotFound`` and ``PackageError``."""
        ...


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was known of each archive of a package when it was published."""

    name: str
    releases: list[Release]


class FolderRegistry:
    """Packages in a folder: ``<root>/[@scope/]pkg/<version>.tar.gz``, and beside them ``index.json``.

    The archives are the truth about which versions exist. The index remembers what each held, so that listing reads no
    archive and one that was changed is found out; what it does not know yet is read from the archive.
    """

    def __init__(self, root: Path | str, limits: PackageLimits = DEFAULT_LIMITS) -> None:
        self.root = Path(root)
        self.limits = limits

    async def releases(self, name: str) -> Sequence[Release]:
        """Return the published versions, lowest first. Raises ``Corrupt`` for a broken index or archive."""
        return await run_in_thread(lambda: self._read_releases(name))

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        """Return an archive. Raises ``NotFound``, and ``Corrupt`` when it is not what was published."""
        return await run_in_thread(lambda: self._read_archive(name, version, limit))

    async def publish(self, archive: bytes) -> Release:
        """Add a package, whole or not at all. The same files again change nothing; others raise ``PackageError``."""
        return await run_in_thread(lambda: self._add_archive(archive))

    async def reindex(self, name: str) -> Sequence[Release]:
        """Make the index of a package anew from its archives, and trust them as they are now."""
        return await run_in_thread(lambda: self._write_index(name, {}))

    async def names(self) -> list[str]:
        """Return the names of all packages, sorted."""
        return await run_in_thread(self._list_names)

    def _list_names(self) -> list[str]:
        archives = (path for depth in ("*", "@*/*") for path in self.root.glob(f"{depth}/*{_ARCHIVE_SUFFIX}"))
        return sorted({path.parent.relative_to(self.root).as_posix() for path in archives})

    def _archive_path(self, name: str, version: Version) -> Path:
        return self.root / check_package_name(name) / f"{version.without_build}{_ARCHIVE_SUFFIX}"

    def _add_archive(self, archive: bytes) -> Release:
        package = read_package(archive, self.limits)
        name, version = package.manifest.name, package.manifest.version
        release = _make_release(package, archive)
        place = self._archive_path(name, version)
        known = self._read_index(name)
        if not create_file(place, archive):
            old = next(known for known in self._read_releases(name) if known.version == version)
            if old.checksum != release.checksum:
                raise PackageError(
                    f"{name} {version} is published already with other files: {old.checksum}, not {release.checksum}; "
                    "a published version never changes: raise the version"
                )
            return old
        # A crash here, or somebody who writes an older index over ours, costs a look into the archive and no more.
        self._write_index(name, {**known, version: release})
        return release

    def _read_releases(self, name: str) -> list[Release]:
        return self._list_releases(name, self._read_index(name))

    def _list_releases(self, name: str, known: dict[Version, Release]) -> list[Release]:
        found = [known.get(version) or self._read_release(name, version) for version in self._archived_versions(name)]
        return sorted(found, key=lambda release: release.version)

    def _archived_versions(self, name: str) -> list[Version]:
        folder = self.root / check_package_name(name)
        return [self._version_of(path) for path in sorted(folder.glob(f"[!.]*{_ARCHIVE_SUFFIX}"))]

    def _version_of(self, path: Path) -> Version:
        try:
            return Version.parse(path.name.removesuffix(_ARCHIVE_SUFFIX))
        except PackageError as error:
            raise Corrupt(f"{path}: an archive in a registry is named after its version: {error}") from error

    def _read_release(self, name: str, version: Version) -> Release:
        """Read what an archive holds, because the index does not know."""
        place = self._archive_path(name, version)
        try:
            archive = read_file(place, self.limits.packed)
            package = read_package(archive, self.limits)
        except PackageError as error:
            raise Corrupt(f"{place}: {error}") from error
        if (package.manifest.name, package.manifest.version) != (name, version):
            raise Corrupt(f"{place}: holds {package}, not {name!r} {version}")
        return _make_release(package, archive)

    def _read_archive(self, name: str, version: Version, limit: int) -> bytes:
        place = self._archive_path(name, version)
        if not place.is_file():
            raise NotFound(f"the registry has no {name} {version}")
        archive = read_file(place, limit)
        known = self._read_index(name).get(version)
        if known is not None and hashlib.sha256(archive).hexdigest() != known.sha256:
            raise Corrupt(f"{place}: not the bytes that were published (sha256 {known.sha256})")
        return archive

    def _read_index(self, name: str) -> dict[Version, Release]:
        path = self.root / check_package_name(name) / INDEX_FILE
        if not path.exists():
            return {}
        try:
            index = decode_document(read_file(path, _MAX_INDEX_BYTES), _Index, str(path))
        except PackageError as error:
            raise Corrupt(f"{error}; reindex makes it anew from the archives") from error
        if index.name != name:
            raise Corrupt(f"{path}: the index of {index.name!r}, not of {name!r}; reindex makes it anew")
        return {release.version: release for release in index.releases}

    def _write_index(self, name: str, known: dict[Version, Release]) -> list[Release]:
        releases = self._list_releases(name, known)
        if releases:
            replace_file(self.root / name / INDEX_FILE, encode_document(_Index(name, releases)))
        return releases


def _make_release(package: Package, archive: bytes) -> Release:
    manifest = package.manifest
    digest = hashlib.sha256(archive).hexdigest()
    return Release(manifest.version, digest, len(archive), package.checksum, manifest.type, dict(manifest.dependencies))
