"""The protocol of package registries, and a registry in a folder."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.files import DEFAULT_LIMITS, PackageLimits, create_file, read_file, replace_file, run_in_thread
from vaka.luau.packages.package import Package, PackageKind, check_package_name, read_package
from vaka.luau.packages.versions import PackageError, Range, Version, decode_document, encode_document

INDEX_FILE = "index.json"
_ARCHIVE_SUFFIX = ".tar.gz"
_MAX_INDEX_BYTES = 16 * 1024 * 1024


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One published version: ``sha256`` and ``size`` of its archive, ``checksum`` of its files."""

    version: Version
    sha256: str
    size: int
    checksum: str
    type: PackageKind = "lib"
    dependencies: dict[str, Range] = {}


class Registry(Protocol):
    """A source of packages. Archives are checked against the releases it lists."""

    async def releases(self, name: str) -> Sequence[Release]:
        """Return the published versions of a package, empty if it is unknown."""
        ...

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        """Return an archive of at most ``limit`` bytes. Raises ``NotFound`` and ``PackageError``."""
        ...


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The releases of a package, recorded when they were published."""

    name: str
    releases: list[Release]


class FolderRegistry:
    """Packages in a folder: ``<root>/[@scope/]pkg/<version>.tar.gz``, and beside them ``index.json``.

    The archives define which versions exist. The index records their digests, so that listing reads no archive and a
    modified archive is detected; a release that is missing in the index is read from its archive.
    """

    def __init__(self, root: Path | str, limits: PackageLimits = DEFAULT_LIMITS) -> None:
        self.root = Path(root)
        self.limits = limits

    async def releases(self, name: str) -> Sequence[Release]:
        """Return the published versions, lowest first. Raises ``Corrupt`` for an invalid index or archive."""
        return await run_in_thread(lambda: self._read_releases(name))

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        """Return an archive. Raises ``NotFound``, and ``Corrupt`` if it differs from the published one."""
        return await run_in_thread(lambda: self._read_archive(name, version, limit))

    async def publish(self, archive: bytes) -> Release:
        """Add a package atomically. Equal files again change nothing; different files raise ``PackageError``."""
        return await run_in_thread(lambda: self._add_archive(archive))

    async def reindex(self, name: str) -> Sequence[Release]:
        """Rebuild the index of a package from its archives, trusting their present content."""
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
        known = self._read_index(name)
        if not create_file(self._archive_path(name, version), archive):
            old = next(known for known in self._read_releases(name) if known.version == version)
            if old.checksum != release.checksum:
                raise PackageError(
                    f"{name} {version} is published already with other files: {old.checksum}, not {release.checksum}; "
                    "a published version never changes: raise the version"
                )
            return old
        # If this write is lost, or overwritten by a concurrent one, the release is read from its archive.
        self._write_index(name, {**known, version: release})
        return release

    def _read_releases(self, name: str) -> list[Release]:
        return self._list_releases(name, self._read_index(name))

    def _list_releases(self, name: str, known: dict[Version, Release]) -> list[Release]:
        releases: list[Release] = []
        for path in sorted((self.root / check_package_name(name)).glob(f"[!.]*{_ARCHIVE_SUFFIX}")):
            try:
                version = Version.parse(path.name.removesuffix(_ARCHIVE_SUFFIX))
            except PackageError as error:
                raise Corrupt(f"{path}: an archive in a registry must be named after its version: {error}") from error
            releases.append(known.get(version) or self._read_release(name, version))
        return sorted(releases, key=lambda release: release.version)

    def _read_release(self, name: str, version: Version) -> Release:
        """Return the release of an archive that is missing in the index."""
        path = self._archive_path(name, version)
        try:
            archive = read_file(path, self.limits.packed)
            package = read_package(archive, self.limits)
        except PackageError as error:
            raise Corrupt(f"{path}: {error}") from error
        if (package.manifest.name, package.manifest.version) != (name, version):
            raise Corrupt(f"{path}: contains {package}, not {name!r} {version}")
        return _make_release(package, archive)

    def _read_archive(self, name: str, version: Version, limit: int) -> bytes:
        path = self._archive_path(name, version)
        if not path.is_file():
            raise NotFound(f"the registry has no {name} {version}")
        archive = read_file(path, limit)
        known = self._read_index(name).get(version)
        if known is not None and hashlib.sha256(archive).hexdigest() != known.sha256:
            raise Corrupt(f"{path}: differs from the published archive (sha256 {known.sha256})")
        return archive

    def _read_index(self, name: str) -> dict[Version, Release]:
        path = self.root / check_package_name(name) / INDEX_FILE
        if not path.exists():
            return {}
        try:
            index = decode_document(read_file(path, _MAX_INDEX_BYTES), _Index, str(path))
        except PackageError as error:
            raise Corrupt(f"{error}; call reindex to rebuild it from the archives") from error
        if index.name != name:
            raise Corrupt(f"{path}: the index of {index.name!r}, not of {name!r}; call reindex to rebuild it")
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
