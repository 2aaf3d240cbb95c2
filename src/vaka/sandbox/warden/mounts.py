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

from vaka.sandbox.warden import syscalls
from vaka.sandbox.warden.job_spec import JobRefused, JobSpec
from vaka.sandbox.warden.protected_paths import HeldPath, PlaceholderKind, ProtectionPlan, is_within
from vaka.sandbox.warden.syscalls import move_fd_up, open_without_links

MountOperation: TypeAlias = Literal["empty", "bind", "robind", "null", "hide", "link"]

MASKED_FOLDERS = ("/tmp", "/var/tmp", "/run")  # noqa: S108  # nosec B108  # they are replaced by empty ones

VISIBLE_SYSTEM_PATHS = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/current-system",
    "/run/booted-system", "/run/wrappers",
)  # fmt: skip
"""What of them is system: where names are looked up, and where some distributions keep their programs."""

UNIX_SOCKET_TABLE = Path("/proc/net/unix")

_PATH_FLAGS = os.O_PATH

_SOCKET_FIELDS = 8


class MountStep(NamedTuple):
    """One mount.

    ``empty`` is a new, empty folder, ``hide`` one that stays so; ``null`` hides a file, ``link`` holds a link.
    """

    operation: MountOperation
    path: str
    descriptor: int = -1


