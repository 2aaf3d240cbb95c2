"""The job that the warden is to start, and its encoding on the control socket."""

import json
import socket
from typing import Any, NamedTuple

LENGTH_PREFIX_BYTES = 8
MAX_JOB_BYTES = 64 * 1024 * 1024
TUPLE_FIELDS = ("argv", "writable", "protected", "hidden", "secrets", "user", "folders")


class JobRefused(Exception):
    """A command cannot be confined as it was asked for."""


class JobSpec(NamedTuple):
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


def encode_job(job: JobSpec) -> bytes:
    """Return an order as it is sent."""
    text = json.dumps(job._asdict()).encode()
    return len(text).to_bytes(LENGTH_PREFIX_BYTES, "big") + text


def receive_job(control: socket.socket) -> JobSpec:
    """Read one order; ``EOFError`` when its sender is gone."""
    size = int.from_bytes(_receive_exactly(control, LENGTH_PREFIX_BYTES), "big")
    if size > MAX_JOB_BYTES:
        raise EOFError(f"an order of {size} bytes")
    fields: dict[str, Any] = json.loads(_receive_exactly(control, size))
    for key in TUPLE_FIELDS:
        if fields[key] is not None:
            fields[key] = tuple(fields[key])
    return JobSpec(**fields)


def encode_report(**fields: Any) -> bytes:
    """Return one line of what the warden has to say."""
    return json.dumps(fields).encode() + b"\n"


def _receive_exactly(control: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the owner is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
