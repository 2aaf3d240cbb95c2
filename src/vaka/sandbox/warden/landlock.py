"""The Landlock rules of a command: what it may read and write."""

import contextlib
import os
from collections.abc import Iterator

from vaka.system import landlock
from vaka.system.landlock import IOCTL_DEV, READ_DIR, TRUNCATE, WRITE_FILE

MIN_ABI = 3
"""Earlier versions cannot restrict truncation."""
SIGNAL_SCOPE_ABI = 6

_READ_RIGHTS = landlock.EXECUTE | landlock.READ_FILE | READ_DIR
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout", "stderr")


def restrict_self(writable: list[str], hidden: list[str], *, shared_memory: bool) -> None:
    """Restrict this process: it reads all but other devices and ``hidden``, and writes to ``writable`` only."""
    abi = landlock.abi_version()
    rights = landlock.all_file_rights(abi)
    scopes = landlock.SCOPE_ABSTRACT_SOCKETS | landlock.SCOPE_SIGNALS if abi >= SIGNAL_SCOPE_ABI else 0
    ruleset = landlock.create_ruleset(rights, scopes=scopes, abi=abi)

    def allow(path: str, access: int) -> None:  # what is missing or out of reach needs no rule
        landlock.allow_path(ruleset, path, access, follow=False, ignored=(OSError,))

    allow("/", READ_DIR)
    for path in list_readable_paths("/", [*hidden, "/dev"]):
        allow(path, _READ_RIGHTS & rights)
    for name in _DEVICES:
        allow(f"/dev/{name}", (_READ_RIGHTS | WRITE_FILE | TRUNCATE | IOCTL_DEV) & rights)
    for path in [*writable, *(["/dev/shm"] if shared_memory else [])]:  # noqa: S108  # nosec B108  # its own by then
        allow(path, rights)
    landlock.restrict_self(ruleset)
    os.close(ruleset)


def list_readable_paths(top: str, hidden: list[str]) -> Iterator[str]:
    """Yield paths that together cover everything below ``top`` except ``hidden``."""
    if top in hidden:
        return
    if not any(path.startswith(top.rstrip("/") + "/") for path in hidden):
        yield top
        return
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from list_readable_paths(entry.path, hidden)