class MountLayout:
    """The mounts of one command, in order, and what was made for them."""

    def __init__(self, job: JobSpec) -> None:
        """Work out what a command sees, less what is protected and hidden. Raises ``Refused`` if it cannot be had."""
        self.cwd = _check_folder(os.path.realpath(job.cwd), "the folder to run in")
        self.writable = sorted({_check_folder(os.path.normpath(path), "the writable folder") for path in job.writable})
        if "/" in self.writable:
            raise JobRefused("the whole system cannot be a writable folder; name the folders that are meant")
        self.hidden: list[str] = []
        self.held_paths: dict[str, HeldPath | None] = {}
        self.late_steps: list[MountStep] = []
        """What protects and hides: on top of the others."""
        self.completed = False
        self.steps = [MountStep("empty", path) for path in MASKED_FOLDERS if _is_real_folder(path)]
        self.steps += [
            MountStep("robind", path, _open_path(path))
            for path in VISIBLE_SYSTEM_PATHS
            if _path_exists(path) and _has_no_links(path)
        ]
        if _is_masked(self.cwd) and not is_within(self.cwd, self.writable):
            self.steps.append(MountStep("robind", self.cwd, _open_path(self.cwd)))
        self.steps += [MountStep("bind", path, _open_path(path)) for path in self.writable]

    def complete(self, job: JobSpec, *, protect: bool = True) -> None:
        """Work out what is protected and hidden, and make what is missing. Raises ``Refused`` if it cannot be had."""
        self.completed = True
        self.hidden = _find_hidden_paths(job, self)
        if protect:
            _plan_protection(job, self)
        for path in self.hidden:
            if not _is_masked(path) or is_within(path, self.writable):
                self.late_steps.append(MountStep("hide" if os.path.isdir(path) else "null", path))  # noqa: PTH112  # one look
        self.late_steps += [MountStep("null", path) for path in _find_visible_sockets(self)]

    def merge_late_steps(self) -> None:
        """Have everything mounted at once, by somebody who takes open folders. Raises ``Refused`` for links."""
        for step in self.late_steps:
            if step.operation == "link":
                raise JobRefused(f"{step.path!r} is a link in a writable folder, which this kernel cannot hold")
            opened = _open_path(step.path) if step.operation in ("bind", "robind") else -1
            self.steps.append(step._replace(descriptor=opened))
        self.late_steps = []

    def close(self) -> None:
        """Close what was opened to be mounted."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def release_held_paths(self) -> None:
        """Take away what was made, the last first."""
        for held in reversed(self.held_paths.values()):
            if held is not None:
                held.release()
        self.held_paths.clear()

    @property
    def outdated(self) -> bool:
        """Whether something to be hidden is gone by now, and cannot be mounted on: sockets come and go."""
        return any(step.operation == "null" and not _path_exists(step.path) for step in self.steps)

    @property
    def descriptors(self) -> list[int]:
        """The open folders and files that are mounted."""
        return [step.descriptor for step in self.steps if step.descriptor >= 0]


def list_protected_in_writable(job: JobSpec) -> list[str]:
    """Return the protected paths that lie in writable folders: the ones that need holding."""
    roots = [os.path.normpath(path) for path in job.writable]
    return [path for path in job.protected if is_within(_locate(path, roots), roots)]


# ------------------------------------------------------------------------------------------------------------ protect


def _plan_protection(job: JobSpec, layout: MountLayout) -> None:
    ways = ProtectionPlan(layout.writable, layout.held_paths)
    for path in list_protected_in_writable(job):
        ways.protect(_locate(path, layout.writable), _placeholder_kind_of(path, job))
    for path in layout.hidden:  # or the next command would find it elsewhere
        ways.hold_parents_of(path)
    # What is in a folder that is held is held with it.
    held = {path for path in ways.held_paths if not is_within(_parent_of(path), ways.held_paths)}
    folders = [path for path in ways.parent_folders if not is_within(path, held)]
    links = [path for path in ways.links if not is_within(path, held)]
    layout.late_steps += [MountStep("bind", path) for path in sorted(folders)]
    layout.late_steps += [MountStep("robind", path) for path in sorted(held)]
    layout.late_steps += [MountStep("link", path) for path in sorted(links)]


def _placeholder_kind_of(path: str, job: JobSpec) -> PlaceholderKind:
    """Return as what a protected path is made that is not there."""
    if path.endswith("//"):
        return "socket"
    return "folder" if path.endswith("/") or _name_of(path) in job.folders else "file"


# --------------------------------------------------------------------------------------------------------------- hide


def _find_hidden_paths(job: JobSpec, layout: MountLayout) -> list[str]:
    needed = [*layout.writable, layout.cwd]
    found: set[str] = set()
    for path in job.hidden:
        real = os.path.realpath(path)
        if any(is_within(one, [real]) for one in needed):
            raise JobRefused(f"{path!r} cannot be hidden: the command is to work in it")
        found.add(real)
    secrets = {os.path.realpath(path) for path in job.secrets if _path_exists(path)}
    found |= {path for path in secrets if not any(is_within(one, [path]) for one in needed)}
    there = {path for path in found if _path_exists(path)}
    return sorted(path for path in there if not is_within(_parent_of(path), there))  # the others are hidden with these


def _find_visible_sockets(layout: MountLayout) -> list[str]:
    """Return the sockets of this machine that have a name in the file system: each is a way out."""
    try:
        lines = UNIX_SOCKET_TABLE.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    names = {line.split(None, _SOCKET_FIELDS - 1)[-1] for line in lines if len(line.split()) >= _SOCKET_FIELDS}
    seen = [name for name in names if name.startswith("/") and _is_visible(name, layout)]
    return sorted(name for name in seen if _is_socket(name) and _has_no_links(name))


def _is_visible(name: str, layout: MountLayout) -> bool:
    if is_within(name, layout.hidden):
        return False
    return not _is_masked(name) or is_within(name, layout.writable)


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    return False


# -------------------------------------------------------------------------------------------------------------- paths


def _check_folder(path: str, what: str) -> str:
    try:
        os.close(open_without_links(path, _PATH_FLAGS | os.O_DIRECTORY))
    except OSError as error:
        if error.errno == errno.ELOOP:  # whoever can put a link there would choose what is writable
            raise JobRefused(f"{what} {path!r} has a link in it: name the folder that it leads to") from error
        raise JobRefused(f"{what} {path!r} cannot be opened: {os.strerror(error.errno or errno.EIO)}") from error
    return path


def _open_path(path: str) -> int:
    try:
        return move_fd_up(open_without_links(path, _PATH_FLAGS))
    except OSError as error:
        raise JobRefused(f"{path!r} changed while it was looked at: {error}") from error


def _locate(path: str, roots: Iterable[str]) -> str:
    """Return where a path is: as it is written, or, if it is written by way of links, where they lead."""
    written = os.path.normpath(path)
    if is_within(written, roots):
        return written
    folder, name = os.path.split(written)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118  # strings in, strings out


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def _is_masked(path: str) -> bool:
    return is_within(path, MASKED_FOLDERS)


def _is_real_folder(path: str) -> bool:
    return os.path.isdir(path) and _has_no_links(path)  # noqa: PTH112  # one look, no object


def _has_no_links(path: str) -> bool:
    return os.path.realpath(path) == path


def _path_exists(path: str) -> bool:
    return os.path.lexists(path)


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def bubblewrap_arguments_of(steps: Sequence[MountStep], size: int | None) -> list[str]:
    """Return mounts in the words of bubblewrap; ``size`` is the most that an empty folder may come to hold."""
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
            case "link":  # it would follow it
                continue
    return words


_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nosec B108  # it is replaced by an empty one

_MOUNT_ATTRIBUTES = {
    "bind": 0,
    "robind": syscalls.MOUNT_ATTR_RDONLY,
    "link": syscalls.MOUNT_ATTR_RDONLY,
    "null": syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV,
}


def enter_namespaces(job: JobSpec, layout: MountLayout) -> None:
    """Leave for namespaces of this process's own and mount there; ``OSError`` where the system does not allow it."""
    user, group = os.geteuid(), os.getegid()
    network = 0 if job.network else syscalls.CLONE_NEWNET
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # who became somebody else does not own its files in /proc otherwise
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
    """Switch the network on that reaches only this namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        name = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(one, _SIOCGIFFLAGS, name))
        fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))


def join_network_of(pid: int) -> None:
    """Enter the network of another process, as its owner."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.geteuid() != 0:
        syscalls.setns(fcntl.ioctl(network, syscalls.NS_GET_USERNS), syscalls.CLONE_NEWUSER)
    syscalls.setns(network, syscalls.CLONE_NEWNET)


