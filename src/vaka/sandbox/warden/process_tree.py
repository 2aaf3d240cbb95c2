"""A process and its descendants: list, measure, terminate, kill and reap them."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from typing import NamedTuple

KILL_TIMEOUT = 10
"""Seconds to wait for a killed process to end."""
_MAX_POLLED = 64
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110  # kernels can be built without


class ResourceUse(NamedTuple):
    processes: int
    memory: int
    cpu: float


def list_descendants(root: int) -> list[int]:
    """Return the descendants of ``root``, parents before children."""
    return list(_list_by_children(root) if _HAS_CHILDREN_FILE else _list_by_parents(root))


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 if the process is gone."""
    fields = _read_stat(pid)
    return int(fields[1]) if fields else 0


def terminate(pids: list[int]) -> None:
    """Send SIGTERM to processes."""
    for pid in pids:
        _send_signal(pid, signal.SIGTERM)


def end_descendants() -> bool:
    """Kill all descendants of this process and reap them; ``False`` if some are left.

    This process must be their subreaper: orphans then become its children. A process is left if this one may not kill
    it, or if it does not end, such as one in an uninterruptible wait for a disk.
    """
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid:
            continue
        killed, spared = kill_descendants(os.getpid())
        # The kernel's list of children can miss one while another ends: if none was found, list them again. Below a
        # process that may not be killed there is no child to wait for.
        children = [child for child in killed if parent_of(child) == os.getpid()]
        if (spared and not children) or (children and not _wait_for_one(children)):
            return False


def _wait_for_one(children: list[int]) -> bool:
    """Wait until one of these children can be reaped; ``False`` after ``KILL_TIMEOUT``."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for pid in children[:_MAX_POLLED]:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return True
            except OSError:  # kernels before 5.3 have no pidfd_open
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, 0)
                return True
            stack.callback(os.close, descriptor)
            poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(KILL_TIMEOUT * 1000))


def kill_descendants(root: int) -> tuple[list[int], list[int]]:
    """Kill the descendants of ``root``; return those killed, and those that this process may not kill."""
    stopped: set[int] = set()
    # A stopped process cannot fork: stop all until no new ones appear, then kill them.
    while new := [pid for pid in list_descendants(root) if pid not in stopped]:
        for pid in new:
            _send_signal(pid, signal.SIGSTOP)
        stopped.update(new)
    sent = {pid: _send_signal(pid, signal.SIGKILL) for pid in stopped}
    return [pid for pid, killed in sent.items() if killed], [pid for pid, killed in sent.items() if not killed]


def reap_children(main_pid: int = 0) -> int | None:
    """Reap every child that has ended; return the wait status of ``main_pid`` if it is among them."""
    main_status = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return main_status
        if pid == 0:
            return main_status
        if pid == main_pid:
            main_status = status


def measure_use(pids: list[int]) -> ResourceUse:
    """Return what processes use together; memory that several share is counted for each."""
    count, memory, cpu = 0, 0, 0.0
    for pid in pids:
        fields = _read_stat(pid)
        if not fields or fields[0] == b"Z":
            continue
        count += 1
        cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND
        memory += _private_memory_of(pid)
    return ResourceUse(count, memory, cpu)


def proportional_memory_of(pids: list[int]) -> int:
    """Return the memory of processes, with shared memory divided among the processes that share it; slow, but exact."""
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
    """Return the content of a file in ``/proc``, nothing if the process is gone."""
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
    """Send a signal to a process that may be gone; ``False`` if this process has no permission."""
    try:
        os.kill(pid, number)
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True
