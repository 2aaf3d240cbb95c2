"""Choose one version of each package by conflict-directed backjumping; read and write the lock file."""

import asyncio
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec

from vaka.core.types.errors import NotFound
from vaka.luau.packages.files import read_file, replace_file, run_in_thread
from vaka.luau.packages.package import check_package_name
from vaka.luau.packages.registry import Registry, Release
from vaka.luau.packages.versions import PackageError, Range, Version, decode_document, encode_document, quote_text

LOCK_FORMAT = 1
_MAX_LOCK_BYTES = 8 * 1024 * 1024
_SHA256_PATTERN = re.compile("[0-9a-f]{64}")


class ResolutionError(PackageError, code="package_conflict"):
    """No set of versions satisfies all requirements; ``clashes`` has a line for each package in conflict."""

    def __init__(self, message: str, clashes: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"- {clash}" for clash in clashes)]))
        self.clashes = tuple(clashes)


class PackageCycle(ResolutionError, code="package_cycle"):
    """Packages depend on each other in a cycle; ``chain`` names them, ending with the first."""

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__(f"packages depend on each other in a cycle: {' → '.join(chain)}")
        self.chain = tuple(chain)


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release per package with its digests; encoded as JSON it is the lock file."""

    format: int
    roots: dict[str, Range]
    packages: dict[str, Release]

    def encode(self) -> bytes:
        """Return the lock file; equal resolutions give equal bytes."""
        return encode_document(self)


def parse_lock(data: bytes, where: str = "lock file") -> Resolution:
    """Read a lock file. Raises ``PackageError``."""
    lock = decode_document(data, Resolution, where)
    if lock.format != LOCK_FORMAT:
        raise PackageError(f"{where}: format {lock.format}; expected {LOCK_FORMAT}")
    for name, release in lock.packages.items():
        check_package_name(name)
        if not _SHA256_PATTERN.fullmatch(release.sha256):
            digest = quote_text(release.sha256)
            raise PackageError(f"{where}: sha256 {digest} of {name!r}; expected 64 hexadecimal digits")
    _check_requirements(lock.roots, lock, "the project", where)
    for name, release in lock.packages.items():
        _check_requirements(release.dependencies, lock, f"{name!r}", where)
    return lock


async def read_lock(path: Path | str) -> Resolution:
    """Read a lock file from disk. Raises ``NotFound`` and ``PackageError``."""
    path = Path(path)

    def read_bytes() -> bytes:
        if not path.exists():
            raise NotFound(f"{path}: no such file")
        return read_file(path, _MAX_LOCK_BYTES)

    return parse_lock(await run_in_thread(read_bytes), str(path))


async def write_lock(path: Path | str, resolution: Resolution) -> None:
    """Write a lock file atomically."""
    await run_in_thread(lambda: replace_file(Path(path), resolution.encode()))


def _check_requirements(requirements: Mapping[str, Range], lock: Resolution, requirer: str, where: str) -> None:
    for name, wanted in requirements.items():
        chosen = lock.packages.get(name)
        if chosen is None or chosen.version not in wanted:
            locked = f"it has {chosen.version}" if chosen else "it has none"
            raise PackageError(f"{where}: {requirer} requires {name!r} {wanted}, {locked}; resolve again")


MAX_PACKAGES = 1000
MAX_STEPS = 50_000
_MAX_CLASHES = 5
_MAX_LISTED_VERSIONS = 10
_PROJECT_REQUIRER = ""
ReleasesByName = Mapping[str, Sequence[Release]]


async def resolve(
    roots: Mapping[str, Range | str], registry: Registry, *, lock: Resolution | None = None
) -> Resolution:
    """Choose one version per package, the highest that satisfies all requirements; those of ``lock`` are tried first.

    Raises ``ResolutionError`` with the conflicting requirements, and ``PackageCycle``.
    """
    requirements = {check_package_name(name): Range(str(wanted)) for name, wanted in roots.items()}
    releases = await _fetch_releases(requirements, registry)
    locked = {name: release.version for name, release in lock.packages.items()} if lock else {}
    return await asyncio.to_thread(choose_releases, requirements, releases, locked)


def choose_releases(
    roots: Mapping[str, Range], releases: ReleasesByName, preferred_versions: Mapping[str, Version] | None = None
) -> Resolution:
    """Choose among known releases, deterministically. Raises ``ResolutionError``."""
    requirements = {name: roots[name] for name in sorted(roots)}
    chosen = _Search(requirements, releases, preferred_versions or {}).run()
    _check_cycles(chosen)
    return Resolution(LOCK_FORMAT, requirements, {name: chosen[name] for name in sorted(chosen)})


async def _fetch_releases(roots: Mapping[str, Range], registry: Registry) -> dict[str, Sequence[Release]]:
    """Fetch the releases of every package that some choice could need."""
    releases: dict[str, Sequence[Release]] = {}
    known = set(roots.items())
    queue = deque(roots.items())
    while queue:
        name, wanted = queue.popleft()
        if name not in releases:
            if len(releases) >= MAX_PACKAGES:
                raise ResolutionError(f"more than {MAX_PACKAGES} packages could be needed")
            releases[name] = await registry.releases(check_package_name(name))
        for release in releases[name]:
            if release.version in wanted:
                new = set(release.dependencies.items()) - known
                known |= new
                queue.extend(sorted(new, key=str))
    return releases


@dataclass(slots=True)
class _Attempt:
    """A package whose version is being chosen, and the packages that ruled out earlier candidates."""

    name: str
    candidates: Iterator[Release]
    conflicts: set[str] = field(default_factory=set[str])
    has_match: bool = False  # whether some candidate satisfied all requirements


class _Search:
    """Conflict-directed backjumping: a dead end returns to the last choice that contributed to it."""

    def __init__(
        self, roots: Mapping[str, Range], releases: ReleasesByName, preferred_versions: Mapping[str, Version]
    ) -> None:
        self.releases = releases
        self.preferred_versions = preferred_versions
        self.chosen: dict[str, Release] = {}
        self.requirements: dict[str, dict[str, Range]] = {
            name: {_PROJECT_REQUIRER: wanted} for name, wanted in roots.items()
        }
        self.attempts: list[_Attempt] = []
        self.clashes: dict[str, None] = {}
        self.steps = 0

    def run(self) -> dict[str, Release]:
        """Return a release of every required package."""
        while (name := next((name for name in self.requirements if name not in self.chosen), None)) is not None:
            self.attempts.append(_Attempt(name, iter(self._ordered_candidates(name))))
            while not self._choose_next(self.attempts[-1]):
                self._backtrack()
        return self.chosen

    def _ordered_candidates(self, name: str) -> list[Release]:
        preferred = self.preferred_versions.get(name)
        ordered = sorted(self.releases.get(name, ()), key=lambda release: release.version, reverse=True)
        return sorted(ordered, key=lambda release: release.version != preferred)

    def _choose_next(self, attempt: _Attempt) -> bool:
        """Select the next version that satisfies all requirements so far; return whether there is one."""
        requirements = self.requirements[attempt.name]
        for release in attempt.candidates:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise ResolutionError(f"gave up after {MAX_STEPS} steps; narrow the ranges", list(self.clashes))
            objectors = {requirer for requirer, wanted in requirements.items() if release.version not in wanted}
            if objectors:
                attempt.conflicts |= objectors
                continue
            attempt.has_match = True
            if not self._conflicts_with_chosen(attempt, release):
                self._select_release(attempt.name, release)
                return True
        if not attempt.has_match:
            self._record_clash(attempt.name, requirements)
        return False

    def _conflicts_with_chosen(self, attempt: _Attempt, release: Release) -> bool:
        """Return whether a release requires a version that an earlier choice rules out."""
        blocked = False
        for name, wanted in release.dependencies.items():
            other = self.chosen.get(name)
            if other is not None and other.version not in wanted:
                attempt.conflicts.add(name)
                self._record_clash(name, {**self.requirements[name], f"{attempt.name} {release.version}": wanted})
                blocked = True
        return blocked

    def _select_release(self, name: str, release: Release) -> None:
        self.chosen[name] = release
        for other in sorted(release.dependencies):
            self.requirements.setdefault(other, {})[name] = release.dependencies[other]

    def _deselect_release(self, name: str) -> None:
        for other in self.chosen.pop(name).dependencies:
            del self.requirements[other][name]
            if not self.requirements[other]:
                del self.requirements[other]

    def _backtrack(self) -> None:
        failed = self.attempts.pop()
        culprits = failed.conflicts | self.requirements[failed.name].keys()
        while self.attempts and self.attempts[-1].name not in culprits:
            self._deselect_release(self.attempts.pop().name)
        if not self.attempts:
            raise ResolutionError("no set of versions satisfies all requirements:", list(self.clashes)[:_MAX_CLASHES])
        last = self.attempts[-1]
        last.conflicts |= culprits - {last.name}
        self._deselect_release(last.name)

    def _record_clash(self, name: str, requirements: Mapping[str, Range]) -> None:
        wanted = ", ".join(f"{self._describe_requirer(who)} requires {range}" for who, range in requirements.items())
        versions = sorted((release.version for release in self.releases.get(name, ())), reverse=True)
        listed = ", ".join(map(str, versions[:_MAX_LISTED_VERSIONS]))
        more = ", …" if len(versions) > _MAX_LISTED_VERSIONS else ""
        self.clashes[f"{name}: {wanted}; {f'available: {listed}{more}' if versions else 'no such package'}"] = None

    def _describe_requirer(self, requirer: str) -> str:
        if requirer == _PROJECT_REQUIRER:
            return "the project"
        release = self.chosen.get(requirer)
        return f"{requirer} {release.version}" if release else requirer


def _check_cycles(chosen: Mapping[str, Release]) -> None:
    graph = {name: sorted(chosen[name].dependencies) for name in sorted(chosen)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][:0:-1]  # without the repeated start, and dependents first
        start = cycle.index(min(cycle))
        chain = [*cycle[start:], *cycle[:start], cycle[start]]
        raise PackageCycle([f"{name}@{chosen[name].version}" for name in chain]) from error
