"""The file system that a command sees: mount steps, as bubblewrap arguments and as calls in new namespaces.

Everything is read-only, a few folders are writable, some paths are hidden. Writable folders are opened before
anything is mounted, and only if no link leads to them. A protected path inside a writable folder is a mount of its
own, and so is every folder on the way to it: what is mounted on can be neither renamed nor removed.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from vaka.sandbox.warden.created_paths import CreatedPaths
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec
from vaka.sandbox.warden.protected_paths import ProtectionPlan, is_within
from vaka.sandbox.warden.quarantine import Quarantine
from vaka.system import libc, syscalls
from vaka.system.openat2 import open_link_itself, open_without_links

MountOperation: TypeAlias = Literal["empty", "bind", "robind", "null", "hide", "link"]

MASKED_FOLDERS = ("/tmp", "/var/tmp", "/run")  # noqa: S108  # nosec B108  # empty folders are mounted on them

VISIBLE_SYSTEM_PATHS = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/booted-system",
    "/run/wrappers",
)
"""Paths inside masked folders that stay visible: resolver configuration, and programs of some distributions."""

UNIX_SOCKET_TABLE = Path("/proc/net/unix")

_SOCKET_FIELDS = 8


class MountStep(NamedTuple):
    """One mount: ``empty`` is a new tmpfs, ``hide`` a read-only one; ``null`` hides a file, ``link`` holds a link."""

    operation: MountOperation
    path: str
    descriptor: int = -1


class MountLayout:
    """The mounts of one command, in order, and the watch of the protected paths that are missing."""

    def __init__(self, job: JobSpec) -> None:
        """Plan all mounts except those that protect and hide. Raises ``JobRefused`` for folders that cannot be used."""
        self.cwd = _check_folder(os.path.realpath(job.cwd), "the folder to run in")
        self.writable = sorted({_check_folder(os.path.normpath(path), "the writable folder") for path in job.writable})
        if "/" in self.writable:
            raise JobRefused("'/' cannot be a writable folder; name the folders that the command writes to")
        self.hidden: list[str] = []
        self.masked = _find_masked_folders(job, self.writable)
        self.created: CreatedPaths | None = None
        self.late_steps: list[MountStep] = []
        """The mounts that protect and hide, on top of the others."""
        self.completed = False
        self.steps = [MountStep("empty", path) for path in self.masked]
        self.steps += [
            MountStep("robind", path, _open_path(path))
            for path in VISIBLE_SYSTEM_PATHS
            if os.path.lexists(path) and _has_no_links(path)
        ]
        if is_within(self.cwd, self.masked) and not is_within(self.cwd, self.writable):
            self.steps.append(MountStep("robind", self.cwd, _open_path(self.cwd)))
        self.steps += [MountStep("bind", path, _open_path(path)) for path in self.writable]

    def complete(self, job: JobSpec) -> None:
        """Plan the mounts that protect and hide, and watch missing paths. Raises ``JobRefused`` if it is impossible."""
        self.completed = True
        self.hidden = _find_hidden_paths(job, self)
        plan = _plan_protection(job, self.writable)
        for path in self.hidden:  # if a folder above could be renamed, the next command would find it elsewhere
            plan.hold_parents_of(path)
        # A mounted folder protects everything inside it.
        existing = {path for path in plan.existing if not is_within(_parent_of(path), plan.existing)}
        folders = [path for path in plan.parent_folders if not is_within(path, existing)]
        links = [path for path in plan.links if not is_within(path, existing)]
        self.late_steps += [MountStep("bind", path) for path in sorted(folders)]
        self.late_steps += [MountStep("robind", path) for path in sorted(existing)]
        self.late_steps += [MountStep("link", path) for path in sorted(links)]
        for path in self.hidden:
            if self.exposes(path):
                self.late_steps.append(MountStep("hide" if os.path.isdir(path) else "null", path))  # noqa: PTH112  # one look
        self.late_steps += [MountStep("null", path) for path in _find_visible_sockets(self)]
        self._watch_missing(job, plan)

    def complete_without_mounts(self, job: JobSpec) -> list[str]:
        """Find what is hidden, and watch missing paths; return the existing paths that only mounts would protect."""
        self.completed = True
        self.hidden = _find_hidden_paths(job, self)
        try:
            plan = _plan_protection(job, self.writable)
        except JobRefused:
            if job.strict:
                raise
            plan = ProtectionPlan(self.writable)
        self._watch_missing(job, plan)
        inside = [path for path in self.hidden if is_within(_parent_of(path), self.writable)]
        return [*sorted(plan.existing), *sorted(plan.links), *inside]

    def _watch_missing(self, job: JobSpec, plan: ProtectionPlan) -> None:
        if plan.missing.by_folder:
            outside = tuple(folder for folder in job.quarantine if not is_within(folder, self.writable))
            self.created = CreatedPaths(plan.missing, Quarantine(outside))

    def exposes(self, path: str) -> bool:
        """Return whether a path is visible: not under an empty folder, or in a writable one."""
        return not is_within(path, self.masked) or is_within(path, self.writable)

    def merge_late_steps(self) -> None:
        """Mount everything in one pass, for kernels without mount trees. Raises ``JobRefused`` for links."""
        for step in self.late_steps:
            if step.operation == "link":
                raise JobRefused(f"{step.path!r} is a link in a writable folder, which this kernel cannot protect")
            opened = _open_path(step.path) if step.operation in ("bind", "robind") else -1
            self.steps.append(step._replace(descriptor=opened))
        self.late_steps = []

    def close(self) -> None:
        """Close the descriptors of the mounts."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def stop_watching(self) -> None:
        """Stop watching the protected paths that are missing."""
        if self.created is not None:
            self.created.close()
            self.created = None

    @property
    def outdated(self) -> bool:
        """Whether a file to be hidden, such as a socket, has been removed since and cannot be mounted on."""
        return any(step.operation == "null" and not os.path.lexists(step.path) for step in self.steps)

    @property
    def descriptors(self) -> list[int]:
        return [step.descriptor for step in self.steps if step.descriptor >= 0]


