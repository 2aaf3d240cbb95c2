"""Fork, prepare and exec a program; run a function in a child process; switch users."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NoReturn

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
    argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], setup: Callable[[], None],
    *, inherited_fds: Iterable[int] = (),
) -> int:  # fmt: skip
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
    argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], setup: Callable[[], None],
    parent_pid: int, inherited_fds: tuple[int, ...],
) -> NoReturn:  # fmt: skip
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
    pid = os.fork()
    if pid == 0:
        try:
            send_socket(child_end, work())
        except (OSError, JobRefused) as error:
            child_end.send(f"{error}".encode()[:1000])
        finally:
            os._exit(0)
    child_end.close()
    with parent_end:
        text, descriptors, _, _ = socket.recv_fds(parent_end, 1024, 1)
    os.waitpid(pid, 0)
    if not descriptors:
        raise JobRefused(f"its network cannot be reached: {text.decode(errors='replace')}")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def send_socket(channel: socket.socket, sent: socket.socket) -> None:
    socket.send_fds(channel, [b"!"], [sent.fileno()])


def open_listener() -> socket.socket:
    """Return a socket that listens on the loopback address of this network namespace."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(128)
    return listener
