"""What the warden is told to start, and how both sides write it down."""

import json
import socket
from typing import Any, NamedTuple

LENGTH = 8
MOST = 64 * 1024 * 1024
LISTS = ("argv", "writable", "protected", "hidden", "secrets", "user", "folders")


class Refused(Exception):
    """A command cannot be confined as it was asked for."""


class Order(NamedTuple):
    """One command, with everything that holds it; plain data."""

    kind: str
    """``bubblewrap``, ``landlock`` or ``none``."""
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    program: str = ""
    """Where bubblewrap is."""
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Hidden too, where that does not hide the folders to work in."""
    network: bool = False
    listen: bool = False
    """Make a port in its network that the owner listens on."""
    filter: str = ""
    """The filter of system calls, in hex."""
    strict: bool = True
    """Refuse what Landlock alone cannot hold."""
    spaces: bool = True
    """Use namespaces with Landlock."""
    cgroups: bool = True
    trees: bool = True
    """Lay the last mounts of bubblewrap's, where the kernel can."""
    user: tuple[int, int] | None = None
    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    folders: tuple[str, ...] = ()
    """Names that are folders, when a protected path is not there yet."""


def pack(order: Order) -> bytes:
    """Return an order as it is sent."""
    text = json.dumps(order._asdict()).encode()
    return len(text).to_bytes(LENGTH, "big") + text


def receive(control: socket.socket) -> Order:
    """Read one order; ``EOFError`` when its sender is gone."""
    size = int.from_bytes(_exactly(control, LENGTH), "big")
    if size > MOST:
        raise EOFError(f"an order of {size} bytes")
    fields: dict[str, Any] = json.loads(_exactly(control, size))
    for key in LISTS:
        if fields[key] is not None:
            fields[key] = tuple(fields[key])
    return Order(**fields)


def report(**said: Any) -> bytes:
    """Return one line of what the warden has to say."""
    return json.dumps(said).encode() + b"\n"


def _exactly(control: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the owner is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
