"""Fork, prepare and exec a program; run a function in a child process; switch users."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NoReturn

from vaka.sandbox.warden import syscalls
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec

PROXY_PORT = 3128
"""Where a command with a single way out finds it, in its own network."""
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)
_EXIT_CODE_FAILED = 127


def find_program(job: JobSpec) -> str:
    """Return the file that the command's first word names."""
    word = job.argv[0]
    folders = [job.cwd] if "/" in word else job.env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.normpath(os.path.join(job.cwd, folder, word))  # noqa: PTH118  # strings in, strings out
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113  # one look, no object
            return path
    raise JobRefused(f"there is no program {word!r}; looked in {':'.join(folders)!r}")


def make_pipe() -> tuple[int, int]:
    """Return a pipe at such numbers."""
    one, other = os.pipe()
    return syscalls.move_fd_up(one), syscalls.move_fd_up(other)


def switch_user(user: tuple[int, int] | None) -> None:
    """Be somebody else, for ever."""
    if user is not None and os.geteuid() == 0 and user[0] != 0:
        os.setgroups([user[1]])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])


@contextlib.contextmanager
def act_as_user(user: tuple[int, int] | None) -> Generator[None]:
    """Look at files as somebody else does, for a while: what they cannot reach is not there."""
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


def die_with_parent(parent_pid: int) -> None:
    """End when the process does that started this one."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(_EXIT_CODE_FAILED)


def spawn(argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], inherited_fds: Iterable[int]) -> int:
    """Start a program that needs no more preparation than its descriptors, without copying this process."""
    for descriptor in inherited_fds:
        os.set_inheritable(descriptor, True)  # whoever forks next is the keeper itself, and it never becomes a program
    places = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in fd_map.items()]
    return os.posix_spawn(argv[0], argv, env, file_actions=places, setsid=True, setsigdef=_RESET_SIGNALS)


def fork_exec(
    argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], setup: Callable[[], None],
    *, inherited_fds: Iterable[int] = (),
) -> int:  # fmt: skip
    """Fork, set up, place descriptors and become the program; return its id.

    ``placed`` says which descriptor the program has at which number, ``shared`` which it has where they are. What goes
    wrong before it is the program is raised here, as ``Refused``.
    """
    owner = os.getpid()
    said, says = make_pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _exec_program(argv, env, fd_map, setup, owner, tuple(inherited_fds))
        except (OSError, ValueError, JobRefused) as error:
            with contextlib.suppress(OSError):
                os.write(says, f"{error}".encode(errors="replace")[:4096])
        finally:
            os._exit(_EXIT_CODE_FAILED)
    os.close(says)
    with os.fdopen(said, "rb") as reading:
        problem = reading.read()
    if problem:
        os.waitpid(pid, 0)
        raise JobRefused(problem.decode(errors="replace"))
    return pid


def _exec_program(
    argv: list[str], env: dict[str, str], fd_map: Mapping[int, int], setup: Callable[[], None],
    parent_pid: int, inherited_fds: tuple[int, ...],
) -> NoReturn:  # fmt: skip
    os.setsid()
    signal.set_wakeup_fd(-1)
    setup()
    die_with_parent(parent_pid)  # after setup, since a change of user or namespace takes it back
    for restored in _RESET_SIGNALS:
        signal.signal(restored, signal.SIG_DFL)
    for number, descriptor in fd_map.items():
        os.dup2(descriptor, number)
    for descriptor in inherited_fds:
        os.set_inheritable(descriptor, True)
    os.execve(argv[0], argv, env)  # noqa: S606  # nosec B606  # that is what this is for


def run_in_child(work: Callable[[], None], user: tuple[int, int] | None) -> None:
    """Do something in a process of its own, as somebody else. Raises ``Refused`` with what went wrong there."""
    said, says = make_pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            switch_user(user)
            work()
            code = 0
        except (OSError, ValueError, JobRefused) as error:
            with contextlib.suppress(OSError):
                os.write(says, f"{error}".encode(errors="replace")[:4096])
        finally:
            os._exit(code)
    os.close(says)
    with os.fdopen(said, "rb") as reading:
        problem = reading.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise JobRefused(problem.decode(errors="replace") or "it cannot be confined: whoever was to do so is gone")


def make_socket_in_child(work: Callable[[], socket.socket]) -> socket.socket:
    """Do something in a process of its own, which may change its namespaces, and return the socket it made."""
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            send_socket(there, work())
        except (OSError, JobRefused) as error:
            there.send(f"{error}".encode()[:1000])
        finally:
            os._exit(0)
    there.close()
    with here:
        text, descriptors, _, _ = socket.recv_fds(here, 1024, 1)
    os.waitpid(pid, 0)
    if not descriptors:
        raise JobRefused(f"its network cannot be reached: {text.decode(errors='replace')}")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def send_socket(channel: socket.socket, made: socket.socket) -> None:
    """Give a socket to whoever is at the other end."""
    socket.send_fds(channel, [b"!"], [made.fileno()])


def open_listener() -> socket.socket:
    """Return a socket that listens where only this network namespace can reach it."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind(("127.0.0.1", PROXY_PORT))
    made.listen(128)
    return made
