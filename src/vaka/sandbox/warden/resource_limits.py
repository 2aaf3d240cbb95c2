"""Limits on processes, memory, CPU and files: rlimits for each process, control groups for a whole job."""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vaka.sandbox.warden.job_spec import JobSpec

_MOUNTS = Path("/proc/self/mounts")

_OWN_CGROUPS = Path("/proc/self/cgroup")

_CGROUP_PREFIX = "vaka-"


class CgroupBase(NamedTuple):
    """A group of this machine below which others can be made."""

    path: Path
    controllers: frozenset[str]


def find_cgroup_bases(mounts: Path = _MOUNTS, own_cgroups: Path = _OWN_CGROUPS) -> tuple[CgroupBase, ...]:
    """Return where groups can be made: the second version for all it has, the first for ``pids`` alone."""
    found: list[CgroupBase] = []
    try:
        lines = [line.split(" ") for line in mounts.read_text().splitlines()]
        places = [line.split(":", 2) for line in own_cgroups.read_text().splitlines()]
    except OSError:
        return ()
    for _, target, kind, options, *_ in (line for line in lines if len(line) > 4):
        for number, names, place in (entry for entry in places if len(entry) == 3):
            if kind == "cgroup2" and number == "0":
                found += _find_v2_base(Path(target), place)
            elif kind == "cgroup" and "pids" in options.split(",") and "pids" in names.split(","):
                found += _find_v1_base(Path(target), place)
    return tuple(found)


def _find_v2_base(target: Path, place: str) -> list[CgroupBase]:
    own = target / place.strip("/")
    for group in (own, *own.parents):
        if not group.is_relative_to(target) or not _is_writable(group):
            return []
        with contextlib.suppress(OSError):
            handed = frozenset((group / "cgroup.subtree_control").read_text().split()) & {"pids", "memory"}
            if handed:
                return [CgroupBase(group, handed)]
    return []


def _find_v1_base(target: Path, place: str) -> list[CgroupBase]:
    own = target / place.strip("/")
    return [CgroupBase(own, frozenset({"pids"}))] if _is_writable(own) else []


def _is_writable(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def controllers_of(bases: tuple[CgroupBase, ...]) -> frozenset[str]:
    """Return what groups can bound here: ``pids``, ``memory`` or nothing."""
    return frozenset(name for base in bases for name in base.controllers)


class Cgroups:
    """The groups of one keeper and of all that it starts.

    To enter a group the kernel waits for every processor, which takes longer than everything else; so a keeper enters
    its groups before there is a command, and they are bounded when it is known how.
    """

    def __init__(self, bases: tuple[CgroupBase, ...], name: str) -> None:
        self._paths: dict[str, Path] = {}
        self._limited_controllers: set[str] = set()
        for base in bases:
            path = base.path / f"{_CGROUP_PREFIX}{name}"
            with contextlib.suppress(OSError):
                path.mkdir()
                (path / "cgroup.procs").write_text(str(os.getpid()))
                self._paths |= dict.fromkeys(base.controllers, path)

    def set_limits(self, *, pids: int | None, memory: int | None) -> frozenset[str]:
        """Bound them, and return what they bound now: what the kernel refuses is not among it."""
        done: set[str] = set()
        for name, value in (("pids", pids), ("memory", memory)):
            path = self._paths.get(name)
            if path is None or (value is None and name not in self._limited_controllers):
                continue
            with contextlib.suppress(OSError):
                (path / f"{name}.max").write_text("max" if value is None else str(value))
                self._limited_controllers.add(name)
                if value is not None:
                    done.add(name)
                if name == "memory" and (path / "memory.swap.max").exists():
                    (path / "memory.swap.max").write_text("max" if value is None else "0")
        return frozenset(done)


def remove_cgroups(bases: tuple[CgroupBase, ...], name: str) -> None:
    """Remove the groups of a keeper that is gone."""
    for base in bases:
        with contextlib.suppress(OSError):
            (base.path / f"{_CGROUP_PREFIX}{name}").rmdir()


def remove_stale_cgroups(bases: tuple[CgroupBase, ...]) -> None:
    """Remove the groups that nobody has removed, because a warden was killed."""
    for base in bases:
        with contextlib.suppress(OSError):
            for path in base.path.glob(f"{_CGROUP_PREFIX}*"):
                owner = path.name.removeprefix(_CGROUP_PREFIX)
                if owner.isdigit() and not Path("/proc", owner).exists():
                    remove_cgroups((base,), owner)


_LOAD_AVERAGE = Path("/proc/loadavg")


def rlimits_of(job: JobSpec, *, processes: int | None) -> dict[int, int]:
    """Return what the kernel bounds for each process."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: job.cpu_seconds,
        resource.RLIMIT_FSIZE: job.file_bytes,
        resource.RLIMIT_NOFILE: job.open_files,
        # Not the address space: many programs reserve far more of it than they ever use.
        resource.RLIMIT_DATA: job.memory_bytes,
        resource.RLIMIT_NPROC: processes,
    }
    return {kind: value for kind, value in wanted.items() if value is not None}


def count_tasks() -> int:
    """Return how many tasks this machine has: at least as many as its user has."""
    try:
        return int(_LOAD_AVERAGE.read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def lower_rlimits(rlimits: Mapping[int, int], pid: int = 0) -> None:
    """Set limits that only go down, of this process or of another one."""
    for kind, value in rlimits.items():
        _, hard = resource.prlimit(pid, kind)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, kind, (most, most))
