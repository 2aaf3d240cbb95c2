"""Namespaces without bubblewrap: the same mounts and an empty network, made by this process for itself."""

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from vaka.sandbox.warden import kernel
from vaka.sandbox.warden.mounts import Layout, Step
from vaka.sandbox.warden.order import Order, Refused

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nosec B108  # it is replaced by an empty one

_ATTRIBUTES = {
    "bind": 0,
    "robind": kernel.MOUNT_ATTR_RDONLY,
    "link": kernel.MOUNT_ATTR_RDONLY,
    "null": kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV,
}


def enter(order: Order, layout: Layout) -> None:
    """Leave for namespaces of this process's own and mount there; ``OSError`` where the system does not allow it."""
    user, group = os.geteuid(), os.getegid()
    network = 0 if order.network else kernel.CLONE_NEWNET
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # who became somebody else does not own its files in /proc otherwise
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | network)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    _mount([*layout.steps, Step("empty", _SHARED_MEMORY)], order.memory_bytes)
    hold(layout.late)
    if network:
        loopback()


def loopback() -> None:
    """Switch the network on that reaches only this namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        name = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(one, _SIOCGIFFLAGS, name))
        fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))


def join_network(pid: int) -> None:
    """Enter the network of another process, as its owner."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.geteuid() != 0:
        kernel.setns(fcntl.ioctl(network, kernel.NS_GET_USERNS), kernel.CLONE_NEWUSER)
    kernel.setns(network, kernel.CLONE_NEWNET)


def join_mounts(pid: int) -> None:
    """Enter the mounts of another process, with all privileges over them; its owner may."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    kernel.setns(fcntl.ioctl(mounts, kernel.NS_GET_USERNS), kernel.CLONE_NEWUSER)
    kernel.setns(mounts, kernel.CLONE_NEWNS)


def hold(steps: list[Step]) -> None:
    """Mount what protects and hides, when all else is mounted. Raises ``Refused`` where something cannot be held."""
    null = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    for step in steps:
        try:
            _hold(step, null)
        except OSError as error:
            what = f"{step.path!r} is a link in a writable folder and" if step.operation == "link" else f"{step.path!r}"
            raise Refused(f"{what} cannot be held: {error}") from error
    os.close(null)


def _hold(step: Step, null: int) -> None:
    if step.operation == "hide":
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_RDONLY
        kernel.mount("tmpfs", step.path, "tmpfs", flags, "mode=755,size=4k")
        return
    try:
        place = (kernel.open_link if step.operation == "link" else kernel.open_exactly)(step.path, os.O_PATH)
    except FileNotFoundError:
        if step.operation != "null":
            raise
        return  # sockets come and go
    source = null if step.operation == "null" else place
    kernel.cover(place, source, add=_ATTRIBUTES[step.operation])
    os.close(place)


def _mount(steps: list[Step], size: int | None) -> None:
    # Descriptors that were opened before are of the old mounts: open the same things in the new ones. What is read-only
    # there already cannot be made writable, so they are copied as they are.
    sources = {step.path: kernel.copy(_again(step)) for step in steps if step.descriptor >= 0}
    kernel.mount_flags("/", add=kernel.MOUNT_ATTR_RDONLY)
    for step in steps:
        if step.operation == "empty":
            options = "mode=1777" + (f",size={size}" if size else "")
            kernel.mount("tmpfs", _point(step), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
            continue
        place = kernel.open_exactly(_point(step), os.O_PATH)
        kernel.attach(place, sources[step.path], add=_ATTRIBUTES[step.operation])
        os.close(place)


def _again(step: Step) -> int:
    found = kernel.open_exactly(step.path, os.O_PATH)
    before, now = os.fstat(step.descriptor), os.fstat(found)
    if (before.st_dev, before.st_ino) != (now.st_dev, now.st_ino):
        raise Refused(f"{step.path!r} changed while it was looked at")
    return found


def _point(step: Step) -> str:
    """Return where to mount; below an empty folder there is nothing yet."""
    place = Path(step.path)
    if not os.path.lexists(place):
        if step.descriptor < 0 or os.path.isdir(f"/proc/self/fd/{step.descriptor}"):  # noqa: PTH112  # a magic link
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    return step.path


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise OSError(error.errno or errno.EPERM, f"{path}: {error.strerror}") from error
