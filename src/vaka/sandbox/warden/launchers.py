"""Launch a job under bubblewrap, under Landlock, or unconfined; each from a fork of its supervisor."""

import contextlib
import functools
import os
import re
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from typing import TypeAlias

from vaka.sandbox.warden import mounts, processes, resource_limits
from vaka.sandbox.warden.created_paths import CreatedPaths
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec
from vaka.system import landlock, syscalls
from vaka.system.landlock import IOCTL_DEV, READ_DIR, TRUNCATE, WRITE_FILE

_READ_RIGHTS = landlock.EXECUTE | landlock.READ_FILE | READ_DIR
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout", "stderr")
SHELL = "/bin/sh"
_MAX_TRIES = 5
_CHILD_PID = re.compile(rb'"child-pid"\s*:\s*(\d+)\s*[,}]')
# The first process of the namespace reports that it runs, waits for the last mounts, runs the command, reports its exit
# code and waits to be released: bubblewrap kills the namespace when its first process ends, and descendants of the
# command may still print. Bubblewrap keeps descriptors 0 to 2 open, so the real streams have other numbers. The working
# folder is entered after the last mounts: a process that was in a folder before something is mounted on it sees under
# the mount.
BUBBLEWRAP_SCRIPT = (
    'exec >/dev/null 2>&1; echo >&3; read -r OLDPWD <&4 && cd "$0" || exit; unset OLDPWD; '
    '(exec "$@" >&6 2>&5 3>&- 4<&- 5>&- 6>&-); code=$?; exec 5>&- 6>&-; '
    'echo "$code" >&3; exec 3>&-; read -r all_done <&4'
)
# A writer to stdin learns that the command has closed it only if no other process can read it. So stdin is a descriptor
# of the pipe's path (O_PATH), which does not count as a reader; the process of the command opens it and reports that.
BUBBLEWRAP_PIPE_SCRIPT = BUBBLEWRAP_SCRIPT.replace('(exec "$@"', '(exec </proc/self/fd/0; echo >&3; exec "$@"')


class StartedJob:
    """A running command, and what its supervisor needs to end it."""

    def __init__(self, pid: int, tree_root_pid: int, clean_up: Callable[[], None] | None = None) -> None:
        self.pid = pid
        self.tree_root_pid = tree_root_pid
        """All descendants of this process belong to the command, except ``helper_pids``."""
        self.helper_pids: set[int] = set()
        self.exit_code_fd = -1
        """The pipe from which the command's exit code is read, if it is not the status of ``pid``."""
        self.release_fd = -1
        self.init_pid = 0
        """The first process of its namespace; the kernel kills the others when it ends."""
        self.listener: socket.socket | None = None
        self.clean_up = clean_up or (lambda: None)
        """Removes what was made for the command."""
        self.created: CreatedPaths | None = None
        """The watch of its missing protected paths."""


Streams: TypeAlias = tuple[int, int, int]


def launch_job(job: JobSpec, streams: Streams) -> StartedJob:
    """Start a command. Raises ``JobRefused`` when it cannot be confined as requested."""
    launch = {"bubblewrap": _launch_bubblewrap, "landlock": _launch_landlock, "none": _launch_unconfined}[job.kind]
    try:
        if job.kind != "none" and (user := user_of(job)):
            for pipe in streams if job.pipe_stdin else streams[1:]:
                os.fchown(pipe, *user)  # only the owner of a pipe can open it again, as /dev/stdout
        return launch(job, streams)
    except OSError as error:
        raise JobRefused(str(error)) from error


def user_of(job: JobSpec) -> tuple[int, int] | None:
    """Return the user that a command of root runs as: by default the owner of its first writable folder."""
    if os.geteuid() != 0:
        return None
    if job.user is not None:
        return job.user
    status = os.stat(job.writable[0] if job.writable else job.cwd)  # noqa: PTH116  # a string, one look
    return (status.st_uid, status.st_gid) if status.st_uid != 0 else None


