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
    """A control group below which others can be made."""

    path: Path
    controllers: frozenset[str]


def find_cgroup_bases(mounts: Path = _MOUNTS, own_cgroups: Path = _OWN_CGROUPS) -> tuple[CgroupBase, ...]:
    """Return the groups below which others can be made: version 2 with all its controllers, version 1 with ``pids``."""
    bases: list[CgroupBase] = []
    try:
        lines = [line.split(" ") for line in mounts.read_text().splitlines()]
        groups = [line.split(":", 2) for line in own_cgroups.read_text().splitlines()]
    except OSError:
        return ()
    for _, target, kind, options, *_ in (line for line in lines if len(line) > 4):
        for number, names, path in (group for group in groups if len(group) == 3):
            if kind == "cgroup2" and number == "0":
                bases += _find_v2_base(Path(target), path)
            elif kind == "cgroup" and "pids" in options.split(",") and "pids" in names.split(","):
                bases += _find_v1_base(Path(target), path)
    return tuple(bases)


def _find_v2_base(target: Path, path: str) -> list[CgroupBase]:
    own = target / path.strip("/")
    for group in (own, *own.parents):
        if not group.is_relative_to(target) or not _is_writable(group):
            return []
        with contextlib.suppress(OSError):
            delegated = frozenset((group / "cgroup.subtree_control").read_text().split()) & {"pids", "memory"}
            if delegated:
                return [CgroupBase(group, delegated)]
    return []


def _find_v1_base(target: Path, path: str) -> list[CgroupBase]:
    own = target / path.strip("/")
    return [CgroupBase(own, frozenset({"pids"}))] if _is_writable(own) else []


def _is_writable(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def controllers_of(bases: tuple[CgroupBase, ...]) -> frozenset[str]:
    """Return what control groups can limit on this machine: ``pids``, ``memory`` or nothing."""
    return frozenset(name for base in bases for name in base.controllers)


class Cgroups:
    """The control groups of one supervisor and of all processes it starts.

    To move a process into a group the kernel synchronizes all processors, which takes longer than the rest of a start.
    So a supervisor enters its groups before it has a command, and their limits are set later.
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
        """Set or lift the limits; return what is limited now, without what the kernel refused."""
        limited: set[str] = set()
        for name, value in (("pids", pids), ("memory", memory)):
            path = self._paths.get(name)
            if path is None or (value is None and name not in self._limited_controllers):
                continue
            with contextlib.suppress(OSError):
                (path / f"{name}.max").write_text("max" if value is None else str(value))
                self._limited_controllers.add(name)
                if value is not None:
                    limited.add(name)
                if name == "memory" and (path / "memory.swap.max").exists():
                    (path / "memory.swap.max").write_text("max" if value is None else "0")
        return frozenset(limited)


def remove_cgroups(bases: tuple[CgroupBase, ...], name: str) -> None:
    """Remove the groups of a supervisor that has ended."""
    for base in bases:
        with contextlib.suppress(OSError):
            (base.path / f"{_CGROUP_PREFIX}{name}").rmdir()


def remove_stale_cgroups(bases: tuple[CgroupBase, ...]) -> None:
    """Remove the groups that a killed warden left behind."""
    for base in bases:
        with contextlib.suppress(OSError):
            for path in base.path.glob(f"{_CGROUP_PREFIX}*"):
                owner = path.name.removeprefix(_CGROUP_PREFIX)
                if owner.isdigit() and not Path("/proc", owner).exists():
                    remove_cgroups((base,), owner)


_LOAD_AVERAGE = Path("/proc/loadavg")


def rlimits_of(job: JobSpec, *, processes: int | None) -> dict[int, int]:
    """Return the rlimits of each process of a job."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: job.cpu_seconds,
        resource.RLIMIT_FSIZE: job.file_bytes,
        resource.RLIMIT_NOFILE: job.open_files,
        # Not RLIMIT_AS: many programs reserve far more address space than they use.
        resource.RLIMIT_DATA: job.memory_bytes,
        resource.RLIMIT_NPROC: processes,
    }
    return {kind: value for kind, value in limits.items() if value is not None}


def count_tasks() -> int:
    """Return the number of tasks of this machine, an upper bound for the tasks of one user."""
    try:
        return int(_LOAD_AVERAGE.read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def lower_rlimits(rlimits: Mapping[int, int], pid: int = 0) -> None:
    """Lower soft and hard limits of this process or of another one; never raise them."""
    for kind, value in rlimits.items():
        _, hard = resource.prlimit(pid, kind)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, kind, (limit, limit))
