"""Putting the packages of a resolution into a project."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from vaka.core.types.errors import Corrupt, VakaError
from vaka.luau.packages.archive import LIMITS, Limits
from vaka.luau.packages.errors import PackageError
from vaka.luau.packages.folders import in_thread, temporary_folder, write_folder
from vaka.luau.packages.names import check_name
from vaka.luau.packages.package import Package, read_package, read_package_folder
from vaka.luau.packages.registry import Registry, Release
from vaka.luau.packages.resolution import Resolution

MOST_PACKED = 256 * 1024 * 1024


async def install(
    resolution: Resolution, into: Path | str, registry: Registry, *, limits: Limits = LIMITS, repair: bool = False
) -> list[str]:
    """Unpack what is missing into ``<into>/<name>/<version>/``; return ``name@version`` of what was added.

    Every archive is fetched and checked before the first is moved in place. What is there is checked too: ``repair``
    replaces it when it was changed. Raises ``Corrupt`` for bytes that are not those of the resolution.
    """
    root = Path(into)
    missing = await in_thread(lambda: _missing(resolution, root, limits, repair=repair))
    if not missing:
        return []
    archives = await _fetched(missing, registry, limits)
    # One piece of work: who is cancelled while it runs leaves nothing half done.
    return await in_thread(lambda: _placed(missing, archives, root, limits))


def folder_of(root: Path, name: str, release: Release) -> Path:
    """Return where a release is installed."""
    return root / check_name(name) / release.version.bare


def _missing(resolution: Resolution, root: Path, limits: Limits, *, repair: bool) -> dict[str, Release]:
    missing: dict[str, Release] = {}
    for name, release in resolution.packages.items():
        folder = folder_of(root, name, release)
        wrong = _wrong_with(folder, name, release, limits) if folder.exists() else ""
        if wrong and not repair:
            raise Corrupt(f"{folder}: {wrong}; install with repair to replace it")
        if wrong or not folder.exists():
            missing[name] = release
    return missing


def _wrong_with(folder: Path, name: str, release: Release, limits: Limits) -> str:
    try:
        check_release(read_package_folder(folder, limits, hidden=True), name, release)
    except VakaError as error:
        return str(error)
    return ""


async def _fetched(missing: Mapping[str, Release], registry: Registry, limits: Limits) -> dict[str, bytes]:
    total = sum(release.size for release in missing.values())
    if total > MOST_PACKED:
        raise PackageError(f"the packages have {total} bytes together; expected at most {MOST_PACKED}")
    archives: dict[str, bytes] = {}
    for name, release in missing.items():
        if not 0 <= release.size <= limits.packed:
            raise PackageError(f"{name} {release.version} has {release.size} bytes; expected at most {limits.packed}")
        archive = await registry.fetch(name, release.version, limit=release.size)
        digest = hashlib.sha256(archive).hexdigest()
        if digest != release.sha256:
            raise Corrupt(f"{name} {release.version}: the archive has sha256 {digest}; expected {release.sha256}")
        archives[name] = archive
    return archives


def _placed(missing: Mapping[str, Release], archives: Mapping[str, bytes], root: Path, limits: Limits) -> list[str]:
    with temporary_folder(root) as staging:
        for name, release in missing.items():
            package = read_package(archives[name], limits)
            check_release(package, name, release)
            write_folder(folder_of(staging, name, release), package.files)
        return [_moved(staging, root, name, release, limits) for name, release in missing.items()]


def check_release(package: Package, name: str, release: Release) -> None:
    """Check that a package is what a resolution chose. Raises ``Corrupt``."""
    manifest = package.manifest
    if (manifest.name, manifest.version) != (name, release.version):
        raise Corrupt(f"package {package} is in the place of {name!r} {release.version}")
    if package.checksum != release.checksum:
        raise Corrupt(f"package {package}: its files make {package.checksum}; expected {release.checksum}")
    if manifest.dependencies != release.dependencies:
        raise Corrupt(f"package {package}: it needs other packages than the registry said")


def _moved(staging: Path, root: Path, name: str, release: Release, limits: Limits) -> str:
    target = folder_of(root, name, release)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and _wrong_with(target, name, release, limits):
        aside = folder_of(staging / ".replaced", name, release)
        aside.parent.mkdir(parents=True, exist_ok=True)
        target.rename(aside)
    try:
        folder_of(staging, name, release).rename(target)
    except OSError:
        # Somebody else may have installed the same in the meantime, and then all is well.
        if not target.exists() or _wrong_with(target, name, release, limits):
            raise
    return f"{name}@{release.version.bare}"
