"""What the kernel bounds for each process: limits that only go down."""

import resource
from collections.abc import Mapping
from pathlib import Path

from vaka.sandbox.warden.order import Order

_LOADS = Path("/proc/loadavg")


def limits(order: Order, *, processes: int | None) -> dict[int, int]:
    """Return what the kernel bounds for each process."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: order.cpu_seconds,
        resource.RLIMIT_FSIZE: order.file_bytes,
        resource.RLIMIT_NOFILE: order.open_files,
        # Not the address space: many programs reserve far more of it than they ever use.
        resource.RLIMIT_DATA: order.memory_bytes,
        resource.RLIMIT_NPROC: processes,
    }
    return {kind: value for kind, value in wanted.items() if value is not None}


def everybody() -> int:
    """Return how many tasks this machine has: at least as many as its user has."""
    try:
        return int(_LOADS.read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def bound(kinds: Mapping[int, int], pid: int = 0) -> None:
    """Set limits that only go down, of this process or of another one."""
    for kind, value in kinds.items():
        _, hard = resource.prlimit(pid, kind)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, kind, (most, most))
