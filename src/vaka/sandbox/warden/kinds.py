"""The three ways to start a command, each from a fork of its keeper."""

import contextlib
import functools
import os
import re
import resource
import signal
import socket
from collections.abc import Callable
from typing import TypeAlias

from vaka.sandbox.warden import family, kernel, launch, limits, mounts, rules, spaces
from vaka.sandbox.warden.order import Order, Refused

SHELL = "/bin/sh"
_TRIES = 5
_CHILD = re.compile(rb'"child-pid"\s*:\s*(\d+)\s*[,}]')
# It says that it is there, waits for its last mounts, runs the command, says how that ended, and stays until it may go:
# bubblewrap ends everything when its first process ends, and what a command left behind may still be printing.
# Bubblewrap itself keeps the first three descriptors open, so the real ones have other numbers; and it stays out of the
# folder to work in, since who is in a folder before something is mounted there has a way around that.
SCRIPT = (
    'exec >/dev/null 2>&1; echo >&3; read -r OLDPWD <&4 && cd "$0" || exit; unset OLDPWD; '
    '(exec "$@" >&6 2>&5 3>&- 4<&- 5>&- 6>&-); code=$?; exec 5>&- 6>&-; '
    'echo "$code" >&3; exec 3>&-; read -r all_done <&4'
)


class Started:
    """A command that runs, with what it takes to end it."""

    def __init__(self, pid: int, root: int, clean: Callable[[], None] | None = None) -> None:
        self.pid = pid
        self.root = root
        """Everything below is the command's, but ``own``."""
        self.own: set[int] = set()
        """Processes below the root that are not the command's."""
        self.report = -1
        """Where the code of the command can be read, if not from its own end."""
        self.held = -1
        self.inner = 0
        """The first process of its namespace: with it everything ends."""
        self.listener: socket.socket | None = None
        self.clean = clean or _nothing
        """Takes away what was made for it."""


Streams: TypeAlias = tuple[int, int, int]


def start(order: Order, streams: Streams) -> Started:
    """Start a command. Raises ``Refused`` when it cannot be confined as asked."""
    how = {"bubblewrap": _bubblewrap, "landlock": _landlock, "none": _none}[order.kind]
    try:
        return how(order, streams)
    except OSError as error:
        raise Refused(str(error)) from error


def _nothing() -> None:
    """There is nothing to take away."""


def user_of(order: Order) -> tuple[int, int] | None:
    """Return who a command of root runs as: the owner of the folder it works in."""
    if os.geteuid() != 0:
        return None
    if order.user is not None:
        return order.user
    found = os.stat(order.writable[0] if order.writable else order.cwd)  # noqa: PTH116  # a string, one look
    return (found.st_uid, found.st_gid) if found.st_uid != 0 else None


def _lay(order: Order, *, protect: bool = True) -> mounts.Layout:
    """Return all that a command sees."""
    with launch.acting_as(user_of(order)):
        layout = mounts.Layout(order)
        try:
            layout.complete(order, protect=protect)
        except BaseException:
            layout.remove()
            raise
    return layout


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def _bubblewrap(order: Order, streams: Streams) -> Started:
    program = launch.find_program(order)
    for _ in range(_TRIES):
        with launch.acting_as(user_of(order)):
            layout = mounts.Layout(order)
        try:
            if not (order.trees and kernel.has_trees()):
                _complete(order, layout)
                layout.merge()
            return _wrapped(order, layout, program, streams)
        except (OSError, Refused):
            layout.remove()
            if not layout.outdated:
                raise
        finally:
            layout.close()
    raise Refused("sockets on this machine come and go too fast to be hidden")


def _complete(order: Order, layout: mounts.Layout) -> None:
    with launch.acting_as(user_of(order)):
        layout.complete(order)


