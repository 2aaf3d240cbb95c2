"""A process and everything it started, also what went away from it: found, counted, ended."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_ROUNDS = 200


@dataclass(frozen=True)
class Use:
    """What some processes use together."""

    processes: int
    memory: int
    cpu: float


def descendants(root: int) -> list[int]:
    """Return everything below ``root``, parents before children."""
    if (_PROC / str(root) / "task" / str(root) / "children").exists():
        return list(_by_children(root))
    return list(_by_parents(root))


def parent(pid: int) -> int:
    """Return who started a process, 0 if it is gone."""
    found = _stat(pid)
    return int(found[1]) if found else 0


def ask(pids: list[int]) -> None:
    """Ask processes to end."""
    for pid in pids:
        _send(pid, signal.SIGTERM)


def end(root: int) -> None:
    """Kill everything below ``root``, which must be this process or one that is stopped or gone."""
    for _ in range(_ROUNDS):
        seen: set[int] = set()
        # One that is stopped starts nothing: stop until there is nobody new, then kill.
        while found := [pid for pid in descendants(root) if pid not in seen]:
            for pid in found:
                _send(pid, signal.SIGSTOP)
            seen.update(found)
        for pid in seen:
            _send(pid, signal.SIGKILL)
        if root == os.getpid():
            reap()
        if not [pid for pid in descendants(root) if _alive(pid)]:
            return


def reap(main: int = 0) -> int | None:
    """Take note of every child that has ended; return the wait status of ``main`` if it is among them."""
    status = None
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == main:
            status = found


def use(pids: list[int]) -> Use:
    """Return what processes hold and have used; memory that several share is counted for each."""
    memory, cpu = 0, 0.0
    count = 0
    for pid in pids:
        found = _stat(pid)
        if not found or found[0] == "Z":
            continue
        count += 1
        cpu += sum(int(ticks) for ticks in found[11:15]) / _TICK
        memory += _private(pid)
    return Use(count, memory, cpu)


def shares(pids: list[int]) -> int:
    """Return the memory of processes with what is shared divided among those who share it; slow, and exact."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
            total += (sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0)) * 1024
    return total


def _private(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        total = 0
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
        return total
    return 0


def _by_children(root: int) -> Iterator[int]:
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        with contextlib.suppress(OSError):
            for task in (_PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    found = [int(word) for word in (task / "children").read_text().split()]
                    yield from found
                    waiting += found


def _by_parents(root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(parent(int(entry.name)), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        found = children.get(waiting.pop(0), [])
        yield from found
        waiting += found


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _alive(pid: int) -> bool:
    found = _stat(pid)
    return bool(found) and found[0] not in "ZX"


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
