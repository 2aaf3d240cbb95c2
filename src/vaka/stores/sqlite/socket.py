"""Unix sockets beside the database, also where the path is too long for one."""

import contextlib
import os
import socket
import sys
from collections.abc import Generator
from pathlib import Path

LONGEST = 100
"""Bytes of a path that every system takes."""

SUPPORTED = hasattr(socket, "AF_UNIX") and sys.platform != "win32"


def listen(folder: Path, name: str) -> socket.socket:
    """Return a socket that listens in ``folder``, for this user alone. Raises ``OSError``."""
    with _address(folder, name) as address:
        listener = _new()
        try:
            listener.bind(address)
            (folder / name).chmod(0o600)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    return listener


def dial(folder: Path, name: str, line: bytes) -> socket.socket | None:
    """Return a connection that has sent ``line``, ``None`` when nobody listens there or has no room."""
    if not SUPPORTED:
        return None
    connection = _new()
    try:
        with _address(folder, name) as address:
            connection.connect(address)
        if connection.send(line) == len(line):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _new() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


@contextlib.contextmanager
def _address(folder: Path, name: str) -> Generator[str]:
    path = str(folder / name)
    if len(os.fsencode(path)) <= LONGEST or not Path("/proc/self/fd").is_dir():
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
