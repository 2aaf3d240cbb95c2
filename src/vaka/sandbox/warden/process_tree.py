"""A process and its descendants: list, measure, terminate, kill and reap them."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from typing import NamedTuple

KILL_TIMEOUT = 10
"""Seconds within which a process that was killed has to end."""
_MAX_POLLED = 64
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110  # kernels can be built without


class ResourceUse(NamedTuple):
    """What some processes use together."""

    processes: int
    memory: int
    cpu: float


def list_descendants(root: int) -> list[int]:
    """Return everything below ``root``, parents before children."""
    if _HAS_CHILDREN_FILE:
        return list(_list_by_children(root))
    return list(_list_by_parents(root))


def parent_of(pid: int) -> int:
    """Return who started a process, 0 if it is gone."""
    found = _read_stat(pid)
    return int(found[1]) if found else 0


def terminate(pids: list[int]) -> None:
    """Ask processes to end."""
    for pid in pids:
        _send_signal(pid, signal.SIGTERM)


def end_descendants() -> bool:
    """Kill everything below this process, and wait until it is gone; ``False`` if something is left.

    This process must be the one that orphans fall to: then everything is its child, sooner or later. What is left may
    not be killed by this process, or cannot die: the kernel keeps who waits for a disk that does not answer.
    """
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid:
            continue
        killed, spared = kill_descendants(os.getpid())
        # The kernel's list can miss one while another ends: who found nobody to kill has nobody to wait for, and looks
        # again. Nor is there anybody to wait for below one that may not be killed.
        children = [one for one in killed if parent_of(one) == os.getpid()]
        if (spared and not children) or (children and not _wait_for_one(children)):
            return False


def _wait_for_one(children: list[int]) -> bool:
    """Wait until one of some children has ended, so that it can be waited for; ``False`` if that takes too long."""
    with contextlib.ExitStack() as stack:
        polling = select.poll()
        for pid in children[:_MAX_POLLED]:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return True
            except OSError:  # the kernel is too old for it
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, 0)
                return True
            stack.callback(os.close, descriptor)
            polling.register(descriptor, select.POLLIN)
        return bool(polling.poll(KILL_TIMEOUT * 1000))


def kill_descendants(root: int) -> tuple[list[int], list[int]]:
    """Kill everything below ``root``; return whom, and who may not be killed by this process."""
    seen: set[int] = set()
    # One that is stopped starts nothing: stop until there is nobody new, then kill.
    while found := [pid for pid in list_descendants(root) if pid not in seen]:
        for pid in found:
            _send_signal(pid, signal.SIGSTOP)
        seen.update(found)
    told = {pid: _send_signal(pid, signal.SIGKILL) for pid in seen}
    return [pid for pid, sent in told.items() if sent], [pid for pid, sent in told.items() if not sent]


def reap_children(main_pid: int = 0) -> int | None:
    """Take note of every child that has ended; return the wait status of ``main`` if it is among them."""
    status = None
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == main_pid:
            status = found


def measure_use(pids: list[int]) -> ResourceUse:
    """Return what processes hold and have used; memory that several share is counted for each."""
    memory, cpu = 0, 0.0
    count = 0
    for pid in pids:
        found = _read_stat(pid)
        if not found or found[0] == b"Z":
            continue
        count += 1
        cpu += sum(int(ticks) for ticks in found[11:15]) / _TICKS_PER_SECOND
        memory += _private_memory_of(pid)
    return ResourceUse(count, memory, cpu)


def proportional_memory_of(pids: list[int]) -> int:
    """Return the memory of processes with what is shared divided among those who share it; slow, and exact."""
    total = 0
    for pid in pids:
        for line in _read_proc_file(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
    return total


def _private_memory_of(pid: int) -> int:
    lines = _read_proc_file(f"/proc/{pid}/status").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))


def _list_by_children(root: int) -> Iterator[int]:
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        for task in _list_names(f"/proc/{pid}/task"):
            found = [int(word) for word in _read_proc_file(f"/proc/{pid}/task/{task}/children").split()]
            yield from found
            waiting += found


def _list_by_parents(root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for name in _list_names("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    waiting = [root]
    while waiting:
        found = children.get(waiting.pop(0), [])
        yield from found
        waiting += found


def _read_stat(pid: int) -> list[bytes]:
    return _read_proc_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _list_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _read_proc_file(path: str) -> bytes:
    """Return what is in one of the kernel's files, nothing if it is gone; many are read, so it is quick."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts: list[bytes] = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)


def _send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process that may be gone; ``False`` if one may not."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except OSError:
        return True
    return True
