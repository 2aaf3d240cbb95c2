"""Processes: fork, prepare and exec a program, run a function in a child; list, measure, end and reap descendants."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn

from vaka.sandbox.warden.job_spec import JobRefused, JobSpec
from vaka.system import libc, syscalls

PROXY_PORT = 3128
"""The port of the proxy in the network namespace of a command."""
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)
_EXIT_CODE_FAILED = 127


def find_program(job: JobSpec) -> str:
    """Return the path of the program that the command names. Raises ``JobRefused`` if there is none."""
    word = job.argv[0]
    folders = [job.cwd] if "/" in word else job.env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.normpath(os.path.join(job.cwd, folder, word))  # noqa: PTH118  # strings in, strings out
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113  # one look, no object
            return path
    raise JobRefused(f"there is no program {word!r}; looked in {':'.join(folders)!r}")


def make_pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors have numbers that no program expects."""
    reader, writer = os.pipe()
    return syscalls.move_fd_up(reader), syscalls.move_fd_up(writer)


def switch_user(user: tuple[int, int] | None) -> None:
    """Change the user and group of a process of root, irrevocably."""
    if user is not None and os.geteuid() == 0 and user[0] != 0:
        os.setgroups([user[1]])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])


@contextlib.contextmanager
def act_as_user(user: tuple[int, int] | None) -> Generator[None]:
    """Use the permissions of another user in a block of a supervisor: paths out of its reach count as missing."""
    if user is None or os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([user[1]])
    os.setegid(user[1])
    os.seteuid(user[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)  # the kernel clears it when the effective user changes


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(_EXIT_CODE_FAILED)


def spawn(argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], inherited_fds: Iterable[int]) -> int:
    """Start a program that needs only its descriptors prepared, without copying this process."""
    for descriptor in inherited_fds:
        os.set_inheritable(descriptor, True)  # the supervisor execs nothing itself, so nothing else inherits them
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in fd_map.items()]
    return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=_RESET_SIGNALS)


def fork_exec(
    argv: list[str],
    env: dict[str, str],
    fd_map: Mapping[int, int],
    setup: Callable[[], None],
    *,
    inherited_fds: Iterable[int] = (),
) -> int:
    """Fork, call ``setup``, place descriptors and exec the program; return its process id.

    ``fd_map`` has the descriptor for each number of the program, ``inherited_fds`` those that keep their numbers. An
    error before exec is raised here as ``JobRefused``.
    """
    parent_pid = os.getpid()
    errors, report = make_pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _exec_program(argv, env, fd_map, setup, parent_pid, tuple(inherited_fds))
        except (OSError, ValueError, JobRefused) as error:
            _write_error(report, error)
        finally:
            os._exit(_EXIT_CODE_FAILED)
    problem = _read_error(errors, report)
    if problem:
        os.waitpid(pid, 0)
        raise JobRefused(problem)
    return pid


def _exec_program(
    argv: list[str],
    env: dict[str, str],
    fd_map: Mapping[int, int],
    setup: Callable[[], None],
    parent_pid: int,
    inherited_fds: tuple[int, ...],
) -> NoReturn:
    os.setsid()
    signal.set_wakeup_fd(-1)
    setup()
    die_with_parent(parent_pid)  # after setup: a change of user or namespace clears it
    for reset in _RESET_SIGNALS:
        signal.signal(reset, signal.SIG_DFL)
    for number, descriptor in fd_map.items():
        os.dup2(descriptor, number)
    for descriptor in inherited_fds:
        os.set_inheritable(descriptor, True)
    os.execve(argv[0], argv, env)  # noqa: S606  # nosec B606  # a sandbox runs programs


def run_in_child(work: Callable[[], None], user: tuple[int, int] | None) -> None:
    """Call ``work`` in a child process, as another user. Raises ``JobRefused`` with the error of the child."""
    errors, report = make_pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            switch_user(user)
            work()
            code = 0
        except (OSError, ValueError, JobRefused) as error:
            _write_error(report, error)
        finally:
            os._exit(code)
    problem = _read_error(errors, report)
    if os.waitpid(pid, 0)[1] != 0:
        raise JobRefused(problem or "the process that was to confine the command was killed")


def _write_error(report: int, error: Exception) -> None:
    with contextlib.suppress(OSError):
        os.write(report, f"{error}".encode(errors="replace")[:4096])


def _read_error(errors: int, report: int) -> str:
    """Return the error that a child wrote, empty if it closed the pipe without one."""
    os.close(report)
    with os.fdopen(errors, "rb") as reader:
        return reader.read().decode(errors="replace")


def make_socket_in_child(work: Callable[[], socket.socket]) -> socket.socket:
    """Call ``work`` in a child process, which may change its namespaces, and return the socket that it made."""
    parent_end, child_end = socket.socketpair()
    with parent_end, child_end:
        try:
            run_in_child(lambda: send_socket(child_end, work()), None)
        except JobRefused as error:
            raise JobRefused(f"its network cannot be reached: {error}") from error
        return receive_socket(parent_end)


def send_socket(channel: socket.socket, sent: socket.socket) -> None:
    socket.send_fds(channel, [b"!"], [sent.fileno()])


def receive_socket(channel: socket.socket) -> socket.socket:
    _, descriptors, _, _ = socket.recv_fds(channel, 16, 1)
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def open_listener() -> socket.socket:
    """Return a socket that listens on the loopback address of this network namespace."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(128)
    return listener


# ------------------------------------------------------------------------------------------------------- descendants

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
    children_of = _children_of if _HAS_CHILDREN_FILE else _find_children()
    found = [root]
    for pid in found:  # the list grows while it is walked
        found += children_of(pid)
    return found[1:]


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
    it, or if it does not end, for example in an uninterruptible wait for a disk.
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
    """Kill the descendants of ``root``; return the killed processes, and processes that this process may not kill."""
    stopped: set[int] = set()
    # A stopped process cannot fork: stop all until no new ones appear, then kill them.
    while new := [pid for pid in list_descendants(root) if pid not in stopped]:
        for pid in new:
            _send_signal(pid, signal.SIGSTOP)
        stopped.update(new)
    sent = {pid: _send_signal(pid, signal.SIGKILL) for pid in stopped}
    return [pid for pid, killed in sent.items() if killed], [pid for pid, killed in sent.items() if not killed]


def reap_children() -> Iterator[tuple[int, int]]:
    """Reap every child that has ended; yield their process ids and wait statuses."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def measure_use(pids: list[int]) -> ResourceUse:
    """Return what processes use together; memory that several share is counted for each."""
    count = 0
    memory = 0
    cpu = 0.0
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


def _children_of(pid: int) -> list[int]:
    tasks = _list_names(f"/proc/{pid}/task")
    return [int(word) for task in tasks for word in _read_proc_file(f"/proc/{pid}/task/{task}/children").split()]


def _find_children() -> Callable[[int], list[int]]:
    """Return a function that returns the children of a process, from the parents of all processes."""
    children: dict[int, list[int]] = {}
    for name in _list_names("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    return lambda pid: children.get(pid, [])


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
