"""What is installed in a project, for ``require``."""

from collections.abc import Mapping
from pathlib import Path

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.archive import LIMITS, Limits
from vaka.luau.packages.errors import PackageError
from vaka.luau.packages.folders import LOCK, PACKAGES, in_thread, read_file
from vaka.luau.packages.install import check_release
from vaka.luau.packages.manifest import LARGEST, MANIFEST, read_manifest
from vaka.luau.packages.names import Reference, check_name
from vaka.luau.packages.package import Package, Source, read_package_folder
from vaka.luau.packages.ranges import ANY, Range
from vaka.luau.packages.resolution import Resolution, read_lock
from vaka.luau.packages.version import Version


class Installed:
    """The packages in a folder, each read once. ``verify`` checks all files of a package when it is first used."""

    def __init__(
        self,
        root: Path | str,
        *,
        lock: Resolution | None = None,
        wanted: Mapping[str, Range] | None = None,
        verify: bool = False,
        limits: Limits = LIMITS,
    ) -> None:
        self.root = Path(root)
        self.lock = lock
        self.wanted = dict(wanted or {})
        self.verify = verify
        self.limits = limits
        self._packages: dict[tuple[str, Version], Package] = {}

    async def versions(self, name: str) -> list[Version]:
        """Return the installed versions of a package, lowest first."""
        folder = self.root / check_name(name)

        def listed() -> list[Version]:
            names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
            return sorted(version for name in names if (version := _version(name)) is not None)

        return await in_thread(listed)

    async def find(self, name: str, range: Range | str | None = None) -> Package:
        """Return the package ``require`` means.

        With a range: the locked version if it suits, else the highest that does. Without: the locked version, else the
        highest the project's manifest asks for, else the highest installed. Raises ``NotFound``, ``Corrupt``.
        """
        asked = Range(range) if isinstance(range, str) else range
        versions = await self.versions(name)
        version = self._chosen(name, asked, versions)
        if version is None:
            there = f"installed are {', '.join(map(str, versions))}" if versions else "no version is installed"
            raise NotFound(f"package {name!r}: {self._wish(name, asked)}, {there}")
        known = self._packages.get((name, version))
        if known is None:
            known = self._packages[name, version] = await in_thread(lambda: self._read(name, version))
        return known

    async def source(self, reference: Reference | str) -> Source:
        """Return the text that ``require("@scope/pkg@^1.0.0/sub/module")`` means. Raises as ``find`` does."""
        wanted = Reference.parse(reference) if isinstance(reference, str) else reference
        return (await self.find(wanted.name, wanted.range)).source(wanted.module)

    def _chosen(self, name: str, asked: Range | None, versions: list[Version]) -> Version | None:
        locked = self.lock.packages.get(name) if self.lock else None
        if locked is not None and (asked is None or locked.version in asked):
            return locked.version if locked.version in versions else None
        wanted = asked or self.wanted.get(name)
        if wanted is not None:
            return wanted.best(versions)
        return ANY.best(versions) or max(versions, default=None)

    def _wish(self, name: str, asked: Range | None) -> str:
        locked = self.lock.packages.get(name) if self.lock else None
        if locked is not None and (asked is None or locked.version in asked):
            return f"the lock file asks for {locked.version}"
        return f"{asked or self.wanted.get(name) or 'any version'} is asked for"

    def _read(self, name: str, version: Version) -> Package:
        folder = self.root / name / version.bare
        package = read_package_folder(folder, self.limits, hidden=True)
        if (package.manifest.name, package.manifest.version) != (name, version):
            raise Corrupt(f"{folder}: holds {package}")
        if self.verify:
            self._check(package, folder)
        return package

    def _check(self, package: Package, folder: Path) -> None:
        locked = self.lock.packages.get(package.manifest.name) if self.lock else None
        if locked is not None and locked.version == package.manifest.version:
            check_release(package, package.manifest.name, locked)
        elif not package.manifest.checksum:
            raise Corrupt(f"{folder}: cannot be verified: no lock file names it and its {MANIFEST} has no checksum")


async def installed_in(project: Path | str, *, verify: bool = False, limits: Limits = LIMITS) -> Installed:
    """Return what is installed in a project, with the wishes of its ``pkg.json`` and its lock file if it has them."""
    folder = Path(project)

    def manifest() -> Mapping[str, Range]:
        path = folder / MANIFEST
        return read_manifest(read_file(path, LARGEST), str(path)).dependencies if path.exists() else {}

    wanted = await in_thread(manifest)
    try:
        lock = await read_lock(folder / LOCK)
    except NotFound:
        lock = None
    return Installed(folder / PACKAGES, lock=lock, wanted=wanted, verify=verify, limits=limits)


def _version(name: str) -> Version | None:
    try:
        return Version.parse(name)
    except PackageError:
        return None
