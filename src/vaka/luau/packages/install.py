"""Install resolved packages in a project, and find installed packages for ``require``."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from vaka.core.types.errors import Corrupt, NotFound, ScriptError, VakaError
from vaka.luau.packages.files import (
    DEFAULT_LIMITS,
    LOCK_FILE,
    PACKAGES_FOLDER,
    PackageLimits,
    read_file,
    run_in_thread,
    temporary_folder,
    write_folder,
)
from vaka.luau.packages.package import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    ModuleSource,
    Package,
    PackageReference,
    check_package_name,
    read_manifest,
    read_package,
    read_package_folder,
)
from vaka.luau.packages.registry import Registry, Release
from vaka.luau.packages.resolution import Resolution, read_lock
from vaka.luau.packages.versions import ANY_VERSION, PackageError, Range, Version
from vaka.luau.require import SOURCE_SUFFIX, FindPackage, PackageModules

MAX_TOTAL_BYTES = 256 * 1024 * 1024


async def install(
    resolution: Resolution,
    into: Path | str,
    registry: Registry,
    *,
    limits: PackageLimits = DEFAULT_LIMITS,
    repair: bool = False,
) -> list[str]:
    """Unpack missing packages into ``<into>/<name>/<version>/``; return ``name@version`` of each package added.

    Every archive is fetched and checked before the first is moved into place. Installed packages are checked too:
    ``repair`` replaces modified ones. Raises ``Corrupt`` for bytes that differ from the resolution.
    """
    root = Path(into)
    missing = await run_in_thread(lambda: _missing_releases(resolution, root, limits, repair=repair))
    if not missing:
        return []
    archives = await _fetch_archives(missing, registry, limits)
    # One uninterrupted call in a thread: cancellation leaves no partial installation.
    return await run_in_thread(lambda: _unpack_releases(missing, archives, root, limits))


def release_folder(root: Path, name: str, release: Release) -> Path:
    return root / check_package_name(name) / release.version.without_build


def _missing_releases(resolution: Resolution, root: Path, limits: PackageLimits, *, repair: bool) -> dict[str, Release]:
    missing: dict[str, Release] = {}
    for name, release in resolution.packages.items():
        folder = release_folder(root, name, release)
        problem = _find_install_problem(folder, name, release, limits) if folder.exists() else ""
        if problem and not repair:
            raise Corrupt(f"{folder}: {problem}; install with repair to replace it")
        if problem or not folder.exists():
            missing[name] = release
    return missing


def _find_install_problem(folder: Path, name: str, release: Release, limits: PackageLimits) -> str:
    try:
        check_release(read_package_folder(folder, limits, hidden=True), name, release)
    except VakaError as error:
        return str(error)
    return ""


async def _fetch_archives(
    missing: Mapping[str, Release], registry: Registry, limits: PackageLimits
) -> dict[str, bytes]:
    total = sum(release.size for release in missing.values())
    if total > MAX_TOTAL_BYTES:
        raise PackageError(f"the packages have {total} bytes together; expected at most {MAX_TOTAL_BYTES}")
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


def _unpack_releases(
    missing: Mapping[str, Release], archives: Mapping[str, bytes], root: Path, limits: PackageLimits
) -> list[str]:
    with temporary_folder(root) as staging:
        for name, release in missing.items():
            package = read_package(archives[name], limits)
            check_release(package, name, release)
            write_folder(release_folder(staging, name, release), package.files)
        return [_move_into_place(staging, root, name, release, limits) for name, release in missing.items()]


def check_release(package: Package, name: str, release: Release) -> None:
    """Raise ``Corrupt`` if a package differs from the release that a resolution chose."""
    manifest = package.manifest
    if (manifest.name, manifest.version) != (name, release.version):
        raise Corrupt(f"found package {package} instead of {name!r} {release.version}")
    if package.checksum != release.checksum:
        raise Corrupt(f"package {package}: its files have {package.checksum}; expected {release.checksum}")
    if manifest.dependencies != release.dependencies:
        raise Corrupt(f"package {package}: its dependencies differ from those in the registry")


def _move_into_place(staging: Path, root: Path, name: str, release: Release, limits: PackageLimits) -> str:
    target = release_folder(root, name, release)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and _find_install_problem(target, name, release, limits):
        replaced = release_folder(staging / ".replaced", name, release)
        replaced.parent.mkdir(parents=True, exist_ok=True)
        target.rename(replaced)
    try:
        release_folder(staging, name, release).rename(target)
    except OSError:
        # Another process may have installed the same release in the meantime.
        if not target.exists() or _find_install_problem(target, name, release, limits):
            raise
    return f"{name}@{release.version.without_build}"


class InstalledPackages:
    """The packages in a folder, each read once. ``verify`` checks all files of a package when it is first used.

    ``wanted`` are the dependencies of the project's manifest.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        lock: Resolution | None = None,
        wanted: Mapping[str, Range] | None = None,
        verify: bool = False,
        limits: PackageLimits = DEFAULT_LIMITS,
    ) -> None:
        self.root = Path(root)
        self.lock = lock
        self.wanted = wanted or {}
        self.verify = verify
        self.limits = limits
        self._packages: dict[tuple[str, Version], Package] = {}

    async def versions(self, name: str) -> list[Version]:
        """Return the installed versions of a package, lowest first."""
        folder = self.root / check_package_name(name)

        def list_versions() -> list[Version]:
            names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
            return sorted(version for name in names if (version := _parse_version(name)) is not None)

        return await run_in_thread(list_versions)

    async def find(self, name: str, range: Range | str | None = None) -> Package:
        """Return the package that ``require`` loads.

        With a range: the locked version if it matches, else the highest match. Without: the locked version, else the
        highest that the project's manifest allows, else the highest installed. Raises ``NotFound``, ``Corrupt``.
        """
        wanted = Range(range) if isinstance(range, str) else range
        versions = await self.versions(name)
        version = self._choose_version(name, wanted, versions)
        if version is None:
            installed = f"installed: {', '.join(map(str, versions))}" if versions else "no version is installed"
            raise NotFound(f"package {name!r}: {self._describe_request(name, wanted)}, {installed}")
        package = self._packages.get((name, version))
        if package is None:
            package = self._packages[name, version] = await run_in_thread(lambda: self._read_version(name, version))
        return package

    async def module_source(self, reference: PackageReference | str) -> ModuleSource:
        """Return the module of ``require("@scope/pkg@^1.0.0/sub/module")``. Raises as ``find`` does."""
        wanted = PackageReference.parse(reference) if isinstance(reference, str) else reference
        return (await self.find(wanted.name, wanted.range)).module_source(wanted.module)

    def _locked_version(self, name: str, range: Range | None) -> Version | None:
        locked = self.lock.packages.get(name) if self.lock else None
        return locked.version if locked is not None and (range is None or locked.version in range) else None

    def _choose_version(self, name: str, range: Range | None, versions: list[Version]) -> Version | None:
        locked = self._locked_version(name, range)
        if locked is not None:
            return locked if locked in versions else None
        wanted = range or self.wanted.get(name)
        if wanted is not None:
            return wanted.highest_version(versions)
        return ANY_VERSION.highest_version(versions) or max(versions, default=None)

    def _describe_request(self, name: str, range: Range | None) -> str:
        locked = self._locked_version(name, range)
        if locked is not None:
            return f"the lock file requires {locked}"
        return f"{range or self.wanted.get(name) or 'any version'} is required"

    def _read_version(self, name: str, version: Version) -> Package:
        folder = self.root / name / version.without_build
        package = read_package_folder(folder, self.limits, hidden=True)
        if (package.manifest.name, package.manifest.version) != (name, version):
            raise Corrupt(f"{folder}: contains {package}")
        if self.verify:
            self._verify_package(package, folder)
        return package

    def _verify_package(self, package: Package, folder: Path) -> None:
        locked = self.lock.packages.get(package.manifest.name) if self.lock else None
        if locked is not None and locked.version == package.manifest.version:
            check_release(package, package.manifest.name, locked)
        elif not package.manifest.checksum:
            problem = f"no lock file names it and its {MANIFEST_FILE} has no checksum"
            raise Corrupt(f"{folder}: cannot be verified: {problem}")


