"""From a fork to the program: everything a new process does to itself before it becomes somebody else's."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NoReturn

from vaka.sandbox.warden import kernel
from vaka.sandbox.warden.order import Order, Refused

PORT = 3128
"""Where a command with a single way out finds it, in its own network."""
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)
_FAILED = 127


def find_program(order: Order) -> str:
    """Return the file that the command's first word names."""
    word = order.argv[0]
    folders = [order.cwd] if "/" in word else order.env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.normpath(os.path.join(order.cwd, folder, word))  # noqa: PTH118  # strings in, strings out
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113  # one look, no object
            return path
    raise Refused(f"there is no program {word!r}; looked in {':'.join(folders)!r}")


def pipe() -> tuple[int, int]:
    """Return a pipe at such numbers."""
    one, other = os.pipe()
    return kernel.higher(one), kernel.higher(other)


def become(user: tuple[int, int] | None) -> None:
    """Be somebody else, for ever."""
    if user is not None and os.geteuid() == 0 and user[0] != 0:
        os.setgroups([user[1]])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])


@contextlib.contextmanager
def acting_as(user: tuple[int, int] | None) -> Generator[None]:
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


def bind_to(owner: int) -> None:
    """End when the process does that started this one."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(_FAILED)


def spawn(argv: list[str], env: dict[str, str], placed: Mapping[int, int], shared: Iterable[int]) -> int:
    """Start a program that needs no more preparation than its descriptors, without copying this process."""
    for descriptor in shared:
        os.set_inheritable(descriptor, True)  # whoever forks next is the keeper itself, and it never becomes a program
    places = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in placed.items()]
    return os.posix_spawn(argv[0], argv, env, file_actions=places, setsid=True, setsigdef=_RESTORED)


def start(
    argv: list[str], env: dict[str, str], placed: Mapping[int, int], setup: Callable[[], None],
    *, shared: Iterable[int] = (),
) -> int:  # fmt: skip
    """Fork, set up, place descriptors and become the program; return its id.

    ``placed`` says which descriptor the program has at which number, ``shared`` which it has where they are. What goes
    wrong before it is the program is raised here, as ``Refused``.
    """
    owner = os.getpid()
    said, says = pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become_program(argv, env, placed, setup, owner, tuple(shared))
        except (OSError, ValueError, Refused) as error:
            with contextlib.suppress(OSError):
                os.write(says, f"{error}".encode(errors="replace")[:4096])
        finally:
            os._exit(_FAILED)
    os.close(says)
    with os.fdopen(said, "rb") as reading:
        problem = reading.read()
    if problem:
        os.waitpid(pid, 0)
        raise Refused(problem.decode(errors="replace"))
    return pid


def _become_program(
    argv: list[str], env: dict[str, str], placed: Mapping[int, int], setup: Callable[[], None],
    owner: int, shared: tuple[int, ...],
) -> NoReturn:  # fmt: skip
    os.setsid()
    signal.set_wakeup_fd(-1)
    setup()
    bind_to(owner)  # after setup, since a change of user or namespace takes it back
    for restored in _RESTORED:
        signal.signal(restored, signal.SIG_DFL)
    for number, descriptor in placed.items():
        os.dup2(descriptor, number)
    for descriptor in shared:
        os.set_inheritable(descriptor, True)
    os.execve(argv[0], argv, env)  # noqa: S606  # nosec B606  # that is what this is for


def apart(work: Callable[[], None], user: tuple[int, int] | None) -> None:
    """Do something in a process of its own, as somebody else. Raises ``Refused`` with what went wrong there."""
    said, says = pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become(user)
            work()
            code = 0
        except (OSError, ValueError, Refused) as error:
            with contextlib.suppress(OSError):
                os.write(says, f"{error}".encode(errors="replace")[:4096])
        finally:
            os._exit(code)
    os.close(says)
    with os.fdopen(said, "rb") as reading:
        problem = reading.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise Refused(problem.decode(errors="replace") or "it cannot be confined: whoever was to do so is gone")


def elsewhere(work: Callable[[], socket.socket]) -> socket.socket:
    """Do something in a process of its own, which may change its namespaces, and return the socket it made."""
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            hand_over(there, work())
        except (OSError, Refused) as error:
            there.send(f"{error}".encode()[:1000])
        finally:
            os._exit(0)
    there.close()
    with here:
        text, descriptors, _, _ = socket.recv_fds(here, 1024, 1)
    os.waitpid(pid, 0)
    if not descriptors:
        raise Refused(f"its network cannot be reached: {text.decode(errors='replace')}")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def hand_over(channel: socket.socket, made: socket.socket) -> None:
    """Give a socket to whoever is at the other end."""
    socket.send_fds(channel, [b"!"], [made.fileno()])


def listener() -> socket.socket:
    """Return a socket that listens where only this network namespace can reach it."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind(("127.0.0.1", PORT))
    made.listen(128)
    return made
