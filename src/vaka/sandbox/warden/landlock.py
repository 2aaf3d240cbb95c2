"""Landlock rules that a process puts on itself; root obeys them too."""

import contextlib
import os
import stat
from collections.abc import Iterator

from vaka.sandbox.warden import syscalls

MIN_ABI = 3
"""Before that a file could be cut short anywhere."""
SIGNAL_SCOPE_ABI = 6

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_ABSTRACT_SOCKET_SCOPE, _SIGNAL_SCOPE = 1, 2
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout", "stderr")


def restrict_self(writable: list[str], hidden: list[str], *, shared_memory: bool) -> None:
    """Let this process read all but devices and what is hidden, and write to some folders only, for ever."""
    abi = syscalls.landlock_abi_version()
    every = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    scopes = _ABSTRACT_SOCKET_SCOPE | _SIGNAL_SCOPE if abi >= SIGNAL_SCOPE_ABI else 0
    ruleset = syscalls.create_landlock_ruleset(every, 0, scopes, abi)
    _allow_path(ruleset, "/", _READ_DIR)
    for path in list_readable_paths("/", [*hidden, "/dev"]):
        _allow_path(ruleset, path, _READ_RIGHTS & every)
    for name in _DEVICES:
        _allow_path(ruleset, f"/dev/{name}", (_READ_RIGHTS | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV) & every)
    for path in [*writable, *(["/dev/shm"] if shared_memory else [])]:  # noqa: S108  # nosec B108  # its own by then
        _allow_path(ruleset, path, every)
    syscalls.enforce_landlock_ruleset(ruleset)
    os.close(ruleset)


def list_readable_paths(top: str, hidden: list[str]) -> Iterator[str]:
    """Yield paths that together are everything below ``top`` but what is hidden."""
    if top in hidden:
        return
    if not any(path.startswith(top.rstrip("/") + "/") for path in hidden):
        yield top
        return
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from list_readable_paths(entry.path, hidden)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not for us to see
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISLNK(mode):
            syscalls.add_landlock_rule(ruleset, access if stat.S_ISDIR(mode) else access & _FILE_RIGHTS, descriptor)
    finally:
        os.close(descriptor)