# ------------------------------------------------------------------------------------------------------------ protect


def _plan_protection(job: JobSpec, writable: list[str]) -> ProtectionPlan:
    """Find out which protected paths exist and which are missing. Raises ``JobRefused`` for links that lead astray."""
    plan = ProtectionPlan(writable)
    for path in job.protected:
        located = _locate(path, writable)
        if is_within(located, writable):  # the others are read-only anyway
            plan.protect(located)
    return plan


# --------------------------------------------------------------------------------------------------------------- hide


def _find_hidden_paths(job: JobSpec, layout: MountLayout) -> list[str]:
    needed = [*layout.writable, layout.cwd]
    hidden: set[str] = set()
    for path in job.hidden:
        real = os.path.realpath(path)
        if any(is_within(folder, [real]) for folder in needed):
            raise JobRefused(f"{path!r} cannot be hidden: the command works in it")
        hidden.add(real)
    secrets = {os.path.realpath(path) for path in job.secrets if os.path.lexists(path)}
    hidden |= {path for path in secrets if not any(is_within(folder, [path]) for folder in needed)}
    existing = {path for path in hidden if os.path.lexists(path)}
    return sorted(path for path in existing if not is_within(_parent_of(path), existing))


def _find_masked_folders(job: JobSpec, writable: Sequence[str]) -> list[str]:
    """Return the folders on which empty folders are mounted: the outermost existing folders."""
    named = {os.path.realpath(path) for path in job.masked}
    for path in named:
        if path == "/" or is_within(path, writable):
            raise JobRefused(f"{path!r} cannot be masked: the command needs it")
    found = {path for path in (*MASKED_FOLDERS, *named) if _is_real_folder(path)}
    return sorted(path for path in found if not is_within(_parent_of(path), found))


def _find_visible_sockets(layout: MountLayout) -> list[str]:
    """Return the unix sockets of this machine that the command could connect to by path."""
    try:
        lines = UNIX_SOCKET_TABLE.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    names = {line.split(None, _SOCKET_FIELDS - 1)[-1] for line in lines if len(line.split()) >= _SOCKET_FIELDS}
    visible = [
        name for name in names if name.startswith("/") and layout.exposes(name) and not is_within(name, layout.hidden)
    ]
    return sorted(name for name in visible if _is_socket(name) and _has_no_links(name))


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    return False


# -------------------------------------------------------------------------------------------------------------- paths


def _check_folder(path: str, what: str) -> str:
    try:
        os.close(open_without_links(path, os.O_PATH | os.O_DIRECTORY))
    except OSError as error:
        if error.errno == errno.ELOOP:  # a process that can replace the link would choose what is writable
            raise JobRefused(f"{what} {path!r} has a link in it: name the folder that it leads to") from error
        raise JobRefused(f"{what} {path!r} cannot be opened: {os.strerror(error.errno or errno.EIO)}") from error
    return path


def _open_path(path: str) -> int:
    try:
        return syscalls.move_fd_up(open_without_links(path, os.O_PATH))
    except OSError as error:
        raise JobRefused(f"{path!r} changed while the command was being prepared: {error}") from error


def _locate(path: str, roots: Iterable[str]) -> str:
    """Return a path as written if it is inside a root, otherwise with the links of its folder resolved."""
    plain = os.path.normpath(path)
    if is_within(plain, roots):
        return plain
    folder, name = os.path.split(plain)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118  # strings in, strings out


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def _is_real_folder(path: str) -> bool:
    return os.path.isdir(path) and _has_no_links(path)  # noqa: PTH112  # one look, no object


def _has_no_links(path: str) -> bool:
    return os.path.realpath(path) == path


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def bubblewrap_arguments_of(steps: Sequence[MountStep], size: int | None) -> list[str]:
    """Return mounts as arguments of bubblewrap; ``size`` limits the bytes in a new tmpfs."""
    words: list[str] = []
    for step in steps:
        match step.operation:
            case "empty":
                words += [*(["--size", str(size)] if size else []), "--perms", "1777", "--tmpfs", step.path]
            case "hide":
                words += ["--tmpfs", step.path, "--remount-ro", step.path]
            case "null":
                words += ["--ro-bind", "/dev/null", step.path]
            case "bind":
                words += ["--bind-fd", str(step.descriptor), step.path]
            case "robind":
                words += ["--ro-bind-fd", str(step.descriptor), step.path]
            case "link":  # bubblewrap would follow it
                continue
    return words