def _build_layout(job: JobSpec) -> mounts.MountLayout:
    with processes.act_as_user(user_of(job)):
        layout = mounts.MountLayout(job)
        layout.complete(job)
    return layout


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def _launch_bubblewrap(job: JobSpec, streams: Streams) -> StartedJob:
    program = processes.find_program(job)
    for _ in range(_MAX_TRIES):
        with processes.act_as_user(user_of(job)):
            layout = mounts.MountLayout(job)
        try:
            if not (job.trees and syscalls.has_mount_trees()):
                _complete_layout(job, layout)
                layout.merge_late_steps()
            return _start_bubblewrap(job, layout, program, streams)
        except (OSError, JobRefused):
            layout.stop_watching()
            if not layout.outdated:
                raise
        finally:
            layout.close()
    raise JobRefused("sockets on this machine change too fast to be hidden")


def _complete_layout(job: JobSpec, layout: mounts.MountLayout) -> None:
    with processes.act_as_user(user_of(job)):
        layout.complete(job)


def _start_bubblewrap(job: JobSpec, layout: mounts.MountLayout, program: str, streams: Streams) -> StartedJob:
    code_read, code_write = processes.make_pipe()
    release_read, release_write = processes.make_pipe()
    errors_read, errors_write = processes.make_pipe()
    info_read, info_write = processes.make_pipe()
    block_read, block_write = processes.make_pipe()
    own_fds = [info_write, block_read]
    words = [*_namespace_arguments(job), "--info-fd", str(info_write), "--block-fd", str(block_read)]
    if job.filter:
        own_fds.append(_private_memory_file(bytes.fromhex(job.filter)))
        words += ["--seccomp", str(own_fds[-1])]
    words += [*mounts.bubblewrap_arguments_of(layout.steps, job.memory_bytes), "--chdir", "/"]
    own_fds.append(_private_memory_file(b"".join(os.fsencode(word) + b"\0" for word in words)))
    shell_script = BUBBLEWRAP_PIPE_SCRIPT if job.pipe_stdin else BUBBLEWRAP_SCRIPT
    script = [SHELL, "-c", shell_script, layout.cwd, program, *job.argv[1:]]
    argv = [job.program, "--args", str(own_fds[-1]), "--", *script]
    user = user_of(job)
    pipe_paths = [_open_pipe_path(streams[0])] if job.pipe_stdin else []
    fd_map = {
        0: pipe_paths[0] if pipe_paths else streams[0],
        1: errors_write,
        2: errors_write,
        3: code_write,
        4: release_read,
        5: streams[2],
        6: streams[1],
    }
    inherited = [*own_fds, *layout.descriptors]
    try:
        if user is None:
            pid = processes.spawn(argv, job.env, fd_map, inherited)
        else:
            pid = processes.fork_exec(
                argv, job.env, fd_map, lambda: processes.switch_user(user), inherited_fds=inherited
            )
    finally:
        for descriptor in (*pipe_paths, code_write, release_read, errors_write, *own_fds):
            os.close(descriptor)
    started = StartedJob(pid, pid)
    started.exit_code_fd, started.release_fd = code_read, release_write
    _finish_bubblewrap_setup(job, layout, started, (info_read, block_write, errors_read))
    started.created = layout.created
    return started


def _finish_bubblewrap_setup(
    job: JobSpec, layout: mounts.MountLayout, started: StartedJob, pipes: tuple[int, int, int]
) -> None:
    """Set the limits of the new namespace from outside, apply its last mounts and unblock its first process."""
    info, block, errors = pipes
    try:
        if not layout.completed:  # done now, while bubblewrap makes its namespaces
            _complete_layout(job, layout)
        started.init_pid = _read_init_pid(info)
        if job.listen:
            started.listener = processes.make_socket_in_child(lambda: _open_listener_in_network_of(started.init_pid))
        processes.run_in_child(lambda: _unblock_command(job, layout, started, block), user_of(job))
    except (OSError, JobRefused) as error:
        raise JobRefused(_read_failure(started, errors, str(error))) from error
    finally:
        for descriptor in pipes:
            os.close(descriptor)
    started.helper_pids = {started.init_pid, *processes.list_descendants(started.init_pid)[:1]}


def _unblock_command(job: JobSpec, layout: mounts.MountLayout, started: StartedJob, block: int) -> None:
    # RLIMIT_NPROC counts per user namespace, so it is set on a process inside. It is set as that process's user: root
    # without CAP_SYS_RESOURCE may not.
    resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=job.processes), started.init_pid)
    os.write(block, b"\n")
    if os.read(started.exit_code_fd, 1) != b"\n":
        raise JobRefused("bubblewrap could not start the command")
    if layout.late_steps:
        mounts.join_mounts_of(started.init_pid)
        mounts.apply_late_steps(layout.late_steps)
    os.write(started.release_fd, b"\n")
    if job.pipe_stdin and os.read(started.exit_code_fd, 1) != b"\n":
        raise JobRefused("the command could not open its stdin")


