"""Launch a job under bubblewrap, under Landlock, or unconfined; each from a fork of its supervisor."""

import contextlib
import functools
import os
import re
import resource
import signal
import socket
from collections.abc import Callable
from typing import TypeAlias

from vaka.sandbox.warden import child_process, landlock, mounts, process_tree, resource_limits, syscalls
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec

SHELL = "/bin/sh"
_MAX_TRIES = 5
_CHILD_PID = re.compile(rb'"child-pid"\s*:\s*(\d+)\s*[,}]')
# It says that it is there, waits for its last mounts, runs the command, says how that ended, and stays until it may go:
# bubblewrap ends everything when its first process ends, and what a command left behind may still be printing.
# Bubblewrap itself keeps the first three descriptors open, so the real ones have other numbers; and it stays out of the
# folder to work in, since who is in a folder before something is mounted there has a way around that.
BUBBLEWRAP_SCRIPT = (
    'exec >/dev/null 2>&1; echo >&3; read -r OLDPWD <&4 && cd "$0" || exit; unset OLDPWD; '
    '(exec "$@" >&6 2>&5 3>&- 4<&- 5>&- 6>&-); code=$?; exec 5>&- 6>&-; '
    'echo "$code" >&3; exec 3>&-; read -r all_done <&4'
)


class StartedJob:
    """A command that runs, with what it takes to end it."""

    def __init__(self, pid: int, tree_root_pid: int, clean_up: Callable[[], None] | None = None) -> None:
        self.pid = pid
        self.tree_root_pid = tree_root_pid
        """Everything below is the command's, but ``own``."""
        self.helper_pids: set[int] = set()
        """Processes below the root that are not the command's."""
        self.exit_code_fd = -1
        """Where the code of the command can be read, if not from its own end."""
        self.release_fd = -1
        self.init_pid = 0
        """The first process of its namespace: with it everything ends."""
        self.listener: socket.socket | None = None
        self.clean_up = clean_up or _clean_up_nothing
        """Takes away what was made for it."""


Streams: TypeAlias = tuple[int, int, int]


def launch_job(job: JobSpec, streams: Streams) -> StartedJob:
    """Start a command. Raises ``Refused`` when it cannot be confined as asked."""
    how = {"bubblewrap": _launch_bubblewrap, "landlock": _launch_landlock, "none": _launch_unconfined}[job.kind]
    try:
        return how(job, streams)
    except OSError as error:
        raise JobRefused(str(error)) from error


def _clean_up_nothing() -> None:
    """There is nothing to take away."""


def user_of(job: JobSpec) -> tuple[int, int] | None:
    """Return who a command of root runs as: the owner of the folder it works in."""
    if os.geteuid() != 0:
        return None
    if job.user is not None:
        return job.user
    found = os.stat(job.writable[0] if job.writable else job.cwd)  # noqa: PTH116  # a string, one look
    return (found.st_uid, found.st_gid) if found.st_uid != 0 else None


def _build_layout(job: JobSpec, *, protect: bool = True) -> mounts.MountLayout:
    """Return all that a command sees."""
    with child_process.act_as_user(user_of(job)):
        layout = mounts.MountLayout(job)
        try:
            layout.complete(job, protect=protect)
        except BaseException:
            layout.release_held_paths()
            raise
    return layout


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def _launch_bubblewrap(job: JobSpec, streams: Streams) -> StartedJob:
    program = child_process.find_program(job)
    for _ in range(_MAX_TRIES):
        with child_process.act_as_user(user_of(job)):
            layout = mounts.MountLayout(job)
        try:
            if not (job.trees and syscalls.has_mount_trees()):
                _complete_layout(job, layout)
                layout.merge_late_steps()
            return _start_bubblewrap(job, layout, program, streams)
        except (OSError, JobRefused):
            layout.release_held_paths()
            if not layout.outdated:
                raise
        finally:
            layout.close()
    raise JobRefused("sockets on this machine come and go too fast to be hidden")


def _complete_layout(job: JobSpec, layout: mounts.MountLayout) -> None:
    with child_process.act_as_user(user_of(job)):
        layout.complete(job)