_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nosec B108  # a new tmpfs is mounted on it

_MOUNT_ATTRIBUTES = {
    "bind": 0,
    "robind": syscalls.MOUNT_ATTR_RDONLY,
    "link": syscalls.MOUNT_ATTR_RDONLY,
    "null": syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV,
}


def enter_namespaces(job: JobSpec, layout: MountLayout) -> None:
    """Enter new namespaces and apply the mounts there; ``OSError`` where the system does not allow it."""
    user, group = os.geteuid(), os.getegid()
    network = 0 if job.network else syscalls.CLONE_NEWNET
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # after a change of user, files in /proc/self would belong to root
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | network)
    _write_file("/proc/self/setgroups", "deny")
    _write_file("/proc/self/uid_map", f"{user} {user} 1")
    _write_file("/proc/self/gid_map", f"{group} {group} 1")
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    _apply_steps([*layout.steps, MountStep("empty", _SHARED_MEMORY)], job.memory_bytes)
    apply_late_steps(layout.late_steps)
    if network:
        bring_up_loopback()


def bring_up_loopback() -> None:
    """Switch on the loopback interface of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, name))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))


def join_network_of(pid: int) -> None:
    """Enter the network namespace of another process of the same user."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.geteuid() != 0:
        syscalls.setns(fcntl.ioctl(network, syscalls.NS_GET_USERNS), syscalls.CLONE_NEWUSER)
    syscalls.setns(network, syscalls.CLONE_NEWNET)


def join_mounts_of(pid: int) -> None:
    """Enter the mount namespace of another process of the same user, with all capabilities in it."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    syscalls.setns(fcntl.ioctl(mounts, syscalls.NS_GET_USERNS), syscalls.CLONE_NEWUSER)
    syscalls.setns(mounts, syscalls.CLONE_NEWNS)


def apply_late_steps(steps: list[MountStep]) -> None:
    """Apply the mounts that protect and hide, after all others. Raises ``JobRefused`` if a mount fails."""
    null = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    for step in steps:
        try:
            _apply_late_step(step, null)
        except OSError as error:
            if step.operation != "link" and _is_out_of_reach(step.path):
                continue
            what = f"{step.path!r} is a link in a writable folder and" if step.operation == "link" else f"{step.path!r}"
            raise JobRefused(f"{what} cannot be protected: {error}") from error
    os.close(null)


def _is_out_of_reach(path: str) -> bool:
    """Whether a folder above a path cannot be searched here, as the home of a user whom the namespace does not map.

    The command runs in the same namespace with fewer capabilities, so it cannot reach the path either.
    """
    try:
        os.close(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def _apply_late_step(step: MountStep, null: int) -> None:
    if step.operation == "hide":
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_RDONLY
        syscalls.mount("tmpfs", step.path, "tmpfs", flags, "mode=755,size=4k")
        return
    try:
        target = (open_link_itself if step.operation == "link" else open_without_links)(step.path, os.O_PATH)
    except FileNotFoundError:
        if step.operation != "null":
            raise
        return  # a socket that was removed meanwhile
    source = null if step.operation == "null" else target
    syscalls.mount_over(target, source, add=_MOUNT_ATTRIBUTES[step.operation])
    os.close(target)


def _apply_steps(steps: list[MountStep], size: int | None) -> None:
    # The descriptors of the steps belong to the old mount namespace: open the same paths in the new one. A copy of a
    # read-only mount cannot be made writable, so all are cloned before "/" becomes read-only.
    sources = {step.path: syscalls.clone_mount_tree(_reopen_source(step)) for step in steps if step.descriptor >= 0}
    syscalls.set_mount_attributes("/", add=syscalls.MOUNT_ATTR_RDONLY)
    for step in steps:
        if step.operation == "empty":
            options = "mode=1777" + (f",size={size}" if size else "")
            syscalls.mount("tmpfs", _make_mount_point(step), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
            continue
        target = open_without_links(_make_mount_point(step), os.O_PATH)
        syscalls.attach_mount_tree(target, sources[step.path], add=_MOUNT_ATTRIBUTES[step.operation])
        os.close(target)


def _reopen_source(step: MountStep) -> int:
    reopened = open_without_links(step.path, os.O_PATH)
    if not os.path.samestat(os.fstat(step.descriptor), os.fstat(reopened)):
        raise JobRefused(f"{step.path!r} changed while the command was being prepared")
    return reopened


def _make_mount_point(step: MountStep) -> str:
    """Return the path to mount on; inside a new tmpfs it is made first."""
    path = Path(step.path)
    if not os.path.lexists(path):
        if step.descriptor < 0 or os.path.isdir(f"/proc/self/fd/{step.descriptor}"):  # noqa: PTH112  # a magic link
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return step.path


def _write_file(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise OSError(error.errno or errno.EPERM, f"{path}: {error.strerror}") from error
