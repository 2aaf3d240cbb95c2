"""Control groups: the only bound on processes that root obeys, and the only exact one on memory."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "vaka-"
_TRIES = 100


@dataclass(frozen=True)
class Base:
    """A group of this machine below which others can be made."""

    path: Path
    controllers: frozenset[str]


def bases(mounts: Path = _MOUNTS, own: Path = _OWN) -> tuple[Base, ...]:
    """Return where groups can be made: the second version for all it has, the first for ``pids`` alone."""
    found: list[Base] = []
    try:
        lines = [line.split(" ") for line in mounts.read_text().splitlines()]
        places = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return ()
    for _, target, kind, options, *_ in (line for line in lines if len(line) > 4):
        for number, names, place in (entry for entry in places if len(entry) == 3):
            if kind == "cgroup2" and number == "0":
                found += _second(Path(target), place)
            elif kind == "cgroup" and "pids" in options.split(",") and "pids" in names.split(","):
                found += _first(Path(target), place)
    return tuple(found)


def _second(target: Path, place: str) -> list[Base]:
    own = target / place.strip("/")
    for group in (own, *own.parents):
        if not group.is_relative_to(target) or not _writable(group):
            return []
        with contextlib.suppress(OSError):
            handed = frozenset((group / "cgroup.subtree_control").read_text().split()) & {"pids", "memory"}
            if handed:
                return [Base(group, handed)]
    return []


def _first(target: Path, place: str) -> list[Base]:
    own = target / place.strip("/")
    return [Base(own, frozenset({"pids"}))] if _writable(own) else []


def _writable(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def bounded(bases: tuple[Base, ...]) -> frozenset[str]:
    """Return what groups can bound here: ``pids``, ``memory`` or nothing."""
    return frozenset(name for base in bases for name in base.controllers)


class Groups:
    """The groups of one command; they are removed when it is gone."""

    def __init__(self, bases: tuple[Base, ...], name: str, *, pids: int | None, memory: int | None) -> None:
        """``OSError`` when a group that should be possible cannot be made."""
        self.paths: list[Path] = []
        wanted = {"pids": pids, "memory": memory}
        self.bounds = frozenset(key for key, value in wanted.items() if value is not None) & bounded(bases)
        missing = set(self.bounds)
        try:
            for base in bases:
                if here := missing & base.controllers:
                    self._make(base.path / f"{_PREFIX}{name}", {key: wanted[key] for key in here})
                    missing -= here
        except OSError:
            self.close()
            raise

    def _make(self, path: Path, values: dict[str, int | None]) -> None:
        path.mkdir()
        self.paths.append(path)
        for key, value in values.items():
            (path / f"{key}.max").write_text(str(value))
        if "memory" in values and (path / "memory.swap.max").exists():
            (path / "memory.swap.max").write_text("0")
        if "memory" in values and (path / "memory.oom.group").exists():
            (path / "memory.oom.group").write_text("1")

    def enter(self) -> None:
        """Put this process into them."""
        for path in self.paths:
            (path / "cgroup.procs").write_text(str(os.getpid()))

    def members(self) -> list[int]:
        """Return the processes in them."""
        found: set[int] = set()
        for path in self.paths:
            with contextlib.suppress(OSError, ValueError):
                found.update(int(line) for line in (path / "cgroup.procs").read_text().split())
        return sorted(found)

    def close(self) -> None:
        """Remove them; the kernel takes a moment to see that everybody has left."""
        for path in self.paths:
            for _ in range(_TRIES):
                try:
                    path.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
        self.paths.clear()


def sweep(bases: tuple[Base, ...]) -> None:
    """Remove groups whose keeper is gone."""
    for base in bases:
        with contextlib.suppress(OSError):
            for path in base.path.glob(f"{_PREFIX}*"):
                owner = path.name.removeprefix(_PREFIX)
                if owner.isdigit() and not Path("/proc", owner).exists():
                    with contextlib.suppress(OSError):
                        path.rmdir()