async def open_installed(
    project: Path | str, *, verify: bool = False, limits: PackageLimits = DEFAULT_LIMITS
) -> InstalledPackages:
    """Return the installed packages of a project, its ``pkg.json`` and its lock file applied if present."""
    folder = Path(project)

    def read_dependencies() -> Mapping[str, Range]:
        path = folder / MANIFEST_FILE
        return read_manifest(read_file(path, MAX_MANIFEST_BYTES), str(path)).dependencies if path.exists() else {}

    wanted = await run_in_thread(read_dependencies)
    try:
        lock = await read_lock(folder / LOCK_FILE)
    except NotFound:
        lock = None
    return InstalledPackages(folder / PACKAGES_FOLDER, lock=lock, wanted=wanted, verify=verify, limits=limits)


def _parse_version(name: str) -> Version | None:
    try:
        return Version.parse(name)
    except PackageError:
        return None


def package_finder(start: Path) -> FindPackage:
    """Return a function that finds packages for scripts in a folder, in the nearest enclosing project that has any."""
    installed: InstalledPackages | None = None

    async def find_package(text: str) -> PackageModules:
        nonlocal installed
        if installed is None:
            projects = (folder for folder in (start, *start.parents) if (folder / PACKAGES_FOLDER).is_dir())
            installed = await open_installed(next(projects, start))
        reference = PackageReference.parse(text)
        package = await installed.find(reference.name, reference.range)
        module = package.module_source(reference.module)
        title = f"{package.manifest.name}@{package.manifest.version.without_build}"
        files = {
            path.removesuffix(SOURCE_SUFFIX): _decode_source(f"{title}/{path}", code)
            for path, code in package.files.items()
            if path.endswith(SOURCE_SUFFIX) and not path.endswith(f".d{SOURCE_SUFFIX}")
        }
        return PackageModules(title, files, module.path.removesuffix(SOURCE_SUFFIX))

    return find_package


def _decode_source(file: str, code: bytes) -> str:
    try:
        return code.decode()
    except UnicodeDecodeError:
        raise ScriptError(f"{file} is not UTF-8") from None


def package_of(script: Path) -> str:
    """Return the name of the installed package that a script belongs to, ``""`` if it belongs to none."""
    parts = script.resolve().parts
    if PACKAGES_FOLDER not in parts[:-2]:
        return ""
    names = parts[len(parts) - parts[::-1].index(PACKAGES_FOLDER) :]
    return "/".join(names[:2] if names[0].startswith("@") else names[:1])