def _wrapped(order: Order, layout: mounts.Layout, program: str, streams: Streams) -> Started:
    report, reports = launch.pipe()
    holding, held = launch.pipe()
    diagnosis, diagnoses = launch.pipe()
    info, informs = launch.pipe()
    blocking, block = launch.pipe()
    mine = [informs, blocking]
    words = [*_namespaces(order), "--info-fd", str(informs), "--block-fd", str(blocking)]
    if order.filter:
        mine.append(_data(bytes.fromhex(order.filter)))
        words += ["--seccomp", str(mine[-1])]
    words += [*mounts.arguments(layout.steps, order.memory_bytes), "--chdir", "/"]
    mine.append(_data(b"".join(os.fsencode(word) + b"\0" for word in words)))
    argv = [order.program, "--args", str(mine[-1]), "--", SHELL, "-c", SCRIPT, layout.cwd, program, *order.argv[1:]]
    user = user_of(order)
    placed = {0: streams[0], 1: diagnoses, 2: diagnoses, 3: reports, 4: holding, 5: streams[2], 6: streams[1]}
    shared = [*mine, *layout.descriptors]
    try:
        if user is None:
            pid = launch.spawn(argv, order.env, placed, shared)
        else:
            pid = launch.start(argv, order.env, placed, lambda: launch.become(user), shared=shared)
    finally:
        for descriptor in (reports, holding, diagnoses, *mine):
            os.close(descriptor)
    started = Started(pid, pid, layout.remove)
    started.report, started.held = report, held
    _release(order, layout, started, (info, block, diagnosis))
    return started


def _release(order: Order, layout: mounts.Layout, started: Started, pipes: tuple[int, int, int]) -> None:
    """Bound the new namespace from outside, lay the last of its mounts, and let its first process go on."""
    info, block, diagnosis = pipes
    try:
        if not layout.completed:  # bubblewrap is busy meanwhile
            _complete(order, layout)
        started.inner = _inner(info)
        if order.listen:
            started.listener = launch.elsewhere(lambda: _listen_in(started.inner))
        launch.apart(lambda: _go_on(order, layout, started, block), user_of(order))
    except (OSError, Refused) as error:
        raise Refused(_failed(started, diagnosis, str(error))) from error
    finally:
        for descriptor in pipes:
            os.close(descriptor)
    started.own = {started.inner, *family.descendants(started.inner)[:1]}


def _go_on(order: Order, layout: mounts.Layout, started: Started, block: int) -> None:
    # Only inside its user namespace do no other processes of its user count. It is that user who bounds it: root may
    # not, if it lacks the capability for it.
    limits.bound(limits.limits(order, processes=order.processes), started.inner)
    os.write(block, b"\n")
    if os.read(started.report, 1) != b"\n":
        raise Refused("bubblewrap could not start the command")
    if layout.late:
        spaces.join_mounts(started.inner)
        spaces.hold(layout.late)
    os.write(started.held, b"\n")


def _namespaces(order: Order) -> list[str]:
    return [
        "--unshare-all", *(["--share-net"] if order.network else []), "--die-with-parent", "--new-session",
        "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
        *mounts.arguments([mounts.Step("empty", "/dev/shm")], order.memory_bytes),  # noqa: S108  # nosec B108  # an empty one
        # As root a fresh /proc could be written to, with it the settings of the kernel.
        "--proc", "/proc", "--remount-ro", "/proc",
    ]  # fmt: skip


def _inner(info: int) -> int:
    text = b""
    while piece := os.read(info, 4096):
        text += piece
        found = _CHILD.search(text)  # it comes in many pieces, and the rest does not matter
        if found:
            return int(found[1])
    raise Refused("bubblewrap could not make its namespaces")


def _listen_in(pid: int) -> socket.socket:
    spaces.join_network(pid)
    return launch.listener()


def _failed(started: Started, diagnosis: int, otherwise: str) -> str:
    os.kill(started.pid, signal.SIGKILL)
    os.waitpid(started.pid, 0)
    for descriptor in (started.report, started.held):
        os.close(descriptor)
    os.set_blocking(diagnosis, False)
    with contextlib.suppress(OSError):
        said = os.read(diagnosis, 4096).decode(errors="replace").strip()
        return said or otherwise
    return otherwise


def _data(content: bytes) -> int:
    made = kernel.higher(os.memfd_create("vaka"))
    left = memoryview(content)
    while left:
        left = left[os.write(made, left) :]
    os.lseek(made, 0, os.SEEK_SET)
    return made


# ------------------------------------------------------------------------------------------------------ landlock, none