def _namespace_arguments(job: JobSpec) -> list[str]:
    return [
        "--unshare-all",
        *(["--share-net"] if job.network else []),
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        *mounts.bubblewrap_arguments_of([mounts.MountStep("empty", "/dev/shm")], job.memory_bytes),  # noqa: S108  # nosec B108  # an empty one
        # Root could change kernel settings in a writable /proc.
        "--proc",
        "/proc",
        "--remount-ro",
        "/proc",
    ]


def _read_init_pid(info: int) -> int:
    text = b""
    while piece := os.read(info, 4096):
        text += piece
        match = _CHILD_PID.search(text)  # the JSON arrives in pieces; the rest of it is not needed
        if match:
            return int(match[1])
    raise JobRefused("bubblewrap could not make its namespaces")


def _open_listener_in_network_of(pid: int) -> socket.socket:
    mounts.join_network_of(pid)
    return processes.open_listener()


def _read_failure(started: StartedJob, errors: int, default: str) -> str:
    os.kill(started.pid, signal.SIGKILL)
    os.waitpid(started.pid, 0)
    for descriptor in (started.exit_code_fd, started.release_fd):
        os.close(descriptor)
    os.set_blocking(errors, False)
    with contextlib.suppress(OSError):
        return os.read(errors, 4096).decode(errors="replace").strip() or default
    return default


def _open_pipe_path(descriptor: int) -> int:
    """Return a descriptor of a pipe's path."""
    return syscalls.move_fd_up(os.open(f"/proc/self/fd/{descriptor}", os.O_PATH))


def _private_memory_file(content: bytes) -> int:
    return syscalls.move_fd_up(syscalls.memory_file(content, "vaka"))


# ------------------------------------------------------------------------------------------------------ landlock, none


def _launch_landlock(job: JobSpec, streams: Streams) -> StartedJob:
    program = processes.find_program(job)
    if job.spaces and namespaces_work():
        layout = _build_layout(job)
        try:
            return _launch_in_namespaces(job, layout, program, streams)
        except (OSError, JobRefused):
            layout.stop_watching()
            raise
        finally:
            layout.close()
    return _launch_with_landlock_only(job, program, streams)


def _launch_in_namespaces(job: JobSpec, layout: mounts.MountLayout, program: str, streams: Streams) -> StartedJob:
    parent_end, child_end = socket.socketpair()
    user = user_of(job)
    unprivileged = os.geteuid() != 0 or user is not None

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=None))
        processes.switch_user(user)
        mounts.enter_namespaces(job, layout)
        if job.listen:
            processes.send_socket(child_end, processes.open_listener())
        if unprivileged and job.processes is not None:
            resource_limits.lower_rlimits({resource.RLIMIT_NPROC: job.processes})
        os.chdir(layout.cwd)
        syscalls.drop_capabilities()
        _restrict_with_landlock([*layout.writable, *mounts.MASKED_FOLDERS], [], shared_memory=True)
        _install_filter(job)

    with parent_end, child_end:
        pid = _fork_exec_job(job, program, streams, setup)
        started = StartedJob(pid, os.getpid())
        started.created = layout.created
        if job.listen:
            started.listener = processes.receive_socket(parent_end)
    return started


