"""The job that the warden is to start, and its encoding on the control socket."""

import json
import socket
from typing import Any, NamedTuple

LENGTH_PREFIX_BYTES = 8
MAX_JOB_BYTES = 64 * 1024 * 1024
TUPLE_FIELDS = ("argv", "writable", "protected", "hidden", "masked", "secrets", "user", "quarantine")


class JobRefused(Exception):
    """The command cannot be confined as requested."""


class JobSpec(NamedTuple):
    """One command and everything that confines it; plain data."""

    kind: str
    """``bubblewrap``, ``landlock`` or ``none``."""
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    program: str = ""
    """The path of bubblewrap."""
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    """Folders that are empty for the command, except for the writable ones inside them."""
    secrets: tuple[str, ...] = ()
    """Hidden as well, unless a folder that the command works in is inside one of them."""
    pipe_stdin: bool = False
    """The owner writes to stdin while the command runs."""
    network: bool = False
    listen: bool = False
    """Open a port in the command's network namespace and send its listener to the owner."""
    filter: str = ""
    """The seccomp filter, in hex."""
    strict: bool = True
    """Refuse jobs that Landlock without namespaces cannot confine."""
    spaces: bool = True
    """Use namespaces with Landlock."""
    cgroups: bool = True
    trees: bool = True
    """With bubblewrap: mount protected and hidden paths by descriptor, where the kernel can."""
    user: tuple[int, int] | None = None
    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    quarantine: tuple[str, ...] = ()
    """Folders to move what appears at a missing protected path; the first outside of the writable ones is used."""


def encode_job(job: JobSpec) -> bytes:
    text = json.dumps(job._asdict()).encode()
    return len(text).to_bytes(LENGTH_PREFIX_BYTES, "big") + text


def receive_job(control: socket.socket) -> JobSpec:
    """Read one job; ``EOFError`` when the connection closes or the job is too large."""
    size = int.from_bytes(_receive_exactly(control, LENGTH_PREFIX_BYTES), "big")
    if size > MAX_JOB_BYTES:
        raise EOFError(f"a job of {size} bytes")
    fields: dict[str, Any] = json.loads(_receive_exactly(control, size))
    for key in TUPLE_FIELDS:
        if fields[key] is not None:
            fields[key] = tuple(fields[key])
    return JobSpec(**fields)


def encode_report(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _receive_exactly(control: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the owner closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
