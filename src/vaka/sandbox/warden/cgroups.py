"""Control groups: the only bound on processes that root obeys, and the only exact one on memory."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "vaka-"


class Base(NamedTuple):
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
    """The groups of one keeper and of all that it starts.

    To enter a group the kernel waits for every processor, which takes longer than everything else; so a keeper enters
    its groups before there is a command, and they are bounded when it is known how.
    """

    def __init__(self, bases: tuple[Base, ...], name: str) -> None:
        self._paths: dict[str, Path] = {}
        self._bounded: set[str] = set()
        for base in bases:
            path = base.path / f"{_PREFIX}{name}"
            with contextlib.suppress(OSError):
                path.mkdir()
                (path / "cgroup.procs").write_text(str(os.getpid()))
                self._paths |= dict.fromkeys(base.controllers, path)

    def bound(self, *, pids: int | None, memory: int | None) -> frozenset[str]:
        """Bound them, and return what they bound now: what the kernel refuses is not among it."""
        done: set[str] = set()
        for name, value in (("pids", pids), ("memory", memory)):
            path = self._paths.get(name)
            if path is None or (value is None and name not in self._bounded):
                continue
            with contextlib.suppress(OSError):
                (path / f"{name}.max").write_text("max" if value is None else str(value))
                self._bounded.add(name)
                if value is not None:
                    done.add(name)
                if name == "memory" and (path / "memory.swap.max").exists():
                    (path / "memory.swap.max").write_text("max" if value is None else "0")
        return frozenset(done)


def remove(bases: tuple[Base, ...], name: str) -> None:
    """Remove the groups of a keeper that is gone."""
    for base in bases:
        with contextlib.suppress(OSError):
            (base.path / f"{_PREFIX}{name}").rmdir()


def sweep(bases: tuple[Base, ...]) -> None:
    """Remove the groups that nobody has removed, because a warden was killed."""
    for base in bases:
        with contextlib.suppress(OSError):
            for path in base.path.glob(f"{_PREFIX}*"):
                owner = path.name.removeprefix(_PREFIX)
                if owner.isdigit() and not Path("/proc", owner).exists():
                    remove((base,), owner)