def _launch_with_landlock_only(job: JobSpec, program: str, streams: Streams) -> StartedJob:
    user = user_of(job)
    with processes.act_as_user(user):
        layout = mounts.MountLayout(job)
        layout.close()
        unprotected = layout.complete_without_mounts(job)
    if job.strict and unprotected:
        layout.stop_watching()
        raise JobRefused(
            f"Landlock alone cannot protect {unprotected[0]!r}, which is inside a writable folder; "
            "install bubblewrap, or allow user namespaces"
        )
    if job.listen:
        layout.stop_watching()
        raise JobRefused("a proxy needs a network namespace; install bubblewrap, or allow user namespaces")
    folder = f"/tmp/vaka-{os.urandom(8).hex()}"  # noqa: S108  # nosec B108  # a random name, and mkdir fails if it exists
    os.mkdir(folder, 0o700)  # noqa: PTH102  # a string
    if user is not None:
        os.chown(folder, *user)
    temporary = {"TMPDIR": folder, "TMP": folder, "TEMP": folder}

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=_process_limit_of(job, user)))
        processes.switch_user(user)
        os.chdir(layout.cwd)
        if os.geteuid() == 0:
            syscalls.drop_capabilities()
        unreadable = [*layout.hidden, *(os.path.realpath(path) for path in job.masked)]
        _restrict_with_landlock([*layout.writable, folder], unreadable, shared_memory=False)
        _install_filter(job)

    def remove_folder() -> None:
        import shutil  # noqa: PLC0415  # slow to load, and not needed to start a command

        shutil.rmtree(folder, ignore_errors=True)

    try:
        pid = _fork_exec_job(job, program, streams, setup, temporary)
    except (OSError, JobRefused):
        layout.stop_watching()
        remove_folder()
        raise
    started = StartedJob(pid, os.getpid(), remove_folder)
    started.created = layout.created
    return started


def _restrict_with_landlock(writable: list[str], hidden: list[str], *, shared_memory: bool) -> None:
    """Restrict this process: it reads all but other devices and ``hidden``, and writes to ``writable`` only."""
    abi = landlock.abi_version()
    rights = landlock.all_file_rights(abi)
    scopes = landlock.SCOPE_ABSTRACT_SOCKETS | landlock.SCOPE_SIGNALS if abi >= landlock.SCOPE_ABI else 0
    ruleset = landlock.create_ruleset(rights, scopes=scopes, abi=abi)

    def allow(path: str, access: int) -> None:  # what is missing or out of reach needs no rule
        landlock.allow_path(ruleset, path, access, follow=False, ignored=(OSError,))

    allow("/", READ_DIR)
    for path in _list_readable_paths("/", [*hidden, "/dev"]):
        allow(path, _READ_RIGHTS & rights)
    for name in _DEVICES:
        allow(f"/dev/{name}", (_READ_RIGHTS | WRITE_FILE | TRUNCATE | IOCTL_DEV) & rights)
    for path in [*writable, *(["/dev/shm"] if shared_memory else [])]:  # noqa: S108  # nosec B108  # its own by then
        allow(path, rights)
    landlock.restrict_self(ruleset)
    os.close(ruleset)


def _list_readable_paths(top: str, hidden: list[str]) -> Iterator[str]:
    """Yield paths that together cover everything below ``top`` except ``hidden``."""
    if top in hidden:
        return
    if not any(path.startswith(top.rstrip("/") + "/") for path in hidden):
        yield top
        return
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _list_readable_paths(entry.path, hidden)


def _launch_unconfined(job: JobSpec, streams: Streams) -> StartedJob:
    program = processes.find_program(job)

    def setup() -> None:
        resource_limits.lower_rlimits(resource_limits.rlimits_of(job, processes=_process_limit_of(job, job.user)))
        processes.switch_user(job.user)
        os.chdir(job.cwd)

    return StartedJob(_fork_exec_job(job, program, streams, setup), os.getpid())


def _fork_exec_job(
    job: JobSpec, program: str, streams: Streams, setup: Callable[[], None], extra_env: dict[str, str] | None = None
) -> int:
    env = {**job.env, **(extra_env or {})}
    return processes.fork_exec([program, *job.argv[1:]], env, dict(enumerate(streams)), setup)


def _install_filter(job: JobSpec) -> None:
    if job.filter:
        syscalls.install_seccomp_filter(bytes.fromhex(job.filter))


def _process_limit_of(job: JobSpec, user: tuple[int, int] | None) -> int | None:
    """Return the limit on processes of a user, whose other processes count as well; ``None`` for root."""
    if job.processes is None or (os.geteuid() == 0 and user is None):
        return None
    return resource_limits.count_tasks() + job.processes


@functools.cache
def namespaces_work() -> bool:
    """Return whether this process may make namespaces; tried in a child process."""

    def make_namespaces() -> None:
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC)
        syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)

    try:
        processes.run_in_child(make_namespaces, None)
    except JobRefused:
        return False
    return True
