"""Choosing versions: the highest that suits everybody, by trying and going back to who is in the way."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from vaka.luau.packages.errors import PackageCycle, ResolutionError
from vaka.luau.packages.names import check_name
from vaka.luau.packages.ranges import Range
from vaka.luau.packages.registry import Registry, Release
from vaka.luau.packages.resolution import FORMAT, Resolution
from vaka.luau.packages.version import Version

MOST_PACKAGES = 1000
MOST_STEPS = 50_000
_MOST_CLASHES = 5
_MOST_VERSIONS_SHOWN = 10
_PROJECT = ""

Releases = Mapping[str, Sequence[Release]]


async def resolve(
    roots: Mapping[str, Range | str], registry: Registry, *, lock: Resolution | None = None
) -> Resolution:
    """Choose one version per package, the highest that suits everybody; those of ``lock`` first where they still do.

    Raises ``ResolutionError`` naming who asked for what, ``PackageCycle`` with the chain.
    """
    asked = {check_name(name): Range(str(wanted)) for name, wanted in roots.items()}
    releases = await _reachable(asked, registry)
    keep = {name: release.version for name, release in lock.packages.items()} if lock else {}
    return await asyncio.to_thread(choose, asked, releases, keep)


def choose(roots: Mapping[str, Range], releases: Releases, keep: Mapping[str, Version] | None = None) -> Resolution:
    """Choose among known releases; the same input gives the same choice. Raises ``ResolutionError``."""
    asked = {name: roots[name] for name in sorted(roots)}
    chosen = _Search(asked, releases, keep or {}).run()
    _no_cycle(chosen)
    return Resolution(FORMAT, asked, {name: chosen[name] for name in sorted(chosen)})


async def _reachable(roots: Mapping[str, Range], registry: Registry) -> dict[str, Sequence[Release]]:
    """Ask the registry for every package that some choice could need."""
    found: dict[str, Sequence[Release]] = {}
    seen = set(roots.items())
    waiting = deque(roots.items())
    while waiting:
        name, wanted = waiting.popleft()
        if name not in found:
            if len(found) >= MOST_PACKAGES:
                raise ResolutionError(f"more than {MOST_PACKAGES} packages could be needed")
            found[name] = await registry.releases(check_name(name))
        for release in found[name]:
            if release.version in wanted:
                new = set(release.dependencies.items()) - seen
                seen |= new
                waiting.extend(sorted(new, key=str))
    return found


@dataclass(slots=True)
class _Try:
    """A package whose version is being chosen, and who was in the way of those tried before."""

    name: str
    left: Iterator[Release]
    culprits: set[str] = field(default_factory=set[str])
    suited: bool = False  # whether some version was what everybody asks for


class _Search:
    """Conflict-directed backjumping: a dead end goes back to the last choice that had a part in it."""

    def __init__(self, roots: Mapping[str, Range], releases: Releases, keep: Mapping[str, Version]) -> None:
        self.releases = releases
        self.keep = keep
        self.chosen: dict[str, Release] = {}
        self.asked: dict[str, dict[str, Range]] = {name: {_PROJECT: wanted} for name, wanted in roots.items()}
        self.tries: list[_Try] = []
        self.clashes: dict[str, None] = {}
        self.steps = 0

    def run(self) -> dict[str, Release]:
        """Return a version for every package that is asked for."""
        while (name := next((name for name in self.asked if name not in self.chosen), None)) is not None:
            self.tries.append(_Try(name, iter(self._candidates(name))))
            while not self._choose(self.tries[-1]):
                self._go_back()
        return self.chosen

    def _candidates(self, name: str) -> list[Release]:
        kept = self.keep.get(name)
        ordered = sorted(self.releases.get(name, ()), key=lambda release: release.version, reverse=True)
        return sorted(ordered, key=lambda release: release.version != kept)

    def _choose(self, attempt: _Try) -> bool:
        """Take the next version that suits everybody so far; tell whether there is one."""
        asked = self.asked[attempt.name]
        for release in attempt.left:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise ResolutionError(f"gave up after {MOST_STEPS} steps; narrow the ranges", list(self.clashes))
            against = {who for who, wanted in asked.items() if release.version not in wanted}
            if against:
                attempt.culprits |= against
                continue
            attempt.suited = True
            if not self._blocked(attempt, release):
                self._take(attempt.name, release)
                return True
        if not attempt.suited:
            self._clash(attempt.name, asked)
        return False

    def _blocked(self, attempt: _Try, release: Release) -> bool:
        """Tell whether a release needs what an earlier choice rules out."""
        blocked = False
        for name, wanted in release.dependencies.items():
            other = self.chosen.get(name)
            if other is not None and other.version not in wanted:
                attempt.culprits.add(name)
                self._clash(name, {**self.asked[name], f"{attempt.name} {release.version}": wanted})
                blocked = True
        return blocked

    def _take(self, name: str, release: Release) -> None:
        self.chosen[name] = release
        for other in sorted(release.dependencies):
            self.asked.setdefault(other, {})[name] = release.dependencies[other]

    def _drop(self, name: str) -> None:
        for other in self.chosen.pop(name).dependencies:
            del self.asked[other][name]
            if not self.asked[other]:
                del self.asked[other]

    def _go_back(self) -> None:
        failed = self.tries.pop()
        culprits = failed.culprits | self.asked[failed.name].keys()
        while self.tries and self.tries[-1].name not in culprits:
            self._drop(self.tries.pop().name)
        if not self.tries:
            clashes = list(self.clashes)
            raise ResolutionError("no set of versions suits everybody:", clashes[:_MOST_CLASHES])
        last = self.tries[-1]
        last.culprits |= culprits - {last.name}
        self._drop(last.name)

    def _clash(self, name: str, asked: Mapping[str, Range]) -> None:
        wishes = ", ".join(f"{self._who(who)} asks for {wanted}" for who, wanted in asked.items())
        versions = sorted((release.version for release in self.releases.get(name, ())), reverse=True)
        there = ", ".join(map(str, versions[:_MOST_VERSIONS_SHOWN]))
        more = ", …" if len(versions) > _MOST_VERSIONS_SHOWN else ""
        self.clashes[f"{name}: {wishes}; {f'there are {there}{more}' if versions else 'no such package'}"] = None

    def _who(self, who: str) -> str:
        if who == _PROJECT:
            return "the project"
        release = self.chosen.get(who)
        return f"{who} {release.version}" if release else who


def _no_cycle(chosen: Mapping[str, Release]) -> None:
    graph = {name: sorted(chosen[name].dependencies) for name in sorted(chosen)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][:0:-1]  # without its end, which is its start again; who needs comes first
        start = circle.index(min(circle))
        chain = [*circle[start:], *circle[:start], circle[start]]
        raise PackageCycle([f"{name}@{chosen[name].version}" for name in chain]) from error