def _landlock(order: Order, streams: Streams) -> Started:
    program = launch.find_program(order)
    if order.spaces and spaces_work():
        layout = _lay(order)
        try:
            return _in_spaces(order, layout, program, streams)
        except (OSError, Refused):
            layout.remove()
            raise
        finally:
            layout.close()
    return _by_rules_alone(order, program, streams)


def _in_spaces(order: Order, layout: mounts.Layout, program: str, streams: Streams) -> Started:
    here, there = socket.socketpair()
    user = user_of(order)
    counted = os.geteuid() != 0 or user is not None

    def setup() -> None:
        limits.bound(limits.limits(order, processes=None))
        launch.become(user)
        spaces.enter(order, layout)
        if order.listen:
            launch.hand_over(there, launch.listener())
        if counted and order.processes is not None:
            limits.bound({resource.RLIMIT_NPROC: order.processes})
        os.chdir(layout.cwd)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.drop_capabilities()
        rules.enter([*layout.writable, *mounts.MASKED], [], shared_memory=True)
        _filter(order)

    with here, there:
        pid = _plain(order, program, streams, setup)
        started = Started(pid, os.getpid(), layout.remove)
        if order.listen:
            _, descriptors, _, _ = socket.recv_fds(here, 16, 1)
            os.set_inheritable(descriptors[0], False)
            started.listener = socket.socket(fileno=descriptors[0])
    return started


def _by_rules_alone(order: Order, program: str, streams: Streams) -> Started:
    layout = _lay(order, protect=False)
    layout.close()
    unheld = [*mounts.inside(order), *(path for path in layout.hidden if _in_any(path, layout.writable))]
    if order.strict and unheld:
        raise Refused(
            f"Landlock alone cannot hold {unheld[0]!r}, which is inside a writable folder; "
            "install bubblewrap, or allow user namespaces"
        )
    if order.listen:
        raise Refused("a network with a single way out takes a network namespace; install bubblewrap")
    user = user_of(order)
    folder = f"/tmp/vaka-{os.urandom(8).hex()}"  # noqa: S108  # nosec B108  # a name nobody can guess, made or refused
    os.mkdir(folder, 0o700)  # noqa: PTH102  # a string
    if user is not None:
        os.chown(folder, *user)
    private = {"TMPDIR": folder, "TMP": folder, "TEMP": folder}

    def setup() -> None:
        limits.bound(limits.limits(order, processes=_counted(order, user)))
        launch.become(user)
        os.chdir(layout.cwd)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if os.geteuid() == 0:
            kernel.drop_capabilities()
        rules.enter([*layout.writable, folder], layout.hidden, shared_memory=False)
        _filter(order)

    clean = _removal(folder)
    try:
        pid = _plain(order, program, streams, setup, private)
    except (OSError, Refused):
        clean()
        raise
    return Started(pid, os.getpid(), clean)


def _none(order: Order, streams: Streams) -> Started:
    program = launch.find_program(order)

    def setup() -> None:
        limits.bound(limits.limits(order, processes=_counted(order, order.user)))
        launch.become(order.user)
        os.chdir(order.cwd)

    return Started(_plain(order, program, streams, setup), os.getpid())


def _plain(
    order: Order, program: str, streams: tuple[int, int, int], setup: Callable[[], None],
    more: dict[str, str] | None = None,
) -> int:  # fmt: skip
    argv = [program, *order.argv[1:]]
    placed = dict(enumerate(streams))
    return launch.start(argv, {**order.env, **(more or {})}, placed, setup)


def _filter(order: Order) -> None:
    if order.filter:
        kernel.seccomp(bytes.fromhex(order.filter))


def _counted(order: Order, user: tuple[int, int] | None) -> int | None:
    """Return the bound on processes of a user, whose others count too; root obeys none."""
    if order.processes is None or (os.geteuid() == 0 and user is None):
        return None
    return limits.everybody() + order.processes


def _in_any(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _removal(folder: str) -> Callable[[], None]:
    def remove() -> None:
        import shutil  # noqa: PLC0415  # heavy, and this is after the end

        shutil.rmtree(folder, ignore_errors=True)

    return remove


@functools.cache
def spaces_work() -> bool:
    """Try it, in a process that is gone afterwards."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(OSError):
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
            kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