def join_mounts_of(pid: int) -> None:
    """Enter the mounts of another process, with all privileges over them; its owner may."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    syscalls.setns(fcntl.ioctl(mounts, syscalls.NS_GET_USERNS), syscalls.CLONE_NEWUSER)
    syscalls.setns(mounts, syscalls.CLONE_NEWNS)


def apply_late_steps(steps: list[MountStep]) -> None:
    """Mount what protects and hides, when all else is mounted. Raises ``Refused`` where something cannot be held."""
    null = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    for step in steps:
        try:
            _apply_late_step(step, null)
        except OSError as error:
            what = f"{step.path!r} is a link in a writable folder and" if step.operation == "link" else f"{step.path!r}"
            raise JobRefused(f"{what} cannot be held: {error}") from error
    os.close(null)


def _apply_late_step(step: MountStep, null: int) -> None:
    if step.operation == "hide":
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_RDONLY
        syscalls.mount("tmpfs", step.path, "tmpfs", flags, "mode=755,size=4k")
        return
    try:
        place = (syscalls.open_link_itself if step.operation == "link" else syscalls.open_without_links)(
            step.path, os.O_PATH
        )
    except FileNotFoundError:
        if step.operation != "null":
            raise
        return  # sockets come and go
    source = null if step.operation == "null" else place
    syscalls.mount_over(place, source, add=_MOUNT_ATTRIBUTES[step.operation])
    os.close(place)


def _apply_steps(steps: list[MountStep], size: int | None) -> None:
    # Descriptors that were opened before are of the old mounts: open the same things in the new ones. What is read-only
    # there already cannot be made writable, so they are copied as they are.
    sources = {step.path: syscalls.clone_mount_tree(_reopen_source(step)) for step in steps if step.descriptor >= 0}
    syscalls.set_mount_attributes("/", add=syscalls.MOUNT_ATTR_RDONLY)
    for step in steps:
        if step.operation == "empty":
            options = "mode=1777" + (f",size={size}" if size else "")
            syscalls.mount("tmpfs", _make_mount_point(step), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
            continue
        place = syscalls.open_without_links(_make_mount_point(step), os.O_PATH)
        syscalls.attach_mount_tree(place, sources[step.path], add=_MOUNT_ATTRIBUTES[step.operation])
        os.close(place)


def _reopen_source(step: MountStep) -> int:
    found = syscalls.open_without_links(step.path, os.O_PATH)
    before, now = os.fstat(step.descriptor), os.fstat(found)
    if (before.st_dev, before.st_ino) != (now.st_dev, now.st_ino):
        raise JobRefused(f"{step.path!r} changed while it was looked at")
    return found


def _make_mount_point(step: MountStep) -> str:
    """Return where to mount; below an empty folder there is nothing yet."""
    place = Path(step.path)
    if not os.path.lexists(place):
        if step.descriptor < 0 or os.path.isdir(f"/proc/self/fd/{step.descriptor}"):  # noqa: PTH112  # a magic link
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    return step.path


def _write_file(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise OSError(error.errno or errno.EPERM, f"{path}: {error.strerror}") from error
