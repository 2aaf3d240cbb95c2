"""What a command sees of the file system: everything read-only, a few folders writable, some of it hidden.

Folders that may be written are opened before anything is mounted, and only if no link leads to them; so whoever swaps a
folder for a link in between gains nothing. A protected path inside a writable folder is a mount of its own, and so is
every folder on the way to it, or to something hidden: what is mounted on can be neither renamed nor removed. So is a
link, with itself on top.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from vaka.sandbox.warden.holding import Held, Kind
from vaka.sandbox.warden.kernel import higher, open_exactly
from vaka.sandbox.warden.order import Order, Refused
from vaka.sandbox.warden.ways import Ways, within

Operation: TypeAlias = Literal["empty", "bind", "robind", "null", "hide", "link"]

MASKED = ("/tmp", "/var/tmp", "/run")  # noqa: S108  # nosec B108  # they are replaced by empty ones
KEPT = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/current-system",
    "/run/booted-system", "/run/wrappers",
)  # fmt: skip
"""What of them is system: where names are looked up, and where some distributions keep their programs."""
SOCKETS = Path("/proc/net/unix")
_FOLDER = os.O_PATH
_SOCKET_FIELDS = 8


class Step(NamedTuple):
    """One mount.

    ``empty`` is a new, empty folder, ``hide`` one that stays so; ``null`` hides a file, ``link`` holds a link.
    """

    operation: Operation
    path: str
    descriptor: int = -1


class Layout:
    """The mounts of one command, in order, and what was made for them."""

    def __init__(self, order: Order) -> None:
        """Work out what a command sees, less what is protected and hidden. Raises ``Refused`` if it cannot be had."""
        self.cwd = _folder(os.path.realpath(order.cwd), "the folder to run in")
        self.writable = sorted({_folder(os.path.normpath(path), "the writable folder") for path in order.writable})
        if "/" in self.writable:
            raise Refused("the whole system cannot be a writable folder; name the folders that are meant")
        self.hidden: list[str] = []
        self.held: dict[str, Held | None] = {}
        self.late: list[Step] = []
        """What protects and hides: on top of the others."""
        self.completed = False
        self.steps = [Step("empty", path) for path in MASKED if _plain_folder(path)]
        self.steps += [Step("robind", path, _open(path)) for path in KEPT if _there(path) and _direct(path)]
        if _masked(self.cwd) and not within(self.cwd, self.writable):
            self.steps.append(Step("robind", self.cwd, _open(self.cwd)))
        self.steps += [Step("bind", path, _open(path)) for path in self.writable]

    def complete(self, order: Order, *, protect: bool = True) -> None:
        """Work out what is protected and hidden, and make what is missing. Raises ``Refused`` if it cannot be had."""
        self.completed = True
        self.hidden = _hidden(order, self)
        if protect:
            _protect(order, self)
        for path in self.hidden:
            if not _masked(path) or within(path, self.writable):
                self.late.append(Step("hide" if os.path.isdir(path) else "null", path))  # noqa: PTH112  # one look
        self.late += [Step("null", path) for path in _sockets(self)]

    def merge(self) -> None:
        """Have everything mounted at once, by somebody who takes open folders. Raises ``Refused`` for links."""
        for step in self.late:
            if step.operation == "link":
                raise Refused(f"{step.path!r} is a link in a writable folder, which this kernel cannot hold")
            opened = _open(step.path) if step.operation in ("bind", "robind") else -1
            self.steps.append(step._replace(descriptor=opened))
        self.late = []

    def close(self) -> None:
        """Close what was opened to be mounted."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def remove(self) -> None:
        """Take away what was made, the last first."""
        for held in reversed(self.held.values()):
            if held is not None:
                held.release()
        self.held.clear()

    @property
    def outdated(self) -> bool:
        """Whether something to be hidden is gone by now, and cannot be mounted on: sockets come and go."""
        return any(step.operation == "null" and not _there(step.path) for step in self.steps)

    @property
    def descriptors(self) -> list[int]:
        """The open folders and files that are mounted."""
        return [step.descriptor for step in self.steps if step.descriptor >= 0]