def _start_bubblewrap(job: JobSpec, layout: mounts.MountLayout, program: str, streams: Streams) -> StartedJob:
    report, reports = child_process.make_pipe()
    holding, held = child_process.make_pipe()
    diagnosis, diagnoses = child_process.make_pipe()
    info, informs = child_process.make_pipe()
    blocking, block = child_process.make_pipe()
    mine = [informs, blocking]
    words = [*_namespace_arguments(job), "--info-fd", str(informs), "--block-fd", str(blocking)]
    if job.filter:
        mine.append(_memory_file(bytes.fromhex(job.filter)))
        words += ["--seccomp", str(mine[-1])]
    words += [*mounts.bubblewrap_arguments_of(layout.steps, job.memory_bytes), "--chdir", "/"]
    mine.append(_memory_file(b"".join(os.fsencode(word) + b"\0" for word in words)))
    argv = [
        job.program,
        "--args",
        str(mine[-1]),
        "--",
        SHELL,
        "-c",
        BUBBLEWRAP_SCRIPT,
        layout.cwd,
        program,
        *job.argv[1:],
    ]
    user = user_of(job)
    placed = {0: streams[0], 1: diagnoses, 2: diagnoses, 3: reports, 4: holding, 5: streams[2], 6: streams[1]}
    shared = [*mine, *layout.descriptors]
    try:
        if user is None:
            pid = child_process.spawn(argv, job.env, placed, shared)
        else:
            pid = child_process.fork_exec(
                argv, job.env, placed, lambda: child_process.switch_user(user), inherited_fds=shared
            )
    finally:
        for descriptor in (reports, holding, diagnoses, *mine):
            os.close(descriptor)
    started = StartedJob(pid, pid, layout.release_held_paths)
    started.exit_code_fd, started.release_fd = report, held
    _finish_bubblewrap_setup(job, layout, started, (info, block, diagnosis))
    return started


def _finish_bubblewrap_setup(
    job: JobSpec, layout: mounts.MountLayout, started: StartedJob, pipes: tuple[int, int, int]
) -> None:
    """Bound the new namespace from outside, lay the last of its mounts, and let its first process go on."""
    info, block, diagnosis = pipes
    try:
        if not layout.completed:  # bubblewrap is busy meanwhile
            _complete_layout(job, layout)
        started.init_pid = _read_init_pid(info)
        if job.listen:
            started.listener = child_process.make_socket_in_child(
                lambda: _open_listener_in_network_of(started.init_pid)
            )
        child_process.run_in_child(lambda: _unblock_command(job, layout, started, block), user_of(job))
    except (OSError, JobRefused) as error:
        raise JobRefused(_read_failure(started, diagnosis, str(error))) from error
    finally:
        for descriptor in pipes:
            os.close(descriptor)
    started.helper_pids = {started.init_pid, *process_tree.list_descendants(started.init_pid)[:1]}


def _unblock_command(job: JobSpec, layout: mounts.MountLayout, started: StartedJob, block: int) -> None:
    # Only inside its user namespace do no other processes of its user count. It is that user who bounds it: root may
    # not, if it lacks the capability for it.
    resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=job.processes), started.init_pid)
    os.write(block, b"\n")
    if os.read(started.exit_code_fd, 1) != b"\n":
        raise JobRefused("bubblewrap could not start the command")
    if layout.late_steps:
        mounts.join_mounts_of(started.init_pid)
        mounts.apply_late_steps(layout.late_steps)
    os.write(started.release_fd, b"\n")


def _namespace_arguments(job: JobSpec) -> list[str]:
    return [
        "--unshare-all", *(["--share-net"] if job.network else []), "--die-with-parent", "--new-session",
        "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
        *mounts.bubblewrap_arguments_of([mounts.MountStep("empty", "/dev/shm")], job.memory_bytes),  # noqa: S108  # nosec B108  # an empty one
        # As root a fresh /proc could be written to, with it the settings of the kernel.
        "--proc", "/proc", "--remount-ro", "/proc",
    ]  # fmt: skip


def _read_init_pid(info: int) -> int:
    text = b""
    while piece := os.read(info, 4096):
        text += piece
        found = _CHILD_PID.search(text)  # it comes in many pieces, and the rest does not matter
        if found:
            return int(found[1])
    raise JobRefused("bubblewrap could not make its namespaces")


def _open_listener_in_network_of(pid: int) -> socket.socket:
    mounts.join_network_of(pid)
    return child_process.open_listener()


def _read_failure(started: StartedJob, diagnosis: int, default: str) -> str:
    os.kill(started.pid, signal.SIGKILL)
    os.waitpid(started.pid, 0)
    for descriptor in (started.exit_code_fd, started.release_fd):
        os.close(descriptor)
    os.set_blocking(diagnosis, False)
    with contextlib.suppress(OSError):
        said = os.read(diagnosis, 4096).decode(errors="replace").strip()
        return said or default
    return default


def _memory_file(content: bytes) -> int:
    made = syscalls.move_fd_up(os.memfd_create("vaka"))
    left = memoryview(content)
    while left:
        left = left[os.write(made, left) :]
    os.lseek(made, 0, os.SEEK_SET)
    return made


# ------------------------------------------------------------------------------------------------------ landlock, none


def _launch_landlock(job: JobSpec, streams: Streams) -> StartedJob:
    program = child_process.find_program(job)
    if job.spaces and namespaces_work():
        layout = _build_layout(job)
        try:
            return _launch_in_namespaces(job, layout, program, streams)
        except (OSError, JobRefused):
            layout.release_held_paths()
            raise
        finally:
            layout.close()
    return _launch_with_landlock_only(job, program, streams)


def _launch_in_namespaces(job: JobSpec, layout: mounts.MountLayout, program: str, streams: Streams) -> StartedJob:
    here, there = socket.socketpair()
    user = user_of(job)
    counted = os.geteuid() != 0 or user is not None

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=None))
        child_process.switch_user(user)
        mounts.enter_namespaces(job, layout)
        if job.listen:
            child_process.send_socket(there, child_process.open_listener())
        if counted and job.processes is not None:
            resource_limits.lower_rlimits({resource.RLIMIT_NPROC: job.processes})
        os.chdir(layout.cwd)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.drop_capabilities()
        landlock.restrict_self([*layout.writable, *mounts.MASKED_FOLDERS], [], shared_memory=True)
        _install_filter(job)

    with here, there:
        pid = _fork_exec_job(job, program, streams, setup)
        started = StartedJob(pid, os.getpid(), layout.release_held_paths)
        if job.listen:
            _, descriptors, _, _ = socket.recv_fds(here, 16, 1)
            os.set_inheritable(descriptors[0], False)
            started.listener = socket.socket(fileno=descriptors[0])
    return started


def _launch_with_landlock_only(job: JobSpec, program: str, streams: Streams) -> StartedJob:
    layout = _build_layout(job, protect=False)
    layout.close()
    unheld = [
        *mounts.list_protected_in_writable(job),
        *(path for path in layout.hidden if _is_inside_any(path, layout.writable)),
    ]
    if job.strict and unheld:
        raise JobRefused(
            f"Landlock alone cannot hold {unheld[0]!r}, which is inside a writable folder; "
            "install bubblewrap, or allow user namespaces"
        )
    if job.listen:
        raise JobRefused("a network with a single way out takes a network namespace; install bubblewrap")
    user = user_of(job)
    folder = f"/tmp/vaka-{os.urandom(8).hex()}"  # noqa: S108  # nosec B108  # a name nobody can guess, made or refused
    os.mkdir(folder, 0o700)  # noqa: PTH102  # a string
    if user is not None:
        os.chown(folder, *user)
    private = {"TMPDIR": folder, "TMP": folder, "TEMP": folder}

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=_process_limit_of(job, user)))
        child_process.switch_user(user)
        os.chdir(layout.cwd)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if os.geteuid() == 0:
            syscalls.drop_capabilities()
        landlock.restrict_self([*layout.writable, folder], layout.hidden, shared_memory=False)
        _install_filter(job)

    clean = _make_remover(folder)
    try:
        pid = _fork_exec_job(job, program, streams, setup, private)
    except (OSError, JobRefused):
        clean()
        raise
    return StartedJob(pid, os.getpid(), clean)


def _launch_unconfined(job: JobSpec, streams: Streams) -> StartedJob:
    program = child_process.find_program(job)

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=_process_limit_of(job, job.user)))
        child_process.switch_user(job.user)
        os.chdir(job.cwd)

    return StartedJob(_fork_exec_job(job, program, streams, setup), os.getpid())


def _fork_exec_job(
    job: JobSpec, program: str, streams: tuple[int, int, int], setup: Callable[[], None],
    extra_env: dict[str, str] | None = None,
) -> int:  # fmt: skip
    argv = [program, *job.argv[1:]]
    placed = dict(enumerate(streams))
    return child_process.fork_exec(argv, {**job.env, **(extra_env or {})}, placed, setup)


def _install_filter(job: JobSpec) -> None:
    if job.filter:
        syscalls.install_seccomp_filter(bytes.fromhex(job.filter))


def _process_limit_of(job: JobSpec, user: tuple[int, int] | None) -> int | None:
    """Return the bound on processes of a user, whose others count too; root obeys none."""
    if job.processes is None or (os.geteuid() == 0 and user is None):
        return None
    return resource_limits.count_tasks() + job.processes


def _is_inside_any(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _make_remover(folder: str) -> Callable[[], None]:
    def remove() -> None:
        import shutil  # noqa: PLC0415  # heavy, and this is after the end

        shutil.rmtree(folder, ignore_errors=True)

    return remove


@functools.cache
def namespaces_work() -> bool:
    """Try it, in a process that is gone afterwards."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(OSError):
            syscalls.unshare(
                syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC
            )
            syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