def inside(order: Order) -> list[str]:
    """Return the protected paths that lie in writable folders: the ones that need holding."""
    roots = [os.path.normpath(path) for path in order.writable]
    return [path for path in order.protected if within(_place(path, roots), roots)]


# ------------------------------------------------------------------------------------------------------------ protect


def _protect(order: Order, layout: Layout) -> None:
    ways = Ways(layout.writable, layout.held)
    for path in inside(order):
        ways.protect(_place(path, layout.writable), _kind(path, order))
    for path in layout.hidden:  # or the next command would find it elsewhere
        ways.lead_to(path)
    # What is in a folder that is held is held with it.
    held = {path for path in ways.held if not within(_parent(path), ways.held)}
    folders = [path for path in ways.folders if not within(path, held)]
    links = [path for path in ways.links if not within(path, held)]
    layout.late += [Step("bind", path) for path in sorted(folders)]
    layout.late += [Step("robind", path) for path in sorted(held)]
    layout.late += [Step("link", path) for path in sorted(links)]


def _kind(path: str, order: Order) -> Kind:
    """Return as what a protected path is made that is not there."""
    if path.endswith("//"):
        return "socket"
    return "folder" if path.endswith("/") or _name(path) in order.folders else "file"


# --------------------------------------------------------------------------------------------------------------- hide


def _hidden(order: Order, layout: Layout) -> list[str]:
    needed = [*layout.writable, layout.cwd]
    found: set[str] = set()
    for path in order.hidden:
        real = os.path.realpath(path)
        if any(within(one, [real]) for one in needed):
            raise Refused(f"{path!r} cannot be hidden: the command is to work in it")
        found.add(real)
    secrets = {os.path.realpath(path) for path in order.secrets if _there(path)}
    found |= {path for path in secrets if not any(within(one, [path]) for one in needed)}
    there = {path for path in found if _there(path)}
    return sorted(path for path in there if not within(_parent(path), there))  # the others are hidden with these


def _sockets(layout: Layout) -> list[str]:
    """Return the sockets of this machine that have a name in the file system: each is a way out."""
    try:
        lines = SOCKETS.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    names = {line.split(None, _SOCKET_FIELDS - 1)[-1] for line in lines if len(line.split()) >= _SOCKET_FIELDS}
    seen = [name for name in names if name.startswith("/") and _visible(name, layout)]
    return sorted(name for name in seen if _is_socket(name) and _direct(name))


def _visible(name: str, layout: Layout) -> bool:
    if within(name, layout.hidden):
        return False
    return not _masked(name) or within(name, layout.writable)


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    return False


# -------------------------------------------------------------------------------------------------------------- paths


def _folder(path: str, what: str) -> str:
    try:
        os.close(open_exactly(path, _FOLDER | os.O_DIRECTORY))
    except OSError as error:
        if error.errno == errno.ELOOP:  # whoever can put a link there would choose what is writable
            raise Refused(f"{what} {path!r} has a link in it: name the folder that it leads to") from error
        raise Refused(f"{what} {path!r} cannot be opened: {os.strerror(error.errno or errno.EIO)}") from error
    return path


def _open(path: str) -> int:
    try:
        return higher(open_exactly(path, _FOLDER))
    except OSError as error:
        raise Refused(f"{path!r} changed while it was looked at: {error}") from error


def _place(path: str, roots: Iterable[str]) -> str:
    """Return where a path is: as it is written, or, if it is written by way of links, where they lead."""
    written = os.path.normpath(path)
    if within(written, roots):
        return written
    folder, name = os.path.split(written)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118  # strings in, strings out


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _masked(path: str) -> bool:
    return within(path, MASKED)


def _plain_folder(path: str) -> bool:
    return os.path.isdir(path) and _direct(path)  # noqa: PTH112  # one look, no object


def _direct(path: str) -> bool:
    return os.path.realpath(path) == path


def _there(path: str) -> bool:
    return os.path.lexists(path)


# ---------------------------------------------------------------------------------------------------------- bubblewrap


def arguments(steps: Sequence[Step], size: int | None) -> list[str]:
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
